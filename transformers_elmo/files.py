# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Write beside and rename, so that a file or folder appears under its name only when it is whole.

Everything unfinished is called `.NAME.HOST-PID-RANDOM.unfinished`. It is removed when its writer fails, and by the next
writer in the same folder if its own was killed.
"""

import errno
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNFINISHED = re.compile(r"\..*\.(?P<host>[^/]+)-(?P<pid>\d+)-[0-9a-f]{8}\.unfinished")


def unfinished_path(path: Path) -> Path:
    """A new name beside `path`; long names are cut, as file systems end at 255 bytes."""
    name = os.fsdecode(os.fsencode(path.name)[:100])
    return path.with_name(f".{name}.{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}.unfinished")


@contextmanager
def new_file(path: str | Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to, and rename it to `path` when the block ends well."""
    path = Path(path)
    clear_leftovers(path.parent)
    unfinished = unfinished_path(path)
    try:
        with plain_disk_errors(path):
            yield unfinished
            unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def new_folder(path: str | Path, replace: bool = False) -> Iterator[Path]:
    """Yield an empty folder beside `path` to fill, and rename it to `path` when the block ends well.

    With `replace`, a folder that is at `path` by then is removed first.
    """
    path = Path(path)
    with scratch_folder(path.parent, path.name) as unfinished, plain_disk_errors(path):
        yield unfinished
        rights = unfinished.stat().st_mode & 0o666  # of any new file; safetensors makes files for their owner only
        for file in unfinished.iterdir():
            if file.is_file():
                file.chmod(rights)
        if replace:
            shutil.rmtree(path, ignore_errors=True)
        unfinished.rename(path)


@contextmanager
def scratch_folder(parent: str | Path, name: str = "scratch") -> Iterator[Path]:
    """Yield a new folder in `parent`, which is removed when the block ends."""
    clear_leftovers(Path(parent))
    folder = unfinished_path(Path(parent) / name)
    try:
        folder.mkdir()
    except OSError as error:
        raise OSError(f"The folder {parent} must be writable ({error.strerror}): choose another one.") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clear_leftovers(folder: Path):
    """Remove what killed processes of this machine left unfinished in a folder."""
    for path in folder.iterdir() if folder.is_dir() else ():
        name = UNFINISHED.fullmatch(path.name)
        if name and name["host"] == socket.gethostname() and not is_running(int(name["pid"])):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def is_running(pid: int) -> bool:
    if os.name == "nt":
        return True  # Windows would end the process that is asked
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        pass
    return True


def check_new_folder(path: Path):
    """Raise if a folder cannot be created at `path` because of what is there."""
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"The output must be a new folder; {path} exists: remove it or choose another name.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The output must lie in an existing folder; {path.parent} does not exist.")


def check_space(what: str, needed: int, folder: Path):
    """Raise if `folder` has less than `needed` bytes free; `what` names what needs them."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(f"{what} needs {needed:,} bytes in {folder}; {free:,} are free.")


@contextmanager
def plain_disk_errors(path: Path) -> Iterator[None]:
    """Say in one sentence that the disk is full."""
    try:
        yield
    except Exception as error:
        # The tokenizers library raises a bare Exception that ends in the number of the error.
        code = getattr(error, "errno", None) or int((re.search(r"\(os error (\d+)\)$", str(error)) or [0, 0])[1])
        if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OSError(f"{path} cannot be written, and nothing was kept: {os.strerror(code)}.") from error
        raise
