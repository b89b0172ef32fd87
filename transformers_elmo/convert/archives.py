# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Unpack downloaded zip and tar archives, whose contents are not trusted."""

import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from ..files import check_space, one_line


def is_tar(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except (EOFError, zlib.error, lzma.LZMAError) as error:  # tarfile lets these through
        raise OSError(f"{path} cannot be unpacked: it is damaged or truncated.") from error


def unpack_zip(path: Path, scratch: Path) -> Path:
    """Unpack a zip archive below `scratch` and return its folder there."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            size = sum(member.file_size for member in members)
            return unpack(path, scratch, size, [(member.filename, member) for member in members], archive.open)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise OSError(f"{path} cannot be unpacked ({one_line(error)}): it is damaged or truncated.") from error


def unpack_tar(path: Path, scratch: Path) -> Path:
    """Unpack the regular files of a tar archive below `scratch` and return its folder there."""
    try:
        with tarfile.open(path) as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            size = sum(member.size for member in members)
            return unpack(path, scratch, size, [(member.name, member) for member in members], archive.extractfile)
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise OSError(f"{path} cannot be unpacked ({one_line(error)}): it is damaged or truncated.") from error


def unpack(
    path: Path, scratch: Path, size: int, members: list[tuple[str, Any]], open_member: Callable[[Any], Any]
) -> Path:
    """Write an archive's files below `scratch`; raise and write nothing if a path leads out of it."""
    if not members:
        raise ValueError(f"{path} must contain a released ELMo; it is empty.")
    check_space(f"Unpacking {path}", size, scratch.parent)
    folder = scratch / path.name
    for name, _ in members:
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if not parts or ".." in parts or parts[0] == "/" or ":" in parts[0]:
            raise ValueError(
                f"{path} must contain relative paths only; {name!r} points outside of it, so nothing was unpacked."
            )
    for name, member in members:
        target = folder / PurePosixPath(name.replace("\\", "/"))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            file = open(target, "wb")  # noqa: SIM115, it is closed below
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise ValueError(f"{path} must contain files and folders; {name!r} is both.") from error
        with open_member(member) as packed, file:
            shutil.copyfileobj(packed, file, 1 << 20)
    return folder
