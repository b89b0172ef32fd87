"""Files and folders that appear whole or not at all, and the leftovers of killed writers."""

import errno
import hashlib
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from transformers_elmo import files
from transformers_elmo.files import (
    check_new_folder,
    check_space,
    new_file,
    new_folder,
    one_line,
    read_json,
    read_text,
    scratch_folder,
    sha256_of,
)

WRITERS = [new_file, new_folder, lambda path: scratch_folder(path.parent)]


@pytest.fixture
def dead_pid():
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def write(path: Path):
    """Write something to the path that a writer yields, a file or a folder."""
    if path.is_dir():
        (path / "part").write_text("new")
    else:
        path.write_text("new")


def leftover(folder: Path, name="x", host=None, pid=None, is_folder=False) -> Path:
    """Leave a temporary file or folder like that of another writer."""
    host = files.host_name() if host is None else host
    path = folder / f".{name}.{host}-{os.getpid() if pid is None else pid}-0123abcd.unfinished"
    if is_folder:
        (path / "sub").mkdir(parents=True)
        (path / "sub" / "part").write_text("half")
    else:
        path.write_text("half")
    return path


def test_file_appears_when_complete(tmp_path):
    with new_file(tmp_path / "x") as path:
        path.write_text("new")
        assert path.parent == tmp_path and not (tmp_path / "x").exists()
    assert (tmp_path / "x").read_text() == "new" and os.listdir(tmp_path) == ["x"]


def test_file_replaces_an_old_one_only_when_complete(tmp_path):
    (tmp_path / "x").write_text("old")
    with new_file(str(tmp_path / "x")) as path:
        path.write_text("new")
        assert (tmp_path / "x").read_text() == "old"
        inode = path.stat().st_ino
    assert (tmp_path / "x").read_text() == "new" and os.listdir(tmp_path) == ["x"]
    assert (tmp_path / "x").stat().st_ino == inode  # renamed, not copied, so no reader sees half of it


def test_folder_appears_when_complete(tmp_path):
    with new_folder(tmp_path / "x") as path:
        assert list(path.iterdir()) == []
        write(path)
        assert not (tmp_path / "x").exists()
    assert os.listdir(tmp_path) == ["x"] and (tmp_path / "x" / "part").read_text() == "new"


def test_folder_replaces_an_old_one_only_when_complete(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "old").touch()
    with new_folder(tmp_path / "x", replace=True) as path:
        write(path)
        assert os.listdir(tmp_path / "x") == ["old"]
    assert os.listdir(tmp_path / "x") == ["part"] and os.listdir(tmp_path) == ["x"]


def test_folder_does_not_replace_one_that_appeared_meanwhile(tmp_path):
    message = "/x was created by another process in the meantime"
    with pytest.raises(FileExistsError, match=message), new_folder(tmp_path / "x") as path:
        write(path)
        (tmp_path / "x").mkdir()
        (tmp_path / "x" / "other").touch()
    assert os.listdir(tmp_path) == ["x"] and os.listdir(tmp_path / "x") == ["other"]


def test_old_folder_survives_a_failed_replacement(tmp_path, monkeypatch):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "old").touch()
    rename = Path.rename

    def failing(path, target):
        if (path / "part").exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="Input/output error"), new_folder(tmp_path / "x", replace=True) as path:
        write(path)
    assert os.listdir(tmp_path) == ["x"] and os.listdir(tmp_path / "x") == ["old"]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_failure_leaves_nothing(tmp_path, writer, error):
    with pytest.raises(error), writer(tmp_path / "x") as path:
        write(path)
        raise error
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("writer", [new_file, lambda path: new_folder(path, replace=True)])
def test_failure_keeps_the_old_one(tmp_path, writer):
    if writer is new_file:
        (tmp_path / "x").write_text("old")
    else:
        (tmp_path / "x").mkdir()
    with pytest.raises(KeyboardInterrupt), writer(tmp_path / "x") as path:
        write(path)
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == ["x"] and (tmp_path / "x").is_file() == (writer is new_file)


def test_block_that_writes_no_file(tmp_path):
    with pytest.raises(FileNotFoundError), new_file(tmp_path / "x"):
        pass
    assert os.listdir(tmp_path) == []


def test_scratch_folder_is_removed(tmp_path):
    with scratch_folder(tmp_path) as path:
        write(path)
        assert path.parent == tmp_path
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("parent", ["nowhere", "file"])
def test_scratch_folder_in_a_bad_place(tmp_path, parent):
    (tmp_path / "file").touch()
    message = rf"The folder .*{parent} must be writable \(.*\): choose another"
    with pytest.raises(OSError, match=message), scratch_folder(tmp_path / parent):
        pass


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("is_folder", [False, True])
def test_leftovers_of_killed_processes_are_cleared(tmp_path, dead_pid, writer, is_folder):
    leftover(tmp_path, pid=dead_pid, is_folder=is_folder)
    leftover(tmp_path, name="other.name\n", pid=dead_pid, is_folder=is_folder)
    with writer(tmp_path / "x") as path:
        assert os.listdir(tmp_path) in ([], [path.name])
        write(path)


def test_leftovers_are_cleared_on_a_host_with_dots(tmp_path, dead_pid, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "node-7.cluster.example.org")
    leftover(tmp_path, pid=dead_pid)
    with new_file(tmp_path / "x") as path:
        assert os.listdir(tmp_path) == []
        assert files.UNFINISHED.fullmatch(path.name)["host"] == files.host_name()
        write(path)


def test_linked_folders_are_not_emptied(tmp_path, dead_pid):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    name = leftover(folder, pid=dead_pid).name
    (folder / name).unlink()
    (folder / name).symlink_to(tmp_path / "precious")
    with new_file(folder / "x") as path:
        write(path)
    assert os.listdir(folder) == ["x"] and os.listdir(tmp_path / "precious") == ["file"]


def test_leftovers_that_may_be_in_use_stay(tmp_path, dead_pid):
    kept = [
        leftover(tmp_path, name="a"),  # of this process
        leftover(tmp_path, name="b", pid=os.getppid()),
        leftover(tmp_path, name="c", pid=1),  # may belong to another user
        leftover(tmp_path, name="d", host="elsewhere", pid=dead_pid),
        leftover(tmp_path, name="e", host="elsewhere", pid=dead_pid, is_folder=True),
    ]
    others = [".hidden", "x.unfinished", f".x.{files.host_name()}-{dead_pid}.unfinished"]
    for name in others:
        (tmp_path / name).touch()
    with new_file(tmp_path / "x") as path:
        write(path)
    assert sorted(os.listdir(tmp_path)) == sorted(["x", *others, *(path.name for path in kept)])


def test_leftovers_of_a_process_killed_by_a_signal(tmp_path):
    script = """
import os, signal, sys
from transformers_elmo.files import new_file, new_folder
with new_folder(sys.argv[1] + "/folder") as folder, new_file(sys.argv[1] + "/file") as file:
    (folder / "part").write_text("half")
    file.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script, tmp_path])
    assert done.returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 2 and all(name.endswith(".unfinished") for name in os.listdir(tmp_path))
    with new_file(tmp_path / "x") as path:
        write(path)
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("umask, file_mode, folder_mode", [(0o022, 0o644, 0o755), (0o077, 0o600, 0o700)])
def test_permissions_follow_the_umask(tmp_path, umask, file_mode, folder_mode):
    old = os.umask(umask)
    try:
        with new_file(tmp_path / "file") as path:
            path.touch()
        with new_folder(tmp_path / "folder") as path:
            (path / "sub").mkdir()
            for name in ("private", "sub/private"):
                os.close(os.open(path / name, os.O_CREAT, 0o600))
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"file": file_mode, "folder": folder_mode, "sub": folder_mode, "private": file_mode}
    assert stat.S_IMODE((tmp_path / "folder" / "private").stat().st_mode) == file_mode


@pytest.mark.parametrize("name", ["x" * 255, "ж" * 127, "😀" * 63, "a.b" * 80])
def test_long_names(tmp_path, dead_pid, name):
    for path, writer in ((tmp_path / name, new_file), (tmp_path / "folder" / name, new_folder)):
        path.parent.mkdir(exist_ok=True)
        with writer(path) as unfinished:
            assert len(os.fsencode(unfinished.name)) <= 255
            write(unfinished)
        assert path.exists()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("writer", [new_file, new_folder])
@pytest.mark.parametrize(
    "error",
    [lambda code: OSError(code, os.strerror(code)), lambda code: Exception(f"Writing failed (os error {code})")],
)
def test_full_disk(tmp_path, writer, error, code):
    with pytest.raises(OSError) as caught, writer(tmp_path / "x") as path:
        write(path)
        raise error(code)
    assert str(caught.value) == f"{tmp_path / 'x'} cannot be written, and nothing was saved: {os.strerror(code)}."
    assert os.listdir(tmp_path) == []


def test_other_errors_stay_as_they_are(tmp_path):
    error = PermissionError(errno.EACCES, "no")
    with pytest.raises(PermissionError) as caught, new_file(tmp_path / "x"):
        raise error
    assert caught.value is error


def test_check_space(tmp_path, monkeypatch):
    monkeypatch.setattr(files.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    check_space("It", 1000, tmp_path)
    with pytest.raises(OSError, match=r"It needs 1,001 bytes in .*, and 1,000 are free: free up space or choose"):
        check_space("It", 1001, tmp_path)


def test_check_new_folder(tmp_path):
    check_new_folder(tmp_path / "x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path, tmp_path / "link"):
        with pytest.raises(FileExistsError, match=f"must be a new folder; {path} exists"):
            check_new_folder(path)
    with pytest.raises(FileNotFoundError, match=r"must be in an existing folder; .*nowhere does not exist"):
        check_new_folder(tmp_path / "nowhere" / "x")


def test_read_text_json_and_hash(tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(b'{"a":\r\n "\xc3\xb6"}')
    assert read_text(path) == '{"a":\r\n "ö"}' and read_json(path) == {"a": "ö"}
    assert sha256_of(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"x\.json must be UTF-8 text; it has the byte 0xff\."):
        read_text(path)
    for content, message in (
        (b"{", "must be JSON; it cannot be parsed"),
        (b"[]", "must be a JSON object; it is a list"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_json(path)


def test_one_line():
    assert one_line(ValueError("a\n  b.\n")) == "a b" and one_line(ValueError()) == "ValueError"
    assert len(one_line(ValueError("x" * 1000))) == 200


def test_hash_of_a_large_file(tmp_path):
    content = bytes(range(251)) * 10_000  # 2.5 MB, more than is read at once
    (tmp_path / "x").write_bytes(content)
    assert sha256_of(tmp_path / "x") == hashlib.sha256(content).hexdigest()
