"""Test ElmoConfig: its sizes, saving and loading, validation, and bilm-tf's options."""

import json

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
    ({"cell_clip": 0}, "cell_clip must be positive or None", "cell_clip=0"),
    ({"projection_clip": -1.0}, "projection_clip must be positive or None", "projection_clip=-1.0"),
    ({"dropout": 1.0}, "at least 0 and below 1", "dropout=1.0"),
    ({"classifier_dropout": -0.5}, "at least 0 and below 1", "classifier_dropout=-0.5"),
    ({"mix": "fixed"}, 'mix_weights must be set if and only if mix is "fixed"', "mix_weights=None"),
    ({"mix_weights": [1.0, 0.0, 0.0]}, 'mix is "learned"', "mix_weights=[1.0, 0.0, 0.0]"),
    ({"mix": "fixed", "mix_weights": [1.0]}, "num_hidden_layers + 1 = 3 numbers", "mix_weights=[1.0]"),
]


@pytest.mark.parametrize("options, rule, value", BAD_OPTIONS, ids=lambda x: str(x) if isinstance(x, dict) else "")
def test_bad_options_raise_an_error_with_rule_and_value(options, rule, value):
    assert_value_error(lambda: tiny_config(**options), rule, value)


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
    ],
)
def test_bad_bilm_options_raise_an_error(options, parts):
    assert_value_error(lambda: ElmoConfig.from_bilm_options(options), *parts)
