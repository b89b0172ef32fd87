"""`elmo convert` with wrong arguments and outputs, on full disks, and interrupted."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.conversion import assert_error, elmo, file_size_limit
from helpers.released import WORDS
from helpers.released_cases import bilm


def test_source_is_not_a_released_elmo(capfd, tmp_path, converted):
    empty, output = tmp_path / "empty", tmp_path / "x"
    empty.mkdir()
    (tmp_path / "text.txt").write_text("hello")
    for arguments, parts in (
        ([tmp_path / "nowhere"], ["nowhere", "exist"]),
        ([empty], ["empty", "nothing"]),
        ([tmp_path / "text.txt"], ["text.txt"]),
        ([converted["bilm"][1]], ["bilm", "already a Hugging Face checkpoint"]),
    ):
        assert_error(elmo(capfd, "convert", *arguments, "-o", output), *parts)
    assert sorted(os.listdir(tmp_path)) == ["empty", "text.txt"]


def test_wrong_arguments(capfd, tmp_path):
    assert_error(elmo(capfd, "convert", "-o", tmp_path / "x"), "SOURCE", "--name")
    assert_error(elmo(capfd, "convert", tmp_path, "--name", "original", "-o", tmp_path / "x"), "not both")
    assert_error(elmo(capfd, "convert", tmp_path), "--output")
    assert_error(elmo(capfd, "convert", "--name", "nonsense", "-o", tmp_path / "x"), "nonsense")
    assert os.listdir(tmp_path) == []


def test_bad_output(capfd, tmp_path, pristine, converted):
    folder, file, link = tmp_path / "folder", tmp_path / "file", tmp_path / "link"
    folder.mkdir()
    file.touch()
    link.symlink_to(tmp_path / "nowhere")
    for source, verb in ((pristine / "bilm", "convert"), (converted["bilm"][1], "export")):
        for output, part in (
            (folder, "exists"),
            (file, "exists"),
            (link, "exists"),
            (tmp_path / "none" / "x", tmp_path / "none"),
            (file / "x", file),
            (Path("/proc/elmo"), "/proc"),
        ):
            assert_error(elmo(capfd, verb, source, "-o", output), part)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "link"] and os.listdir(folder) == []


def test_full_disk_is_noticed_in_advance(convert_damaged, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    assert_error(convert_damaged("bilm", lambda folder: None), "1,000 are free", "needs")


@pytest.mark.parametrize("size, words", [(2_000, 0), (50_000, 3_000), (50_000, 0)], ids=["code", "words", "weights"])
def test_full_disk(capfd, tmp_path, skip_verification, size, words):
    source, output = tmp_path / "source", tmp_path / "out" / "x"
    bilm(source, vocab=[*WORDS, *(f"word{number}" for number in range(words))], char_cnn_embedding={"dim": 64})
    output.parent.mkdir()
    with file_size_limit(size):
        result = elmo(capfd, "convert", source, "-o", output)
    assert_error(result, output, os.strerror(errno.EFBIG))
    assert os.listdir(output.parent) == []


@pytest.mark.parametrize("size", [1_000, 8_000])
def test_full_disk_while_exporting(capfd, tmp_path, converted, size):
    with file_size_limit(size):
        result = elmo(capfd, "export", converted["bilm"][1], "-o", tmp_path / "x")
    assert_error(result, tmp_path / "x", os.strerror(errno.EFBIG))
    assert os.listdir(tmp_path) == []


def test_without_h5py(capfd, tmp_path, monkeypatch, pristine, converted):
    monkeypatch.setitem(sys.modules, "h5py", None)
    for arguments in (["convert", pristine / "bilm"], ["export", converted["bilm"][1]]):
        assert_error(elmo(capfd, *arguments, "-o", tmp_path / "x"), "h5py", "pip install 'transformers-elmo[convert]'")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number, code, message", [(signal.SIGINT, 130, "elmo: stopped\n"), (signal.SIGTERM, 143, "")])
def test_signals_leave_no_files(tmp_path, pristine, number, code, message):
    output, temporary = tmp_path / "out" / "x", tmp_path / "tmp"
    output.parent.mkdir()
    temporary.mkdir()
    command = [sys.executable, "-m", "transformers_elmo.command", "convert", pristine / "bilm", "-o", output]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    ) as process:
        deadline = time.time() + 120
        while not list(temporary.glob("*/sentences.json")) and process.poll() is None and time.time() < deadline:
            time.sleep(0.05)
        staged = os.listdir(output.parent)
        time.sleep(0.5)  # for the verification's process to start
        os.killpg(process.pid, number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code and err.endswith(message) and "Traceback" not in err
    assert staged and os.listdir(output.parent) == [] and list(temporary.glob("tmp*")) == []
