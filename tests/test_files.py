"""Files and folders that appear whole or not at all, and the leftovers of killed writers."""

import codecs
import errno
import hashlib
import os
import signal
import socket
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from transformers_elmo import files
from transformers_elmo.files import (
    check_new_file,
    check_new_folder,
    check_space,
    new_file,
    new_files,
    new_folder,
    one_line,
    read_json,
    read_text,
    reason,
    scratch_folder,
    sha256_of,
)

WRITERS = [new_file, new_folder, lambda path: scratch_folder(path.parent)]


def write(path: Path):
    """Write something to the path that a writer yields, a file or a folder."""
    if path.is_dir():
        (path / "part").write_text("new")
    else:
        path.write_text("new")


def leftover(folder: Path, name="x", host=None, is_folder=False) -> Path:
    """Leave a temporary file or folder like that of a killed writer, which no longer holds its lock."""
    path = folder / f".{name}.{host or files.host_name()}-0123abcd.unfinished"
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


def test_file_behind_a_link(tmp_path):
    """A link on a small disk to a file on a large one stays a link."""
    (tmp_path / "links").mkdir()
    (tmp_path / "large").mkdir()
    for name in ("old", "new"):
        (tmp_path / "links" / name).symlink_to(Path("..", "large", name))
    (tmp_path / "large" / "old").write_text("old")
    for name in ("old", "new"):
        with new_file(tmp_path / "links" / name) as path:
            write(path)
            assert path.parent == tmp_path / "large"
        assert (tmp_path / "links" / name).is_symlink() and (tmp_path / "large" / name).read_text() == "new"
    assert sorted(os.listdir(tmp_path / "links")) == sorted(os.listdir(tmp_path / "large")) == ["new", "old"]


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
def test_leftovers_of_killed_processes_are_cleared(tmp_path, writer, is_folder):
    leftover(tmp_path, is_folder=is_folder)
    leftover(tmp_path, name="other.name\n", is_folder=is_folder)
    with writer(tmp_path / "x") as path:
        assert os.listdir(tmp_path) in ([], [path.name])
        write(path)


def test_leftovers_are_cleared_on_a_host_with_dots(tmp_path, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "node-7.cluster.example.org")
    leftover(tmp_path)
    with new_file(tmp_path / "x") as path:
        assert os.listdir(tmp_path) == [path.name] and files.is_leftover(path)
        write(path)


def test_links_are_no_leftovers(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    name = leftover(folder).name
    (folder / name).unlink()
    (folder / name).symlink_to(tmp_path / "precious")
    with new_file(folder / "x") as path:
        write(path)
    assert sorted(os.listdir(folder)) == sorted([name, "x"]) and os.listdir(tmp_path / "precious") == ["file"]


def test_leftovers_that_may_be_in_use_stay(tmp_path):
    others = [
        leftover(tmp_path, name="a", host="elsewhere"),
        leftover(tmp_path, name="b", host="elsewhere", is_folder=True),
        tmp_path / ".hidden",
        tmp_path / "x.unfinished",
        tmp_path / f".x.{files.host_name()}.unfinished",
    ]
    for path in others[2:]:
        path.touch()
    with new_file(tmp_path / "c") as file, new_folder(tmp_path / "d") as folder, scratch_folder(tmp_path) as scratch:
        for path in (file, folder):
            write(path)
        with new_file(tmp_path / "x") as path:
            write(path)
        assert set(tmp_path.iterdir()) == {*others, file, folder, scratch, tmp_path / "x"}
    assert set(tmp_path.iterdir()) == {*others, *(tmp_path / name for name in "cdx")}


@pytest.mark.parametrize("writer", [new_file, new_folder])
def test_taken_for_a_leftover_before_it_is_locked(tmp_path, monkeypatch, writer):
    try_lock, seen = files.try_lock, []

    def late(path):
        seen.append(path)
        if len(seen) == 1:
            files.clear_leftovers(tmp_path)
            seen[:] = [path, None]
        return try_lock(path)

    monkeypatch.setattr(files, "try_lock", late)
    with writer(tmp_path / "x") as path:
        write(path)
        assert path != seen[0] and path == seen[-1]
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("writer", WRITERS)
def test_file_systems_without_locks(tmp_path, monkeypatch, writer):
    def flock(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(files.fcntl, "flock", flock)
    old = leftover(tmp_path)
    with writer(tmp_path / "x") as path:
        write(path)
    assert old.exists()  # it may be in use


def kill_in(function):
    """Run a function in another process, which it must kill."""
    process = os.fork()
    if process == 0:
        try:
            function()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def test_leftovers_of_a_process_killed_by_a_signal(tmp_path):
    def write_half():
        with new_folder(tmp_path / "folder") as folder, new_file(tmp_path / "file") as file:
            write(folder)
            write(file)
            kill()

    kill_in(write_half)
    assert len(os.listdir(tmp_path)) == 2 and all(name.endswith(".unfinished") for name in os.listdir(tmp_path))
    with new_file(tmp_path / "x") as path:
        write(path)
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_killed_while_replacing_a_folder(tmp_path, nth):
    """Between the two renames, only the folder moved aside is left: the next writer moves it back."""
    name = "x" * 255
    (tmp_path / name).mkdir()
    (tmp_path / name / "old").touch()
    rename = Path.rename

    def replace():
        renames = iter(range(1, 4))
        Path.rename = lambda path, to: kill() if next(renames) == nth else rename(path, to)
        with new_folder(tmp_path / name, replace=True) as folder:
            write(folder)

    kill_in(replace)
    assert (tmp_path / name).exists() == (nth != 2)
    with new_file(tmp_path / "y") as path:
        write(path)
    assert sorted(os.listdir(tmp_path)) == [name, "y"]
    assert os.listdir(tmp_path / name) == (["old"] if nth < 3 else ["part"])


def test_half_removed_folder_is_not_moved_back(tmp_path, monkeypatch):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "old").touch()
    with monkeypatch.context() as patch:
        patch.setattr(files.shutil, "rmtree", lambda *arguments, **options: None)  # killed while it removes
        with new_folder(tmp_path / "x", replace=True) as path:
            write(path)
    (tmp_path / "x" / "part").unlink()
    (tmp_path / "x").rmdir()
    with new_file(tmp_path / "y") as path:
        write(path)
    assert os.listdir(tmp_path) == ["y"]


def test_files_are_on_the_disk_before_they_are_renamed(tmp_path, monkeypatch):
    """A file that is renamed before its data is written can be empty after a power failure."""
    synced = []
    monkeypatch.setattr(files, "sync", lambda path: synced.append((path.name, (tmp_path / "x").exists())))
    with new_folder(tmp_path / "x") as path:
        write(path)
    assert synced == [("part", False), (path.name, False), (tmp_path.name, True)]
    (tmp_path / "x" / "part").unlink()
    (tmp_path / "x").rmdir()
    synced.clear()
    with new_file(tmp_path / "x") as path:
        write(path)
    assert synced == [(path.name, False), (tmp_path.name, True)]


def test_new_files_are_complete_with_the_last(tmp_path, monkeypatch):
    """A reader that finds the last file finds all new ones."""
    for name in ("a", "b", "other"):
        (tmp_path / name).write_text("old")
    replace, states = Path.replace, []

    def recording(path, target):
        states.append({name: (tmp_path / name).exists() and (tmp_path / name).read_text() for name in "abc"})
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", recording)
    with new_files(tmp_path, last="b") as folder:
        for name in "abc":
            with open(os.open(folder / name, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
                file.write("new")
        mode = stat.S_IMODE(folder.stat().st_mode) & 0o666
        assert (tmp_path / "b").read_text() == "old"
    assert len(states) == 3 and all(state["b"] is False for state in states)
    assert states[-1] == {"a": "new", "b": False, "c": "new"}
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c", "other"]
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "abc"} == {mode}


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
def test_long_names(tmp_path, name):
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


def errors_inside(path: Path) -> list[tuple[Exception, str]]:
    """Errors in the block of a writer, and the message for each; `path` is the temporary one."""
    part, resolved = str(path / "part"), os.path.realpath(path / "part")
    return [
        (PermissionError(errno.EACCES, "no", part), "out/x cannot be written, and nothing was saved: no."),
        (PermissionError(errno.EACCES, "no", "/source"), "[Errno 13] no: '/source'"),
        (OSError(errno.EIO, "bad disk"), "out/x was not saved: bad disk."),
        (OSError(f"{resolved} is odd."), "out/x/part is odd."),
        (RuntimeError(f"{resolved}: odd."), "out/x/part: odd."),
        (ValueError(f"{part} is odd."), "out/x/part is odd."),
        (ValueError("odd"), "odd"),
        (BrokenPipeError(errno.EPIPE, "of stdout"), "[Errno 32] of stdout"),
    ]


@pytest.mark.parametrize("writer", [new_file, new_folder])
@pytest.mark.parametrize("case", range(8))
def test_errors_name_the_path_that_the_user_gave(tmp_path, monkeypatch, writer, case):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    with pytest.raises(Exception) as caught, writer(Path("out/x")) as path:
        error, message = errors_inside(path)[case]
        raise error
    assert str(caught.value) == message
    assert isinstance(caught.value, (OSError, ValueError)) and os.listdir("out") == []


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
    with pytest.raises(FileNotFoundError, match=r"must be in an existing folder; there is no folder .*nowhere"):
        check_new_folder(tmp_path / "nowhere" / "x")


@pytest.mark.parametrize("name", ["new", "old", "link to old", "dangling link"])
def test_check_new_file(tmp_path, name):
    (tmp_path / "old").write_text("old")
    (tmp_path / "link to old").symlink_to("old")
    (tmp_path / "dangling link").symlink_to("nowhere")
    before = sorted(os.listdir(tmp_path))
    check_new_file(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == before and (tmp_path / "old").read_text() == "old"


@pytest.mark.parametrize("check", [check_new_file, check_new_folder])
@pytest.mark.parametrize(
    "name, message",
    [
        ("nowhere/x", "must be in an existing folder; there is no folder .*nowhere"),
        ("file/x", "must be in an existing folder; there is no folder .*file"),
        ("/proc/x", r"The folder /proc must be writable \(.*\): choose another one"),
        ("x" * 256, "File name too long"),
    ],
)
def test_outputs_that_cannot_be_written(tmp_path, check, name, message):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=message):
        check(tmp_path / name)


@pytest.mark.parametrize("name, kind", [("folder", "folder"), ("link", "folder"), ("pipe", "device or a pipe")])
def test_output_that_is_no_file(tmp_path, name, kind):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=f"must be a file; .*{name} is a {kind}: choose another name"):
        check_new_file(tmp_path / name)


def test_read_text_json_and_hash(tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(b'{"a":\r\n "\xc3\xb6"}')
    assert read_text(path) == '{"a":\r\n "ö"}' and read_json(path) == {"a": "ö"}
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())  # as Windows writes it
    assert read_json(path) == {"a": "ö"}
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


@pytest.mark.parametrize(
    "error, expected",
    [
        (OSError(errno.EIO, "Input/output error", "x"), "Input/output error"),
        (Exception(f"I/O error: gone (os error {errno.EACCES})"), os.strerror(errno.EACCES)),
        (RuntimeError("[enforce fail]\n no."), "[enforce fail] no"),
    ],
)
def test_reason(error, expected):
    assert reason(error) == expected


def test_one_line():
    assert one_line(ValueError("a\n  b.\n")) == "a b" and one_line(ValueError()) == "ValueError"
    assert len(one_line(ValueError("x" * 1000))) == 200


def test_hash_of_a_large_file(tmp_path):
    content = bytes(range(251)) * 10_000  # 2.5 MB, more than is read at once
    (tmp_path / "x").write_bytes(content)
    assert sha256_of(tmp_path / "x") == hashlib.sha256(content).hexdigest()


def test_reason_of_torch_is_no_jargon():
    assert reason(RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 8384")) == "a write failed"
