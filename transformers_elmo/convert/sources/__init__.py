# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Released ELMos: `Source`, which a conversion reads, and the detection of formats.

Each format has a module of its own, whose opener returns a `Source`.
"""

import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...configuration_elmo import ElmoConfig
from ...files import named_errors, read_json, reason
from ...tokenization_elmo import ElmoTokenizer
from ..archives import MAX_DEPTH, is_tar, unpack_tar, unpack_zip
from ..weight_names import NameTable


@dataclass
class Source:
    """A released ELMo: its arrays under their original names, and everything needed to use them."""

    format: str
    config: ElmoConfig
    tokenizer: ElmoTokenizer
    name_table: NameTable
    arrays: "dict[str, StoredArray]"
    # The reference implementation, in numpy: sentences of words -> (L + 1, T, 2P) each
    compute_layers: Callable[[list[list[str]]], list[np.ndarray]]
    text_files: list[Path]  # options and vocabularies
    word_rows: dict[str, int] | None = None  # the row of each word in the lm_head or in the word embedding
    mix_layer_norm: bool = False
    notes: list[str] = field(default_factory=list)  # for the user and the model card

    @property
    def files(self) -> list[Path]:
        """All files that the source was read from; a TensorFlow checkpoint is several."""
        files = []
        for path in dict.fromkeys([*(stored.file for stored in self.arrays.values()), *self.text_files]):
            if path.is_file():
                files.append(path)
            elif not path.is_dir():
                files += [*path.parent.glob(f"{path.name}.index"), *sorted(path.parent.glob(f"{path.name}.data-*"))]
        return files

    def read_parameter(self, name: str) -> np.ndarray | None:
        """Return the original array for a parameter of the model, or None if the source lacks it."""
        for original, stored in self.arrays.items():
            found = self.name_table.to_hf(original)
            if found is not None and found[0] == (name,):
                return stored.read()
        return None


@dataclass(frozen=True)
class StoredArray:
    """An array in a file, loaded and checked when it is read."""

    file: Path
    name: str  # in the file
    shape: tuple[int, ...]
    load: Callable[[], np.ndarray]
    dtype: str = "float32"  # in the file

    def read(self) -> np.ndarray:
        """Load the array as float32, or raise if it is damaged or not finite."""
        try:
            array = self.load()
        except (OSError, ValueError, RuntimeError) as error:
            if str(self.file) in str(error):  # the message is complete
                raise
            raise OSError(f"{self.file}: {self.name} cannot be read ({reason(error)}): the file is damaged.") from error
        if array.dtype.kind not in "fiu":
            raise ValueError(f"{self.file}: {self.name} must contain numbers; its dtype is {array.dtype}.")
        with np.errstate(over="ignore"):  # reported below
            array = np.asarray(array, dtype=np.float32)
        if not np.isfinite(array).all():
            count = int((~np.isfinite(array)).sum())
            raise ValueError(
                f"{self.file}: {self.name} must contain finite numbers; {count} of {array.size} are NaN or infinite."
            )
        return array


def combined(*files: dict[str, StoredArray]) -> dict[str, StoredArray]:
    """Return the arrays of several files, or raise if two of them contain the same."""
    arrays: dict[str, StoredArray] = {}
    for file in files:
        for name in sorted(file.keys() & arrays.keys()):
            raise ValueError(
                f"{file[name].file} must not contain {name}, as {arrays[name].file} contains it too: remove the file "
                "that does not belong to the model."
            )
        arrays |= file
    return arrays


@dataclass(frozen=True)
class ExtraFiles:
    """Files named by the user because they are not next to the weights."""

    options: Path | None = None
    vocab: Path | None = None
    softmax: Path | None = None

    def get(self, flag: str) -> Path | None:
        """Return the file that was passed as --`flag`, if any."""
        path = getattr(self, flag)
        if path is not None and not path.is_file():
            raise FileNotFoundError(f"--{flag} must be a file; {path} is not.")
        return path

    def find(self, flag: str, folder: Path, name: str, pattern: str) -> Path | None:
        """Return the file passed as --`flag`, else the file `name` in `folder`, else the only match of `pattern`."""
        if (path := self.get(flag)) is not None:
            return path
        if (folder / name).is_file():
            return folder / name
        found = sorted(path for path in folder.glob(pattern) if path.is_file())
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise ValueError(f"{folder} must contain one {name}; it contains {names}: choose one with --{flag}.")
        return found[0] if found else None

    def reject(self, *flags: str, format: str):
        """Raise if a file was passed that the format has no use for."""
        for flag in flags:
            if getattr(self, flag) is not None:
                raise ValueError(f"--{flag} does not apply to {format}; remove it.")


# The formats import the classes above.
from . import allennlp, bilm, many_langs, tensorflow  # noqa: E402


def open_source(path: Path, extra_files: ExtraFiles, scratch: Path) -> Source:
    """Open a released ELMo: a file, a folder or the prefix of a TensorFlow checkpoint.

    Archives are unpacked into the folder `scratch`.
    """
    if path.is_dir():
        return open_folder(path, extra_files, scratch)
    if not path.exists():
        if path.with_name(path.name + ".index").is_file():
            return tensorflow.open_checkpoint(path, extra_files)
        raise FileNotFoundError(f"{path} must be a file or folder with a released ELMo; it does not exist.")
    if not path.is_file():
        raise ValueError(f"{path} must be a file or folder with a released ELMo; it is a device or a pipe.")
    with named_errors(path):
        unpack = unpack_zip if zipfile.is_zipfile(path) else unpack_tar if is_tar(path) else None
    if unpack is not None and not (unpack is unpack_zip and path.suffix in (".pkl", ".th")):  # torch's are zip archives
        return open_folder(unpack(path, scratch), extra_files, scratch)
    if checkpoint := re.fullmatch(r"(.+)\.(index|meta|data-\d+-of-\d+)", path.name):
        return tensorflow.open_checkpoint(path.with_name(checkpoint[1]), extra_files)
    if path.suffix in bilm.HDF5_SUFFIXES:
        return bilm.open_hdf5_weights(path, extra_files)
    raise ValueError(
        f"{path} must be a released ELMo: bilm-tf's .hdf5 weights, a .zip, AllenNLP's model.tar.gz, a TensorFlow "
        "checkpoint, or a folder with one of them. It is none of these, or it is truncated."
    )


def check_links(source: Source, path: Path, extra_files: ExtraFiles, scratch: Path):
    """Raise if a file that the user did not name is a link out of the source's folder, as its text may be secret.

    What was unpacked into `scratch` is no link. The Hub's cache consists of links, from `snapshots/REVISION/NAME` to
    `blobs/HASH`.
    """
    folder = (path if path.is_dir() else path.parent).resolve()
    for file in source.files:
        target = file.resolve()
        named = file in (path, extra_files.options, extra_files.vocab, extra_files.softmax)
        unpacked = file.is_relative_to(scratch)
        in_cache = target.parent.name == "blobs" and target.parents[1] / "snapshots" in folder.parents
        if not (named or unpacked or in_cache or target.is_relative_to(folder)):
            raise ValueError(
                f"{file} must be a file, or a link to one within {folder}; it is a link to {target}: replace it with "
                "the file itself if you trust the source."
            )


def open_folder(folder: Path, extra_files: ExtraFiles, scratch: Path, depth: int = 0) -> Source:
    """Open the released ELMo in a folder that contains exactly one."""
    visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
    names = {path.name for path in visible}
    weights, checkpoints = bilm.weights_in(folder), tensorflow.checkpoints_in(folder)
    formats: dict[str, tuple[bool, Callable[[], Source]]] = {
        "ELMoForManyLangs": (
            bool({"encoder.pkl", "token_embedder.pkl"} & names),
            lambda: many_langs.open_many_langs(folder, extra_files),
        ),
        "an AllenNLP model": ("weights.th" in names, lambda: allennlp.open_allennlp(folder, extra_files)),
        "an archive": ("model.tar.gz" in names, lambda: open_source(folder / "model.tar.gz", extra_files, scratch)),
        "a TensorFlow Hub module": (
            bool({"saved_model.pb", "tfhub_module.pb"} & names),
            lambda: tensorflow.open_tf_hub(folder, extra_files),
        ),
        "a TensorFlow checkpoint": (
            bool(checkpoints),
            lambda: tensorflow.open_checkpoint(checkpoints[-1], extra_files),
        ),
        " and ".join(path.name for path in weights): (
            bool(weights),
            lambda: bilm.open_hdf5_weights(weights[0], extra_files),
        ),
    }
    found = {format: opener for format, (is_present, opener) in formats.items() if is_present}
    if len(found) > 1 or len(weights) > 1:
        raise ValueError(
            f"{folder} must contain one ELMo; it contains {' and '.join(found)}: pass the path of the file you want, "
            "and unpack it first if it is in an archive."
        )
    for opener in found.values():
        return opener()
    if (folder / "config.json").is_file() and read_json(folder / "config.json").get("model_type") == "elmo":
        raise ValueError(f"{folder} must be an ELMo of another format; it is already a Hugging Face checkpoint.")
    subfolders = [path for path in visible if path.is_dir()]
    if len(subfolders) == 1 and depth < MAX_DEPTH:  # usual in archives
        return open_folder(subfolders[0], extra_files, scratch, depth + 1)
    raise ValueError(
        f"{folder} must contain a released ELMo: options.json with .hdf5 weights or a TensorFlow checkpoint, "
        "encoder.pkl with token_embedder.pkl, or a model.tar.gz; "
        f"it contains {', '.join(sorted(names)[:8]) or 'nothing'}."
    )
