# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Write files and folders whole or not at all, and read small files with errors in one sentence.

Writers fill a temporary sibling named `.NAME.HOST-PID-RANDOM.unfinished`, which is renamed to NAME once it is complete.
It is removed when its writer fails, and by the next writer in the same folder if its own process was killed.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNFINISHED = re.compile(r"\..*\.(?P<host>[^.]+)-(?P<pid>\d+)-[0-9a-f]{8}\.unfinished", re.DOTALL)


@contextmanager
def new_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to `path`, replacing any old file, if the block succeeds."""
    path = Path(path)
    clear_leftovers(path.parent)
    unfinished = unfinished_path(path)
    try:
        with disk_full_errors(path):
            yield unfinished
            unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def new_folder(path: str | Path, replace: bool = False) -> Iterator[Path]:
    """Yield an empty temporary folder to fill; rename it to `path` if the block succeeds.

    With `replace`, it replaces an old folder at `path`.
    """
    path = Path(path)
    with scratch_folder(path.parent, path.name) as unfinished, disk_full_errors(path):
        yield unfinished
        mode = unfinished.stat().st_mode & 0o666  # as the umask allows; safetensors creates files with 0600
        for file in unfinished.rglob("*"):
            if file.is_file() and not file.is_symlink():
                file.chmod(mode)
        old = unfinished_path(path)
        if replace and path.exists():
            path.rename(old)
        try:
            unfinished.rename(path)
        except OSError as error:
            if old.exists() and not path.exists():
                old.rename(path)
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            raise FileExistsError(
                f"{path} was created by another process in the meantime: choose another name."
            ) from error
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def scratch_folder(parent: str | Path, name: str = "scratch") -> Iterator[Path]:
    """Yield a new folder in `parent` that is removed when the block ends."""
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


def check_new_folder(path: Path):
    """Raise unless a folder can be created at `path`."""
    if file_mode(path) is not None or path.is_symlink():
        raise FileExistsError(f"The output must be a new folder; {path} exists: remove it or choose another name.")
    check_writable(path.parent)


def check_new_file(path: str | Path):
    """Raise unless `new_file` can write to `path`, before work whose result would be lost."""
    path = Path(path)
    mode = file_mode(path)
    if mode is not None and not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise FileExistsError(f"The output must be a file; {path} is {kind}: choose another name.")
    check_writable(path.parent)


def file_mode(path: Path) -> int | None:
    """Return the type and permissions of what is at `path`, None if there is nothing."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def check_writable(folder: Path):
    """Raise unless files can be created in a folder."""
    if not folder.is_dir():
        raise FileNotFoundError(f"The output must be in an existing folder; {folder} does not exist.")
    with scratch_folder(folder):
        pass


def check_space(what: str, needed: int, folder: Path):
    """Raise if `what`, which needs `needed` bytes, does not fit into `folder`."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(
            f"{what} needs {needed:,} bytes in {folder}, and {free:,} are free: free up space or choose another folder."
        )


def unfinished_path(path: Path) -> Path:
    """Return a new temporary name beside `path`, short enough for a file system's limit of 255 bytes."""
    name = os.fsencode(path.name)[:100].decode("utf-8", "ignore")
    return path.with_name(f".{name}.{host_name()}-{os.getpid()}-{secrets.token_hex(4)}.unfinished")


def host_name() -> str:
    return socket.gethostname().replace(".", "_")


def clear_leftovers(folder: Path):
    """Remove the temporary files and folders of killed processes; those of other hosts may still be in use."""
    with contextlib.suppress(OSError):  # a folder that cannot be listed or does not exist
        for path in folder.iterdir():
            match = UNFINISHED.fullmatch(path.name)
            if match and match["host"] == host_name() and not is_running(int(match["pid"])):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)


def is_running(pid: int) -> bool:
    if os.name == "nt":
        return True  # signal 0 would end the process on Windows
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it belongs to another user
        pass
    return True


@contextmanager
def disk_full_errors(path: Path) -> Iterator[None]:
    """Turn a full disk or an exceeded quota into one sentence."""
    try:
        yield
    except Exception as error:
        # The tokenizers library raises a bare Exception that ends in the number of the error.
        match = re.search(r"\(os error (\d+)\)$", str(error))
        code = getattr(error, "errno", None) or (int(match[1]) if match else 0)
        if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OSError(f"{path} cannot be written, and nothing was saved: {os.strerror(code)}.") from error
        raise


def read_text(path: Path) -> str:
    """Return the UTF-8 text of a file with its line ends unchanged."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8 text; it has the byte 0x{error.object[error.start]:02x}.") from error


def read_json(path: Path) -> dict:
    """Return the JSON object in a file."""
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be JSON; it cannot be parsed ({one_line(error)}).") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must be a JSON object; it is a {type(content).__name__}.")
    return content


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def one_line(error: BaseException) -> str:
    """Return an error's message as part of a sentence: on one line, of bounded length, without a final period."""
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
