"""`elmo export`: round trips, bit for bit, and models that the format does not support."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel

from helpers.conversion import assert_error, elmo
from helpers.models import randomize, tiny_config
from helpers.released import MANY_LANGS_CHARACTERS, WORDS, bilm_options, read_hdf5, without_layers
from helpers.released_cases import (
    BILM,
    NO_HIGHWAY,
    SENTENCE,
    WORD_INPUT,
    WORDS_AND_SOFTMAX,
    allennlp,
    assert_near,
    bilm,
    odd_vocabulary,
    rename_weights,
    short_name,
)
from transformers_elmo import ElmoForPreTraining, ElmoForTokenClassification, ElmoModel, ElmoTokenizer
from transformers_elmo.command import main
from transformers_elmo.convert.export import export_bilm

EXPORTS = {
    "characters": bilm,
    "words": lambda folder: bilm(folder, **WORD_INPUT),
    "softmax": lambda folder: bilm(folder, **WORDS_AND_SOFTMAX),
    "one-layer": lambda folder: bilm(folder, lstm_n_layers=1, rename=without_layers),
    "no-projection": lambda folder: bilm(folder, lstm_projection_dim=7),
    "no-highway-no-clips": lambda folder: bilm(folder, lstm_cell_clip=None, lstm_proj_clip=None, **NO_HIGHWAY),
    "odd-vocabulary": odd_vocabulary,
}


def convert_and_export(folder: Path, build, name: str = "first") -> tuple[Path, Path]:
    case = build(folder / "source")
    assert main(["convert", *map(str, case.arguments), "-o", str(folder / name)]) == 0
    assert main(["export", str(folder / name), "-o", str(folder / "exported")]) == 0
    return folder / name, folder / "exported"


@pytest.mark.parametrize("build", EXPORTS.values(), ids=EXPORTS)
def test_export_and_convert_again(tmp_path, skip_verification, build):
    first, exported = convert_and_export(tmp_path, build)
    assert main(["convert", str(exported), "-o", str(tmp_path / "again")]) == 0
    assert os.listdir(first) and sorted(os.listdir(first)) == sorted(os.listdir(tmp_path / "again"))
    for path in first.iterdir():
        if path.name != "README.md":  # it names the source
            assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


def test_export_has_the_arrays_of_the_source(capfd, converted, tmp_path):
    case, folder = converted["bilm"]
    code, out, err = elmo(capfd, "export", folder, "-o", tmp_path / "exported")
    assert err == "" and code == 0
    assert "options.json, softmax.hdf5, vocab.txt, weights.hdf5" in out and "note" not in out
    for name in ("weights.hdf5", "softmax.hdf5"):
        expected, got = read_hdf5(case.arguments[0] / name), read_hdf5(tmp_path / "exported" / name)
        assert expected.keys() == got.keys()
        assert all(np.array_equal(got[name], expected[name]) and got[name].dtype == np.float32 for name in got)
    assert (tmp_path / "exported" / "vocab.txt").read_text(encoding="utf-8").split() == WORDS
    options = json.loads((tmp_path / "exported" / "options.json").read_text())
    assert options == bilm_options(char_cnn_n_characters=262, n_negative_samples_batch=8192)


def test_export_numbers_a_single_layer(tmp_path, skip_verification):
    _, exported = convert_and_export(tmp_path, EXPORTS["one-layer"])
    recurrent = [name for name in read_hdf5(exported / "weights.hdf5") if name.startswith("RNN_")]
    assert len(recurrent) == 6 and all("/RNN/MultiRNNCell/Cell0/LSTMCell/" in name for name in recurrent)


@torch.no_grad()
def test_export_of_weights_that_include_the_forget_bias(capfd, tmp_path, skip_verification):
    first, exported = convert_and_export(tmp_path, allennlp)
    out = capfd.readouterr().out
    assert "the forget bias was subtracted from the weights, with a rounding error of " in out
    assert "the format has no layer mix, so it was dropped" in out
    assert main(["convert", str(exported), "-o", str(tmp_path / "again")]) == 0
    inputs = ElmoTokenizer()([SENTENCE], is_split_into_words=True, return_tensors="pt")
    expected, got = (
        torch.cat(AutoModel.from_pretrained(path)(**inputs, output_hidden_states=True).hidden_states)
        for path in (first, tmp_path / "again")
    )
    assert_near(got, expected.double().numpy(), 1e-6)


def test_export_of_unsupported_models(capfd, converted, tmp_path):
    symbols = [*MANY_LANGS_CHARACTERS, *map(chr, range(0x4E00, 0x4E00 + 261 - len(MANY_LANGS_CHARACTERS)))]
    for inputs, options, char_vocab in (
        ("words+characters", {"vocab_size": 4, "char_vocab_size": 262}, None),
        ("characters", {"char_vocab_size": 40}, symbols[:39]),
        ("words", {"vocab_size": 4, "word_embedding_dim": 3}, None),
    ):
        ElmoModel(tiny_config(inputs=inputs, **options)).save_pretrained(tmp_path / "checkpoint")
        ElmoTokenizer(char_vocab=char_vocab, max_characters_per_token=12).save_pretrained(tmp_path / "checkpoint")
        assert_error(elmo(capfd, "export", tmp_path / "checkpoint", "-o", tmp_path / "x"), "The bilm format supports")
    # A character vocabulary with as many entries as there are bytes and marks.
    ElmoModel(tiny_config(char_vocab_size=262)).save_pretrained(tmp_path / "checkpoint")
    ElmoTokenizer(char_vocab=symbols, max_characters_per_token=12).save_pretrained(tmp_path / "checkpoint")
    result = elmo(capfd, "export", tmp_path / "checkpoint", "-o", tmp_path / "x")
    assert_error(result, "a character vocabulary")
    many = converted["many_langs"][1]
    assert_error(elmo(capfd, "export", many, "-o", tmp_path / "x"), "both words and characters")
    assert os.listdir(tmp_path) == ["checkpoint"]


# Options of the model and of the tokenizer, and a part of the message.
UNSUPPORTED = {
    "projection-to-the-cells": ({"projection_dim": 7}, {}, "fewer than the 7 cells"),
    "projection-to-more": ({"projection_dim": 9}, {}, "fewer than the 7 cells"),
    "swapped-marks": ({}, {"swap_word_marks": True}, "swapped word marks"),
    "line-end": ({}, {"vocab": ["a\nb", "c"]}, r"the vocabulary has 'a\nb' as word 4"),
    "space": ({}, {"vocab": ["a", " b"]}, "the vocabulary has ' b' as word 5"),
    "empty-word": ({}, {"vocab": ["", "b"]}, "the vocabulary has '' as word 4"),
    "skipped-word": ({}, {"vocab": ["!!!MAXTERMID", "b"]}, "the vocabulary has '!!!MAXTERMID' as word 4"),
    "other-marks": ({}, {"vocab": ["a"], "bos_token": "<bos>"}, "requires the words <S>, </S> and <UNK>"),
    "words-of-another-model": ({"vocab_size": 40}, {"vocab": ["a"]}, "each of the 39 rows of the weights; it has 4"),
}


@pytest.mark.parametrize("options, words, part", UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_export_that_could_not_be_read(capfd, tmp_path, options, words, part):
    """bilm-tf, AllenNLP or `elmo convert` would refuse it, or silently compute something else."""
    tokenizer = ElmoTokenizer(**words)
    sizes = {"char_vocab_size": 262, "max_characters_per_token": 50, "vocab_size": len(tokenizer)}
    ElmoForPreTraining(tiny_config(**{**sizes, **options})).save_pretrained(tmp_path / "checkpoint")
    tokenizer.save_pretrained(tmp_path / "checkpoint")
    assert_error(elmo(capfd, "export", tmp_path / "checkpoint", "-o", tmp_path / "x"), part)
    assert os.listdir(tmp_path) == ["checkpoint"]


def test_export_keeps_the_negative_samples_and_says_that_a_layer_norm_is_lost(capfd, tmp_path):
    sizes = {"char_vocab_size": 262, "max_characters_per_token": 50}
    model = ElmoModel(tiny_config(**sizes, mix_layer_norm=True, num_negative_samples=3))
    model.save_pretrained(tmp_path / "checkpoint")
    ElmoTokenizer().save_pretrained(tmp_path / "checkpoint")
    code, out, _ = elmo(capfd, "export", tmp_path / "checkpoint", "-o", tmp_path / "x")
    assert code == 0 and "the format has no layer mix, so it was dropped" in out
    assert json.loads((tmp_path / "x" / "options.json").read_text())["n_negative_samples_batch"] == 3


@pytest.mark.parametrize("half", [False, True])
def test_export_of_a_tagger_and_of_half_precision(capfd, tmp_path, half):
    model = randomize(ElmoForTokenClassification(tiny_config(char_vocab_size=262, max_characters_per_token=50)))
    model = model.half() if half else model
    model.save_pretrained(tmp_path / "checkpoint")
    ElmoTokenizer().save_pretrained(tmp_path / "checkpoint")
    code, out, err = elmo(capfd, "export", tmp_path / "checkpoint", "-o", tmp_path / "exported")
    assert err == "" and code == 0 and "the format has no layer mix, so it was dropped" in out
    weights = read_hdf5(tmp_path / "exported" / "weights.hdf5")
    got = rename_weights({short_name(name): array for name, array in weights.items()}, BILM)
    for name, parameter in model.elmo.named_parameters():
        if not name.startswith("mix."):
            expected = parameter.detach().double().numpy()
            is_table = name.endswith("embedding.weight")  # the format has no padding row
            assert np.array_equal(got[name][is_table:], expected[is_table:])
    assert sorted(os.listdir(tmp_path / "exported")) == ["options.json", "weights.hdf5"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_export_of_weights_that_are_not_numbers(tmp_path, value):
    model = ElmoModel(tiny_config(char_vocab_size=262, max_characters_per_token=50))
    with torch.no_grad():
        model.bilm.layers[0].forward_lstm.bias[3] = value
    with pytest.raises(ValueError, match=r"bilm\.layers\.0\.forward_lstm\.bias must .* 1 of \d+ are NaN or infinite"):
        export_bilm(model, ElmoTokenizer(), tmp_path / "x")
    assert os.listdir(tmp_path) == []


def test_export_checks_its_output_before_it_loads(capfd, tmp_path, monkeypatch):
    monkeypatch.setattr("transformers_elmo.checkpoints.load", lambda *arguments, **options: pytest.fail("loaded"))
    assert_error(elmo(capfd, "export", "default", "-o", tmp_path), "must be a new folder")
