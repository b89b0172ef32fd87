"""Embedding from Python: sentence boundaries, training mode, bad arguments, streaming, the .npz writer."""

import json
import os

import numpy as np
import pytest
import torch

from helpers.models import randomize, tiny_config
from transformers_elmo import ElmoModel, ElmoTokenizer
from transformers_elmo.batching import SORTED_BATCHES
from transformers_elmo.embed import LAYERS
from transformers_elmo.embed.job import embed, read_sentences, write_npz


@pytest.fixture
def model():
    config = tiny_config(max_characters_per_token=50, char_vocab_size=262, dropout=0.9)
    return randomize(ElmoModel(config), 0).eval()


@pytest.mark.parametrize("boundaries", [{"add_bos_token": False}, {"add_eos_token": False}])
def test_without_a_boundary_no_word_is_lost(model, boundaries):
    tokenizer = ElmoTokenizer(**boundaries)
    embedded = list(embed(model, tokenizer, ["the cat sat", ["on", "it"], ""]))
    assert [words for words, _ in embedded] == [["the", "cat", "sat"], ["on", "it"], []]
    with torch.no_grad():
        expected = model(**tokenizer("the cat sat", return_tensors="pt")).last_hidden_state[0]
    expected = expected[:-1] if tokenizer.add_eos_token else expected[1:]
    np.testing.assert_allclose(embedded[0][1], expected, atol=1e-6)
    assert [len(vectors) for _, vectors in embedded] == [3, 2, 0]


def test_a_model_in_training_mode_is_left_in_training_mode(model):
    tokenizer, sentences = ElmoTokenizer(), ["the cat sat", "on it"]
    expected = list(embed(model, tokenizer, sentences))
    assert not any(module.training for module in model.modules())
    model.train()  # with a dropout of 0.9, which would show in the vectors
    model.mix.eval()
    modes = [module.training for module in model.modules()]
    for (words, vectors), (expected_words, expected_vectors) in zip(
        embed(model, tokenizer, sentences, batch_words=1), expected
    ):
        assert words == expected_words
        np.testing.assert_allclose(vectors, expected_vectors, atol=1e-6)
        assert [module.training for module in model.modules()] == modes


def test_an_error_leaves_the_model_in_training_mode(model):
    def fail(*arguments):
        raise RuntimeError("out of memory")

    model.train()
    model.bilm.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        list(embed(model, ElmoTokenizer(), ["the cat sat"]))
    assert all(module.training for module in model.modules())


def test_bad_arguments_are_refused_at_once(model):
    with pytest.raises(ValueError, match=r"must be a list of sentences, got the string 'the cat'; put it in a list"):
        embed(model, ElmoTokenizer(), "the cat")
    with pytest.raises(ValueError, match="layer must be one of mix, all, words, top; got 'lstm_1'"):
        embed(model, ElmoTokenizer(), ["the cat"], layer="lstm_1")


@pytest.mark.parametrize("layer", LAYERS)
def test_vectors_that_are_not_finite_are_refused(model, layer):
    tokenizer = ElmoTokenizer()
    model.token_encoder.projection.bias.data[0] = torch.nan
    with pytest.raises(
        ValueError, match=r"must be finite .* in torch.float32, for the sentence 'the cat': use float32"
    ):
        list(embed(model, tokenizer, ["the cat"], layer=layer))
    assert [vectors.shape for _, vectors in embed(model, tokenizer, [""])] == [(0, 10)]  # nothing to refuse


def test_a_long_sentence_does_not_make_its_batch_mates_long(model, monkeypatch):
    tokenizer, sizes, forward = ElmoTokenizer(), [], model.forward
    sentences = [["a"], ["b", "c"], ["d"] * 40, ["e"], [], ["f"] * 3]
    expected = list(embed(model, tokenizer, sentences))
    monkeypatch.setattr(
        model, "forward", lambda **inputs: sizes.append(inputs["char_ids"].shape[:2]) or forward(**inputs)
    )
    found = list(embed(model, tokenizer, sentences, batch_words=30))
    assert sizes == [(1, 42), (5, 5)]
    assert [words for words, _ in found] == sentences
    for (_, vectors), (_, expected_vectors) in zip(found, expected):
        np.testing.assert_allclose(vectors, expected_vectors, atol=1e-5)


def test_sentences_are_read_a_few_batches_at_a_time(model):
    num_read = 0

    def sentences():
        nonlocal num_read
        for _ in range(100):
            num_read += 1
            yield "the cat"

    embedded = embed(model, ElmoTokenizer(), sentences(), batch_words=8)
    next(embedded)
    assert num_read == 2 * SORTED_BATCHES


def test_files_are_read_as_a_stream(tmp_path):
    text = tmp_path / "text.txt"
    text.write_bytes(b"\none\ntwo words\nna\xefve\n")
    sentences = read_sentences(str(text))
    assert [next(sentences) for _ in range(3)] == ["", "one", "two words"]
    with pytest.raises(ValueError, match="line 4"):
        next(sentences)
    pretokenized = read_sentences(str(text), pretokenized=True)
    assert [next(pretokenized) for _ in range(3)] == [[], ["one"], ["two", "words"]]


@pytest.mark.parametrize("sentences", [[], [[]], [["wörd", "😀", '"'], ["x"]]])
def test_the_words_in_an_npz_file_are_one_json_string(tmp_path, sentences):
    embedded = [(words, np.full((len(words), 2), index, np.float32)) for index, words in enumerate(sentences)]
    assert write_npz(tmp_path / "x.npz", embedded) == (len(sentences), sum(map(len, sentences)))
    with np.load(tmp_path / "x.npz") as arrays:
        assert arrays["words"].shape == () and arrays["words"].item() == json.dumps(sentences)
        for index, (_, vectors) in enumerate(embedded):
            np.testing.assert_array_equal(arrays[str(index)], vectors)


def test_an_npz_file_appears_only_when_complete(tmp_path):
    def embedded():
        yield ["x"], np.zeros((1, 2), np.float32)
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        write_npz(tmp_path / "x.npz", embedded())
    assert os.listdir(tmp_path) == []
