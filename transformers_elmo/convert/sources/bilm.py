# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""bilm-tf: options.json and the .hdf5 weights that its `dump_weights` writes, which AllenNLP reads too.

The other formats that derive from bilm-tf share its options, its vocabulary and `bilm_source`.
"""

import faulthandler
import io
import math
import os
import re
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...configuration_elmo import ElmoConfig
from ...files import one_line, read_json, read_text, reason
from ...tokenization_elmo import ElmoTokenizer
from .. import numpy_elmo, weight_names
from . import ExtraFiles, Source, StoredArray, combined

HDF5_SUFFIXES = (".hdf5", ".h5")
HDF5_FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 32000: "lzf"}  # others may need a plugin
MAX_COMPRESSION = 100  # trained weights hardly compress at all
SPECIAL_WORDS = ("<S>", "</S>", "<UNK>")

KINDS = {
    (int,): "an integer below 2^63",
    (int, float): "a finite number",
    (bool,): "true or false",
    (str,): "a string",
    (list,): "a list",
}
INTEGER, NUMBER, BOOLEAN, STRING, LIST = KINDS
# The options in options.json: their type, and whether they are required.
BILM_OPTIONS = {
    "bidirectional": (BOOLEAN, False),
    "dropout": (NUMBER, False),
    "n_tokens_vocab": (INTEGER, False),
    "lstm.dim": (INTEGER, True),
    "lstm.projection_dim": (INTEGER, True),
    "lstm.n_layers": (INTEGER, False),
    "lstm.cell_clip": (NUMBER, False),
    "lstm.proj_clip": (NUMBER, False),
    "lstm.use_skip_connections": (BOOLEAN, False),
    "char_cnn.embedding.dim": (INTEGER, True),
    "char_cnn.filters": (LIST, True),
    "char_cnn.activation": (STRING, False),
    "char_cnn.n_highway": (INTEGER, False),
    "char_cnn.max_characters_per_token": (INTEGER, False),
}
MAX_CHARACTER_FEATURES = 1_000_000  # of a word: ten times those of the largest release; more would exhaust the memory


def weights_in(folder: Path) -> list[Path]:
    """Return the .hdf5 files with the weights of a biLM; others contain vectors or a softmax."""
    return [path for path in hdf5_files_in(folder) if has_bilm(hdf5_groups(path))]


def has_bilm(names: Iterable[str]) -> bool:
    return any(name.startswith("RNN_") for name in names)


def open_hdf5_weights(weights: Path, extra_files: ExtraFiles) -> Source:
    """Open the weights of a biLM with the options, the vocabulary and the softmax in the same folder."""
    folder = weights.parent
    arrays = hdf5_arrays(weights)
    if not has_bilm(arrays):
        raise ValueError(f"{weights} must contain a biLM, datasets RNN_0/… and RNN_1/…; it has {some_of(arrays)}.")
    # Released files share a prefix: elmo_2x1024_128_2048cnn_1xhighway_weights.hdf5 and …_options.json.
    options_file = weights.with_name(re.sub(r"weights\.(hdf5|h5)$", "options.json", weights.name))
    if extra_files.options is not None or options_file == weights or not options_file.is_file():
        options_file = find_options(weights, extra_files)
    softmax = find_softmax(weights, extra_files)
    if softmax is not None:
        softmax_arrays = hdf5_arrays(softmax)
        if "softmax/W" not in softmax_arrays:
            raise ValueError(
                f"{softmax} must contain the datasets softmax/W and softmax/b; it has {some_of(softmax_arrays)}."
            )
        arrays = combined(arrays, softmax_arrays)
    return bilm_source(
        format="bilm-tf weights",
        name_table=weight_names.BILM,
        arrays=arrays,
        options=read_json(options_file),
        options_file=options_file,
        vocab_file=find_vocab(folder, extra_files),
    )


def hdf5_files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in HDF5_SUFFIXES and path.is_file())


def hdf5_groups(path: Path) -> list[str]:
    """Return the names at the top level, which is quick even for a file with a million vectors."""

    def names():
        with open_hdf5(path) as file:
            return [str(name) for name in file]  # h5py returns bytes for a name that is not UTF-8

    check_that_it_does_not_crash(path, names)
    return names()


def hdf5_arrays(path: Path) -> dict[str, StoredArray]:
    """Return the datasets of an untrusted file; raise if it refers to other files or claims what it does not store."""
    check_that_it_does_not_crash(path, lambda: [array.load() for array in list_datasets(path).values()])
    return list_datasets(path)


def check_that_it_does_not_crash(path: Path, read: Callable[[], object]):
    """Raise if reading a file kills the process: the HDF5 library does not survive some damaged files.

    It is tried in a forked process, where there is `fork`; exceptions are raised when the file is read in earnest.
    """
    if not hasattr(os, "fork"):
        return
    child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()  # the crash is expected
            read()
        finally:
            os._exit(0)  # without Python's cleanup, which belongs to the parent
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise OSError(f"{path} must be an HDF5 file; it is damaged, and crashes the HDF5 library: download it again.")


def list_datasets(path: Path) -> dict[str, StoredArray]:
    """Return the datasets of a file after a check of each. None is read yet."""
    arrays: dict[str, StoredArray] = {}

    def load(name):
        with import_h5py(f"Reading {path}").File(path) as file:
            return file[name][...]

    def collect(name, item):
        if hasattr(item, "shape"):
            check_dataset(path, name, item)
            arrays[name] = StoredArray(path, name, item.shape, load=lambda: load(name), dtype=item.dtype.name)
        elif hasattr(item, "keys"):
            check_links(path, item)

    with open_hdf5(path) as file:
        check_links(path, file)
        file.visititems(collect)
    return arrays


def check_links(path: Path, group):
    """Raise if a group has a link to another file or to another name."""
    for name in group:
        if type(group.get(name, getlink=True)).__name__ != "HardLink":
            raise ValueError(
                f"{path} must contain its own datasets; {name} is a link to something else, which was not followed."
            )


def check_dataset(path: Path, name: str, dataset):
    """Raise if reading a dataset would open another file, load a plugin or take far more memory than it stores."""
    if dataset.is_virtual or dataset.external:
        raise ValueError(f"{path} must contain its own datasets; {name} is stored in another file, which was not read.")
    if dataset.dtype.kind not in "fiu" or dataset.shape is None:
        found = "empty" if dataset.shape is None else f"of dtype {dataset.dtype}"
        raise ValueError(f"{path}: {name} must contain numbers; it is {found}.")
    properties = dataset.id.get_create_plist()
    filters = {properties.get_filter(number)[0] for number in range(properties.get_nfilters())}
    if not filters <= HDF5_FILTERS.keys():
        known = ", ".join(HDF5_FILTERS.values())
        raise ValueError(f"{path}: {name} must be uncompressed or use {known}; it uses the filter {max(filters)}.")
    # A chunk may be larger than the dataset.
    claimed = dataset.dtype.itemsize * max(math.prod(size) for size in (dataset.shape, dataset.chunks, [0]) if size)
    stored = min(dataset.id.get_storage_size(), path.stat().st_size)
    if claimed > (MAX_COMPRESSION * stored + (1 << 20) if filters and stored else stored):
        raise ValueError(
            f"{path}: {name} must be stored in the file; it claims {claimed:,} bytes and stores {stored:,}: the file "
            "is damaged or incomplete, download it again."
        )
    if dataset.chunks is not None:
        chunks = math.prod(-(-size // chunk) for size, chunk in zip(dataset.shape, dataset.chunks))
        if dataset.id.get_num_chunks() < chunks:  # the others would be read as zeros, or as any number
            raise ValueError(
                f"{path}: {name} must be stored in full; {chunks - dataset.id.get_num_chunks():,} of {chunks:,} chunks "
                "are missing: the file is incomplete, download it again."
            )


@contextmanager
def open_hdf5(path: Path):
    h5py = import_h5py(f"Reading {path}")
    try:
        with h5py.File(path) as file:
            yield file
    except Exception as error:  # a damaged file can raise any exception
        if str(error).startswith(str(path)):  # the message is complete
            raise
        if isinstance(error, OSError) and error.errno:
            raise OSError(f"{path} cannot be read: {reason(error)}.") from error
        raise OSError(f"{path} must be an HDF5 file; it is not, or it is damaged or truncated.") from error


def import_h5py(task: str):
    try:
        import h5py
    except ImportError as error:
        raise OSError(f"{task} requires h5py: pip install 'transformers-elmo[convert]'.") from error
    return h5py


def some_of(names) -> str:
    """List a few names, for errors that say what was found instead."""
    return ", ".join(sorted(names)[:3]) or "nothing"


def find_options(weights: Path, extra_files: ExtraFiles) -> Path:
    path = extra_files.find("options", folder=weights.parent, name="options.json", pattern="*options*.json")
    if path is None:
        raise FileNotFoundError(
            f"{weights} requires its options.json, and {weights.parent} does not contain one: pass it with --options."
        )
    return path


def find_vocab(folder: Path, extra_files: ExtraFiles) -> Path | None:
    return extra_files.find("vocab", folder=folder, name="vocab.txt", pattern="*vocab*.txt")


def find_softmax(weights: Path, extra_files: ExtraFiles) -> Path | None:
    if (path := extra_files.get("softmax")) is not None:
        return path
    folder = weights.parent
    groups = {path: hdf5_groups(path) for path in hdf5_files_in(folder) if path != weights}
    found = [path for path, names in groups.items() if "softmax" in names and not has_bilm(names)]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ValueError(f"{folder} must contain one softmax; it contains {names}: choose one with --softmax.")
    return found[0] if found else None


def bilm_source(
    *,
    format: str,
    name_table: weight_names.NameTable,
    arrays: dict[str, StoredArray],
    options: dict,
    options_file: Path,
    vocab_file: Path | None,
) -> Source:
    """Return the source for a format whose weight names derive from bilm-tf's."""
    arrays = {name: byte_embedding(array) if name.endswith("char_embed") else array for name, array in arrays.items()}
    by_hdf5_name = {hdf5_name(name): array for name, array in arrays.items()}
    words, notes, fields = None, [], {}
    if vocab_file is not None:
        words = read_vocabulary(vocab_file)
        fields["vocab_size"] = len(words) + 1 + sum(word not in words for word in SPECIAL_WORDS)
        unused = sum(word.startswith("<line ") for word in words)
        if unused:
            notes.append(f"Lines of {vocab_file.name} that are empty or repeated later: {unused}; the last one counts.")
    for name in ("embedding", "softmax/W"):
        if name in by_hdf5_name:
            check_rows(by_hdf5_name[name], options, options_file, words, vocab_file)
            fields["vocab_size"] = by_hdf5_name[name].shape[0] + 1
    if words is None and "embedding" in by_hdf5_name:
        weights = by_hdf5_name["embedding"].file
        raise FileNotFoundError(f"{weights} has a word embedding and requires its vocab.txt: pass it with --vocab.")
    if words is None and "softmax/W" in by_hdf5_name:
        notes.append("The softmax has no vocab.txt, so it is not known which words its rows stand for.")
    if "char_embed" in by_hdf5_name:
        fields["char_vocab_size"] = 262  # n_characters may be 261 or 262
    config = bilm_config(options, options_file, **fields)
    notes += option_notes(options, options_file)
    number = options.get("n_tokens_vocab")
    if words is not None and vocab_file is not None and number not in (None, len(words)):
        notes.append(
            f"n_tokens_vocab is {number} and {vocab_file.name} has {len(words)} words: they may be of different models."
        )
    tokenizer = ElmoTokenizer(
        vocab=words,
        max_characters_per_token=config.max_characters_per_token,
        pad_token=unused_pad_token(words),
    )
    config.bos_token_id, config.eos_token_id = tokenizer.bos_token_id, tokenizer.eos_token_id
    word_rows = None if words is None else {word: row for row, word in enumerate(words)}
    return Source(
        format=format,
        config=config,
        tokenizer=tokenizer,
        name_table=name_table,
        arrays=arrays,
        compute_layers=numpy_elmo.BilmTf(options, float64_reader(by_hdf5_name), word_rows),
        text_files=[options_file] if vocab_file is None else [options_file, vocab_file],
        word_rows=word_rows if "softmax/W" in by_hdf5_name or "embedding" in by_hdf5_name else None,
        notes=notes,
    )


def byte_embedding(array: StoredArray) -> StoredArray:
    """Return the embedding of the 256 bytes and five marks: 261 rows.

    Of 262 rows, either the first is the zero row of padding or the last is unused.
    """
    if len(array.shape) != 2 or array.shape[0] not in (261, 262):
        raise ValueError(
            f"{array.file}: {array.name} must have 261 rows, one per byte and mark; its shape is {array.shape}."
        )

    def load():
        rows = array.load()
        return rows[1:] if not rows[0].any() else rows[:-1]

    return array if array.shape[0] == 261 else replace(array, shape=(261, array.shape[1]), load=load)


def hdf5_name(name: str) -> str:
    """Return a variable's name in the files of `dump_weights`; a single layer is named as the first of several."""
    for pattern, replacement in (
        (r"^(lm|bilm)/", ""),
        (r"/rnn/multi_rnn_cell/cell_", "/RNN/MultiRNNCell/Cell"),
        (r"/rnn/lstm_cell/", "/LSTMCell/"),
        (r"/lstm_cell/", "/LSTMCell/"),
        (r"/LSTMCell/projection/kernel$", "/LSTMCell/W_P_0"),
        (r"/LSTMCell/kernel$", "/LSTMCell/W_0"),
        (r"/LSTMCell/bias$", "/LSTMCell/B"),
        (r"^(RNN_[01])(/RNN)?/LSTMCell/", r"\1/RNN/MultiRNNCell/Cell0/LSTMCell/"),
    ):
        name = re.sub(pattern, replacement, name)
    return name


def read_vocabulary(path: Path) -> list[str]:
    """Return the words of vocab.txt in the order of their ids: one per line, without surrounding spaces.

    In bilm-tf a repeated word has the id of its last line. Empty lines and earlier repetitions get a placeholder.
    """
    text = read_text(path).removeprefix("\ufeff")  # some editors write a byte order mark
    lines = [line.strip() for line in io.StringIO(text, newline=None)]
    words = [word for word in lines if word != "!!!MAXTERMID"]  # bilm-tf skips these lines
    last = {word: row for row, word in enumerate(words)}
    return [word if word and last[word] == row else f"<line {row + 1}>" for row, word in enumerate(words)]


def check_rows(array: StoredArray, options: dict, options_file: Path, words: list[str] | None, vocab_file: Path | None):
    """Raise unless a word embedding or softmax has one row per word of the options and of the vocabulary."""
    if len(array.shape) != 2:
        raise ValueError(f"{array.file}: {array.name} must have one row per word; its shape is {array.shape}.")
    rows = array.shape[0]
    for what, number in (
        (f"n_tokens_vocab in {options_file}", options.get("n_tokens_vocab")),
        (f"The number of words in {vocab_file}", None if words is None else len(words)),
    ):
        if number not in (None, rows):
            raise ValueError(
                f"{what} must be {rows}, the number of rows of {array.name} in {array.file}; it is {number!r:.40}."
            )
    missing = [] if words is None else [word for word in SPECIAL_WORDS if word not in words]
    if missing:
        raise ValueError(f"{vocab_file} must contain <S>, </S> and <UNK>; it lacks {', '.join(missing)}.")


def bilm_config(options: dict, path: Path, **fields) -> ElmoConfig:
    """Return the configuration for bilm-tf's options, or raise if they lack one or have one of a wrong type."""
    for name, (types, is_required) in BILM_OPTIONS.items():
        *groups, key = name.split(".")
        group: Any = options
        for part in groups:
            group = group.get(part) if isinstance(group, dict) else None
        if group is None and groups[:1] == ["char_cnn"] and options.get("char_cnn") is None:
            continue  # the model has a word embedding instead
        if not isinstance(group, dict):
            raise ValueError(f"{path} must contain the options of a bilm-tf model; it lacks {'.'.join(groups)}.")
        value = group.get(key)
        if value is None and is_required:
            raise ValueError(f"{path} must contain the options of a bilm-tf model; it lacks {name}.")
        has_type = isinstance(value, types) and (not isinstance(value, bool) or bool in types)
        is_huge = isinstance(value, int | float) and not abs(value) < 2**63  # or NaN
        if value is not None and (not has_type or is_huge):
            raise ValueError(f"{path}: {name} must be {KINDS[types]}; it is {value!r:.40}.")
    try:
        config = ElmoConfig.from_bilm_options(options, **fields)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} must contain the options of a bilm-tf model: {one_line(error)}.") from error
    check_max_characters(config, path)
    return config


def option_notes(options: dict, path: Path) -> list[str]:
    """Return notes about options that have no effect, as a misspelled one, or that belong to other weights."""
    notes, characters = [], (options.get("char_cnn") or {}).get("n_characters")
    if characters not in (None, 261, 262):
        notes.append(
            f"n_characters in {path.name} is {characters!r:.40} instead of 261 or 262: it may be of another model."
        )
    return notes + unknown_options(options, {*BILM_OPTIONS, "char_cnn.embedding", "char_cnn.n_characters"}, path)


def unknown_options(options: dict, known: set[str], path: Path) -> list[str]:
    """Return a note about options that are not known, in the groups that have some that are."""
    groups = dict.fromkeys(name.split(".")[0] for name in sorted(known) if "." in name)
    names = [f"{group}.{key}" for group in groups for key in options.get(group) or {}]
    unknown = ", ".join(name for name in names if name not in known)
    return [f"{path.name} has options that are not known, and they were ignored: {unknown:.200}."] if unknown else []


def check_max_characters(config: ElmoConfig, path: Path):
    """Raise if the character CNN computes too many numbers: each filter at each character of a word."""
    filters = sum(number for _, number in config.char_filters) if "characters" in config.inputs else 1
    if config.max_characters_per_token * filters > MAX_CHARACTER_FEATURES:
        raise ValueError(
            f"{path}: max_characters_per_token must be at most {MAX_CHARACTER_FEATURES // filters} for {filters} "
            f"filters; it is {config.max_characters_per_token}."
        )


def unused_pad_token(words) -> str:
    """Return a padding token that is not in the vocabulary."""
    token = "<PAD>"
    while token in (words or ()):
        token = f"<{token}>"
    return token


def float64_reader(arrays: dict[str, StoredArray]) -> Callable[[str], np.ndarray]:
    """Return a function that reads an array as float64, for numpy_elmo.py."""
    return lambda name: arrays[name].read().astype(np.float64)


def options_from_shapes(
    *,
    arrays: dict[str, StoredArray],
    names: dict[str, str],
    path: Path,
    filter_size: Callable[[tuple[int, ...]], tuple[int, ...]],
    lstm_size: Callable[[tuple[int, ...]], tuple[int, ...]],
) -> dict:
    """Return the options of a model that comes without them: AllenNLP's usual ones, with sizes from the shapes.

    Args:
        names: the arrays for `embedding`, `convolution`, `highway` and `projection`, with `{i}` for a layer's index.
        filter_size: the shape of a convolution -> its width and number of filters.
        lstm_size: the shape of an LSTM's projection -> H, P.
    """
    shapes: dict[str, list[tuple[int, ...]]] = {part: [] for part in names}
    for part, name in names.items():
        while name.format(i=len(shapes[part])) in arrays:
            shapes[part].append(arrays[name.format(i=len(shapes[part]))].shape)
            if "{i}" not in name:
                break
        if not shapes[part] and part != "highway":
            raise ValueError(f"{path} must contain an ELMo, with the weight {name.format(i=0)}; it does not.")
    try:
        dim, projection_dim = lstm_size(shapes["projection"][0])
        return {
            "lstm": {
                "cell_clip": 3,
                "proj_clip": 3,
                "use_skip_connections": True,
                "dim": dim,
                "projection_dim": projection_dim,
                "n_layers": len(shapes["projection"]),
            },
            "char_cnn": {
                "activation": "relu",
                "max_characters_per_token": 50,
                "embedding": {"dim": shapes["embedding"][0][1]},
                "filters": [list(filter_size(shape)) for shape in shapes["convolution"]],
                "n_highway": len(shapes["highway"]),
            },
        }
    except (ValueError, IndexError) as error:
        raise ValueError(f"{path} must contain an ELMo; its weights have unexpected shapes: {shapes}.") from error
