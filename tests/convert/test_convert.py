"""`elmo convert` and `elmo export` as a stranger uses them: every format, wrong tables, wrong files, bad days.

Sources are tiny and random (released.py). What a converted checkpoint computes is compared with the naive reference,
fed with the source's arrays by the tables of this file. A conversion makes a comparison of its own, in a fresh process
that takes seconds to start: a few tests let it, the others run the same script in this one.
"""

import contextlib
import errno
import io
import json
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer

from helpers import reference
from helpers.command import run
from helpers.models import randomise, tiny_config
from helpers.released import (
    ELMO,
    GONE,
    MANY_LANGS_CHARACTERS,
    MANY_LANGS_WORDS,
    WORDS,
    allennlp_arrays,
    bilm_arrays,
    bilm_options,
    classifier_arrays,
    many_langs_arrays,
    many_langs_options,
    save_tensors,
    tf_hub_options,
    without_layers,
    write_allennlp,
    write_bilm,
    write_checkpoint,
    write_hdf5,
    write_json,
    write_lines,
    write_many_langs,
    write_tf_hub,
    write_zip,
)
from transformers_elmo import ElmoConfig, ElmoForPreTraining, ElmoForTokenClassification, ElmoModel, ElmoTokenizer
from transformers_elmo.command import main
from transformers_elmo.convert import checkpoint_activations, job, sources, verification, weight_names
from transformers_elmo.convert.weight_names import Change, NameTable

SENTENCE = ["the", "cat", "zzz", "wörd", "你Ж😀", "x" * 60, "<pad>"]
NEAR = 5e-6
WEIGHTS, OPTIONS = "weights.hdf5", "options.json"
ENCODER, EMBEDDER, SECOND = "encoder.pkl", "token_embedder.pkl", "cnn_4_3_5_7_sample.json"
CHECKPOINT_FILES = {
    *"README.md config.json configuration_elmo.py model.safetensors modeling_elmo.py".split(),
    *"tokenization_elmo.py tokenizer.json tokenizer_config.json".split(),
}


# What a released ELMo computes, by the naive reference.


@dataclass(frozen=True)
class Case:
    """A released ELMo: the arguments that convert it, and all that the reference needs."""

    arguments: list
    config: SimpleNamespace
    weights: dict[str, np.ndarray]
    spell: Callable[[str], tuple[int, list[int]]]  # a word -> its id and its characters
    boundaries: tuple[str, str] = ("<S>", "</S>")
    said: tuple[str, ...] = ()  # parts of what the command says

    def layers(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """(L + 1, T, 2P) and their mix (T, 2P)"""
        sentence = [self.spell(word) for word in (self.boundaries[0], *words, self.boundaries[1])]
        layers, mixes, _ = reference.elmo(self.config, self.weights, [sentence])
        return layers[0], mixes[0]

    def next_words(self, words: list[str]) -> np.ndarray:
        """The logarithms of the next word's probabilities, forward and backward: (2, T, V)"""
        halves = np.stack(np.split(self.layers(words)[0][-1], 2, -1))
        scores = halves @ self.weights["lm_head.weight"].T + self.weights["lm_head.bias"]
        return scores - np.log(np.exp(scores).sum(-1, keepdims=True))


def gates(array: np.ndarray, order: str) -> np.ndarray:
    """The reference has the gates as i, f, o, j along the last axis."""
    found = dict(zip(order, np.split(array, 4, -1)))
    return np.concatenate([found[gate] for gate in "ifoj"], -1)


def same(array):
    return array


def with_row_0(array):
    return np.pad(array, ((1, 0), (0, 0)))


def first_half(array):
    return array[: len(array) // 2]


def second_half(array):
    return array[len(array) // 2 :]


CHARACTERS, LSTM = "token_encoder.characters.", r"bilm.layers.\2.\1_lstm."
# Their names, ours, and what changes. bilm-tf's matrices are (in, out), its cells are called forward/0/W_0 here.
BILM = [
    (r"char_embed", CHARACTERS + "embedding.weight", with_row_0),
    (r"embedding", "token_encoder.word_embedding.weight", with_row_0),
    (r"CNN/W_cnn_(\d)", CHARACTERS + r"convolutions.\1.weight", lambda a: a[0].T),
    (r"CNN/b_cnn_(\d)", CHARACTERS + r"convolutions.\1.bias", same),
    (r"CNN_high_(\d)/W_(\w+)", CHARACTERS + r"highways.\1.\2.weight", np.transpose),
    (r"CNN_high_(\d)/b_(\w+)", CHARACTERS + r"highways.\1.\2.bias", same),
    (r"CNN_proj/W_proj", "token_encoder.projection.weight", np.transpose),
    (r"CNN_proj/b_proj", "token_encoder.projection.bias", same),
    (r"(\w+)/(\d)/W_0", LSTM + "input_weight", lambda a: gates(first_half(a), "ijfo")),
    (r"(\w+)/(\d)/W_0", LSTM + "recurrent_weight", lambda a: gates(second_half(a), "ijfo")),
    (r"(\w+)/(\d)/B", LSTM + "bias", lambda a: gates(a, "ijfo")),
    (r"(\w+)/(\d)/W_P_0", LSTM + "projection_weight", same),
    (r"softmax/W", "lm_head.weight", same),
    (r"softmax/b", "lm_head.bias", same),
]
# AllenNLP and ELMoForManyLangs: a highway's gate is open for the word itself, the reference's for what it becomes.
TORCH = [
    (r"_char_embedding_weights", CHARACTERS + "embedding.weight", same),
    (r"char_emb_layer.embedding.weight", CHARACTERS + "embedding.weight", with_row_0),
    (r"word_emb_layer.embedding.weight", "token_encoder.word_embedding.weight", with_row_0),
    (r"(?:convolutions\.|char_conv_)(\d)\.(\w+)", CHARACTERS + r"convolutions.\1.\2", same),
    (r"_?highways\._layers\.(\d)\.(\w+)", CHARACTERS + r"highways.\1.transform.\2", first_half),
    (r"_?highways\._layers\.(\d)\.(\w+)", CHARACTERS + r"highways.\1.carry.\2", lambda a: -second_half(a)),
    (r"_?projection\.(\w+)", r"token_encoder.projection.\1", same),
    (r"(\w+)_layer_(\d)\.input_linearity\.weight", LSTM + "input_weight", lambda a: gates(a.T, "ifjo")),
    (r"(\w+)_layer_(\d)\.state_linearity\.weight", LSTM + "recurrent_weight", lambda a: gates(a.T, "ifjo")),
    (r"(\w+)_layer_(\d)\.state_linearity\.bias", LSTM + "bias", lambda a: gates(a, "ifjo")),
    (r"(\w+)_layer_(\d)\.state_projection\.weight", LSTM + "projection_weight", np.transpose),
    (r"column_emb\.weight", "lm_head.weight", same),
    (r"column_bias\.weight", "lm_head.bias", np.ravel),
]


def renamed(arrays: dict[str, np.ndarray], rows, weights=(0, 0, 0), gamma=1.0) -> dict[str, np.ndarray]:
    """A source's arrays by the names of the reference; `weights` and `gamma` are those of the mix."""
    found = {"mix.weights": np.array(weights), "mix.gamma": np.array([gamma])}
    for name, array in arrays.items():
        for theirs, ours, change in rows:
            if match := re.fullmatch(theirs, name):
                found[match.expand(ours)] = change(array)
    return {name: array.astype(np.float64) for name, array in found.items()}


def short(name: str) -> str:
    """RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell/W_0, or without MultiRNNCell/Cell1, as forward/1/W_0."""
    name = name.replace("RNN/LSTMCell", "RNN/MultiRNNCell/Cell0/LSTMCell")
    name = re.sub(r"RNN_(\d)/RNN/MultiRNNCell/Cell(\d)/LSTMCell", r"RNN_\1/\2", name)
    return name.replace("RNN_0", "forward").replace("RNN_1", "backward")


def bilm_reference(options: dict, **more) -> SimpleNamespace:
    cnn, lstm = options.get("char_cnn"), options["lstm"]
    fields = {
        "inputs": "words" if cnn is None else "characters",
        "lstm_dim": lstm["dim"],
        "projection_dim": lstm["projection_dim"] if lstm["projection_dim"] != lstm["dim"] else None,
        "num_hidden_layers": lstm["n_layers"],
        "cell_clip": lstm.get("cell_clip"),
        "projection_clip": lstm.get("proj_clip"),
        "use_skip_connections": lstm.get("use_skip_connections", False),
        "forget_bias": 1.0,
        "mix": "learned",
        "mix_layer_norm": False,
    }
    if cnn is not None:
        fields |= {
            "char_filters": cnn["filters"],
            "char_activation": cnn["activation"],
            "num_highway_layers": cnn.get("n_highway") or 0,
        }
    return SimpleNamespace(**{**fields, **more})


def bytes_of(word: str, width: int = 50) -> list[int]:
    """Bytes + 1 between begin-of-word 259 and end-of-word 260, filled up with 261."""
    inner = {"<S>": [257], "</S>": [258]}.get(word) or [byte + 1 for byte in word.encode()[: width - 2]]
    return [259, *inner, 260] + [261] * (width - 2 - len(inner))


def bilm_spelling(lines: list[str] | None, width: int = 50):
    """Ids are numbers of lines from 1 on; the last line of a word counts."""
    numbers = {line: number for number, line in enumerate((line for line in lines or [] if line[:2] != "!!"), 1)}
    return lambda word: (numbers.get(word, numbers.get("<UNK>", 0)), bytes_of(word, width))


# Released ELMos of every kind.


def of_bilm(arguments, options, arrays, vocab=None, mix=None, gamma=1.0, said=()) -> Case:
    mix = np.zeros(options["lstm"]["n_layers"] + 1) if mix is None else mix
    weights = renamed({short(name): array for name, array in arrays.items()}, BILM, mix, gamma)
    width = (options.get("char_cnn") or {}).get("max_characters_per_token", 50)
    return Case(arguments, bilm_reference(options), weights, bilm_spelling(vocab, width), said=said)


def bilm(folder, vocab=None, softmax=False, rename=same, dtype=np.float32, stem="", said=(), **changes) -> Case:
    options = bilm_options(**changes)
    arrays = {name: array.astype(dtype) for name, array in bilm_arrays(options, softmax=softmax).items()}
    write_bilm(folder, options, {rename(name): array for name, array in arrays.items()}, vocab, stem)
    return of_bilm([folder], options, arrays, vocab, said=("weights of bilm-tf", *said))


def checkpoint(folder, vocab=WORDS, rename=same, steps=(7,), **changes) -> Case:
    options = bilm_options(**changes)
    for step in steps:
        arrays = bilm_arrays(options, seed=step, softmax=True)
        written = {rename(name): array for name, array in arrays.items()}
        if options.get("share_embedding_softmax"):
            arrays["softmax/W"] = arrays["embedding"]
            del written["softmax/W"]
        write_checkpoint(folder, options, written, vocab, step)
    said = ("a training checkpoint of bilm-tf", f"model.ckpt-{steps[-1]}.index")
    return of_bilm([folder], options, arrays, vocab, said=said)


def tf_hub(folder) -> Case:
    options, mix = tf_hub_options(), np.array([0.3, -1.0, 0.5], np.float32)
    arrays = bilm_arrays(options, seed=1, lstm=4.0)  # so large that clips at 3 fire
    write_tf_hub(folder, arrays, mix, 1.7)
    return of_bilm([folder], options, arrays, mix=mix, gamma=np.float32(1.7), said=("a TensorFlow Hub module",))


def many_langs(
    folder,
    words=MANY_LANGS_WORDS,
    characters=MANY_LANGS_CHARACTERS,
    rows=12,
    character_rows=32,
    softmax=False,
    configs="",
    **changes,
) -> Case:
    options = many_langs_options(**changes)
    arrays = many_langs_arrays(options, rows, character_rows)
    classifier = classifier_arrays(options, rows) if softmax else {}
    write_many_langs(folder, options, arrays, words, characters, classifier or None, configs)
    embedder, encoder = options["token_embedder"], options["encoder"]
    config = bilm_reference(
        {"lstm": {**encoder, "use_skip_connections": True}, "char_cnn": embedder},
        inputs="+".join(kind for kind in ("words", "characters") if embedder[f"{kind[:4]}_dim"]),
        forget_bias=0.0,
    )
    spell = many_langs_spelling(words[:rows], characters[:character_rows])
    weights = renamed({**arrays, **classifier}, TORCH)
    return Case([folder], config, weights, spell, ("<bos>", "<eos>"), ("ELMoForManyLangs",))


def whole_softmax(folder) -> Case:
    """ELMoForManyLangs with a softmax that was trained without samples."""
    case = many_langs(folder, softmax=True)
    weight, bias = (case.weights[name].astype(np.float32) for name in ("lm_head.weight", "lm_head.bias"))
    save_tensors(folder / "classifier.pkl", {"hidden2tag.weight": weight, "hidden2tag.bias": bias})
    return case


def other_classifier(folder) -> Case:
    case = many_langs(folder)
    save_tensors(folder / "classifier.pkl", classifier_arrays(many_langs_options(), 5))
    return replace(case, said=(*case.said, "classifier.pkl", "was left out"))


def many_langs_spelling(words, characters):
    """Words are cut before both look-ups, and the marks around them are swapped."""
    words = {word: number for number, word in enumerate(words, 1)}
    known = {character: number for number, character in enumerate(characters, 1)}

    def spell(word):
        word = word[:48]
        letters = [word] if word in ("<bos>", "<eos>") else word
        marked = [known["<eow>"], *(known.get(letter, known["<oov>"]) for letter in letters), known["<bow>"]]
        return words.get(word, words["<oov>"]), marked + [known["<pad>"]] * (50 - len(marked))

    return spell


def allennlp(folder, options=None, where="archive", mixes=1, do_layer_norm=False, lstm=2.0, said=()) -> Case:
    """An archive; `where` its options are: in it, in its configuration's path, given, or known by their name."""
    options = options or bilm_options()
    arrays = allennlp_arrays(options, lstm=lstm, mixes=mixes)
    folder.mkdir()
    write_json(folder / "elmo.json", options)
    names = {"path": folder / "elmo.json", "name": "https://x/elmo_2x4096_512_2048cnn_2xhighway_options.json"}
    files = {"fta/model.elmo.options_file": (folder / "elmo.json").read_bytes()} if where == "archive" else {}
    path = folder / "model.tar.gz"
    write_allennlp(path, arrays, str(names.get(where, "/nowhere/options.json")), do_layer_norm, files)
    elmo = {name.removeprefix(ELMO): array for name, array in arrays.items() if name.startswith(ELMO)}
    mix = [elmo[f"scalar_mix_0.scalar_parameters.{i}"].item() for i in range(3)]
    elmo = {re.sub(r"^_elmo_lstm\._(token_embedder|elmo_lstm)\.", "", name): array for name, array in elmo.items()}
    return Case(
        [path, "--options", folder / "elmo.json"] if where == "given" else [path],
        bilm_reference(options, forget_bias=0.0, mix_layer_norm=do_layer_norm),
        renamed(elmo, TORCH, mix, elmo["scalar_mix_0.gamma"].item()),
        bilm_spelling(None),
        said=("a model of AllenNLP", "2 weights of the model around ELMo were left out: encoder, tag_", *said),
    )


def at(case: Case, change: Callable[[Path], Path]) -> Case:
    """The same under another path."""
    return replace(case, arguments=[change(case.arguments[0]), *case.arguments[1:]])


def zipped(folder: Path, top: str = "") -> Path:
    files = {f"{top}{path.relative_to(folder)}": path for path in sorted(folder.rglob("*")) if path.is_file()}
    return write_zip(folder.with_suffix(".zip"), {name: path.read_bytes() for name, path in files.items()})


def beside_others(folder: Path) -> Path:
    """The weights, in a folder that holds others too."""
    write_hdf5(folder / "other_weights.hdf5", bilm_arrays(bilm_options(), seed=9))
    write_hdf5(folder / "vectors.hdf5", {"0": np.zeros((3, 4, 10), np.float32)})
    return folder / "weights.hdf5"


def given_files(folder: Path) -> Case:
    """Options, words and softmax that lie elsewhere."""
    case = bilm(folder / "elsewhere", vocab=WORDS, softmax=True)
    weights, elsewhere = folder / "weights.hdf5", folder / "elsewhere"
    shutil.move(elsewhere / "weights.hdf5", weights)
    flags = ["--options", elsewhere / "options.json", "--vocab", elsewhere / "vocab.txt"]
    return replace(case, arguments=[weights, *flags, "--softmax", elsewhere / "softmax.hdf5"])


ODD_LINES = ["</S>", "<S>", "<UNK>", "the", "", "cat", "!!!MAXTERMID", "the", "<PAD>", "<pad>", " sat ", "wörd"]
ODD_WORDS = [line.strip() for line in ODD_LINES]


def odd_words(folder) -> Case:
    """A vocabulary as people have them: empty and repeated lines, <PAD> among the words."""
    lines = [line for line in ODD_LINES if line != "!!!MAXTERMID"]
    case = bilm(folder, softmax=True, n_tokens_vocab=len(lines))
    write_lines(folder / "vocab.txt", ODD_LINES)
    said = (*case.said, "2 lines of vocab.txt are empty or come again")
    return replace(case, spell=bilm_spelling(ODD_WORDS), said=said)


NO_HIGHWAY = {"char_cnn_n_highway": GONE}
WORD_INPUT = {"char_cnn": GONE, "vocab": WORDS}
SAID_OF_SOFTMAX = ("The softmax came without vocab.txt",)

CASES = {
    "bilm": bilm,
    "bilm-words": lambda folder: bilm(folder, vocab=WORDS),
    "bilm-softmax-without-words": lambda folder: bilm(folder, softmax=True, said=SAID_OF_SOFTMAX),
    "bilm-released-names": lambda folder: bilm(folder, stem="elmo_2x7_5_12cnn_2xhighway_"),
    "bilm-hdf5": lambda folder: at(bilm(folder), beside_others),
    "bilm-given-files": given_files,
    "bilm-zip": lambda folder: at(bilm(folder, vocab=WORDS, softmax=True), zipped),
    "bilm-zip-of-a-folder": lambda folder: at(bilm(folder), lambda path: zipped(path, "pt/wiki/")),
    "bilm-folder-in-a-folder": lambda folder: at(bilm(folder / "model"), lambda path: path.parent),
    "bilm-262-characters": lambda folder: bilm(folder, char_cnn_n_characters=262),
    "bilm-float16": lambda folder: bilm(folder, dtype=np.float16),
    "bilm-float64": lambda folder: bilm(folder, dtype=np.float64),
    "bilm-no-highway": lambda folder: bilm(folder, **NO_HIGHWAY),
    "bilm-highway-0": lambda folder: bilm(folder, char_cnn_n_highway=0),
    "bilm-no-lstm-projection": lambda folder: bilm(folder, lstm_projection_dim=7),
    "bilm-no-projection-at-all": lambda folder: bilm(folder, lstm_projection_dim=12, lstm_dim=12, **NO_HIGHWAY),
    "bilm-filters-as-wide-as-outputs": lambda folder: bilm(folder, char_cnn_filters=[[1, 2], [4, 3]]),
    "bilm-one-layer": lambda folder: bilm(folder, lstm_n_layers=1),
    "bilm-one-layer-unnumbered": lambda folder: bilm(folder, lstm_n_layers=1, rename=without_layers),
    "bilm-three-layers": lambda folder: bilm(folder, lstm_n_layers=3),
    "bilm-no-skip-connections": lambda folder: bilm(folder, lstm_use_skip_connections=GONE),
    "bilm-no-clips": lambda folder: bilm(folder, lstm_cell_clip=None, lstm_proj_clip=GONE),
    "bilm-tanh": lambda folder: bilm(folder, char_cnn_activation="tanh"),
    "bilm-narrow-words": lambda folder: bilm(folder, char_cnn_max_characters_per_token=9),
    "bilm-odd-words": odd_words,
    "bilm-word-input": lambda folder: bilm(folder, **WORD_INPUT),
    "bilm-word-input-softmax": lambda folder: bilm(folder, softmax=True, **WORD_INPUT),
    "checkpoint": checkpoint,
    "checkpoint-prefix": lambda folder: at(checkpoint(folder), lambda path: path / "model.ckpt-7"),
    "checkpoint-index": lambda folder: at(checkpoint(folder), lambda path: path / "model.ckpt-7.index"),
    "checkpoint-last-step": lambda folder: checkpoint(folder, steps=(7, 9, 100)),
    "checkpoint-one-layer": lambda folder: checkpoint(folder, lstm_n_layers=1),
    "checkpoint-one-layer-unnumbered": lambda folder: checkpoint(folder, lstm_n_layers=1, rename=without_layers),
    "checkpoint-shared-softmax": lambda folder: checkpoint(folder, share_embedding_softmax=True, **WORD_INPUT),
    "many-langs": many_langs,
    "many-langs-configs": lambda folder: many_langs(folder, configs="configs", encoder_n_layers=2),
    "many-langs-zip": lambda folder: at(many_langs(folder), zipped),
    "many-langs-characters": lambda folder: many_langs(folder, token_embedder_word_dim=0),
    "many-langs-words": lambda folder: many_langs(folder, token_embedder_char_dim=0),
    "many-langs-softmax": whole_softmax,
    "many-langs-other-classifier": other_classifier,
    "many-langs-fewer-entries": lambda folder: many_langs(folder, rows=15, character_rows=40, softmax=True),
    "many-langs-more-entries": lambda folder: many_langs(folder, rows=9, character_rows=20),
    "allennlp": allennlp,
    "allennlp-options-on-disk": lambda folder: allennlp(folder, where="path"),
    "allennlp-options-given": lambda folder: allennlp(folder, where="given"),
    "allennlp-options-known": lambda folder: allennlp(folder, tf_hub_options(), "name", lstm=3.0),
    "allennlp-layer-norm": lambda folder: allennlp(folder, do_layer_norm=True),
    "allennlp-two-mixes": lambda folder: allennlp(folder, mixes=2, said=("The model has 2 mixes; this is the first",)),
    "allennlp-folder": lambda folder: at(allennlp(folder), lambda path: path.parent / "serialization"),
    "tf-hub": tf_hub,
}


# Conversions.

HIDDEN_WARNINGS = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)


def elmo(capfd, *arguments) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `elmo ARGUMENTS`, which shows no warning of Python's."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = run(capfd, *arguments)
    assert [str(warning.message) for warning in caught if not issubclass(warning.category, HIDDEN_WARNINGS)] == []
    return result


@pytest.fixture
def in_this_process(monkeypatch):
    """The script that the comparison runs in a fresh process, run in this one with the code of the package."""

    def run_script(command, **options):
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                checkpoint_activations.main(*command[3:])
        except Exception as error:
            return SimpleNamespace(returncode=1, stderr=f"{type(error).__name__}: {error}")
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(verification, "subprocess", SimpleNamespace(run=run_script))
    for name, own in (
        ("AutoConfig", ElmoConfig),
        ("AutoModel", ElmoModel),
        ("AutoModelForPreTraining", ElmoForPreTraining),
        ("AutoTokenizer", ElmoTokenizer),
    ):
        monkeypatch.setattr(checkpoint_activations, name, own)


@pytest.fixture
def uncompared(monkeypatch):
    monkeypatch.setattr(job, "verify", lambda *arguments: verification.Verification([], 0, 0))


def assert_near(got, expected, tolerance=NEAR):
    got = torch.as_tensor(got).detach().double().numpy()
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= tolerance


@torch.no_grad()
def assert_computes(case: Case, folder: Path):
    """A checkpoint gives the layers, the mix and the next words of the reference."""
    has_softmax = "lm_head.weight" in case.weights
    model = (AutoModelForPreTraining if has_softmax else AutoModel).from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert type(tokenizer) is ElmoTokenizer
    inputs = tokenizer([SENTENCE], is_split_into_words=True, return_tensors="pt")
    outputs = model.base_model(**inputs, output_hidden_states=True)
    layers, mix = case.layers(SENTENCE)
    assert_near(torch.cat(outputs.hidden_states), layers)
    assert_near(outputs.last_hidden_state[0], mix)
    for name in ("weights", "gamma"):
        assert_near(getattr(model.base_model.mix, name), case.weights[f"mix.{name}"], 0)
    if has_softmax:
        outputs = model(**inputs)
        logits = torch.cat([outputs.forward_logits, outputs.backward_logits])
        assert (logits[..., 0] == torch.finfo(logits.dtype).min).all()
        assert_near(logits.log_softmax(-1)[..., 1:], case.next_words(SENTENCE))


@pytest.mark.parametrize("build", CASES.values(), ids=CASES)
def test_converts(capfd, tmp_path, in_this_process, build):
    case, output = build(tmp_path / "source"), tmp_path / "out" / "x"
    output.parent.mkdir()
    code, out, err = elmo(capfd, "convert", *case.arguments, "-o", output)
    assert err == "" and code == 0
    for part in case.said:
        assert part in out
    assert os.listdir(output.parent) == ["x"] and {*os.listdir(output)} - {"vocab.txt"} == CHECKPOINT_FILES
    assert_computes(case, output)


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """A model of bilm-tf and one of ELMoForManyLangs, both with a softmax, compared in a fresh process."""
    folder = tmp_path_factory.mktemp("converted")
    cases = {
        "bilm": bilm(folder / "bilm_source", vocab=WORDS, softmax=True),
        "many_langs": many_langs(folder / "many_langs_source", softmax=True),
    }
    for name, case in cases.items():
        arguments = [*case.arguments, "-o", folder / name, "--language", "en", "--license", "apache-2.0"]
        assert main(["convert", *map(str, arguments)]) == 0
    return {name: (case, folder / name) for name, case in cases.items()}


@pytest.mark.parametrize("name", ["bilm", "many_langs"])
def test_converts_and_compares_in_a_fresh_process(converted, name):
    case, folder = converted[name]
    assert_computes(case, folder)
    # A language model's checkpoint is an ELMo model's too.
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


def test_odd_words_have_the_ids_of_their_last_lines(tmp_path, uncompared):
    odd_words(tmp_path / "source")
    assert main(["convert", str(tmp_path / "source"), "-o", str(tmp_path / "x")]) == 0
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "x")
    words = ["</S>", "<S>", "<UNK>", "cat", "the", "<PAD>", "<pad>", "sat", "wörd"]
    ids = tokenizer(words, is_split_into_words=True, add_special_tokens=False).input_ids
    assert ids == [1, 2, 3, 6, 7, 8, 9, 10, 11]
    assert tokenizer.pad_token_id == 0 and tokenizer.pad_token not in words


@pytest.mark.parametrize("change", [with_row_0, lambda a: np.pad(a, ((0, 1), (0, 0)), constant_values=0.7)])
def test_characters_of_262_rows(tmp_path, in_this_process, change):
    """With the row of "no word here" in front, or with one more at the end than there are characters."""
    case = bilm(tmp_path / "source")
    dataset("char_embed", change)(tmp_path / "source")
    assert main(["convert", *map(str, case.arguments), "-o", str(tmp_path / "x")]) == 0
    assert_computes(case, tmp_path / "x")


@pytest.mark.parametrize("build, flag", [(many_langs, "vocab"), (tf_hub, "options"), (checkpoint, "softmax")])
def test_files_that_are_of_no_use(capfd, tmp_path, build, flag):
    case, output = build(tmp_path / "source"), tmp_path / "x"
    (tmp_path / "file").touch()
    result = elmo(capfd, "convert", *case.arguments, "-o", output, f"--{flag}", tmp_path / "file")
    assert_refused(result, f"--{flag} is of no use")
    assert not output.exists()


def test_space_of_another_kind_in_char_dic(tmp_path, in_this_process):
    """ELMoForManyLangs takes a line whose character is stripped away for U+3000."""
    case = many_langs(tmp_path / "source")
    assert "\u3000\t" in (tmp_path / "source" / "char.dic").read_text(encoding="utf-8")
    assert main(["convert", *map(str, case.arguments), "-o", str(tmp_path / "x")]) == 0
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "x")
    spelled = tokenizer.convert_words_to_char_ids(["\u3000"])[0, 1]
    assert spelled == MANY_LANGS_CHARACTERS.index("\u3000") + 1


def test_published_json_that_is_not_there(tmp_path, monkeypatch, in_this_process):
    """All published models of ELMoForManyLangs name the same second json, and some lack it."""
    case = many_langs(tmp_path / "source")
    (tmp_path / "source" / SECOND).unlink()
    monkeypatch.setattr(sources, "MANY_LANGS_JSON", SECOND)
    monkeypatch.setattr(sources, "MANY_LANGS_OPTIONS", many_langs_options())
    assert main(["convert", *map(str, case.arguments), "-o", str(tmp_path / "x")]) == 0
    assert_computes(case, tmp_path / "x")


def test_words_without_boundaries_and_tables(tmp_path, uncompared):
    """A model of characters needs no words; those that come with it may lack the special ones."""
    case = bilm(tmp_path / "source", vocab=["the", "cat"])
    assert main(["convert", *map(str, case.arguments), "-o", str(tmp_path / "x")]) == 0
    config, tokenizer = ElmoConfig.from_pretrained(tmp_path / "x"), AutoTokenizer.from_pretrained(tmp_path / "x")
    assert tokenizer.vocab_size == config.vocab_size


def test_model_card(converted):
    _, folder = converted["many_langs"]
    card = (folder / "README.md").read_text(encoding="utf-8")
    for part in ("language: en", "license: apache-2.0", "`encoder.pkl`", "`word.dic`", "next word", str(folder)):
        assert part in card


@torch.no_grad()
def test_golden_activations(shared_folder, tmp_path, in_this_process):
    """bilm-tf's own fixture, with the states that it carries from a row's sentence to the next one."""
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


def assert_refused(result, *parts):
    """It failed with one sentence that holds the parts, and without a traceback."""
    code, _, err = result
    assert code == 1, err
    assert err.startswith("elmo: error: ") and err.count("\n") == 1
    for part in parts:
        assert str(part) in err


# A conversion that goes wrong is noticed.


def with_change(table: NameTable, ending: str, to_ours: Callable) -> NameTable:
    """A table with another change for the rows whose names in the format end so."""
    rows = [
        (theirs, ours, Change(to_ours, change.to_theirs) if theirs.endswith(ending) else change)
        for theirs, ours, change in table.rows
    ]
    return NameTable(rows, tuple(table.directions))


def with_names(table: NameTable, *pairs: tuple[str, str]) -> NameTable:
    """A table in which some of our names are exchanged."""

    def exchange(name):
        for one, other in pairs:
            if one in name or other in name:
                return name.replace(one, other) if one in name else name.replace(other, one)
        return name

    rows = [(theirs, tuple(map(exchange, ours)), change) for theirs, ours, change in table.rows]
    return NameTable(rows, tuple(table.directions))


def other_directions(table: NameTable) -> NameTable:
    return NameTable(table.rows, tuple(table.directions)[::-1])


def in_table(name: str, change: Callable[..., NameTable], *arguments):
    """A mistake in one of the tables of names."""
    return lambda patch: patch.setattr(weight_names, name, change(getattr(weight_names, name), *arguments))


def in_config(**wrong):
    """A mistake in the fields of the configuration."""

    class WrongConfig(ElmoConfig):
        def __new__(cls, **fields):
            return ElmoConfig(**{**fields, **wrong})

        @classmethod
        def from_bilm_options(cls, options, **fields):
            return ElmoConfig.from_bilm_options(options, **{**fields, **wrong})

    return lambda patch: patch.setattr(sources, "ElmoConfig", WrongConfig)


def in_tokenizer(**wrong):
    return lambda patch: patch.setattr(sources, "ElmoTokenizer", lambda **given: ElmoTokenizer(**{**given, **wrong}))


def halves(tensor):
    return tensor.chunk(2)


WORDS_AND_SOFTMAX = {"vocab": WORDS, "softmax": True}
# What is converted, the mistake, and the first row of the comparison that shows it.
MISTAKES = {
    "carry-and-transform": (bilm, in_table("BILM", with_names, ("carry", "transform")), "words"),
    "highway-not-transposed": (bilm, in_table("BILM", with_change, "/W_carry", lambda a: (a,)), "words"),
    "kernel-backwards": (
        bilm,
        in_table("BILM", with_change, "W_cnn_{i}", lambda a: (a[0].permute(2, 1, 0).flip(2),)),
        "words",
    ),
    "characters-shifted": (
        bilm,
        in_table("BILM", with_change, "char_embed", lambda a: (torch.cat([a, a[:1]]),)),
        "words",
    ),
    "gates-of-the-kernel": (bilm, in_table("BILM", with_change, "/W_0", halves), "lstm_1"),
    "gates-of-the-bias": (bilm, in_table("BILM", with_change, "/B", lambda a: (a,)), "lstm_1"),
    "input-and-state": (bilm, in_table("BILM", with_names, ("input_weight", "recurrent_weight")), "lstm_1"),
    "directions": (bilm, in_table("BILM", other_directions), "lstm_1"),
    "no-forget-bias": (bilm, in_config(forget_bias=0.0), "lstm_1"),
    "no-cell-clip": (bilm, in_config(cell_clip=None), "lstm_1"),
    "no-projection-clip": (bilm, in_config(projection_clip=None), "lstm_1"),
    "no-skip-connections": (bilm, in_config(use_skip_connections=False), "lstm_2"),
    "other-activation": (bilm, in_config(char_activation="tanh"), "words"),
    "other-boundaries": (bilm, in_tokenizer(bos_token="</S>", eos_token="<S>"), "words"),
    "words-shifted": (
        lambda folder: bilm(folder, **WORD_INPUT),
        in_table("BILM", with_change, "embedding", lambda a: (torch.cat([a, a[:1]]),)),
        "words",
    ),
    "softmax-shifted": (
        lambda folder: bilm(folder, **WORDS_AND_SOFTMAX),
        in_table("BILM", with_change, "softmax/b", lambda a: (a.roll(1),)),
        "next word",
    ),
    "checkpoint-gates": (checkpoint, in_table("BILM_CHECKPOINT", with_change, "lstm_cell/kernel", halves), "lstm_1"),
    "hub-no-cell-clip": (tf_hub, in_config(cell_clip=None), "lstm_1"),
    "hub-no-projection-clip": (tf_hub, in_config(projection_clip=None), "lstm_1"),
    "hub-mix-backwards": (tf_hub, in_table("TF_HUB", with_change, "/weights", lambda a: (a.flip(0),)), "mix"),
    "highway-sign": (many_langs, in_table("MANY_LANGS", with_change, "_layers.{i}.bias", halves), "words"),
    "marks-not-swapped": (many_langs, in_tokenizer(swap_word_marks=False), "words"),
    "forget-bias-twice": (many_langs, in_config(forget_bias=1.0), "lstm_1"),
    "torch-gates": (
        many_langs,
        in_table("MANY_LANGS", with_change, "state_linearity.bias", lambda a: (a,)),
        "lstm_1",
    ),
    "classifier-shifted": (
        lambda folder: many_langs(folder, softmax=True),
        in_table("MANY_LANGS", with_change, "column_bias.weight", lambda a: (a[:, 0].roll(1),)),
        "next word",
    ),
    "allennlp-highway-sign": (
        allennlp,
        in_table("ALLENNLP", with_change, "_highways._layers.{i}.weight", halves),
        "words",
    ),
    "allennlp-forget-bias-twice": (allennlp, in_config(forget_bias=1.0), "lstm_1"),
    "allennlp-layer-norm": (
        lambda folder: allennlp(folder, do_layer_norm=True),
        in_config(mix_layer_norm=False),
        "mix",
    ),
    "allennlp-gamma": (allennlp, in_table("ALLENNLP", with_change, ".gamma", lambda a: (a + 0.001,)), "mix"),
}


def assert_noticed(capfd, tmp_path, monkeypatch, name):
    build, mistake, row = MISTAKES[name]
    case, output = build(tmp_path / "source"), tmp_path / "out" / "x"
    output.parent.mkdir()
    mistake(monkeypatch)
    result = elmo(capfd, "convert", *case.arguments, "-o", output)
    assert_refused(result, "The converted checkpoint must compute what its source does", f"; {row} differs by ")
    assert os.listdir(output.parent) == []


def test_wrong_word_ids_are_noticed(capfd, tmp_path, monkeypatch, in_this_process):
    """A character model does not read them, but they are the rows of its softmax."""
    case, output = bilm(tmp_path / "source", **WORDS_AND_SOFTMAX), tmp_path / "out" / "x"
    output.parent.mkdir()
    in_tokenizer(vocab=WORDS[::-1])(monkeypatch)
    result = elmo(capfd, "convert", *case.arguments, "-o", output)
    assert_refused(result, "must give words the ids of its source")
    assert os.listdir(output.parent) == []


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(capfd, tmp_path, monkeypatch, in_this_process, name):
    assert_noticed(capfd, tmp_path, monkeypatch, name)


@pytest.mark.parametrize("name", ["carry-and-transform", "no-projection-clip", "marks-not-swapped"])
def test_a_mistake_is_noticed_in_a_fresh_process(capfd, tmp_path, monkeypatch, name):
    assert_noticed(capfd, tmp_path, monkeypatch, name)


def test_a_checkpoint_that_cannot_be_used(capfd, tmp_path, monkeypatch, in_this_process):
    case, output = bilm(tmp_path / "source"), tmp_path / "out" / "x"
    output.parent.mkdir()
    in_tokenizer(max_characters_per_token=40)(monkeypatch)
    result = elmo(capfd, "convert", *case.arguments, "-o", output)
    assert_refused(result, "The converted checkpoint cannot be used", "char_ids must have shape")
    assert os.listdir(output.parent) == []


# Export.

EXPORTS = {
    "characters": bilm,
    "words": lambda folder: bilm(folder, **WORD_INPUT),
    "softmax": lambda folder: bilm(folder, **WORDS_AND_SOFTMAX),
    "one-layer": lambda folder: bilm(folder, lstm_n_layers=1, rename=without_layers),
    "no-projection": lambda folder: bilm(folder, lstm_projection_dim=7),
    "no-highway-no-clips": lambda folder: bilm(folder, lstm_cell_clip=None, lstm_proj_clip=None, **NO_HIGHWAY),
    "odd-words": odd_words,
}


def convert_and_export(folder: Path, build, name: str = "first") -> tuple[Path, Path]:
    case = build(folder / "source")
    assert main(["convert", *map(str, case.arguments), "-o", str(folder / name)]) == 0
    assert main(["export", str(folder / name), "-o", str(folder / "exported")]) == 0
    return folder / name, folder / "exported"


@pytest.mark.parametrize("build", EXPORTS.values(), ids=EXPORTS)
def test_export_and_convert_again(tmp_path, uncompared, build):
    first, exported = convert_and_export(tmp_path, build)
    assert main(["convert", str(exported), "-o", str(tmp_path / "again")]) == 0
    assert os.listdir(first) and sorted(os.listdir(first)) == sorted(os.listdir(tmp_path / "again"))
    for path in first.iterdir():
        if path.name != "README.md":  # which names the source
            assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


def hdf5_of(path: Path) -> dict[str, np.ndarray]:
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[...]}) if isinstance(item, h5py.Dataset) else None)
    return found


def test_export_gives_the_arrays_of_the_source(capfd, converted, tmp_path):
    """… to files that bilm-tf reads: of one layer, too, it wants the number."""
    case, folder = converted["bilm"]
    code, out, err = elmo(capfd, "export", folder, "-o", tmp_path / "exported")
    assert err == "" and code == 0
    assert "options.json, softmax.hdf5, vocab.txt, weights.hdf5" in out and "note" not in out
    for name in ("weights.hdf5", "softmax.hdf5"):
        expected, got = hdf5_of(case.arguments[0] / name), hdf5_of(tmp_path / "exported" / name)
        assert expected.keys() == got.keys()
        assert all(np.array_equal(got[name], expected[name]) and got[name].dtype == np.float32 for name in got)
    assert (tmp_path / "exported" / "vocab.txt").read_text(encoding="utf-8").split() == WORDS
    options = json.loads((tmp_path / "exported" / "options.json").read_text())
    assert options == bilm_options(char_cnn_n_characters=262)


def test_export_of_one_layer_is_named_as_the_first_of_several(tmp_path, uncompared):
    _, exported = convert_and_export(tmp_path, EXPORTS["one-layer"])
    recurrent = [name for name in hdf5_of(exported / "weights.hdf5") if name.startswith("RNN_")]
    assert len(recurrent) == 6 and all("/RNN/MultiRNNCell/Cell0/LSTMCell/" in name for name in recurrent)


@torch.no_grad()
def test_export_of_weights_that_hold_the_forget_bias(capfd, tmp_path, uncompared):
    first, exported = convert_and_export(tmp_path, allennlp)
    out = capfd.readouterr().out
    assert "the forget bias was taken out of the weights, which rounds by " in out
    assert "no place for the mix of layers, which was left out" in out
    assert main(["convert", str(exported), "-o", str(tmp_path / "again")]) == 0
    inputs = ElmoTokenizer()([SENTENCE], is_split_into_words=True, return_tensors="pt")
    expected, got = (
        torch.cat(AutoModel.from_pretrained(path)(**inputs, output_hidden_states=True).hidden_states)
        for path in (first, tmp_path / "again")
    )
    assert_near(got, expected.double().numpy(), 1e-6)


def test_export_refuses_what_the_format_cannot_hold(capfd, converted, tmp_path):
    for inputs, options in (
        ("words+characters", {}),
        ("characters", {"char_vocab_size": 40}),
        ("words", {"word_embedding_dim": 3}),
    ):
        ElmoModel(tiny_config(inputs=inputs, **options)).save_pretrained(tmp_path / "checkpoint")
        ElmoTokenizer().save_pretrained(tmp_path / "checkpoint")
        assert_refused(elmo(capfd, "export", tmp_path / "checkpoint", "-o", tmp_path / "x"), "The format bilm holds")
    # As many characters as there are bytes and marks, but others.
    ElmoModel(tiny_config(char_vocab_size=262)).save_pretrained(tmp_path / "checkpoint")
    symbols = [*MANY_LANGS_CHARACTERS, *map(chr, range(0x4E00, 0x4E00 + 261 - len(MANY_LANGS_CHARACTERS)))]
    ElmoTokenizer(char_vocab=symbols).save_pretrained(tmp_path / "checkpoint")
    result = elmo(capfd, "export", tmp_path / "checkpoint", "-o", tmp_path / "x")
    assert_refused(result, "characters of its own")
    many = converted["many_langs"][1]
    assert_refused(elmo(capfd, "export", many, "-o", tmp_path / "x"), "both words and characters")
    assert os.listdir(tmp_path) == ["checkpoint"]


@pytest.mark.parametrize("half", [False, True])
def test_export_of_a_tagger_and_of_half_precision(capfd, tmp_path, half):
    model = randomise(ElmoForTokenClassification(tiny_config(char_vocab_size=262, max_characters_per_token=50)))
    model = model.half() if half else model
    model.save_pretrained(tmp_path / "checkpoint")
    ElmoTokenizer().save_pretrained(tmp_path / "checkpoint")
    code, out, err = elmo(capfd, "export", tmp_path / "checkpoint", "-o", tmp_path / "exported")
    assert err == "" and code == 0 and "the mix of layers, which was left out" in out
    weights = hdf5_of(tmp_path / "exported" / "weights.hdf5")
    got = renamed({short(name): array for name, array in weights.items()}, BILM)
    for name, parameter in model.elmo.named_parameters():
        if not name.startswith("mix."):
            expected = parameter.detach().double().numpy()
            is_table = name.endswith("embedding.weight")  # whose row 0 is no part of the format
            assert np.array_equal(got[name][is_table:], expected[is_table:])
    assert sorted(os.listdir(tmp_path / "exported")) == ["options.json", "weights.hdf5"]


# Bad input.


@dataclass(frozen=True)
class Evil:
    """Makes a file where it is unpickled."""

    path: str

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A source of each format, to be copied and damaged."""
    folder = tmp_path_factory.mktemp("pristine")
    bilm(folder / "bilm", vocab=WORDS, softmax=True)
    bilm(folder / "words", **WORD_INPUT)
    checkpoint(folder / "checkpoint")
    tf_hub(folder / "tf_hub")
    many_langs(folder / "many_langs", softmax=True)
    allennlp(folder / "archive")
    shutil.move(folder / "archive" / "serialization", folder / "allennlp")
    return folder


@pytest.fixture
def convert_damaged(capfd, tmp_path, pristine, uncompared):
    """Copies a source, damages it and converts it; what the damage returns are the arguments."""

    def convert_damaged(kind, damage):
        folder, output = tmp_path / "source", tmp_path / "out" / "x"
        shutil.copytree(pristine / kind, folder)
        output.parent.mkdir()
        arguments = damage(folder) or [folder]
        result = elmo(capfd, "convert", *arguments, "-o", output)
        assert os.listdir(output.parent) == (["x"] if result[0] == 0 else [])
        return result

    return convert_damaged


def put(name, content):
    return lambda folder: (folder / name).write_bytes(content) and None


def cut(name, share=0.5):
    """Cut a file off."""

    def damage(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(share * len(content))])

    return damage


def remove(name):
    return lambda folder: (folder / name).unlink()


def rename(old, *new):
    """Give a file other names."""

    def damage(folder):
        for name in new:
            shutil.copy(folder / old, folder / name)
        (folder / old).unlink()

    return damage


def options(**changes):
    return lambda folder: write_json(folder / "options.json", bilm_options(**changes))


def second_json(**changes):
    return lambda folder: write_json(folder / "cnn_4_3_5_7_sample.json", many_langs_options(**changes))


def dataset(name, change, file="weights.hdf5"):
    """Change an array of an hdf5 file, which may be missing; None leaves it out."""

    def damage(folder):
        with h5py.File(folder / file, "a") as opened:
            item = opened.pop(name, None)
            array = item[...] if isinstance(item, h5py.Dataset) else None
            if (array := change(array)) is not None:
                opened.create_dataset(name, data=array)

    return damage


def tensor(file, name, change):
    """Change a tensor of a torch file, or leave it out."""

    def damage(folder):
        tensors = torch.load(folder / file)
        tensors[name] = change(tensors.get(name))
        torch.save({name: value for name, value in tensors.items() if value is not None}, folder / file)

    return damage


def lines(file, change):
    def damage(folder):
        content = (folder / file).read_text(encoding="utf-8").split("\n")[:-1]
        write_lines(folder / file, change(content))

    return damage


def both(*damages):
    return lambda folder: [damage(folder) for damage in damages][-1]


def gone(array):
    return None


def filled(value):
    """An array with one number that is none."""

    def change(array):
        array[(0,) * array.ndim] = value
        return array

    return change


def path_of(name, *arguments):
    return lambda folder: [
        folder / name,
        *(folder / argument if "." in argument else argument for argument in arguments),
    ]


def with_flag(flag, name):
    return lambda folder: [folder, flag, folder / name]


LAYER = "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/"
BAD_BILM = {
    "cut-off": (cut(WEIGHTS), [WEIGHTS, "cut off"]),
    "half-a-header": (cut(WEIGHTS, 0.001), [WEIGHTS, "cut off"]),
    "text": (put(WEIGHTS, b"<html>404</html>"), [WEIGHTS, "HDF5"]),
    "empty": (put(WEIGHTS, b""), [WEIGHTS, "HDF5"]),
    "softmax-cut-off": (cut("softmax.hdf5"), ["softmax.hdf5", "cut off"]),
    "no-lstm": (both(dataset("RNN_0", gone), dataset("RNN_1", gone)), ["source", WEIGHTS]),
    "no-lstm-in-the-file": (
        both(dataset("RNN_0", gone), dataset("RNN_1", gone), path_of(WEIGHTS)),
        [WEIGHTS, "RNN_0", "CNN/W_cnn_0"],
    ),
    "one-direction": (dataset("RNN_1", gone), [WEIGHTS, "RNN_1"]),
    "missing": (dataset("CNN/b_cnn_1", gone), [WEIGHTS, "CNN/b_cnn_1"]),
    "missing-softmax-bias": (dataset("softmax/b", gone, "softmax.hdf5"), ["softmax.hdf5", "softmax/b"]),
    "extra": (dataset("CNN/b_cnn_9", lambda _: np.zeros(3)), [WEIGHTS, "CNN/b_cnn_9"]),
    "unknown": (dataset("something/else", lambda _: np.zeros(3)), [WEIGHTS, "something/else"]),
    "shape": (dataset("CNN_proj/b_proj", lambda a: a[:4]), [WEIGHTS, "CNN_proj/b_proj", "(5,)", "(4,)"]),
    "transposed": (dataset(LAYER + "W_0", lambda a: a.T), [WEIGHTS, LAYER + "W_0", "(10, 28)", "(28, 10)"]),
    "scalar": (dataset("char_embed", lambda _: np.float32(1)), [WEIGHTS, "char_embed"]),
    "scalar-softmax": (dataset("softmax/W", lambda _: np.float32(1), "softmax.hdf5"), ["softmax.hdf5", "softmax/W"]),
    "no-characters": (dataset("char_embed", lambda a: a[:0]), [WEIGHTS, "char_embed"]),
    "few-characters": (dataset("char_embed", lambda a: a[:200]), [WEIGHTS, "char_embed"]),
    "nothing-in-it": (dataset("char_embed", lambda _: h5py.Empty("f4")), [WEIGHTS, "char_embed"]),
    "nan": (dataset("CNN/W_cnn_0", filled(np.nan)), [WEIGHTS, "CNN/W_cnn_0", "1 of 12"]),
    "infinite": (dataset(LAYER + "B", filled(-np.inf)), [WEIGHTS, LAYER + "B", "1 of 28"]),
    "too-large": (dataset(LAYER + "B", lambda a: filled(1e300)(a.astype("f8"))), [WEIGHTS, LAYER + "B", "1 of 28"]),
    "strings": (dataset("CNN/b_cnn_0", lambda _: [b"a", b"b", b"c"]), [WEIGHTS, "CNN/b_cnn_0", "numbers"]),
    "complex": (dataset("CNN/b_cnn_0", lambda a: a + 1j), [WEIGHTS, "CNN/b_cnn_0", "numbers"]),
    "truth-values": (dataset("CNN/b_cnn_0", lambda a: a > 0), [WEIGHTS, "CNN/b_cnn_0", "numbers"]),
    "no-options": (remove(OPTIONS), [WEIGHTS, OPTIONS, "--options"]),
    "two-options": (rename(OPTIONS, "a_options.json", "b_options.json"), ["a_options.json, b_options.json"]),
    "two-vocabularies": (rename("vocab.txt", "vocab_a.txt", "vocab_b.txt"), ["vocab_a.txt, vocab_b.txt", "--vocab"]),
    "two-weights": (rename(WEIGHTS, "a.hdf5", "b.hdf5"), ["source", "a.hdf5 and b.hdf5"]),
    "two-softmaxes": (rename("softmax.hdf5", "a.hdf5", "b.hdf5"), ["source", "a.hdf5, b.hdf5", "--softmax"]),
    "options-no-json": (put(OPTIONS, b"{"), [OPTIONS, "JSON"]),
    "options-no-text": (put(OPTIONS, b"\xff\xfe{}"), [OPTIONS, "JSON"]),
    "options-empty": (put(OPTIONS, b""), [OPTIONS, "JSON"]),
    "options-list": (put(OPTIONS, b"[1]"), [OPTIONS, "list"]),
    "options-nested": (put(OPTIONS, b"[" * 100_000), [OPTIONS, "JSON"]),
    "options-without-anything": (put(OPTIONS, b"{}"), [OPTIONS, "lstm"]),
    "dim": (options(lstm_dim=8), [WEIGHTS, "RNN_0", "32", "28"]),
    "more-layers": (options(lstm_n_layers=3), [WEIGHTS, "Cell2"]),
    "fewer-layers": (options(lstm_n_layers=1), [WEIGHTS, "Cell1"]),
    "more-highways": (options(char_cnn_n_highway=3), [WEIGHTS, "CNN_high_2"]),
    "fewer-highways": (options(char_cnn_n_highway=1), [WEIGHTS, "CNN_high_1"]),
    "fewer-filters": (options(char_cnn_filters=[[1, 3], [2, 4]]), [WEIGHTS, "CNN"]),
    "wider-filters": (options(char_cnn_filters=[[1, 3], [2, 4], [4, 5]]), [WEIGHTS, "CNN/W_cnn_2"]),
    "projection": (options(lstm_projection_dim=6), [WEIGHTS, "CNN_proj", "6"]),
    "no-projection": (options(lstm_projection_dim=7), [WEIGHTS, "7"]),
    "wide-projection": (options(lstm_projection_dim=8), [OPTIONS, "projection_dim=8"]),
    "character-size": (options(char_cnn_embedding={"dim": 5}), [WEIGHTS, "5", "4"]),
    "number-of-words": (options(n_tokens_vocab=12), [OPTIONS, "n_tokens_vocab", "softmax/W", "11", "12"]),
    "fewer-words": (lines("vocab.txt", lambda words: words[:-1]), ["vocab.txt", "softmax/W", "10", "11"]),
    "no-boundaries": (lines("vocab.txt", lambda words: ["a", "b", *words[2:]]), ["vocab.txt", "<S>, </S>"]),
    "words-in-latin-1": (put("vocab.txt", "</S>\n<S>\n<UNK>\nwörd\n".encode("latin-1")), ["vocab.txt", "0xf6"]),
    "layers-text": (options(lstm_n_layers="2"), [OPTIONS, "lstm.n_layers", "'2'"]),
    "dim-text": (options(lstm_dim="7"), [OPTIONS]),
    "dim-null": (options(lstm_dim=None), [OPTIONS]),
    "dim-fraction": (options(lstm_dim=7.5), [OPTIONS, "7.5"]),
    "dim-zero": (options(lstm_dim=0, lstm_projection_dim=0), [OPTIONS, "lstm_dim", "0"]),
    "dim-huge": (options(lstm_dim=2**40), ["source"]),
    "dim-beyond-measure": (options(lstm_dim=10**30), ["source"]),
    "layers-huge": (options(lstm_n_layers=10**9), ["source"]),
    "highways-huge": (options(char_cnn_n_highway=10**9), ["source"]),
    "lstm-null": (options(lstm=None), [OPTIONS]),
    "lstm-list": (options(lstm=[]), [OPTIONS]),
    "no-lstm-options": (options(lstm=GONE), [OPTIONS, "lstm"]),
    "clip-text": (options(lstm_cell_clip="3"), [OPTIONS, "cell_clip"]),
    "clip-negative": (options(lstm_proj_clip=-1), [OPTIONS, "projection_clip"]),
    "filters-text": (options(char_cnn_filters="[[1, 3]]"), [OPTIONS, "filters"]),
    "filters-null": (options(char_cnn_filters=None), [OPTIONS]),
    "filters-numbers": (options(char_cnn_filters=[1, 2]), [OPTIONS]),
    "filters-triples": (options(char_cnn_filters=[[1, 3, 4]]), [OPTIONS, "char_filters"]),
    "filters-text-inside": (options(char_cnn_filters=[["1", 3]]), [OPTIONS, "char_filters"]),
    "characters-list": (options(char_cnn=[]), [OPTIONS]),
    "characters-empty": (options(char_cnn={}), [OPTIONS]),
    "embedding-number": (options(char_cnn_embedding=4), [OPTIONS]),
    "activation": (options(char_cnn_activation="selu"), [OPTIONS, "char_activation", "selu"]),
    "narrow": (options(char_cnn_max_characters_per_token=2), [OPTIONS, "max_characters_per_token", "2"]),
    "wide": (options(char_cnn_max_characters_per_token=2**40), ["source"]),
    "wide-beyond-measure": (options(char_cnn_max_characters_per_token=10**30), ["source"]),
    "words-text": (options(n_tokens_vocab="11"), [OPTIONS, "n_tokens_vocab", "'11'"]),
    "one-direction-said": (options(bidirectional=False), [OPTIONS, "bidirectional"]),
    "given-options": (with_flag("--options", "none.json"), ["--options", "none.json"]),
    "given-vocabulary": (with_flag("--vocab", "none.txt"), ["--vocab", "none.txt"]),
    "given-softmax": (with_flag("--softmax", "none.hdf5"), ["--softmax", "none.hdf5"]),
    "given-softmax-without": (with_flag("--softmax", WEIGHTS), [WEIGHTS, "softmax/W"]),
    "given-folder": (lambda folder: [folder, "--vocab", folder], ["--vocab", "source"]),
}
BAD_WORDS = {
    "no-vocabulary": (remove("vocab.txt"), [WEIGHTS, "vocab.txt", "--vocab"]),
    "characters-said": (options(), [WEIGHTS, "embedding"]),
    "scalar-words": (dataset("embedding", lambda _: np.float32(1)), [WEIGHTS, "embedding"]),
}
INDEX, SHARD = "model.ckpt-7.index", "model.ckpt-7.data-00000-of-00002"
BAD_CHECKPOINT = {
    "no-shard": (remove(SHARD), [SHARD, "missing"]),
    "shard-cut-off": (cut(SHARD), [SHARD, "lm/"]),
    "index-cut-off": (cut(INDEX), [INDEX]),
    "no-options": (remove(OPTIONS), ["model.ckpt-7", OPTIONS, "--options"]),
    "dim": (options(lstm_dim=8), ["model.ckpt-7", "lm/RNN_0", "28"]),
    "prefix-of-nothing": (path_of("model.ckpt-8"), ["model.ckpt-8", "exist"]),
    "damaged": (
        lambda folder: put(SHARD, bytes((folder / SHARD).stat().st_size))(folder),
        [SHARD, "checksum"],
    ),
}
BAD_TF_HUB = {
    "no-variables": (remove("variables/variables.index"), ["variables.index"]),
    "no-shard": (remove("variables/variables.data-00000-of-00002"), ["variables.data-00000-of-00002"]),
}
RECURRENT = "backward_layer_1.state_linearity.bias"
BAD_MANY_LANGS = {
    "cut-off": (cut(ENCODER), [ENCODER, "cut off"]),
    "empty": (put(ENCODER, b""), [ENCODER, "cut off"]),
    "text": (put(EMBEDDER, b"hello"), [EMBEDDER, "torch"]),
    "list": (lambda folder: torch.save([torch.zeros(2)], folder / ENCODER), [ENCODER, "list"]),
    "numbers": (lambda folder: torch.save({"a": 1}, folder / ENCODER), [ENCODER, "tensors"]),
    "numbered": (lambda folder: torch.save({1: torch.zeros(2)}, folder / ENCODER), [ENCODER]),
    "no-encoder": (remove(ENCODER), [ENCODER, "missing"]),
    "no-embedder": (remove(EMBEDDER), [EMBEDDER, "missing"]),
    "missing": (tensor(ENCODER, RECURRENT, gone), [ENCODER, RECURRENT]),
    "extra": (tensor(ENCODER, "extra", lambda _: torch.zeros(2)), [ENCODER, "extra"]),
    "shape": (tensor(ENCODER, RECURRENT, lambda t: t[:20]), [ENCODER, RECURRENT, "(28,)", "(20,)"]),
    "nan": (tensor(ENCODER, RECURRENT, lambda t: t / 0 * 0), [ENCODER, RECURRENT, "28 of 28"]),
    "no-config": (remove("config.json"), ["config.json"]),
    "config-no-json": (put("config.json", b"{"), ["config.json", "JSON"]),
    "config-without-a-path": (put("config.json", b"{}"), ["config.json", "config_path"]),
    "no-second-json": (remove(SECOND), [SECOND, "config_path"]),
    "second-json-empty": (put(SECOND, b"{}"), [SECOND, "token_embedder"]),
    "second-json-list": (put(SECOND, b"[]"), [SECOND, "list"]),
    "encoder-name": (second_json(encoder_name="lstm"), [SECOND, "encoder", "lstm"]),
    "embedder-name": (second_json(token_embedder_name="lstm"), [SECOND, "token_embedder", "lstm"]),
    "dim": (second_json(encoder_dim=8), [ENCODER, "(32, 5)", "(28, 5)"]),
    "dim-text": (second_json(encoder_dim="7"), [SECOND, "dim", "'7'"]),
    "clip-text": (second_json(encoder_cell_clip="3"), [SECOND, "cell_clip"]),
    "filters-null": (second_json(token_embedder_filters=None), [SECOND, "filters"]),
    "activation": (second_json(token_embedder_activation="selu"), [SECOND, "selu"]),
    "no-word-vectors": (second_json(token_embedder_word_dim=0), [EMBEDDER, "projection.weight"]),
    "no-inputs": (second_json(token_embedder_word_dim=0, token_embedder_char_dim=0), [SECOND]),
    "no-words": (remove("word.dic"), ["word.dic", "missing"]),
    "no-characters": (remove("char.dic"), ["char.dic", "missing"]),
    "words-without-numbers": (lines("word.dic", lambda found: [*found, "dog\tten"]), ["word.dic", "dog"]),
    "words-with-three-fields": (lines("word.dic", lambda found: [*found, "a\tb\t9"]), ["word.dic", "a\\tb\\t9"]),
    "words-in-latin-1": (put("word.dic", b"w\xf6rd\t0\n"), ["word.dic", "UTF-8"]),
    "words-empty": (put("word.dic", b""), ["word.dic", "<oov>"]),
    "words-with-one-number": (lines("word.dic", lambda found: [*found, "dog\t5"]), ["word.dic"]),
    "words-without-oov": (lines("word.dic", lambda found: found[1:]), ["word.dic", "<oov>"]),
    "characters-without-oov": (lines("char.dic", lambda found: found[1:]), ["char.dic", "<oov>"]),
    "characters-without-marks": (lines("char.dic", lambda found: found[:3] + found[5:]), ["char.dic", "<bow>"]),
}
CHARACTER_TABLE = ELMO + "_elmo_lstm._token_embedder._char_embedding_weights"
BAD_ALLENNLP = {
    "cut-off": (cut("weights.th"), ["weights.th", "cut off"]),
    "no-elmo": (tensor("weights.th", CHARACTER_TABLE, gone), ["weights.th", "_char_embedding_weights"]),
    "no-characters": (
        tensor("weights.th", CHARACTER_TABLE, lambda t: t[:0]),
        ["weights.th", "_char_embedding_weights"],
    ),
    "few-characters": (tensor("weights.th", CHARACTER_TABLE, lambda t: t[:99]), ["weights.th", "_char_embedding_weig"]),
    "scalar": (tensor("weights.th", CHARACTER_TABLE, lambda t: t[0, 0]), ["weights.th", "_char_embedding_weights"]),
    "no-options": (remove("fta/model.elmo.options_file"), ["/nowhere/options.json", "--options"]),
    "options-no-json": (put("fta/model.elmo.options_file", b"{"), ["model.elmo.options_file", "JSON"]),
    "options-empty": (put("fta/model.elmo.options_file", b"{}"), ["model.elmo.options_file", "char_cnn"]),
    "config-no-json": (put("config.json", b"{"), ["config.json", "JSON"]),
    "given-options": (with_flag("--options", "none.json"), ["none.json"]),
    "mix-missing": (tensor("weights.th", ELMO + "scalar_mix_0.scalar_parameters.1", gone), ["weights.th", "scalar_"]),
    "mix-nan": (
        tensor("weights.th", ELMO + "scalar_mix_0.scalar_parameters.1", lambda t: t / 0),
        ["weights.th", "scalar_parameters.1", "NaN"],
    ),
    "mix-shape": (
        tensor("weights.th", ELMO + "scalar_mix_0.gamma", lambda t: torch.zeros(2)),
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
    assert_refused(convert_damaged(kind, damage), *parts)


def test_whole_numbers_are_numbers(convert_damaged):
    assert convert_damaged("bilm", dataset("CNN/b_cnn_0", lambda a: np.zeros(3, np.int32)))[0] == 0


@pytest.mark.parametrize(
    "kind, name", [("many_langs", ENCODER), ("many_langs", "classifier.pkl"), ("allennlp", "weights.th")]
)
@pytest.mark.parametrize("save", ["zip", "legacy", "pickle"])
def test_pickles_run_nothing(convert_damaged, tmp_path, kind, name, save):
    evil = {CHARACTER_TABLE: torch.zeros(262, 4), "evil": Evil(str(tmp_path / "evil"))}

    def damage(folder):
        if save == "pickle":
            (folder / name).write_bytes(pickle.dumps(evil))
        else:
            torch.save(evil, folder / name, _use_new_zipfile_serialization=save == "zip")

    assert_refused(convert_damaged(kind, damage), name)
    assert not (tmp_path / "evil").exists()


def in_zip(change):
    """The source as a zip, whose files by name `change` may change."""

    def damage(folder):
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        return [write_zip(folder.with_suffix(".zip"), change(files))]

    return damage


def in_tar(add):
    """The source as a tar.gz, to which `add` adds something."""

    def damage(folder):
        path = folder.with_name("model.tar.gz")
        with tarfile.open(path, "w:gz") as archive:
            add(archive, folder)
        return [path]

    return damage


def member(name, **fields):
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def cut_archive(damage, share):
    def cut_damage(folder):
        [path] = damage(folder)
        cut(path, share)(folder)
        return [path]

    return cut_damage


def whole(archive, folder):
    archive.add(folder, "")


BAD_ARCHIVES = {
    "zip-climbing": (in_zip(lambda files: {**files, "../evil": b""}), ["source.zip", "../evil"]),
    "zip-climbing-in-windows": (in_zip(lambda files: {**files, "..\\evil": b""}), ["source.zip", "evil"]),
    "zip-absolute": (in_zip(lambda files: {**files, "/tmp/evil": b""}), ["source.zip", "/tmp/evil"]),
    "zip-drive": (in_zip(lambda files: {**files, "C:/evil": b""}), ["source.zip", "C:/evil"]),
    "zip-empty": (in_zip(lambda files: {}), ["source.zip", "empty"]),
    "zip-of-other-things": (
        in_zip(lambda files: {"photo.jpg": b"", "b/c": b"", "d/e": b""}),
        ["source.zip", "photo.jpg"],
    ),
    "zip-without-options": (
        in_zip(lambda files: {name: files[name] for name in files if name != OPTIONS}),
        ["source.zip/weights.hdf5", OPTIONS],
    ),
    "zip-file-and-folder": (in_zip(lambda files: {"a": b"", "a/b": b""}), ["source.zip", "a"]),
    "zip-cut-off": (cut_archive(in_zip(same), 0.7), ["source.zip", "cut off"]),
    "zip-in-two-models": (in_zip(lambda files: {"a/x": b"", "b/x": b""}), ["source.zip", "a, b"]),
    "tar-climbing": (
        in_tar(lambda archive, folder: archive.addfile(member("../evil"))),
        ["model.tar.gz", "../evil"],
    ),
    "tar-absolute": (
        in_tar(lambda archive, folder: archive.addfile(member("/tmp/evil"))),
        ["model.tar.gz", "/tmp/evil"],
    ),
    "tar-symlink": (
        in_tar(
            lambda archive, folder: archive.addfile(member("weights.th", type=tarfile.SYMTYPE, linkname="/etc/passwd"))
        ),
        ["model.tar.gz"],
    ),
    "tar-hard-link": (
        in_tar(lambda archive, folder: archive.addfile(member("weights.th", type=tarfile.LNKTYPE, linkname="../x"))),
        ["model.tar.gz"],
    ),
    "tar-device": (
        in_tar(lambda archive, folder: archive.addfile(member("weights.th", type=tarfile.CHRTYPE))),
        ["model.tar.gz"],
    ),
    "tar-empty": (in_tar(lambda archive, folder: None), ["model.tar.gz", "empty"]),
    "tar-cut-off": (cut_archive(in_tar(whole), 0.7), ["model.tar.gz", "cut off"]),
    "tar-with-hardly-anything": (cut_archive(in_tar(whole), 0.01), ["model.tar.gz"]),
}


@pytest.mark.parametrize("damage, parts", BAD_ARCHIVES.values(), ids=BAD_ARCHIVES)
def test_bad_archives(convert_damaged, tmp_path, damage, parts):
    assert_refused(convert_damaged("bilm", damage), *parts)
    assert not list(tmp_path.rglob("evil")) and not os.path.exists("/tmp/evil")


def test_archives_that_do_not_fit(convert_damaged, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    assert_refused(convert_damaged("bilm", in_zip(same)), "source.zip", "1,000 are free")


def test_no_source(capfd, tmp_path, converted):
    empty, output = tmp_path / "empty", tmp_path / "x"
    empty.mkdir()
    (tmp_path / "text.txt").write_text("hello")
    for arguments, parts in (
        ([tmp_path / "nowhere"], ["nowhere", "exist"]),
        ([empty], ["empty", "nothing"]),
        ([tmp_path / "text.txt"], ["text.txt"]),
        ([converted["bilm"][1]], ["bilm", "Hugging Face checkpoint already"]),
    ):
        assert_refused(elmo(capfd, "convert", *arguments, "-o", output), *parts)
    assert sorted(os.listdir(tmp_path)) == ["empty", "text.txt"]


def test_wrong_arguments(capfd, tmp_path):
    assert_refused(elmo(capfd, "convert", "-o", tmp_path / "x"), "SOURCE", "--name")
    assert_refused(elmo(capfd, "convert", tmp_path, "--name", "original", "-o", tmp_path / "x"), "not both")
    assert_refused(elmo(capfd, "convert", tmp_path), "--output")
    assert_refused(elmo(capfd, "convert", "--name", "nonsense", "-o", tmp_path / "x"), "nonsense")
    assert os.listdir(tmp_path) == []


def test_bad_output(capfd, tmp_path, pristine, converted):
    folder, file, link = tmp_path / "folder", tmp_path / "file", tmp_path / "link"
    folder.mkdir()
    file.touch()
    link.symlink_to(tmp_path / "nowhere")
    for source, verb in ((pristine / "bilm", "convert"), (converted["bilm"][1], "export")):
        for output, part in (
            (folder, "exists"),
            (file, "exists"),
            (link, "exists"),
            (tmp_path / "none" / "x", tmp_path / "none"),
            (file / "x", file),
            (Path("/proc/elmo"), "/proc"),
        ):
            assert_refused(elmo(capfd, verb, source, "-o", output), part)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "link"] and os.listdir(folder) == []


def test_full_disk_is_known_beforehand(convert_damaged, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    assert_refused(convert_damaged("bilm", lambda folder: None), "1,000 are free", "needs")


@contextlib.contextmanager
def largest_file(size: int):
    """The next writes beyond this size fail, as they do on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size, words", [(2_000, 0), (50_000, 3_000), (50_000, 0)], ids=["code", "words", "weights"])
def test_full_disk(capfd, tmp_path, uncompared, size, words):
    source, output = tmp_path / "source", tmp_path / "out" / "x"
    bilm(source, vocab=[*WORDS, *(f"word{number}" for number in range(words))], char_cnn_embedding={"dim": 64})
    output.parent.mkdir()
    with largest_file(size):
        result = elmo(capfd, "convert", source, "-o", output)
    assert_refused(result, output, os.strerror(errno.EFBIG))
    assert os.listdir(output.parent) == []


@pytest.mark.parametrize("size", [1_000, 8_000])
def test_full_disk_while_exporting(capfd, tmp_path, converted, size):
    with largest_file(size):
        result = elmo(capfd, "export", converted["bilm"][1], "-o", tmp_path / "x")
    assert_refused(result, tmp_path / "x", os.strerror(errno.EFBIG))
    assert os.listdir(tmp_path) == []


def test_without_h5py(capfd, tmp_path, monkeypatch, pristine, converted):
    monkeypatch.setitem(sys.modules, "h5py", None)
    for arguments in (["convert", pristine / "bilm"], ["export", converted["bilm"][1]]):
        assert_refused(
            elmo(capfd, *arguments, "-o", tmp_path / "x"), "h5py", "pip install 'transformers-elmo[convert]'"
        )
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number, code, said", [(signal.SIGINT, 130, "elmo: stopped\n"), (signal.SIGTERM, 143, "")])
def test_signals_leave_nothing(tmp_path, pristine, number, code, said):
    output, temporary = tmp_path / "out" / "x", tmp_path / "tmp"
    output.parent.mkdir()
    temporary.mkdir()
    command = [sys.executable, "-m", "transformers_elmo.command", "convert", pristine / "bilm", "-o", output]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    ) as process:
        deadline = time.time() + 120
        while not list(temporary.glob("*/sentences.json")) and process.poll() is None and time.time() < deadline:
            time.sleep(0.05)
        staged = os.listdir(output.parent)
        time.sleep(0.5)  # so that the process that compares has begun
        os.killpg(process.pid, number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code and err.endswith(said) and "Traceback" not in err
    assert staged and os.listdir(output.parent) == [] and list(temporary.glob("tmp*")) == []


# Random damage.

VALUES = [
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


def flip_or_cut(generator, folder):
    """Other bytes in a file, or fewer."""
    path = generator.choice(sorted(path for path in folder.iterdir() if path.is_file()))
    content = bytearray(path.read_bytes())
    if generator.random() < 0.3:
        content = content[: generator.integers(len(content) + 1)]
    elif content:
        for at in generator.integers(0, len(content), generator.integers(1, 20)):
            content[at] = generator.integers(256)
    path.write_bytes(content)


def other_option(generator, path):
    """Another value or another type somewhere in a JSON file, or a key that is not there."""
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
        place[key] = VALUES[generator.integers(len(VALUES))]
    write_json(path, content)


def other_array(generator, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """An array that is left out, renamed, reshaped, of another type, or no array at all."""
    name = generator.choice(sorted(arrays))
    array = arrays.pop(name)
    others = [
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
    return {**arrays, **others[generator.integers(len(others))]()}


def damage_bilm(generator, folder):
    kind = generator.integers(3)
    if kind == 0:
        flip_or_cut(generator, folder)
    elif kind == 1:
        other_option(generator, folder / OPTIONS)
    else:
        path = folder / generator.choice([WEIGHTS, "softmax.hdf5"])
        write_hdf5(path, other_array(generator, hdf5_of(path)))


def damage_many_langs(generator, folder):
    kind = generator.integers(4)
    if kind == 0:
        flip_or_cut(generator, folder)
    elif kind == 1:
        other_option(generator, folder / generator.choice([SECOND, SECOND, "config.json"]))
    elif kind == 2:
        path = folder / generator.choice([ENCODER, EMBEDDER, "classifier.pkl"])
        arrays = {name: value.numpy() for name, value in torch.load(path).items()}
        save_tensors(path, other_array(generator, arrays))
    else:
        path = folder / generator.choice(["word.dic", "char.dic"])
        content = path.read_text(encoding="utf-8").split("\n")
        place = generator.integers(len(content))
        content[place] = generator.choice(["", "x", "\t", "x\t", "\t3", "x\t-1", "x\t99999999999999999999", "<oov>\t2"])
        path.write_text("\n".join(content), encoding="utf-8")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind, damage", [("bilm", damage_bilm), ("many_langs", damage_many_langs)])
def test_random_damage_gives_a_checkpoint_or_one_sentence(capfd, tmp_path, pristine, uncompared, kind, damage):
    generator = np.random.default_rng(0)
    source, output, codes = tmp_path / "source", tmp_path / "out" / "x", []
    output.parent.mkdir()
    for number in range(110):
        shutil.copytree(pristine / kind, source)
        damage(generator, source)
        result = elmo(capfd, "convert", source, "-o", output)
        codes.append(result[0])
        if result[0] != 0:
            assert_refused(result)
        assert os.listdir(output.parent) == (["x"] if result[0] == 0 else []), f"damage {number}"
        shutil.rmtree(output, ignore_errors=True)
        shutil.rmtree(source)
    assert 10 < sum(codes) < 110
