"""Test ElmoConfig: its sizes, saving and loading, validation, and bilm-tf's options."""

import json

import numpy as np
import pytest
import torch

from helpers.errors import assert_value_error
from helpers.models import MODEL_OPTIONS, tiny_config
from transformers_elmo.configuration_elmo import AUTO_MAP, ElmoConfig
from transformers_elmo.modeling_elmo import ElmoModel


def test_table_of_options_is_complete():
    untested = {"pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings"}
    assert {name for options in MODEL_OPTIONS.values() for name in options} == set(
        ElmoConfig.__annotations__
    ) - untested


@pytest.mark.parametrize("options", MODEL_OPTIONS.values(), ids=MODEL_OPTIONS.keys())
def test_configuration_round_trip(options, tmp_path):
    config = tiny_config(**options)
    from_json = ElmoConfig(**json.loads(config.to_json_string(use_diff=False)))
    config.save_pretrained(tmp_path)
    for copy in (from_json, ElmoConfig.from_pretrained(tmp_path)):
        for name in ElmoConfig.__annotations__:
            assert getattr(copy, name) == getattr(config, name), name
        assert copy.auto_map == AUTO_MAP


def test_labels_by_name_alone():
    config = ElmoConfig(label2id={"A": 0, "B": 1, "C": 2})
    assert (config.num_labels, config.id2label) == (3, {0: "A", 1: "B", 2: "C"})


def test_sizes_of_vectors_and_of_presets():
    config = tiny_config(char_filters=[(1, 3), (2, 4)])
    assert config.char_filters == [[1, 3], [2, 4]]
    assert (config.num_filters, config.output_dim, config.hidden_size) == (7, 5, 10)
    assert tiny_config(projection_dim=None).hidden_size == 14
    # The parameter counts of the released models are those in bilm-tf's README.
    with torch.device("meta"):
        for name, millions in (("mini", 4.2), ("small", 13.6), ("medium", 28.0), ("original", 93.6)):
            model = ElmoModel(getattr(ElmoConfig, name)())
            assert model.num_parameters() / 1e6 == pytest.approx(millions, abs=0.06)


NAN, INF = float("nan"), float("inf")
BAD_OPTIONS = [
    ({"inputs": "bytes"}, "inputs must be one of characters, words, words+characters", "'bytes'"),
    ({"char_activation": "gelu"}, "char_activation must be one of relu, tanh", "'gelu'"),
    ({"mix": "mean"}, "mix must be one of learned, top, fixed", "'mean'"),
    ({"vocab_size": 0}, "at least 1", "vocab_size=0"),
    ({"lstm_dim": 0}, "at least 1", "lstm_dim=0"),
    ({"num_negative_samples": 0}, "at least 1", "num_negative_samples=0"),
    ({"projection_dim": 0}, "at least 1", "projection_dim=0"),
    ({"word_embedding_dim": -1}, "at least 1", "word_embedding_dim=-1"),
    ({"num_hidden_layers": 0}, "at least 1", "num_hidden_layers=0"),
    ({"num_highway_layers": -1}, "at least 0", "num_highway_layers=-1"),
    ({"char_vocab_size": 1}, "at least 2", "char_vocab_size=1"),
    ({"char_embedding_dim": 0}, "at least 1", "char_embedding_dim=0"),
    ({"max_characters_per_token": 2}, "at least 3", "max_characters_per_token=2"),
    ({"char_filters": []}, "[width, number] pairs", "char_filters=[]"),
    ({"char_filters": [[1, 2, 3]]}, "[width, number] pairs", "[[1, 2, 3]]"),
    ({"char_filters": [[0, 2]]}, "[width, number] pairs of positive integers", "[[0, 2]]"),
    ({"char_filters": [[13, 2]]}, "wider than max_characters_per_token=12", "[[13, 2]]"),
    ({"cell_clip": 0}, "cell_clip must be positive and finite, or None", "cell_clip=0"),
    ({"projection_clip": -1.0}, "projection_clip must be positive and finite, or None", "projection_clip=-1.0"),
    ({"dropout": 1.0}, "at least 0 and below 1", "dropout=1.0"),
    ({"classifier_dropout": -0.5}, "at least 0 and below 1", "classifier_dropout=-0.5"),
    ({"mix": "fixed"}, 'mix_weights must be set if and only if mix is "fixed"', "mix_weights=None"),
    ({"mix_weights": [1.0, 0.0, 0.0]}, 'mix is "learned"', "mix_weights=[1.0, 0.0, 0.0]"),
    ({"mix": "fixed", "mix_weights": [1.0, NAN, 0]}, "mix_weights must be finite numbers", "[1.0, nan, 0]"),
    ({"mix": "fixed", "mix_weights": [1.0, 1e300, 0]}, "mix_weights must be finite numbers", "1e+300"),
    ({"mix": "fixed", "mix_weights": 5}, "mix_weights must be of type list[float | int] | None", "mix_weights=5"),
    ({"cell_clip": INF}, "cell_clip must be positive and finite, or None", "cell_clip=inf"),
    ({"projection_clip": NAN}, "projection_clip must be positive and finite, or None", "projection_clip=nan"),
    ({"forget_bias": NAN}, "forget_bias must be a finite number", "forget_bias=nan"),
    ({"forget_bias": -INF}, "forget_bias must be a finite number", "forget_bias=-inf"),
    ({"forget_bias": 10**400}, "forget_bias must be a finite number", "forget_bias=1000"),
    ({"dropout": NAN}, "at least 0 and below 1", "dropout=nan"),
    ({"classifier_dropout": INF}, "at least 0 and below 1", "classifier_dropout=inf"),
    ({"lstm_dim": True}, "lstm_dim must be of type int", "lstm_dim=True"),
    ({"lstm_dim": "7"}, "lstm_dim must be of type int", "lstm_dim='7'"),
    ({"lstm_dim": 7.0}, "lstm_dim must be of type int", "lstm_dim=7.0"),
    ({"lstm_dim": np.int64(7)}, "lstm_dim must be of type int", "lstm_dim=np.int64(7)"),
    ({"dropout": np.float32(0.5)}, "dropout must be of type float | int", "dropout=np.float32(0.5)"),
    ({"cell_clip": False}, "cell_clip must be of type float | int | None", "cell_clip=False"),
    ({"use_skip_connections": 1}, "use_skip_connections must be of type bool", "use_skip_connections=1"),
    ({"inputs": ["words"]}, "inputs must be of type str", "inputs=['words']"),
    ({"char_filters": [[1, True]]}, "char_filters must be of type list", "[[1, True]]"),
    ({"char_filters": 5}, "char_filters must be of type list", "char_filters=5"),
    ({"char_filters": [[1, 10**30]]}, "at most 1,000 widths and 16,777,216 filters", "[[1, 1000"),
    ({"char_filters": [[1, 1]] * 1001}, "at most 1,000 widths and 16,777,216 filters", "[[1, 1], [1, 1]"),
    ({"vocab_size": 10**30}, "vocab_size must be at most 2,147,483,647", "vocab_size=1000"),
    ({"lstm_dim": 2**25}, "lstm_dim must be at most 16,777,216", "lstm_dim=33554432"),
    ({"num_hidden_layers": 10**5}, "num_hidden_layers must be at most 1,000", "num_hidden_layers=100000"),
    ({"num_highway_layers": 10**5}, "num_highway_layers must be at most 1,000", "num_highway_layers=100000"),
    ({"max_characters_per_token": 2**15}, "at most 32,767", "max_characters_per_token=32768"),
    ({"num_labels": 10**9}, "num_labels must be an integer from 1 to 1,000,000", "num_labels=1000000000"),
    ({"num_labels": "x"}, "num_labels must be an integer from 1 to 1,000,000", "num_labels='x'"),
    ({"id2label": ["a"]}, "The options must be those of ElmoConfig", "'list' object"),
    ({"dtype": "nn"}, "dtype must be a floating-point type of torch", "torch.nn"),
    ({"dtype": "int8"}, "dtype must be a floating-point type of torch", "torch.int8"),
    ({"dtype": "nothing"}, "The options must be those of ElmoConfig", "'nothing'"),
    ({"architectures": 5}, "architectures must be a list of class names", "architectures=5"),
    ({"architectures": ["\033[31m"]}, "architectures must be a list of class names", "x1b"),
    ({"hidden_size": 5}, "The options must be those of ElmoConfig", "hidden_size"),
    ({"mix": "fixed", "mix_weights": [1.0]}, "num_hidden_layers + 1 = 3 numbers", "mix_weights=[1.0]"),
]


@pytest.mark.parametrize("options, rule, value", BAD_OPTIONS, ids=lambda x: str(x) if isinstance(x, dict) else "")
def test_bad_options_raise_an_error_with_rule_and_value(options, rule, value):
    assert_value_error(lambda: tiny_config(**options), rule, value)


CHANGES = {"dropout": NAN, "forget_bias": INF, "lstm_dim": 0, "mix_weights": [NAN] * 3, "num_hidden_layers": 10**6}


@pytest.mark.parametrize("name, value", CHANGES.items())
def test_changed_configurations_are_checked_before_they_are_saved_or_used(tmp_path, name, value):
    config = tiny_config()
    setattr(config, name, value)
    assert_value_error(lambda: config.save_pretrained(tmp_path), name)
    assert_value_error(lambda: ElmoModel(config), name)
    assert not (tmp_path / "config.json").exists()


def test_changes_to_another_type_raise_an_error():
    assert_value_error(
        lambda: setattr(tiny_config(), "lstm_dim", "x"), "lstm_dim must be of type int; got lstm_dim='x'."
    )


@pytest.mark.parametrize("name", ["attn_implementation", "_attn_implementation"])
def test_attention_kernels_of_a_file_are_ignored(tmp_path, name):
    """transformers would download and run them."""
    tiny_config().save_pretrained(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(fields | {name: "stranger/kernel"}))
    config = ElmoConfig.from_pretrained(tmp_path)
    assert config._attn_implementation is None
    ElmoModel(config)


BILM_OPTIONS = {
    "lstm": {
        "dim": 64,
        "projection_dim": 16,
        "n_layers": 2,
        "cell_clip": 3,
        "proj_clip": 3,
        "use_skip_connections": False,
    },
    "char_cnn": {
        "embedding": {"dim": 4},
        "filters": [[1, 4], [2, 8]],
        "n_highway": 2,
        "n_characters": 262,
        "max_characters_per_token": 50,
        "activation": "relu",
    },
}
GOLDEN_FIELDS = {
    "inputs": "characters",
    "lstm_dim": 64,
    "projection_dim": 16,
    "num_hidden_layers": 2,
    "cell_clip": 3,
    "projection_clip": 3,
    "use_skip_connections": False,
    "char_embedding_dim": 4,
    "char_vocab_size": 262,
    "num_highway_layers": 2,
    "max_characters_per_token": 50,
    "char_activation": "relu",
}


def bilm_options(lstm=None, char_cnn=None, **options):
    """Return the options above with changes; None removes an entry."""
    changed = {
        name: {**BILM_OPTIONS[name], **(change or {})} for name, change in (("lstm", lstm), ("char_cnn", char_cnn))
    }
    changed = {name: {k: v for k, v in part.items() if v is not None} for name, part in changed.items()}
    return {k: v for k, v in {**changed, **options}.items() if v is not None}


def assert_fields(config, fields):
    assert {name: getattr(config, name) for name in fields} == fields


@pytest.mark.parametrize(
    "options, fields",
    [
        (bilm_options(), GOLDEN_FIELDS),
        (bilm_options(char_cnn={"n_characters": 261}), {"char_vocab_size": 262}),
        (bilm_options(char_cnn={"n_highway": None}), {"num_highway_layers": 0}),
        (bilm_options(char_cnn={"activation": "tanh"}), {"char_activation": "tanh"}),
        (
            bilm_options(lstm={"n_layers": None, "cell_clip": None, "proj_clip": None}),
            {"num_hidden_layers": 1, "cell_clip": None, "projection_clip": None},
        ),
        (bilm_options(lstm={"cell_clip": 2, "proj_clip": 5}), {"cell_clip": 2, "projection_clip": 5}),
        (bilm_options(lstm={"use_skip_connections": True}), {"use_skip_connections": True}),
        (bilm_options(lstm={"use_skip_connections": None}), {"use_skip_connections": False}),
        (bilm_options(lstm={"projection_dim": 64}), {"projection_dim": None, "hidden_size": 128}),
        (bilm_options(n_tokens_vocab=793471, dropout=0.2), {"vocab_size": 793472, "dropout": 0.2}),
        (bilm_options(n_negative_samples_batch=64), {"num_negative_samples": 64}),
        ({"lstm": BILM_OPTIONS["lstm"]}, {"inputs": "words", "lstm_dim": 64}),
    ],
)
def test_from_bilm_options(options, fields):
    assert_fields(ElmoConfig.from_bilm_options(options), fields)


def test_from_golden_bilm_options(shared_folder):
    options = json.loads((shared_folder / "golden" / "bilm-tf" / "options.json").read_text())
    config = ElmoConfig.from_bilm_options(options, mix="top")
    assert_fields(config, {**GOLDEN_FIELDS, "mix": "top", "num_filters": 124, "hidden_size": 32})


@pytest.mark.parametrize(
    "options, parts",
    [
        ({"char_cnn": BILM_OPTIONS["char_cnn"]}, ["'lstm'"]),
        (bilm_options(lstm={"dim": None}), ["'dim'", "projection_dim"]),
        (bilm_options(char_cnn={"filters": None}), ["'filters'", "n_highway"]),
        (bilm_options(lstm={"projection_dim": 65}), ["at most dim=64", "projection_dim=65"]),
        (bilm_options(bidirectional=False), ["two directions", "bidirectional=False"]),
        ([], ["like its options.json", "got []"]),
        ({"lstm": 5}, ["like its options.json", "{'lstm': 5}"]),
        (bilm_options(lstm={"dim": "64"}), ["like its options.json", "'dim': '64'"]),
        (bilm_options(lstm={"cell_clip": NAN}), ["cell_clip must be positive and finite", "nan"]),
        (bilm_options(char_cnn={"embedding": 5}), ["like its options.json", "'embedding': 5"]),
        (bilm_options(n_tokens_vocab="5"), ["like its options.json", "'n_tokens_vocab': '5'"]),
    ],
)
def test_bad_bilm_options_raise_an_error(options, parts):
    assert_value_error(lambda: ElmoConfig.from_bilm_options(options), *parts)
