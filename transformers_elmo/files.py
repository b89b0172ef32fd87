# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Write files and folders whole or not at all, and read small files with errors in one sentence.

Writers fill a temporary sibling named `.NAME.HOST-RANDOM.unfinished`, which is synced and renamed to NAME once it is
complete. They lock it meanwhile. It is removed when its writer fails, and by the next writer in the same folder if its
own process was killed, which also ends the lock: process ids would be reused, and be the same in several containers.
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

try:
    import fcntl
except ImportError:  # Windows, where leftovers stay
    fcntl = None  # type: ignore[assignment]

LEFTOVER = re.compile(r"\..*\.(?P<host>[^.]+)-[0-9a-f]{8}\.(unfinished|replaced)", re.DOTALL)
# Libraries in Rust raise errors of their own, which contain the number of the system's.
RUST_ERROR = re.compile(r"\(os error (\d+)\)")


@contextmanager
def new_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to `path`, replacing any old file, if the block succeeds.

    A link at `path` stays, and the file that it points to is replaced.
    """
    target = Path(os.path.realpath(path))
    clear_leftovers(target.parent)
    try:
        unfinished, lock = reserve(target, "unfinished", is_folder=False)
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror}.") from error
    try:
        with sentence_errors(unfinished, Path(path)):
            yield unfinished
            sync(unfinished)
            unfinished.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
    finally:
        release(lock)
    sync_folder(target.parent)


@contextmanager
def new_folder(path: str | Path, replace: bool = False) -> Iterator[Path]:
    """Yield an empty temporary folder to fill; rename it to `path` if the block succeeds.

    With `replace`, it replaces an old folder at `path`.
    """
    path = Path(path)
    with scratch_folder(path.parent, path.name) as unfinished, sentence_errors(unfinished, path):
        yield unfinished
        complete(unfinished)
        try:
            if replace and path.exists():
                replace_folder(unfinished, path)
            else:
                unfinished.rename(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            raise FileExistsError(
                f"{path} was created by another process in the meantime: choose another name."
            ) from error
    sync_folder(path.parent)


def replace_folder(new: Path, path: Path):
    """Rename `new` to `path`, whose old folder is moved away first; `clear_leftovers` moves it back after a kill."""
    aside, lock = reserve(path, "replaced", is_folder=True)
    try:
        path.rename(aside / path.name)
        new.rename(path)
    finally:
        put_back(aside)
        release(lock)


def put_back(aside: Path):
    """Move a replaced folder back if nothing took its place, otherwise remove it."""
    with contextlib.suppress(OSError):
        for old in aside.iterdir():
            if not os.path.lexists(aside.parent / old.name):
                old.rename(aside.parent / old.name)
        # Renamed first, so that a folder of which a part is removed is never moved back.
        removed = aside.rename(aside.with_suffix(".unfinished"))
        shutil.rmtree(removed, ignore_errors=True)


@contextmanager
def scratch_folder(parent: str | Path, name: str = "scratch") -> Iterator[Path]:
    """Yield a new folder in `parent` that is removed when the block ends."""
    clear_leftovers(Path(parent))
    try:
        folder, lock = reserve(Path(parent) / name, "unfinished", is_folder=True)
    except OSError as error:
        raise OSError(f"The folder {parent} must be writable ({error.strerror}): choose another one.") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        release(lock)


@contextmanager
def new_files(folder: str | Path, last: str) -> Iterator[Path]:
    """Yield an empty temporary folder to fill; move its files into `folder` if the block succeeds.

    The file `last` is moved after all others: the result is complete if it is there.
    """
    folder = Path(folder)
    with scratch_folder(folder) as unfinished, sentence_errors(unfinished, folder):
        yield unfinished
        complete(unfinished)
        (folder / last).unlink(missing_ok=True)
        for file in sorted(unfinished.iterdir(), key=lambda file: file.name == last):
            file.replace(folder / file.name)
    sync_folder(folder)


def complete(folder: Path):
    """Give the files of a folder the permissions that the umask allows, and write them to the disk."""
    mode = folder.stat().st_mode & 0o666  # safetensors creates files with 0600
    for path in folder.rglob("*"):
        if path.is_dir():
            sync_folder(path)
        elif not path.is_symlink():
            path.chmod(mode)
            sync(path)
    sync_folder(folder)


def sync(path: Path):
    """Write a file to the disk: one that is renamed before that can be empty after a power failure."""
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path):
    """Write the names in a folder to the disk, where the file system can do that."""
    with contextlib.suppress(OSError):
        sync(folder)


def check_new_folder(path: Path):
    """Raise unless a folder can be created at `path`."""
    if file_status(path) is not None or path.is_symlink():
        raise FileExistsError(f"The output must be a new folder; {path} exists: remove it or choose another name.")
    check_writable(path.parent)


def check_new_file(path: str | Path):
    """Raise unless `new_file` can write to `path`, before work whose result would be lost."""
    status = file_status(path)
    if status is not None and not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a device or a pipe"
        raise FileExistsError(f"The output must be a file; {path} is {kind}: choose another name.")
    check_writable(Path(os.path.realpath(path)).parent)


def file_status(path: str | Path) -> os.stat_result | None:
    """Return the status of a file, None if there is none; raise if it cannot be known, as in an unreadable folder."""
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def check_writable(folder: Path):
    """Raise unless files can be created in a folder."""
    if not folder.is_dir():
        raise FileNotFoundError(f"The output must be in an existing folder; there is no folder {folder}: create it.")
    with scratch_folder(folder):
        pass


def check_space(what: str, needed: int, folder: Path):
    """Raise if `what`, which needs `needed` bytes, does not fit into `folder`."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(
            f"{what} needs {needed:,} bytes in {folder}, and {free:,} are free: free up space or choose another folder."
        )


def reserve(path: Path, kind: str, is_folder: bool) -> tuple[Path, int | None]:
    """Create an empty temporary file or folder beside `path`; return it and the descriptor that locks it.

    Its name is short enough for a file system's limit of 255 bytes.
    """
    name = os.fsencode(path.name)[:100].decode("utf-8", "ignore")
    while True:
        reserved = path.with_name(f".{name}.{host_name()}-{secrets.token_hex(4)}.{kind}")
        if is_folder:
            reserved.mkdir()
        else:
            reserved.touch(exist_ok=False)
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            lock = try_lock(reserved)
            if reserved.exists():
                return reserved, lock
            release(lock)
        # Another process took it for a leftover before it was locked.


def try_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock on a file or folder, until it is closed or the process ends.

    Return None where there are no locks. Raise BlockingIOError if another process holds it.
    """
    if fcntl is None:
        return None
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise
        return None


def release(lock: int | None):
    if lock is not None:
        os.close(lock)


def host_name() -> str:
    return socket.gethostname().replace(".", "_")


def clear_leftovers(folder: Path):
    """Remove the temporary files and folders of killed processes, and move folders back that they had moved away.

    Those that are locked are in use. Those of other hosts may be: some network file systems lock for one host only.
    """
    try:
        leftovers = [path for path in folder.iterdir() if is_leftover(path)]
    except OSError:  # it cannot be listed or does not exist
        return
    for path in leftovers:
        with contextlib.suppress(OSError):  # locked, or removed by another process
            lock = try_lock(path)
            if lock is not None:
                clear(path)
                release(lock)


def is_leftover(path: Path) -> bool:
    match = LEFTOVER.fullmatch(path.name)
    return match is not None and match["host"] == host_name()


def clear(path: Path):
    if path.name.endswith(".replaced"):
        put_back(path)
    elif path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()


@contextmanager
def sentence_errors(unfinished: Path, path: Path) -> Iterator[None]:
    """Turn errors of writing `unfinished` into one sentence that names `path`, which the user knows."""
    try:
        yield
    except BrokenPipeError:  # of standard output
        raise
    except OSError as error:
        written = unfinished.name in str(error.filename)
        if written or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OSError(f"{path} cannot be written, and nothing was saved: {error.strerror}.") from error
        if error.errno and error.filename is None:  # of a write, or of a read in the same block
            raise OSError(f"{path} was not saved: {error.strerror}.") from error
        if unfinished.name in str(error):
            raise OSError(known_path(str(error), unfinished, path)) from error
        raise
    except (ValueError, RuntimeError) as error:
        if unfinished.name in str(error):
            raise ValueError(known_path(str(error), unfinished, path)) from error
        raise
    except Exception as error:
        if not RUST_ERROR.search(str(error)):
            raise
        raise OSError(f"{path} cannot be written, and nothing was saved: {reason(error)}.") from error


def known_path(message: str, unfinished: Path, path: Path) -> str:
    for spelling in (os.path.realpath(unfinished), str(unfinished.absolute()), str(unfinished)):
        message = message.replace(spelling, str(path))
    return message


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Name the file in an error of reading it: the system names one that cannot be opened, but not a damaged disk's."""
    try:
        yield
    except OSError as error:
        if not error.errno or error.filename is not None:
            raise
        raise OSError(f"{path} cannot be read: {reason(error)}.") from error


def read_text(path: Path) -> str:
    """Return the UTF-8 text of a file with its line ends unchanged."""
    try:
        with named_errors(path):
            return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8 text; it has the byte 0x{error.object[error.start]:02x}.") from error


def read_json(path: Path) -> dict:
    """Return the JSON object in a file."""
    text = read_text(path).removeprefix("\ufeff")  # some editors write a byte order mark
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be JSON; it cannot be parsed ({one_line(error)}).") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must be a JSON object; it is a {type(content).__name__}.")
    return content


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with named_errors(path), open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def reason(error: BaseException) -> str:
    """Return the system's message for an error, or else the error's own, as part of a sentence."""
    if match := RUST_ERROR.search(str(error)):
        return os.strerror(int(match[1]))
    if "inline_container" in str(error):  # torch.save's writer in C++, which does not know the system's message
        return "a write failed"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)  # `error.strerror` of h5py is a paragraph
    return one_line(error)


def one_line(error: BaseException) -> str:
    """Return an error's message as part of a sentence: on one line, of bounded length, without a final period."""
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
