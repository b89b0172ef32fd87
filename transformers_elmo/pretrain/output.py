# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""The output folder of a training run: its lock, and checkpoints that are used only if they are undamaged.

Also the checksums of a folder's files, which the text cache has too.
"""

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..files import clear_leftovers, host_name, new_file, read_json, release, sha256_of, try_lock

SETTINGS_FILE, LOCK_FILE, CHECKSUMS_FILE = "pretraining.json", ".pretraining.lock", "checksums.json"
CHECKPOINT = re.compile(r"checkpoint-([1-9][0-9]{0,17})")


def rank() -> int:
    return int(os.environ.get("RANK", 0))  # set by torchrun


def check_output(output: Path, resume: bool):
    """Raise unless the folder has a run to resume or, without `resume`, is new or empty."""
    clear_leftovers(output)
    has_run = (output / SETTINGS_FILE).is_file()
    if resume and not has_run:
        raise ValueError(f"{output} contains no run to resume; leave out --resume, or pass the folder of a run.")
    if not resume and has_run:
        raise ValueError(f"{output} already exists; pass --resume to continue its run, or choose another --output.")
    exists = output.exists() or output.is_symlink()
    if not resume and exists and (not output.is_dir() or any(path.name != LOCK_FILE for path in output.iterdir())):
        raise ValueError(f"--output must be a new or empty folder; {output} exists: choose another name.")


@contextmanager
def locked_output(output: Path, resume: bool) -> Iterator[None]:
    """Create the folder if necessary, and keep other runs out of it during the block. Remove it if it stays empty."""
    check_output(output, resume)
    if rank() > 0:  # the main process holds the lock for all
        yield
        return
    created = [folder for folder in (output, *output.parents) if not folder.exists()]
    try:
        output.mkdir(parents=True, exist_ok=True)
        path = output / LOCK_FILE
        lock = acquire_lock(path)
        try:
            check_output(output, resume)  # another run may have ended in the meantime
            yield
        finally:
            release_lock(path, lock)
    finally:
        for folder in created:
            with contextlib.suppress(OSError):  # it is not empty
                folder.rmdir()


def acquire_lock(path: Path) -> int | None:
    """Lock a file by the operating system's lock, which ends with the process, however it ends."""
    while True:
        path.touch()
        # Whoever held the lock may remove the file at any moment.
        with contextlib.suppress(FileNotFoundError):
            try:
                lock = try_lock(path)
            except BlockingIOError:
                holder = path.read_text(encoding="utf-8").strip() or "another process"
                raise BlockingIOError(
                    f"{path.parent} is in use by another run, {holder}: wait until it ends, or choose another --output."
                ) from None
            if lock is None:
                print(f"{path.parent} cannot be locked: make sure that no other run writes to it.", file=sys.stderr)
                return None
            if os.path.samestat(os.fstat(lock), path.stat()):
                path.write_text(f"process {os.getpid()} on {host_name()}", encoding="utf-8")
                return lock
            release(lock)


def release_lock(path: Path, lock: int | None):
    with contextlib.suppress(OSError):
        path.unlink()
    release(lock)


def write_checksums(folder: Path):
    """Store the SHA-256 of all files in a folder."""
    checksums = {path.name: sha256_of(path) for path in sorted(folder.iterdir()) if path.is_file()}
    with new_file(folder / CHECKSUMS_FILE) as unfinished:
        unfinished.write_text(json.dumps(checksums, indent=2) + "\n", encoding="utf-8")


def find_damage(folder: Path) -> str | None:
    """Describe the first file that is not as `write_checksums` found it, None if all are."""
    name = CHECKSUMS_FILE
    try:
        checksums = read_json(folder / CHECKSUMS_FILE)
        for name, checksum in checksums.items():
            if sha256_of(folder / name) != checksum:
                return f"{name} is damaged"
    except FileNotFoundError:
        return f"{name} is missing"
    except (OSError, ValueError):
        return f"{name} cannot be read"
    return None if checksums else f"{CHECKSUMS_FILE} is empty"


def checkpoints(output: str | Path) -> list[tuple[int, Path]]:
    """Return the steps and folders of the checkpoints in a folder, the last one first."""
    found = [(int(match[1]), path) for path in Path(output).glob("*") if (match := CHECKPOINT.fullmatch(path.name))]
    return sorted(((step, path) for step, path in found if path.is_dir()), reverse=True)


def last_checkpoint(output: str | Path) -> Path | None:
    """Return the last complete and undamaged checkpoint in a folder, None if there is none."""
    return next((path for _, path in checkpoints(output) if find_damage(path) is None), None)


def remove_old_checkpoints(output: str | Path, step: int):
    """Remove all checkpoints but those of this step and before it; those of later steps could not be resumed from."""
    before = [path for number, path in checkpoints(output) if number < step]
    later = [path for number, path in checkpoints(output) if number > step]
    for path in (*before[1:], *later):
        shutil.rmtree(path, ignore_errors=True)
