"""Tiny released ELMos of every kind, and what the naive reference computes from their arrays.

The reference is fed by the tables of this file, not by those of the package.
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer

from helpers import reference
from helpers.released import (
    ELMO,
    MANY_LANGS_CHARACTERS,
    MANY_LANGS_WORDS,
    REMOVED,
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
from transformers_elmo import ElmoTokenizer

SENTENCE = ["the", "cat", "zzz", "wörd", "你Ж😀", "x" * 60, "<pad>"]
NEAR = 5e-6


@dataclass(frozen=True)
class Case:
    """A released ELMo: the command's arguments for it, and everything that the reference needs."""

    arguments: list
    config: SimpleNamespace
    weights: dict[str, np.ndarray]
    encode: Callable[[str], tuple[int, list[int]]]  # a word -> its id and its character ids
    boundaries: tuple[str, str] = ("<S>", "</S>")
    printed: tuple[str, ...] = ()  # parts of the command's output

    def layers(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the layers (L + 1, T, 2P) and their mix (T, 2P)."""
        sentence = [self.encode(word) for word in (self.boundaries[0], *words, self.boundaries[1])]
        layers, mixes, _ = reference.elmo(self.config, self.weights, [sentence])
        return layers[0], mixes[0]

    def next_words(self, words: list[str]) -> np.ndarray:
        """Return the log-probabilities of the next word, forward and backward: (2, T, V)."""
        halves = np.stack(np.split(self.layers(words)[0][-1], 2, -1))
        scores = halves @ self.weights["lm_head.weight"].T + self.weights["lm_head.bias"]
        return scores - np.log(np.exp(scores).sum(-1, keepdims=True))


def reorder_gates(array: np.ndarray, order: str) -> np.ndarray:
    """Reorder gates along the last axis as in the reference: i, f, o, j."""
    by_name = dict(zip(order, np.split(array, 4, -1)))
    return np.concatenate([by_name[gate] for gate in "ifoj"], -1)


def identity(array):
    return array


def with_padding_row(array):
    return np.pad(array, ((1, 0), (0, 0)))


def upper_half(array):
    return array[: len(array) // 2]


def lower_half(array):
    return array[len(array) // 2 :]


CHARACTERS, LSTM = "token_encoder.characters.", r"bilm.layers.\2.\1_lstm."
# Original name, our name, conversion. bilm-tf's matrices are (in, out); its cells are called forward/0/W_0 here.
BILM = [
    (r"char_embed", CHARACTERS + "embedding.weight", with_padding_row),
    (r"embedding", "token_encoder.word_embedding.weight", with_padding_row),
    (r"CNN/W_cnn_(\d)", CHARACTERS + r"convolutions.\1.weight", lambda a: a[0].T),
    (r"CNN/b_cnn_(\d)", CHARACTERS + r"convolutions.\1.bias", identity),
    (r"CNN_high_(\d)/W_(\w+)", CHARACTERS + r"highways.\1.\2.weight", np.transpose),
    (r"CNN_high_(\d)/b_(\w+)", CHARACTERS + r"highways.\1.\2.bias", identity),
    (r"CNN_proj/W_proj", "token_encoder.projection.weight", np.transpose),
    (r"CNN_proj/b_proj", "token_encoder.projection.bias", identity),
    (r"(\w+)/(\d)/W_0", LSTM + "input_weight", lambda a: reorder_gates(upper_half(a), "ijfo")),
    (r"(\w+)/(\d)/W_0", LSTM + "recurrent_weight", lambda a: reorder_gates(lower_half(a), "ijfo")),
    (r"(\w+)/(\d)/B", LSTM + "bias", lambda a: reorder_gates(a, "ijfo")),
    (r"(\w+)/(\d)/W_P_0", LSTM + "projection_weight", identity),
    (r"softmax/W", "lm_head.weight", identity),
    (r"softmax/b", "lm_head.bias", identity),
]
# The highway gate of AllenNLP and ELMoForManyLangs weights the input, that of the reference the transform.
TORCH = [
    (r"_char_embedding_weights", CHARACTERS + "embedding.weight", identity),
    (r"char_emb_layer.embedding.weight", CHARACTERS + "embedding.weight", with_padding_row),
    (r"word_emb_layer.embedding.weight", "token_encoder.word_embedding.weight", with_padding_row),
    (r"(?:convolutions\.|char_conv_)(\d)\.(\w+)", CHARACTERS + r"convolutions.\1.\2", identity),
    (r"_?highways\._layers\.(\d)\.(\w+)", CHARACTERS + r"highways.\1.transform.\2", upper_half),
    (r"_?highways\._layers\.(\d)\.(\w+)", CHARACTERS + r"highways.\1.carry.\2", lambda a: -lower_half(a)),
    (r"_?projection\.(\w+)", r"token_encoder.projection.\1", identity),
    (r"(\w+)_layer_(\d)\.input_linearity\.weight", LSTM + "input_weight", lambda a: reorder_gates(a.T, "ifjo")),
    (r"(\w+)_layer_(\d)\.state_linearity\.weight", LSTM + "recurrent_weight", lambda a: reorder_gates(a.T, "ifjo")),
    (r"(\w+)_layer_(\d)\.state_linearity\.bias", LSTM + "bias", lambda a: reorder_gates(a, "ifjo")),
    (r"(\w+)_layer_(\d)\.state_projection\.weight", LSTM + "projection_weight", np.transpose),
    (r"column_emb\.weight", "lm_head.weight", identity),
    (r"column_bias\.weight", "lm_head.bias", np.ravel),
]


def rename_weights(arrays: dict[str, np.ndarray], rows, weights=(0, 0, 0), gamma=1.0) -> dict[str, np.ndarray]:
    """Return a source's arrays by the names of the reference; `weights` and `gamma` are those of the mix."""
    renamed = {"mix.weights": np.array(weights), "mix.gamma": np.array([gamma])}
    for name, array in arrays.items():
        for original, hf, conversion in rows:
            if match := re.fullmatch(original, name):
                renamed[match.expand(hf)] = conversion(array)
    return {name: array.astype(np.float64) for name, array in renamed.items()}


def short_name(name: str) -> str:
    """Shorten RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell/W_0 to forward/1/W_0; MultiRNNCell/Cell0 may be missing."""
    name = name.replace("RNN/LSTMCell", "RNN/MultiRNNCell/Cell0/LSTMCell")
    name = re.sub(r"RNN_(\d)/RNN/MultiRNNCell/Cell(\d)/LSTMCell", r"RNN_\1/\2", name)
    return name.replace("RNN_0", "forward").replace("RNN_1", "backward")


def bilm_reference(options: dict, **more) -> SimpleNamespace:
    """Return the configuration of the reference for bilm-tf's options."""
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


def byte_ids(word: str, width: int = 50) -> list[int]:
    """Return the bytes of a word + 1, between begin-of-word 259 and end-of-word 260, padded with 261."""
    inner = {"<S>": [257], "</S>": [258]}.get(word) or [byte + 1 for byte in word.encode()[: width - 2]]
    return [259, *inner, 260] + [261] * (width - 2 - len(inner))


def bilm_encoder(lines: list[str] | None, width: int = 50):
    """Return the function that encodes a word. Ids are line numbers from 1, the last one of a repeated word."""
    numbers = {line: number for number, line in enumerate((line for line in lines or [] if line[:2] != "!!"), 1)}
    return lambda word: (numbers.get(word, numbers.get("<UNK>", 0)), byte_ids(word, width))


def bilm_case(arguments, options, arrays, vocab=None, mix=None, gamma=1.0, printed=()) -> Case:
    mix = np.zeros(options["lstm"]["n_layers"] + 1) if mix is None else mix
    weights = rename_weights({short_name(name): array for name, array in arrays.items()}, BILM, mix, gamma)
    width = (options.get("char_cnn") or {}).get("max_characters_per_token", 50)
    return Case(arguments, bilm_reference(options), weights, bilm_encoder(vocab, width), printed=printed)


def bilm(folder, vocab=None, softmax=False, rename=identity, dtype=np.float32, stem="", printed=(), **changes) -> Case:
    options = bilm_options(**changes)
    arrays = {name: array.astype(dtype) for name, array in bilm_arrays(options, softmax=softmax).items()}
    write_bilm(folder, options, {rename(name): array for name, array in arrays.items()}, vocab, stem)
    return bilm_case([folder], options, arrays, vocab, printed=("bilm-tf weights", *printed))


def checkpoint(folder, vocab=WORDS, rename=identity, steps=(7,), **changes) -> Case:
    options = bilm_options(**changes)
    for step in steps:
        arrays = bilm_arrays(options, seed=step, softmax=True)
        written = {rename(name): array for name, array in arrays.items()}
        if options.get("share_embedding_softmax"):
            arrays["softmax/W"] = arrays["embedding"]
            del written["softmax/W"]
        write_checkpoint(folder, options, written, vocab, step)
    printed = ("a bilm-tf training checkpoint", f"model.ckpt-{steps[-1]}.index")
    return bilm_case([folder], options, arrays, vocab, printed=printed)


def tf_hub(folder) -> Case:
    options, mix = tf_hub_options(), np.array([0.3, -1.0, 0.5], np.float32)
    arrays = bilm_arrays(options, seed=1, lstm=4.0)  # large enough that clips at 3 take effect
    write_tf_hub(folder, arrays, mix, 1.7)
    return bilm_case([folder], options, arrays, mix=mix, gamma=np.float32(1.7), printed=("a TensorFlow Hub module",))


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
    encode = many_langs_encoder(words[:rows], characters[:character_rows])
    weights = rename_weights({**arrays, **classifier}, TORCH)
    return Case([folder], config, weights, encode, ("<bos>", "<eos>"), ("ELMoForManyLangs",))


def full_softmax(folder) -> Case:
    """ELMoForManyLangs with a softmax that was trained without sampling."""
    case = many_langs(folder, softmax=True)
    weight, bias = (case.weights[name].astype(np.float32) for name in ("lm_head.weight", "lm_head.bias"))
    save_tensors(folder / "classifier.pkl", {"hidden2tag.weight": weight, "hidden2tag.bias": bias})
    return case


def other_classifier(folder) -> Case:
    """ELMoForManyLangs with a classifier that is not over the words of word.dic."""
    case = many_langs(folder)
    save_tensors(folder / "classifier.pkl", classifier_arrays(many_langs_options(), 5))
    return replace(case, printed=(*case.printed, "classifier.pkl", "was dropped"))


def many_langs_encoder(words, characters):
    """Return the function that encodes a word, truncated before both lookups and with swapped marks."""
    words = {word: number for number, word in enumerate(words, 1)}
    known = {character: number for number, character in enumerate(characters, 1)}

    def encode(word):
        word = word[:48]
        letters = [word] if word in ("<bos>", "<eos>") else word
        marked = [known["<eow>"], *(known.get(letter, known["<oov>"]) for letter in letters), known["<bow>"]]
        return words.get(word, words["<oov>"]), marked + [known["<pad>"]] * (50 - len(marked))

    return encode


def allennlp(folder, options=None, where="archive", mixes=1, do_layer_norm=False, lstm=2.0, printed=()) -> Case:
    """A model.tar.gz; its options are in the archive, at the path in its config.json, passed, or known by name."""
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
        [path, "--options", folder / "elmo.json"] if where == "passed" else [path],
        bilm_reference(options, forget_bias=0.0, mix_layer_norm=do_layer_norm),
        rename_weights(elmo, TORCH, mix, elmo["scalar_mix_0.gamma"].item()),
        bilm_encoder(None),
        printed=("an AllenNLP model", "2 weights outside of the ELMo were dropped: encoder, tag_", *printed),
    )


def with_path(case: Case, change: Callable[[Path], Path]) -> Case:
    """Return the same case with another path."""
    return replace(case, arguments=[change(case.arguments[0]), *case.arguments[1:]])


def zipped(folder: Path, top: str = "") -> Path:
    files = {f"{top}{path.relative_to(folder)}": path for path in sorted(folder.rglob("*")) if path.is_file()}
    return write_zip(folder.with_suffix(".zip"), {name: path.read_bytes() for name, path in files.items()})


def among_other_files(folder: Path) -> Path:
    """Add other files to a folder, and return the path of its weights."""
    write_hdf5(folder / "other_weights.hdf5", bilm_arrays(bilm_options(), seed=9))
    write_hdf5(folder / "vectors.hdf5", {"0": np.zeros((3, 4, 10), np.float32)})
    return folder / "weights.hdf5"


def extra_files(folder: Path) -> Case:
    """A model whose options, vocabulary and softmax are in another folder."""
    case = bilm(folder / "elsewhere", vocab=WORDS, softmax=True)
    weights, elsewhere = folder / "weights.hdf5", folder / "elsewhere"
    shutil.move(elsewhere / "weights.hdf5", weights)
    flags = ["--options", elsewhere / "options.json", "--vocab", elsewhere / "vocab.txt"]
    return replace(case, arguments=[weights, *flags, "--softmax", elsewhere / "softmax.hdf5"])


ODD_LINES = ["</S>", "<S>", "<UNK>", "the", "", "cat", "!!!MAXTERMID", "the", "<PAD>", "<pad>", " sat ", "wörd"]
ODD_VOCABULARY = [line.strip() for line in ODD_LINES]


def odd_vocabulary(folder) -> Case:
    """A vocabulary as found in practice: empty and repeated lines, <PAD> among the words."""
    lines = [line for line in ODD_LINES if line != "!!!MAXTERMID"]
    case = bilm(folder, softmax=True, n_tokens_vocab=len(lines))
    write_lines(folder / "vocab.txt", ODD_LINES)
    printed = (*case.printed, "Lines of vocab.txt that are empty or repeated later: 2;")
    return replace(case, encode=bilm_encoder(ODD_VOCABULARY), printed=printed)


NO_HIGHWAY = {"char_cnn_n_highway": REMOVED}
WORD_INPUT = {"char_cnn": REMOVED, "vocab": WORDS}
WORDS_AND_SOFTMAX = {"vocab": WORDS, "softmax": True}
SOFTMAX_NOTE = ("The softmax has no vocab.txt",)
CASES = {
    "bilm": bilm,
    "bilm-words": lambda folder: bilm(folder, vocab=WORDS),
    "bilm-softmax-without-words": lambda folder: bilm(folder, softmax=True, printed=SOFTMAX_NOTE),
    "bilm-released-names": lambda folder: bilm(folder, stem="elmo_2x7_5_12cnn_2xhighway_"),
    "bilm-hdf5": lambda folder: with_path(bilm(folder), among_other_files),
    "bilm-hdf5-of-another-name": lambda folder: with_path(
        bilm(folder), lambda path: (path / "weights.hdf5").rename(path / "elmo_pt_weights_dgx1.hdf5")
    ),
    "bilm-extra-files": extra_files,
    "bilm-zip": lambda folder: with_path(bilm(folder, vocab=WORDS, softmax=True), zipped),
    "bilm-zip-of-a-folder": lambda folder: with_path(bilm(folder), lambda path: zipped(path, "pt/wiki/")),
    "bilm-folder-in-a-folder": lambda folder: with_path(bilm(folder / "model"), lambda path: path.parent),
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
    "bilm-no-skip-connections": lambda folder: bilm(folder, lstm_use_skip_connections=REMOVED),
    "bilm-no-clips": lambda folder: bilm(folder, lstm_cell_clip=None, lstm_proj_clip=REMOVED),
    "bilm-tanh": lambda folder: bilm(folder, char_cnn_activation="tanh"),
    "bilm-short-words": lambda folder: bilm(folder, char_cnn_max_characters_per_token=9),
    "bilm-odd-vocabulary": odd_vocabulary,
    "bilm-word-input": lambda folder: bilm(folder, **WORD_INPUT),
    "bilm-word-input-softmax": lambda folder: bilm(folder, softmax=True, **WORD_INPUT),
    "checkpoint": checkpoint,
    "checkpoint-prefix": lambda folder: with_path(checkpoint(folder), lambda path: path / "model.ckpt-7"),
    "checkpoint-index": lambda folder: with_path(checkpoint(folder), lambda path: path / "model.ckpt-7.index"),
    "checkpoint-last-step": lambda folder: checkpoint(folder, steps=(7, 9, 100)),
    "checkpoint-one-layer": lambda folder: checkpoint(folder, lstm_n_layers=1),
    "checkpoint-one-layer-unnumbered": lambda folder: checkpoint(folder, lstm_n_layers=1, rename=without_layers),
    "checkpoint-shared-softmax": lambda folder: checkpoint(folder, share_embedding_softmax=True, **WORD_INPUT),
    "many-langs": many_langs,
    "many-langs-configs": lambda folder: many_langs(folder, configs="configs", encoder_n_layers=2),
    "many-langs-zip": lambda folder: with_path(many_langs(folder), zipped),
    "many-langs-characters": lambda folder: many_langs(folder, token_embedder_word_dim=0),
    "many-langs-words": lambda folder: many_langs(folder, token_embedder_char_dim=0),
    "many-langs-softmax": full_softmax,
    "many-langs-other-classifier": other_classifier,
    "many-langs-fewer-entries": lambda folder: many_langs(folder, rows=15, character_rows=40, softmax=True),
    "many-langs-more-entries": lambda folder: many_langs(folder, rows=9, character_rows=20),
    "allennlp": allennlp,
    "allennlp-options-passed": lambda folder: allennlp(folder, where="passed"),
    "allennlp-options-known": lambda folder: allennlp(folder, tf_hub_options(), "name", lstm=3.0),
    "allennlp-layer-norm": lambda folder: allennlp(folder, do_layer_norm=True),
    "allennlp-two-mixes": lambda folder: allennlp(
        folder, mixes=2, printed=("The model has 2 mixes; this is the first",)
    ),
    "allennlp-folder": lambda folder: with_path(allennlp(folder), lambda path: path.parent / "serialization"),
    "tf-hub": tf_hub,
}


def assert_near(got, expected, tolerance=NEAR):
    got = torch.as_tensor(got).detach().double().numpy()
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= tolerance


@torch.no_grad()
def assert_computes(case: Case, folder: Path):
    """Assert that a checkpoint computes the layers, the mix and the next words of the reference."""
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
