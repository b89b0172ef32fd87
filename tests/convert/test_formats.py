"""`elmo convert` for every format: what the checkpoint computes, its configuration, tokenizer and model card."""

import json
import os

import h5py
import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from helpers.conversion import CHECKPOINT_FILES, assert_error, elmo
from helpers.damage import MANY_LANGS_OPTIONS, change_dataset
from helpers.released import MANY_LANGS_CHARACTERS, WORDS, many_langs_options
from helpers.released_cases import (
    CASES,
    assert_computes,
    assert_near,
    bilm,
    checkpoint,
    many_langs,
    odd_vocabulary,
    tf_hub,
    with_padding_row,
)
from transformers_elmo import ElmoConfig
from transformers_elmo.command import main
from transformers_elmo.convert import sources


@pytest.mark.parametrize("build", CASES.values(), ids=CASES)
def test_checkpoint_computes_what_the_reference_does(capfd, tmp_path, verify_in_process, build):
    case, output = build(tmp_path / "source"), tmp_path / "out" / "x"
    output.parent.mkdir()
    code, out, err = elmo(capfd, "convert", *case.arguments, "-o", output)
    assert err == "" and code == 0
    for part in case.printed:
        assert part in out
    assert os.listdir(output.parent) == ["x"] and {*os.listdir(output)} - {"vocab.txt"} == CHECKPOINT_FILES
    assert_computes(case, output)


@pytest.mark.parametrize("name", ["bilm", "many_langs"])
def test_verification_in_a_fresh_process(converted, name):
    case, folder = converted[name]
    assert_computes(case, folder)
    # A checkpoint with an lm_head also loads as an ElmoModel.
    assert AutoModel.from_pretrained(folder).num_parameters() < sum(array.size for array in case.weights.values())


def test_configuration_and_tokenizer(converted):
    _, folder = converted["bilm"]
    config, tokenizer = ElmoConfig.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    expected = {
        "architectures": ["ElmoForPreTraining"],
        "inputs": "characters",
        "vocab_size": len(WORDS) + 1,
        "char_vocab_size": 262,
        "char_embedding_dim": 4,
        "char_filters": [[1, 3], [2, 4], [3, 5]],
        "num_highway_layers": 2,
        "lstm_dim": 7,
        "projection_dim": 5,
        "num_hidden_layers": 2,
        "cell_clip": 0.9,
        "projection_clip": 0.5,
        "forget_bias": 1.0,
        "use_skip_connections": True,
        "bos_token_id": WORDS.index("<S>") + 1,
        "eos_token_id": WORDS.index("</S>") + 1,
    }
    assert {name: getattr(config, name) for name in expected} == expected
    assert [tokenizer.convert_tokens_to_ids(word) for word in WORDS] == list(range(1, len(WORDS) + 1))


def test_repeated_words_have_the_ids_of_their_last_lines(tmp_path, skip_verification):
    odd_vocabulary(tmp_path / "source")
    assert main(["convert", str(tmp_path / "source"), "-o", str(tmp_path / "x")]) == 0
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "x")
    words = ["</S>", "<S>", "<UNK>", "cat", "the", "<PAD>", "<pad>", "sat", "wörd"]
    ids = tokenizer(words, is_split_into_words=True, add_special_tokens=False).input_ids
    assert ids == [1, 2, 3, 6, 7, 8, 9, 10, 11]
    assert tokenizer.pad_token_id == 0 and tokenizer.pad_token not in words


@pytest.mark.parametrize("change", [with_padding_row, lambda a: np.pad(a, ((0, 1), (0, 0)), constant_values=0.7)])
def test_character_embedding_with_262_rows(tmp_path, verify_in_process, change):
    """With the padding row in front, or with an unused row at the end."""
    case = bilm(tmp_path / "source")
    change_dataset("char_embed", change)(tmp_path / "source")
    assert main(["convert", *map(str, case.arguments), "-o", str(tmp_path / "x")]) == 0
    assert_computes(case, tmp_path / "x")


@pytest.mark.parametrize("build, flag", [(many_langs, "vocab"), (tf_hub, "options"), (checkpoint, "softmax")])
def test_extra_files_that_do_not_apply(capfd, tmp_path, build, flag):
    case, output = build(tmp_path / "source"), tmp_path / "x"
    (tmp_path / "file").touch()
    result = elmo(capfd, "convert", *case.arguments, "-o", output, f"--{flag}", tmp_path / "file")
    assert_error(result, f"--{flag} does not apply to")
    assert not output.exists()


def test_stripped_space_in_char_dic(tmp_path, verify_in_process):
    """ELMoForManyLangs strips lines; a character that is lost by that is read as U+3000."""
    case = many_langs(tmp_path / "source")
    assert "\u3000\t" in (tmp_path / "source" / "char.dic").read_text(encoding="utf-8")
    assert main(["convert", *map(str, case.arguments), "-o", str(tmp_path / "x")]) == 0
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "x")
    char_id = tokenizer.convert_words_to_char_ids(["\u3000"])[0, 1]
    assert char_id == MANY_LANGS_CHARACTERS.index("\u3000") + 1


def test_dictionaries_in_any_order(tmp_path, verify_in_process):
    """Ids count, not lines."""
    case = many_langs(tmp_path / "source")
    for name in ("word.dic", "char.dic"):
        path = tmp_path / "source" / name
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        path.write_text("".join(f"{line}\n" for line in reversed(lines)), encoding="utf-8")
    assert main(["convert", *map(str, case.arguments), "-o", str(tmp_path / "x")]) == 0
    assert_computes(case, tmp_path / "x")


def test_published_options_may_be_missing(tmp_path, monkeypatch, verify_in_process):
    """All published models of ELMoForManyLangs refer to the same options file, and some come without it."""
    case = many_langs(tmp_path / "source")
    (tmp_path / "source" / MANY_LANGS_OPTIONS).unlink()
    monkeypatch.setattr(sources.many_langs, "PUBLISHED_OPTIONS_FILE", MANY_LANGS_OPTIONS)
    monkeypatch.setattr(sources.many_langs, "PUBLISHED_OPTIONS", many_langs_options())
    assert main(["convert", *map(str, case.arguments), "-o", str(tmp_path / "x")]) == 0
    assert_computes(case, tmp_path / "x")


def test_vocabulary_without_special_words(tmp_path, skip_verification):
    """A character model without a softmax does not need the special words of its vocabulary."""
    case = bilm(tmp_path / "source", vocab=["the", "cat"])
    assert main(["convert", *map(str, case.arguments), "-o", str(tmp_path / "x")]) == 0
    config, tokenizer = ElmoConfig.from_pretrained(tmp_path / "x"), AutoTokenizer.from_pretrained(tmp_path / "x")
    assert tokenizer.vocab_size == config.vocab_size


def test_model_card(converted):
    _, folder = converted["many_langs"]
    card = (folder / "README.md").read_text(encoding="utf-8")
    for part in ("language: en", "license: apache-2.0", "`encoder.pkl`", "`word.dic`", "next word", folder.name):
        assert part in card
    assert str(folder.parent) not in card


@torch.no_grad()
def test_golden_activations(shared_folder, tmp_path, verify_in_process):
    """bilm-tf's own fixture, whose LSTM states carry over from each sentence to the next in its row."""
    golden = shared_folder / "golden" / "bilm-tf"
    assert main(["convert", str(golden), "-o", str(tmp_path / "x")]) == 0
    model, tokenizer = AutoModel.from_pretrained(tmp_path / "x"), AutoTokenizer.from_pretrained(tmp_path / "x")
    rows = json.loads((golden / "lm_embeddings_sentences.json").read_text())  # 3 rows of 10 sentences
    files = [h5py.File(golden / f"lm_embeddings_{row}.hdf5") for row in range(3)]
    state = None
    for number in range(10):
        sentences = [row[number].split() for row in rows]
        inputs = tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
        outputs = model(**inputs, state=state, output_state=True, output_hidden_states=True)
        state = outputs.state
        for row, sentence in enumerate(sentences):
            expected = np.concatenate(files[row][str(number)][...], -1)  # (T, 2P)
            assert_near(outputs.hidden_states[2][row, 1 : len(sentence) + 1], expected, 2e-6)


def test_many_langs_with_words_of_one_character(tmp_path, verify_in_process):
    """ELMoForManyLangs truncates words, but not <bos> and <eos>."""
    many_langs(tmp_path / "source", token_embedder_max_characters_per_token=3)
    assert main(["convert", str(tmp_path / "source"), "-o", str(tmp_path / "out")]) == 0
