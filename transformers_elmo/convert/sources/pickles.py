# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Read the tensors of untrusted torch files, without executing pickled code."""

import errno
import pickle
import re
import warnings
import zipfile
from pathlib import Path

import torch

from ...files import reason
from . import StoredArray


def pickled_arrays(path: Path) -> dict[str, StoredArray]:
    """Return the tensors of a saved state dict by name."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is required; it is missing.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # a damaged file can raise any exception
        if isinstance(error, pickle.UnpicklingError) and (code := re.search(r"GLOBAL ([\w.]+)", str(error))):
            raise ValueError(
                f"{path} must contain tensors only; it refers to {code[1]}, which may execute code, "
                "so it was not loaded."
            ) from error
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # EINVAL: a seek in a truncated file
            raise OSError(f"{path} cannot be read: {reason(error)}.") from error
        raise OSError(f"{path} must be a file of torch tensors; it is not, or it is damaged or truncated.") from error
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in state.items()
    ):
        raise ValueError(f"{path} must contain a state dict, tensors by name; it contains a {type(state).__name__}.")
    return {name: stored_tensor(path, name, tensor) for name, tensor in state.items()}


def stored_tensor(path: Path, name: str, tensor: torch.Tensor) -> StoredArray:
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized or tensor.is_nested:
        raise ValueError(f"{path}: {name} must be a dense tensor that is stored in the file; it is not.")
    claimed, stored = tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()
    if claimed > stored:  # rows that repeat without being stored
        raise ValueError(f"{path}: {name} must be stored in full; it claims {claimed:,} bytes and stores {stored:,}.")
    if tensor.dtype == torch.bool or tensor.is_complex():
        raise ValueError(f"{path}: {name} must contain numbers; its dtype is {tensor.dtype}.")
    dtype = str(tensor.dtype).removeprefix("torch.")
    return StoredArray(path, name, tuple(tensor.shape), load=lambda: tensor.detach().float().numpy(), dtype=dtype)
