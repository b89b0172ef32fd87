"""Mistakes planted in the converter, which the verification must notice."""

import os
from collections.abc import Callable

import numpy as np
import pytest
import torch

from helpers.conversion import assert_error, elmo
from helpers.damage import change_dataset
from helpers.released import WORDS
from helpers.released_cases import WORD_INPUT, WORDS_AND_SOFTMAX, allennlp, bilm, checkpoint, many_langs, tf_hub
from transformers_elmo import ElmoConfig, ElmoTokenizer
from transformers_elmo.convert import sources, weight_names
from transformers_elmo.convert.verification import parity
from transformers_elmo.convert.weight_names import Conversion, NameTable


def with_conversion(table: NameTable, ending: str, to_hf: Callable) -> NameTable:
    """Return a table with another conversion for the original names with this ending."""
    rows = [
        (original, hf, Conversion(to_hf, conversion.to_original) if original.endswith(ending) else conversion)
        for original, hf, conversion in table.rows
    ]
    return NameTable(rows, tuple(table.directions))


def with_swapped_names(table: NameTable, *pairs: tuple[str, str]) -> NameTable:
    """Return a table with some of our names swapped."""

    def swap(name):
        for one, other in pairs:
            if one in name or other in name:
                return name.replace(one, other) if one in name else name.replace(other, one)
        return name

    rows = [(original, tuple(map(swap, hf)), conversion) for original, hf, conversion in table.rows]
    return NameTable(rows, tuple(table.directions))


def with_swapped_directions(table: NameTable) -> NameTable:
    return NameTable(table.rows, tuple(table.directions)[::-1])


def in_table(name: str, change: Callable[..., NameTable], *arguments):
    """A mistake in a table of weight names."""
    return lambda patch: patch.setattr(weight_names, name, change(getattr(weight_names, name), *arguments))


def in_config(**wrong):
    """A mistake in the fields of the configuration."""

    class WrongConfig(ElmoConfig):
        def __new__(cls, **fields):
            return ElmoConfig(**{**fields, **wrong})

        @classmethod
        def from_bilm_options(cls, options, **fields):
            return ElmoConfig.from_bilm_options(options, **{**fields, **wrong})

    def plant(patch):
        for module in (sources.bilm, sources.many_langs):
            patch.setattr(module, "ElmoConfig", WrongConfig)

    return plant


def in_tokenizer(**wrong):
    """A mistake in the arguments of the tokenizer."""

    def plant(patch):
        for module in (sources.bilm, sources.allennlp, sources.many_langs):
            patch.setattr(module, "ElmoTokenizer", lambda **options: ElmoTokenizer(**{**options, **wrong}))

    return plant


def halves(tensor):
    return tensor.chunk(2)


REMEDY = "nothing was saved: download the source again, and if that does not help, report it"
# The source, the mistake, and the first row of the parity table that shows it.
MISTAKES = {
    "carry-and-transform": (bilm, in_table("BILM", with_swapped_names, ("carry", "transform")), "words"),
    "highway-not-transposed": (bilm, in_table("BILM", with_conversion, "/W_carry", lambda a: (a,)), "words"),
    "kernel-backwards": (
        bilm,
        in_table("BILM", with_conversion, "W_cnn_{i}", lambda a: (a[0].permute(2, 1, 0).flip(2),)),
        "words",
    ),
    "characters-shifted": (
        bilm,
        in_table("BILM", with_conversion, "char_embed", lambda a: (torch.cat([a, a[:1]]),)),
        "words",
    ),
    "gates-of-the-kernel": (bilm, in_table("BILM", with_conversion, "/W_0", halves), "lstm_1"),
    "gates-of-the-bias": (bilm, in_table("BILM", with_conversion, "/B", lambda a: (a,)), "lstm_1"),
    "input-and-state": (bilm, in_table("BILM", with_swapped_names, ("input_weight", "recurrent_weight")), "lstm_1"),
    "directions": (bilm, in_table("BILM", with_swapped_directions), "lstm_1"),
    "no-forget-bias": (bilm, in_config(forget_bias=0.0), "lstm_1"),
    "no-cell-clip": (bilm, in_config(cell_clip=None), "lstm_1"),
    "no-projection-clip": (bilm, in_config(projection_clip=None), "lstm_1"),
    "no-skip-connections": (bilm, in_config(use_skip_connections=False), "lstm_2"),
    "other-activation": (bilm, in_config(char_activation="tanh"), "words"),
    "other-boundaries": (bilm, in_tokenizer(bos_token="</S>", eos_token="<S>"), "words"),
    "words-shifted": (
        lambda folder: bilm(folder, **WORD_INPUT),
        in_table("BILM", with_conversion, "embedding", lambda a: (torch.cat([a, a[:1]]),)),
        "words",
    ),
    "softmax-shifted": (
        lambda folder: bilm(folder, **WORDS_AND_SOFTMAX),
        in_table("BILM", with_conversion, "softmax/b", lambda a: (a.roll(1),)),
        "next word",
    ),
    "checkpoint-gates": (
        checkpoint,
        in_table("BILM_CHECKPOINT", with_conversion, "lstm_cell/kernel", halves),
        "lstm_1",
    ),
    "hub-no-cell-clip": (tf_hub, in_config(cell_clip=None), "lstm_1"),
    "hub-no-projection-clip": (tf_hub, in_config(projection_clip=None), "lstm_1"),
    "hub-mix-backwards": (tf_hub, in_table("TF_HUB", with_conversion, "/weights", lambda a: (a.flip(0),)), "mix"),
    "highway-sign": (many_langs, in_table("MANY_LANGS", with_conversion, "_layers.{i}.bias", halves), "words"),
    "marks-not-swapped": (many_langs, in_tokenizer(swap_word_marks=False), "words"),
    "forget-bias-twice": (many_langs, in_config(forget_bias=1.0), "lstm_1"),
    "torch-gates": (
        many_langs,
        in_table("MANY_LANGS", with_conversion, "state_linearity.bias", lambda a: (a,)),
        "lstm_1",
    ),
    "classifier-shifted": (
        lambda folder: many_langs(folder, softmax=True),
        in_table("MANY_LANGS", with_conversion, "column_bias.weight", lambda a: (a[:, 0].roll(1),)),
        "next word",
    ),
    "allennlp-highway-sign": (
        allennlp,
        in_table("ALLENNLP", with_conversion, "_highways._layers.{i}.weight", halves),
        "words",
    ),
    "allennlp-forget-bias-twice": (allennlp, in_config(forget_bias=1.0), "lstm_1"),
    "allennlp-layer-norm": (
        lambda folder: allennlp(folder, do_layer_norm=True),
        in_config(mix_layer_norm=False),
        "mix",
    ),
    "allennlp-gamma": (allennlp, in_table("ALLENNLP", with_conversion, ".gamma", lambda a: (a + 0.001,)), "mix"),
}


def assert_mistake_noticed(capfd, tmp_path, monkeypatch, name):
    build, mistake, row = MISTAKES[name]
    case, output = build(tmp_path / "source"), tmp_path / "out" / "x"
    output.parent.mkdir()
    mistake(monkeypatch)
    result = elmo(capfd, "convert", *case.arguments, "-o", output)
    assert_error(result, "The converted checkpoint must compute what its source does", f"; {row} differs by ", REMEDY)
    assert os.listdir(output.parent) == []


def test_wrong_word_ids_are_noticed(capfd, tmp_path, monkeypatch, verify_in_process):
    """A character model does not read word ids, but they are the rows of its lm_head."""
    case, output = bilm(tmp_path / "source", **WORDS_AND_SOFTMAX), tmp_path / "out" / "x"
    output.parent.mkdir()
    in_tokenizer(vocab=WORDS[::-1])(monkeypatch)
    result = elmo(capfd, "convert", *case.arguments, "-o", output)
    assert_error(result, "must have the word ids of its source", REMEDY)
    assert os.listdir(output.parent) == []


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_noticed(capfd, tmp_path, monkeypatch, verify_in_process, name):
    assert_mistake_noticed(capfd, tmp_path, monkeypatch, name)


@pytest.mark.parametrize("name", ["carry-and-transform", "no-projection-clip", "marks-not-swapped"])
def test_mistake_is_noticed_in_a_fresh_process(capfd, tmp_path, monkeypatch, name):
    assert_mistake_noticed(capfd, tmp_path, monkeypatch, name)


def test_checkpoint_that_cannot_run(capfd, tmp_path, monkeypatch, verify_in_process):
    case, output = bilm(tmp_path / "source"), tmp_path / "out" / "x"
    output.parent.mkdir()
    in_tokenizer(max_characters_per_token=40)(monkeypatch)
    result = elmo(capfd, "convert", *case.arguments, "-o", output)
    assert_error(result, "The converted checkpoint cannot be loaded and run", "char_ids must have shape", REMEDY)
    assert os.listdir(output.parent) == []


def test_weights_that_overflow_are_noticed(capfd, tmp_path, verify_in_process):
    """Finite weights, whose outputs are not."""
    case, output = bilm(tmp_path / "source"), tmp_path / "out" / "x"
    output.parent.mkdir()
    change_dataset("CNN_proj/W_proj", lambda array: np.full_like(array, 3e38))(tmp_path / "source")
    assert_error(elmo(capfd, "convert", *case.arguments, "-o", output), "words differs by", REMEDY)
    assert os.listdir(output.parent) == []


@pytest.mark.parametrize(
    "name, largest, accepted, refused",
    [
        ("words", 1, 9e-6, 2e-5),
        ("lstm_1", 100, 9e-5, 2e-4),  # relative to large values
        ("next word", 100, 9e-4, 2e-3),
        ("mix", 1, 0, np.nan),
    ],
)
def test_tolerance(name, largest, accepted, refused):
    expected = np.array([0.0, 0.5, largest])
    assert parity(name, [expected], [np.array([accepted, 0.5, largest])], 1.0).largest == largest
    with pytest.raises(RuntimeError, match=f"{name} differs by"):
        parity(name, [expected], [np.array([refused, 0.5, largest])], 1.0)
