# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Files of strangers, read without trusting them.

Archives are written below a folder of ours or not at all, pickles hold tensors or are refused, and every array is
looked at when it is read. What is wrong with a file is said in one sentence that names it.
"""

import hashlib
import io
import json
import lzma
import pickle
import re
import shutil
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from ..files import check_space
from .tensor_bundle import TensorBundle

# Variables of TensorFlow that are no weights of the model: an optimizer's memory and counters.
TRAINING_VARIABLE = re.compile(
    r"(.*/)?(Adagrad(_\d+)?|Adam(_\d+)?|Momentum|global_step|beta[12]_power|train_perplexity)"
)


@dataclass(frozen=True)
class Stored:
    """An array in a file, read when it is needed."""

    file: Path
    name: str  # in the file
    shape: tuple[int, ...]
    load: Callable[[], np.ndarray]

    def read(self) -> np.ndarray:
        try:
            array = self.load()
        except (OSError, ValueError, RuntimeError) as error:
            if str(self.file) in str(error):  # which then says all that is to be said
                raise
            raise OSError(
                f"{self.file}: {self.name} cannot be read ({one_line(error)}): the file is damaged."
            ) from error
        if array.dtype.kind not in "fiu":
            raise ValueError(f"{self.file}: {self.name} must hold numbers, it holds {array.dtype}.")
        with np.errstate(over="ignore"):  # it is said below
            array = np.asarray(array, dtype=np.float32)
        if not np.isfinite(array).all():
            number = int((~np.isfinite(array)).sum())
            raise ValueError(
                f"{self.file}: {self.name} must hold finite numbers; {number} of {array.size} are NaN or infinite."
            )
        return array


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def read_text(path: Path) -> str:
    """UTF-8 as it stands, its line ends too."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8 text; it holds the byte 0x{error.object[error.start]:02x}.") from error


def read_json(path: Path) -> dict:
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be JSON; it cannot be read ({one_line(error)}).") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must be a JSON object; it is a {type(content).__name__}.")
    return content


def import_h5py(what: str):
    try:
        import h5py
    except ImportError as error:
        raise OSError(f"{what} needs h5py, which is not here: pip install 'transformers-elmo[convert]'.") from error
    return h5py


@contextmanager
def open_hdf5(path: Path):
    h5py = import_h5py(f"Reading {path}")
    try:
        with h5py.File(path) as file:
            yield file
    except (OSError, RuntimeError, KeyError) as error:
        if isinstance(error, PermissionError):
            raise
        raise OSError(f"{path} must be an HDF5 file; it is not, or it is cut off.") from error


def hdf5_groups(path: Path) -> list[str]:
    """What stands at the top: quick also of a file with a million vectors."""
    with open_hdf5(path) as file:
        return list(file)


def hdf5_arrays(path: Path) -> dict[str, Stored]:
    arrays = {}

    def load(name):
        with import_h5py(f"Reading {path}").File(path) as file:
            return file[name][...]

    def collect(name, item):
        if hasattr(item, "shape"):  # an array, not a group of them
            arrays[name] = Stored(path, name, item.shape or (), lambda: load(name))

    with open_hdf5(path) as file:
        file.visititems(collect)
    return arrays


def pickled_arrays(path: Path) -> dict[str, Stored]:
    """The tensors of a torch file. Nothing else in it is ever run."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} must be there; it is missing.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except PermissionError:
        raise
    except Exception as error:  # torch and pickle raise whatever a damaged file makes them stumble over
        if isinstance(error, pickle.UnpicklingError) and (code := re.search(r"GLOBAL ([\w.]+)", str(error))):
            raise ValueError(
                f"{path} must hold tensors and nothing else; it asks for {code[1]}, which may run code, "
                "and was not loaded."
            ) from error
        raise OSError(f"{path} must be a file of torch tensors; it is not, or it is damaged or cut off.") from error
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in state.items()
    ):
        raise ValueError(f"{path} must hold a state dict, tensors by name; it holds a {type(state).__name__}.")
    return {
        name: Stored(path, name, tuple(tensor.shape), lambda tensor=tensor: tensor.detach().float().numpy())
        for name, tensor in state.items()
    }


def checkpoint_arrays(prefix: Path) -> dict[str, Stored]:
    """The variables of a TensorFlow checkpoint."""
    bundle = TensorBundle(prefix)
    return {
        name: Stored(prefix, name, bundle.shape(name), lambda name=name: bundle[name])
        for name in bundle
        if not TRAINING_VARIABLE.fullmatch(name)
    }


def read_vocabulary(path: Path) -> list[str]:
    """bilm-tf's words in the order of their ids: one a line, spaces around them gone.

    A word that stands there twice has the id of its last line in bilm-tf. Lines that no word has keep their place
    under a name that no word is.
    """
    lines = [line.strip() for line in io.StringIO(read_text(path), newline=None)]
    words = [word for word in lines if word != "!!!MAXTERMID"]
    last = {word: number for number, word in enumerate(words)}
    return [word if word and last[word] == number else f"<line {number + 1}>" for number, word in enumerate(words)]


def read_dictionary(path: Path) -> dict[str, int]:
    """ELMoForManyLangs' char.dic or word.dic: a word or character, a tab and its number."""
    entries = {}
    for line in filter(None, io.StringIO(read_text(path), newline=None).read().split("\n")):
        fields = line.strip().split("\t")
        # What it strips away is a space of another kind; it takes all of them for U+3000.
        key, number = fields if len(fields) == 2 else ("\u3000", fields[-1])
        if len(fields) > 2 or not number.isdecimal():
            raise ValueError(f"{path} must have a word, a tab and a number on each line; it has {line!r:.80}.")
        entries[key] = int(number)
    return entries


def unpack_zip(path: Path, scratch: Path) -> Path:
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            size = sum(member.file_size for member in members)
            return unpack(path, scratch, size, [(member.filename, member) for member in members], archive.open)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise OSError(f"{path} cannot be unpacked ({one_line(error)}): it is damaged or cut off.") from error


def is_tar(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except (EOFError, zlib.error, lzma.LZMAError) as error:  # which tarfile lets through
        raise OSError(f"{path} cannot be unpacked: it is damaged or cut off.") from error


def unpack_tar(path: Path, scratch: Path) -> Path:
    try:
        with tarfile.open(path) as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            size = sum(member.size for member in members)
            return unpack(path, scratch, size, [(member.name, member) for member in members], archive.extractfile)
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise OSError(f"{path} cannot be unpacked ({one_line(error)}): it is damaged or cut off.") from error


def unpack(path: Path, scratch: Path, size: int, members: list[tuple], open_member: Callable) -> Path:
    """Write an archive's files below `scratch`; a name that leads out of it is an attack."""
    if not members:
        raise ValueError(f"{path} must hold a released ELMo; it holds no files.")
    check_space(f"Unpacking {path}", size, scratch.parent)
    folder = scratch / path.name
    for name, _ in members:
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if not parts or ".." in parts or parts[0] == "/" or ":" in parts[0]:
            raise ValueError(
                f"{path} must hold files below itself only; {name!r} leads out of it, nothing was unpacked."
            )
    for name, member in members:
        target = folder / PurePosixPath(name.replace("\\", "/"))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            file = open(target, "wb")  # noqa: SIM115, it is closed below
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise ValueError(f"{path} must hold files and folders; {name!r} is both.") from error
        with open_member(member) as packed, file:
            shutil.copyfileobj(packed, file, 1 << 20)
    return folder
