"""Damaged sources: each gets one sentence that names the file and the problem."""

import json
import os
import pickle
import shutil
from dataclasses import dataclass

import h5py
import numpy as np
import pytest
import torch

from helpers.conversion import assert_error, elmo
from helpers.damage import (
    EMBEDDER,
    ENCODER,
    MANY_LANGS_OPTIONS,
    OPTIONS,
    WEIGHTS,
    all_of,
    change_dataset,
    change_lines,
    change_tensor,
    path_of,
    remove,
    remove_file,
    rename_file,
    replace_file,
    set_first,
    truncate,
    with_flag,
    with_many_langs_options,
    with_options,
)
from helpers.released import ELMO, REMOVED, read_hdf5, save_tensors, write_hdf5, write_json


@dataclass(frozen=True)
class Evil:
    """Creates a file when it is unpickled."""

    path: str

    def __reduce__(self):
        return open, (self.path, "w")


LAYER = "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/"
BAD_BILM = {
    "softmax-twice": (
        change_dataset("softmax/b", lambda a: np.zeros(11, np.float32)),
        ["softmax.hdf5 must not contain softmax/b", "weights.hdf5 contains it too"],
    ),
    "truncated": (truncate(WEIGHTS), [WEIGHTS, "truncated"]),
    "truncated-in-the-header": (truncate(WEIGHTS, 0.001), [WEIGHTS, "truncated"]),
    "text": (replace_file(WEIGHTS, b"<html>404</html>"), [WEIGHTS, "HDF5"]),
    "empty": (replace_file(WEIGHTS, b""), [WEIGHTS, "HDF5"]),
    "softmax-truncated": (truncate("softmax.hdf5"), ["softmax.hdf5", "truncated"]),
    "no-lstm": (all_of(change_dataset("RNN_0", remove), change_dataset("RNN_1", remove)), ["source", WEIGHTS]),
    "no-lstm-in-the-file": (
        all_of(change_dataset("RNN_0", remove), change_dataset("RNN_1", remove), path_of(WEIGHTS)),
        [WEIGHTS, "RNN_0", "CNN/W_cnn_0"],
    ),
    "one-direction": (change_dataset("RNN_1", remove), [WEIGHTS, "RNN_1"]),
    "missing": (change_dataset("CNN/b_cnn_1", remove), [WEIGHTS, "CNN/b_cnn_1"]),
    "missing-softmax-bias": (change_dataset("softmax/b", remove, "softmax.hdf5"), ["softmax.hdf5", "softmax/b"]),
    "extra": (change_dataset("CNN/b_cnn_9", lambda _: np.zeros(3)), [WEIGHTS, "CNN/b_cnn_9"]),
    "unknown": (change_dataset("something/else", lambda _: np.zeros(3)), [WEIGHTS, "something/else"]),
    "shape": (change_dataset("CNN_proj/b_proj", lambda a: a[:4]), [WEIGHTS, "CNN_proj/b_proj", "(5,)", "(4,)"]),
    "transposed": (change_dataset(LAYER + "W_0", lambda a: a.T), [WEIGHTS, LAYER + "W_0", "(10, 28)", "(28, 10)"]),
    "scalar": (change_dataset("char_embed", lambda _: np.float32(1)), [WEIGHTS, "char_embed"]),
    "scalar-softmax": (
        change_dataset("softmax/W", lambda _: np.float32(1), "softmax.hdf5"),
        ["softmax.hdf5", "softmax/W"],
    ),
    "no-characters": (change_dataset("char_embed", lambda a: a[:0]), [WEIGHTS, "char_embed"]),
    "few-characters": (change_dataset("char_embed", lambda a: a[:200]), [WEIGHTS, "char_embed"]),
    "empty-dataset": (change_dataset("char_embed", lambda _: h5py.Empty("f4")), [WEIGHTS, "char_embed"]),
    "nan": (change_dataset("CNN/W_cnn_0", set_first(np.nan)), [WEIGHTS, "CNN/W_cnn_0", "1 of 12"]),
    "infinite": (change_dataset(LAYER + "B", set_first(-np.inf)), [WEIGHTS, LAYER + "B", "1 of 28"]),
    "too-large": (
        change_dataset(LAYER + "B", lambda a: set_first(1e300)(a.astype("f8"))),
        [WEIGHTS, LAYER + "B", "1 of 28"],
    ),
    "strings": (change_dataset("CNN/b_cnn_0", lambda _: [b"a", b"b", b"c"]), [WEIGHTS, "CNN/b_cnn_0", "numbers"]),
    "complex": (change_dataset("CNN/b_cnn_0", lambda a: a + 1j), [WEIGHTS, "CNN/b_cnn_0", "numbers"]),
    "booleans": (change_dataset("CNN/b_cnn_0", lambda a: a > 0), [WEIGHTS, "CNN/b_cnn_0", "numbers"]),
    "no-options": (remove_file(OPTIONS), [WEIGHTS, OPTIONS, "--options"]),
    "two-options": (rename_file(OPTIONS, "a_options.json", "b_options.json"), ["a_options.json, b_options.json"]),
    "two-vocabularies": (
        rename_file("vocab.txt", "vocab_a.txt", "vocab_b.txt"),
        ["vocab_a.txt, vocab_b.txt", "--vocab"],
    ),
    "two-weights": (rename_file(WEIGHTS, "a.hdf5", "b.hdf5"), ["source", "a.hdf5 and b.hdf5"]),
    "two-softmaxes": (rename_file("softmax.hdf5", "a.hdf5", "b.hdf5"), ["source", "a.hdf5, b.hdf5", "--softmax"]),
    "options-not-json": (replace_file(OPTIONS, b"{"), [OPTIONS, "JSON"]),
    "options-not-text": (replace_file(OPTIONS, b"\xff\xfe{}"), [OPTIONS, "UTF-8"]),
    "options-empty": (replace_file(OPTIONS, b""), [OPTIONS, "JSON"]),
    "options-list": (replace_file(OPTIONS, b"[1]"), [OPTIONS, "list"]),
    "options-nested": (replace_file(OPTIONS, b"[" * 100_000), [OPTIONS, "JSON"]),
    "options-without-anything": (replace_file(OPTIONS, b"{}"), [OPTIONS, "lstm"]),
    "dim": (with_options(lstm_dim=8), [WEIGHTS, "RNN_0", "32", "28"]),
    "more-layers": (with_options(lstm_n_layers=3), [WEIGHTS, "Cell2"]),
    "fewer-layers": (with_options(lstm_n_layers=1), [WEIGHTS, "Cell1"]),
    "more-highways": (with_options(char_cnn_n_highway=3), [WEIGHTS, "CNN_high_2"]),
    "fewer-highways": (with_options(char_cnn_n_highway=1), [WEIGHTS, "CNN_high_1"]),
    "fewer-filters": (with_options(char_cnn_filters=[[1, 3], [2, 4]]), [WEIGHTS, "CNN"]),
    "wider-filters": (with_options(char_cnn_filters=[[1, 3], [2, 4], [4, 5]]), [WEIGHTS, "CNN/W_cnn_2"]),
    "projection": (with_options(lstm_projection_dim=6), [WEIGHTS, "CNN_proj", "6"]),
    "no-projection": (with_options(lstm_projection_dim=7), [WEIGHTS, "7"]),
    "wide-projection": (with_options(lstm_projection_dim=8), [OPTIONS, "projection_dim=8"]),
    "character-size": (with_options(char_cnn_embedding={"dim": 5}), [WEIGHTS, "5", "4"]),
    "number-of-words": (with_options(n_tokens_vocab=12), [OPTIONS, "n_tokens_vocab", "softmax/W", "11", "12"]),
    "fewer-words": (change_lines("vocab.txt", lambda words: words[:-1]), ["vocab.txt", "softmax/W", "10", "11"]),
    "no-boundaries": (change_lines("vocab.txt", lambda words: ["a", "b", *words[2:]]), ["vocab.txt", "<S>, </S>"]),
    "words-in-latin-1": (
        replace_file("vocab.txt", "</S>\n<S>\n<UNK>\nwörd\n".encode("latin-1")),
        ["vocab.txt", "0xf6"],
    ),
    "layers-text": (with_options(lstm_n_layers="2"), [OPTIONS, "lstm.n_layers", "'2'"]),
    "dim-text": (with_options(lstm_dim="7"), [OPTIONS]),
    "dim-null": (with_options(lstm_dim=None), [OPTIONS]),
    "dim-fraction": (with_options(lstm_dim=7.5), [OPTIONS, "7.5"]),
    "dim-zero": (with_options(lstm_dim=0, lstm_projection_dim=0), [OPTIONS, "lstm_dim", "0"]),
    "dim-huge": (with_options(lstm_dim=2**40), ["source"]),
    "dim-overflow": (with_options(lstm_dim=10**30), ["source"]),
    "layers-huge": (with_options(lstm_n_layers=10**9), ["source"]),
    "highways-huge": (with_options(char_cnn_n_highway=10**9), ["source"]),
    "lstm-null": (with_options(lstm=None), [OPTIONS]),
    "lstm-list": (with_options(lstm=[]), [OPTIONS]),
    "no-lstm-options": (with_options(lstm=REMOVED), [OPTIONS, "lstm"]),
    "clip-text": (with_options(lstm_cell_clip="3"), [OPTIONS, "cell_clip"]),
    "clip-negative": (with_options(lstm_proj_clip=-1), [OPTIONS, "projection_clip"]),
    "filters-text": (with_options(char_cnn_filters="[[1, 3]]"), [OPTIONS, "filters"]),
    "filters-null": (with_options(char_cnn_filters=None), [OPTIONS]),
    "filters-numbers": (with_options(char_cnn_filters=[1, 2]), [OPTIONS]),
    "filters-triples": (with_options(char_cnn_filters=[[1, 3, 4]]), [OPTIONS, "char_filters"]),
    "filters-text-inside": (with_options(char_cnn_filters=[["1", 3]]), [OPTIONS, "char_filters"]),
    "characters-list": (with_options(char_cnn=[]), [OPTIONS]),
    "characters-empty": (with_options(char_cnn={}), [OPTIONS]),
    "embedding-number": (with_options(char_cnn_embedding=4), [OPTIONS]),
    "activation": (with_options(char_cnn_activation="selu"), [OPTIONS, "char_activation", "selu"]),
    "narrow": (with_options(char_cnn_max_characters_per_token=2), [OPTIONS, "max_characters_per_token", "2"]),
    "wide": (with_options(char_cnn_max_characters_per_token=2**40), ["source"]),
    "wide-overflow": (with_options(char_cnn_max_characters_per_token=10**30), ["source"]),
    "words-text": (with_options(n_tokens_vocab="11"), [OPTIONS, "n_tokens_vocab", "'11'"]),
    "one-direction-in-options": (with_options(bidirectional=False), [OPTIONS, "bidirectional"]),
    "extra-options": (with_flag("--options", "none.json"), ["--options", "none.json"]),
    "extra-vocabulary": (with_flag("--vocab", "none.txt"), ["--vocab", "none.txt"]),
    "extra-softmax": (with_flag("--softmax", "none.hdf5"), ["--softmax", "none.hdf5"]),
    "extra-softmax-without-one": (with_flag("--softmax", WEIGHTS), [WEIGHTS, "softmax/W"]),
    "extra-file-is-a-folder": (lambda folder: [folder, "--vocab", folder], ["--vocab", "source"]),
}
BAD_WORDS = {
    "no-vocabulary": (remove_file("vocab.txt"), [WEIGHTS, "vocab.txt", "--vocab"]),
    "options-of-a-character-model": (with_options(), [WEIGHTS, "embedding"]),
    "scalar-words": (change_dataset("embedding", lambda _: np.float32(1)), [WEIGHTS, "embedding"]),
}
INDEX, SHARD = "model.ckpt-7.index", "model.ckpt-7.data-00000-of-00002"
BAD_CHECKPOINT = {
    "no-shard": (remove_file(SHARD), [SHARD, "missing"]),
    "shard-truncated": (truncate(SHARD), [SHARD, "lm/"]),
    "index-truncated": (truncate(INDEX), [INDEX]),
    "no-options": (remove_file(OPTIONS), ["model.ckpt-7", OPTIONS, "--options"]),
    "dim": (with_options(lstm_dim=8), ["model.ckpt-7", "lm/RNN_0", "28"]),
    "prefix-does-not-exist": (path_of("model.ckpt-8"), ["model.ckpt-8", "exist"]),
    "damaged": (
        lambda folder: replace_file(SHARD, bytes((folder / SHARD).stat().st_size))(folder),
        [SHARD, "checksum"],
    ),
}
BAD_TF_HUB = {
    "no-variables": (remove_file("variables/variables.index"), ["variables.index"]),
    "no-shard": (remove_file("variables/variables.data-00000-of-00002"), ["variables.data-00000-of-00002"]),
}
STATE_BIAS = "backward_layer_1.state_linearity.bias"
BAD_MANY_LANGS = {
    "weight-in-two-files": (
        change_tensor("classifier.pkl", "projection.weight", lambda t: torch.zeros(5, 15)),
        ["classifier.pkl must not contain projection.weight", "token_embedder.pkl contains it too"],
    ),
    "truncated": (truncate(ENCODER), [ENCODER, "truncated"]),
    "empty": (replace_file(ENCODER, b""), [ENCODER, "truncated"]),
    "text": (replace_file(EMBEDDER, b"hello"), [EMBEDDER, "torch"]),
    "list": (lambda folder: torch.save([torch.zeros(2)], folder / ENCODER), [ENCODER, "list"]),
    "numbers": (lambda folder: torch.save({"a": 1}, folder / ENCODER), [ENCODER, "tensors"]),
    "numbered": (lambda folder: torch.save({1: torch.zeros(2)}, folder / ENCODER), [ENCODER]),
    "no-encoder": (remove_file(ENCODER), [ENCODER, "missing"]),
    "no-embedder": (remove_file(EMBEDDER), [EMBEDDER, "missing"]),
    "missing": (change_tensor(ENCODER, STATE_BIAS, remove), [ENCODER, STATE_BIAS]),
    "extra": (change_tensor(ENCODER, "extra", lambda _: torch.zeros(2)), [ENCODER, "extra"]),
    "shape": (change_tensor(ENCODER, STATE_BIAS, lambda t: t[:20]), [ENCODER, STATE_BIAS, "(28,)", "(20,)"]),
    "nan": (change_tensor(ENCODER, STATE_BIAS, lambda t: t / 0 * 0), [ENCODER, STATE_BIAS, "28 of 28"]),
    "no-config": (remove_file("config.json"), ["config.json"]),
    "config-not-json": (replace_file("config.json", b"{"), ["config.json", "JSON"]),
    "config-without-a-path": (replace_file("config.json", b"{}"), ["config.json", "config_path"]),
    "no-options": (remove_file(MANY_LANGS_OPTIONS), [MANY_LANGS_OPTIONS, "config_path"]),
    "options-empty": (replace_file(MANY_LANGS_OPTIONS, b"{}"), [MANY_LANGS_OPTIONS, "token_embedder"]),
    "options-list": (replace_file(MANY_LANGS_OPTIONS, b"[]"), [MANY_LANGS_OPTIONS, "list"]),
    "encoder-name": (with_many_langs_options(encoder_name="lstm"), [MANY_LANGS_OPTIONS, "encoder", "lstm"]),
    "embedder-name": (
        with_many_langs_options(token_embedder_name="lstm"),
        [MANY_LANGS_OPTIONS, "token_embedder", "lstm"],
    ),
    "dim": (with_many_langs_options(encoder_dim=8), [ENCODER, "(32, 5)", "(28, 5)"]),
    "dim-text": (with_many_langs_options(encoder_dim="7"), [MANY_LANGS_OPTIONS, "dim", "'7'"]),
    "clip-text": (with_many_langs_options(encoder_cell_clip="3"), [MANY_LANGS_OPTIONS, "cell_clip"]),
    "filters-null": (with_many_langs_options(token_embedder_filters=None), [MANY_LANGS_OPTIONS, "filters"]),
    "activation": (with_many_langs_options(token_embedder_activation="selu"), [MANY_LANGS_OPTIONS, "selu"]),
    "no-word-vectors": (with_many_langs_options(token_embedder_word_dim=0), [EMBEDDER, "projection.weight"]),
    "no-inputs": (with_many_langs_options(token_embedder_word_dim=0, token_embedder_char_dim=0), [MANY_LANGS_OPTIONS]),
    "no-words": (remove_file("word.dic"), ["word.dic", "missing"]),
    "no-characters": (remove_file("char.dic"), ["char.dic", "missing"]),
    "words-without-numbers": (change_lines("word.dic", lambda found: [*found, "dog\tten"]), ["word.dic", "dog"]),
    "words-with-three-fields": (change_lines("word.dic", lambda found: [*found, "a\tb\t9"]), ["word.dic", "a\\tb\\t9"]),
    "words-in-latin-1": (replace_file("word.dic", b"w\xf6rd\t0\n"), ["word.dic", "UTF-8"]),
    "words-empty": (replace_file("word.dic", b""), ["word.dic", "<oov>"]),
    "words-with-the-same-number": (change_lines("word.dic", lambda found: [*found, "dog\t5"]), ["word.dic"]),
    "words-without-oov": (change_lines("word.dic", lambda found: found[1:]), ["word.dic", "<oov>"]),
    "characters-without-oov": (change_lines("char.dic", lambda found: found[1:]), ["char.dic", "<oov>"]),
    "characters-without-marks": (change_lines("char.dic", lambda found: found[:3] + found[5:]), ["char.dic", "<bow>"]),
}
CHARACTER_TABLE = ELMO + "_elmo_lstm._token_embedder._char_embedding_weights"
BAD_ALLENNLP = {
    "truncated": (truncate("weights.th"), ["weights.th", "truncated"]),
    "no-elmo": (change_tensor("weights.th", CHARACTER_TABLE, remove), ["weights.th", "_char_embedding_weights"]),
    "no-characters": (
        change_tensor("weights.th", CHARACTER_TABLE, lambda t: t[:0]),
        ["weights.th", "_char_embedding_weights"],
    ),
    "few-characters": (
        change_tensor("weights.th", CHARACTER_TABLE, lambda t: t[:99]),
        ["weights.th", "_char_embedding_weig"],
    ),
    "scalar": (
        change_tensor("weights.th", CHARACTER_TABLE, lambda t: t[0, 0]),
        ["weights.th", "_char_embedding_weights"],
    ),
    "no-options": (remove_file("fta/model.elmo.options_file"), ["/nowhere/options.json", "--options"]),
    "options-not-json": (replace_file("fta/model.elmo.options_file", b"{"), ["model.elmo.options_file", "JSON"]),
    "options-empty": (replace_file("fta/model.elmo.options_file", b"{}"), ["model.elmo.options_file", "char_cnn"]),
    "config-not-json": (replace_file("config.json", b"{"), ["config.json", "JSON"]),
    "extra-options": (with_flag("--options", "none.json"), ["none.json"]),
    "mix-missing": (
        change_tensor("weights.th", ELMO + "scalar_mix_0.scalar_parameters.1", remove),
        ["weights.th", "scalar_"],
    ),
    "mix-nan": (
        change_tensor("weights.th", ELMO + "scalar_mix_0.scalar_parameters.1", lambda t: t / 0),
        ["weights.th", "scalar_parameters.1", "NaN"],
    ),
    "mix-without-gamma": (
        change_tensor("weights.th", ELMO + "scalar_mix_0.gamma", remove),
        ["weights.th must contain", "scalar_mix_0.gamma"],
    ),
    "mix-of-pairs": (
        change_tensor("weights.th", ELMO + "scalar_mix_0.scalar_parameters.1", lambda t: torch.zeros(2)),
        ["weights.th", "scalar_parameters must have shape (3,)", "its shape is (4,)"],
    ),
    "layer-norm-as-text": (
        replace_file("config.json", b'{"options_file": "x", "do_layer_norm": "false"}'),
        ["config.json: do_layer_norm must be true or false; it is 'false'"],
    ),
    "mix-shape": (
        change_tensor("weights.th", ELMO + "scalar_mix_0.gamma", lambda t: torch.zeros(2)),
        ["weights.th", "scalar_mix_0.gamma"],
    ),
}
BAD = {
    f"{kind}-{name}": (kind, *entry)
    for kind, table in (
        ("bilm", BAD_BILM),
        ("words", BAD_WORDS),
        ("checkpoint", BAD_CHECKPOINT),
        ("tf_hub", BAD_TF_HUB),
        ("many_langs", BAD_MANY_LANGS),
        ("allennlp", BAD_ALLENNLP),
    )
    for name, entry in table.items()
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind, damage, parts", BAD.values(), ids=BAD)
def test_bad_sources(convert_damaged, kind, damage, parts):
    assert_error(convert_damaged(kind, damage), *parts)


def test_integers_are_accepted(convert_damaged):
    assert convert_damaged("bilm", change_dataset("CNN/b_cnn_0", lambda a: np.zeros(3, np.int32)))[0] == 0


@pytest.mark.parametrize(
    "kind, name", [("many_langs", ENCODER), ("many_langs", "classifier.pkl"), ("allennlp", "weights.th")]
)
@pytest.mark.parametrize("save", ["zip", "legacy", "pickle"])
def test_pickles_execute_nothing(convert_damaged, tmp_path, kind, name, save):
    evil = {CHARACTER_TABLE: torch.zeros(262, 4), "evil": Evil(str(tmp_path / "evil"))}

    def damage(folder):
        if save == "pickle":
            (folder / name).write_bytes(pickle.dumps(evil))
        else:
            torch.save(evil, folder / name, _use_new_zipfile_serialization=save == "zip")

    assert_error(convert_damaged(kind, damage), name)
    assert not (tmp_path / "evil").exists()


ODD_VALUES = [
    None,
    True,
    False,
    0,
    -1,
    1,
    3,
    2.5,
    1e308,
    float("nan"),
    2**40,
    10**30,
    "2",
    "",
    "relu",
    [],
    {},
    [[1, 2]],
    [3],
]


def damage_bytes(generator, folder):
    """Change some bytes of a file, or truncate it."""
    path = generator.choice(sorted(path for path in folder.iterdir() if path.is_file()))
    content = bytearray(path.read_bytes())
    if generator.random() < 0.3:
        content = content[: generator.integers(len(content) + 1)]
    elif content:
        for at in generator.integers(0, len(content), generator.integers(1, 20)):
            content[at] = generator.integers(256)
    path.write_bytes(content)


def damage_json(generator, path):
    """Change or remove a value somewhere in a JSON file."""
    content = json.loads(path.read_text())
    place = content
    while True:
        key = generator.choice(sorted(place))
        if not isinstance(place[key], dict) or generator.random() < 0.2:
            break
        place = place[key]
    if generator.random() < 0.15:
        del place[key]
    else:
        place[key] = ODD_VALUES[generator.integers(len(ODD_VALUES))]
    write_json(path, content)


def damage_arrays(generator, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Remove, rename, reshape or cast an array."""
    name = generator.choice(sorted(arrays))
    array = arrays.pop(name)
    replacements = [
        dict,
        lambda: {name + "_": array},
        lambda: {generator.choice(sorted(arrays)) + "0": array},
        lambda: {name: array.T},
        lambda: {name: array[..., :-1]},
        lambda: {name: array[:0]},
        lambda: {name: array[:1]},
        lambda: {name: array[None]},
        lambda: {name: np.concatenate([array, array])},
        lambda: {name: array.ravel()[0]},
        lambda: {name: array.astype(generator.choice(["i4", "u1", "?", "f2", "f8", "c8"]))},
        lambda: {name: array * np.nan},
    ]
    return {**arrays, **replacements[generator.integers(len(replacements))]()}


def damage_bilm(generator, folder):
    kind = generator.integers(3)
    if kind == 0:
        damage_bytes(generator, folder)
    elif kind == 1:
        damage_json(generator, folder / OPTIONS)
    else:
        path = folder / generator.choice([WEIGHTS, "softmax.hdf5"])
        write_hdf5(path, damage_arrays(generator, read_hdf5(path)))


def damage_many_langs(generator, folder):
    kind = generator.integers(4)
    if kind == 0:
        damage_bytes(generator, folder)
    elif kind == 1:
        damage_json(generator, folder / generator.choice([MANY_LANGS_OPTIONS, MANY_LANGS_OPTIONS, "config.json"]))
    elif kind == 2:
        path = folder / generator.choice([ENCODER, EMBEDDER, "classifier.pkl"])
        arrays = {name: value.numpy() for name, value in torch.load(path).items()}
        save_tensors(path, damage_arrays(generator, arrays))
    else:
        path = folder / generator.choice(["word.dic", "char.dic"])
        content = path.read_text(encoding="utf-8").split("\n")
        place = generator.integers(len(content))
        content[place] = generator.choice(["", "x", "\t", "x\t", "\t3", "x\t-1", "x\t99999999999999999999", "<oov>\t2"])
        path.write_text("\n".join(content), encoding="utf-8")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind, damage", [("bilm", damage_bilm), ("many_langs", damage_many_langs)])
def test_random_damage_gives_a_checkpoint_or_one_sentence(capfd, tmp_path, pristine, skip_verification, kind, damage):
    generator = np.random.default_rng(0)
    source, output, codes = tmp_path / "source", tmp_path / "out" / "x", []
    output.parent.mkdir()
    for number in range(30):
        shutil.copytree(pristine / kind, source)
        damage(generator, source)
        result = elmo(capfd, "convert", source, "-o", output)
        codes.append(result[0])
        if result[0] != 0:
            assert_error(result)
        assert os.listdir(output.parent) == (["x"] if result[0] == 0 else []), f"damage {number}"
        shutil.rmtree(output, ignore_errors=True)
        shutil.rmtree(source)
    assert 6 < sum(codes) < 66
