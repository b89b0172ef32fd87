# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Unpack downloaded zip and tar archives, whose contents are not trusted."""

import errno
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from ..files import check_space, one_line

MAX_COMPRESSION = 100  # trained weights hardly compress at all
MAX_MEMBERS = 10_000
MAX_DEPTH = 50  # folders within one another
MAX_TAR_HEADER = 1 << 20  # bytes


def is_tar(path: Path) -> bool:
    with archive_errors(path):
        try:
            tarfile.open(path, tarinfo=BoundedTarInfo).close()
        except tarfile.TarError:
            return False
        return True


def unpack_zip(path: Path, scratch: Path) -> Path:
    """Unpack a zip archive below `scratch` and return its folder there."""
    with archive_errors(path), zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        size = sum(member.file_size for member in members)
        check_size(path, size, len(members))
        return unpack(path, scratch, size, [(member.filename, member) for member in members], archive.open)


def unpack_tar(path: Path, scratch: Path) -> Path:
    """Unpack the regular files of a tar archive below `scratch` and return its folder there."""
    with archive_errors(path), tarfile.open(path, tarinfo=BoundedTarInfo) as archive:
        size, members = 0, []
        for number, member in enumerate(archive, 1):
            size += member.size
            check_size(path, size, number)  # now, as looking for the next member decompresses this one
            if member.isfile():
                members.append((member.name, member))
        return unpack(path, scratch, size, members, archive.extractfile)


class BoundedTarInfo(tarfile.TarInfo):
    """The header of a tar member; raises for a long extended header, which tarfile would read as a whole."""

    @classmethod
    def frombuf(cls, *arguments):
        header = super().frombuf(*arguments)
        is_extended = header.type in (
            *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
            *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
        )
        if is_extended and header.size > MAX_TAR_HEADER:
            raise OverflowError(f"a header of {header.size:,} bytes")
        return header


@contextmanager
def archive_errors(path: Path) -> Iterator[None]:
    """Turn the errors of reading a damaged archive, which can be of any type, into one sentence."""
    try:
        yield
    except Exception as error:
        # E.g. a full disk; EINVAL comes from seeking to a damaged offset.
        is_of_the_system = isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)
        if is_of_the_system or str(path) in str(error):  # the message is complete
            raise
        raise OSError(f"{path} cannot be unpacked ({one_line(error)}): it is damaged or truncated.") from error


def check_size(path: Path, size: int, members: int):
    """Raise if an archive claims to contain far more than a released ELMo."""
    limit = MAX_COMPRESSION * path.stat().st_size + 10**7
    if size > limit or members > MAX_MEMBERS:
        raise ValueError(
            f"{path} must contain a released ELMo, which is at most {limit:,} bytes in {MAX_MEMBERS:,} files in an "
            f"archive of this size; it has {size:,} or more in {members:,}, so nothing was unpacked."
        )


def unpack(
    path: Path, scratch: Path, size: int, members: list[tuple[str, Any]], open_member: Callable[[Any], Any]
) -> Path:
    """Write an archive's files below `scratch`; raise and write nothing if a path leads out of it."""
    if not members:
        raise ValueError(f"{path} must contain a released ELMo; it is empty.")
    check_space(f"Unpacking {path}", size, scratch.parent)
    folder = scratch / path.name
    if folder.exists():
        raise ValueError(f"{path} must contain a released ELMo; it is an archive within an archive of that name.")
    for name, _ in members:
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if not parts or ".." in parts or parts[0] == "/" or ":" in parts[0]:
            raise ValueError(
                f"{path} must contain relative paths only; {name!r} points outside of it, so nothing was unpacked."
            )
        if len(parts) > MAX_DEPTH:
            raise ValueError(
                f"{path} must contain at most {MAX_DEPTH} folders within one another; {name!r:.80} is in "
                f"{len(parts) - 1}, so nothing was unpacked."
            )
    for name, member in members:
        target = folder / PurePosixPath(name.replace("\\", "/"))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            file = open(target, "wb")  # noqa: SIM115, it is closed below
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG):
                raise
            problem = "too long" if error.errno == errno.ENAMETOOLONG else "both"
            raise ValueError(f"{path} must contain files and folders; {name!r:.80} is {problem}.") from error
        with open_member(member) as packed, file:
            shutil.copyfileobj(packed, file, 1 << 20)
    return folder
