"""`elmo embed`: the vectors in its .npz file, its inputs, bad input and output, interruption."""

import argparse
import codecs
import errno
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.command import assert_one_sentence, run
from transformers_elmo import ElmoModel, ElmoTokenizer, checkpoints
from transformers_elmo.command.embed import check_arguments, count_lines

LINES = ["Don't stop, Mr. Smith!", "", "Any wörd 😀 will do .", "One"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("layer", ["mix", "all", "words", "top"])
def test_vectors_of_each_line(capsys, checkpoint, text, tmp_path, layer):
    output = tmp_path / "vectors.npz"
    code, out, _ = run(capsys, "embed", checkpoint, text, "-o", output, "--layer", layer, "--batch-words", 3)
    assert code == 0 and "4 sentences, 14 words" in out
    model, tokenizer = ElmoModel.from_pretrained(checkpoint), ElmoTokenizer()
    with np.load(output) as arrays:
        assert json.loads(arrays["words"].item())[0] == ["Don", "'t", "stop", ",", "Mr.", "Smith", "!"]
        assert set(arrays.files) == {"0", "1", "2", "3", "words"}
        for index, line in enumerate(LINES):
            with torch.no_grad():
                outputs = model(**tokenizer(line, return_tensors="pt"), output_hidden_states=True)
            expected = {
                "mix": outputs.last_hidden_state[0],
                "all": torch.cat(outputs.hidden_states),
                "words": outputs.hidden_states[0][0],
                "top": outputs.hidden_states[-1][0],
            }[layer][..., 1:-1, :]
            assert arrays[str(index)].shape == expected.shape
            np.testing.assert_allclose(arrays[str(index)], expected, atol=1e-6)


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".parquet"])
def test_columns(capsys, checkpoint, tmp_path, suffix):
    path, output = tmp_path / f"text{suffix}", tmp_path / "vectors.npz"
    if suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table({"story": ["One two.", None, "Three\nfour"]}), path)
    else:
        rows = [{"story": "One two."}, {"story": None}, {"story": "Three\nfour"}]
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(data) if suffix.endswith(".gz") else data)
    assert run(capsys, "embed", checkpoint, path, "-o", output, "--column", "story")[0] == 0
    with np.load(output) as arrays:
        assert json.loads(arrays["words"].item()) == [["One", "two", "."], [], ["Three", "four"]]
    assert_one_sentence(run(capsys, "embed", checkpoint, path, "-o", output), "'text'", "--column")


def test_encoding_errors(capsys, checkpoint, tmp_path):
    path, output = tmp_path / "text.txt", tmp_path / "vectors.npz"
    path.write_bytes(b"ok\ncaf\xe9\n")
    assert_one_sentence(run(capsys, "embed", checkpoint, path, "-o", output), "line 2", "--encoding-errors replace")
    assert not output.exists()
    assert run(capsys, "embed", checkpoint, path, "-o", output, "--encoding-errors", "replace")[0] == 0
    with np.load(output) as arrays:
        assert json.loads(arrays["words"].item())[0] == ["ok"]


def test_options_between_the_checkpoint_and_the_input(capsys, checkpoint, text, tmp_path):
    output = tmp_path / "vectors.npz"
    assert run(capsys, "embed", checkpoint, "--pretokenized", text, "-o", output)[0] == 0
    with np.load(output) as arrays:
        assert json.loads(arrays["words"].item())[0] == LINES[0].split()


def test_pretokenized_standard_input(capsys, checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Don't split, me.\r\nx\x0by\n")))
    output = tmp_path / "vectors.npz"
    assert run(capsys, "embed", checkpoint, "-o", output, "--pretokenized")[0] == 0
    with np.load(output) as arrays:
        assert json.loads(arrays["words"].item()) == [["Don't", "split,", "me."], ["x", "y"]]


@pytest.mark.parametrize("pack, suffix", [(bytes, ".txt"), (gzip.compress, ".txt.gz")])
def test_a_byte_order_mark_and_compression_change_nothing(capsys, checkpoint, text, tmp_path, pack, suffix):
    other = tmp_path / f"other{suffix}"
    other.write_bytes(pack(codecs.BOM_UTF8 + b"\r\n".join(text.read_bytes().split(b"\n"))))
    for path, output in ((text, "text.npz"), (other, "other.npz")):
        assert run(capsys, "embed", checkpoint, path, "-o", tmp_path / output)[0] == 0
    with np.load(tmp_path / "text.npz") as expected, np.load(tmp_path / "other.npz") as arrays:
        assert arrays.files == expected.files
        for name in arrays.files:
            np.testing.assert_array_equal(arrays[name], expected[name])


def test_blank_lines_before_the_first_sentence_count(capsys, checkpoint, tmp_path):
    text, output = tmp_path / "text.txt", tmp_path / "vectors.npz"
    text.write_text("\n \nOne two\n\n")
    assert run(capsys, "embed", checkpoint, text, "-o", output)[0] == 0
    with np.load(output) as arrays:
        assert json.loads(arrays["words"].item()) == [[], [], ["One", "two"], []]


def test_bad_input_and_output(capsys, checkpoint, text, tmp_path):
    empty, latin, folder = tmp_path / "empty.txt", tmp_path / "latin.txt", tmp_path / "folder"
    empty.write_text("\n \n")
    latin.write_bytes(b"fine\nna\xefve\n")
    folder.mkdir()
    output = tmp_path / "vectors.npz"
    assert_one_sentence(run(capsys, "embed", checkpoint, empty, "-o", output), empty, "text")
    assert_one_sentence(run(capsys, "embed", checkpoint, latin, "-o", output), latin, "line 2", "0xef")
    assert_one_sentence(
        run(capsys, "embed", checkpoint, folder, "-o", output), "INPUT must be a file, or -", folder, "is a folder"
    )
    assert_one_sentence(
        run(capsys, "embed", checkpoint, tmp_path / "none.txt", "-o", output), "none.txt does not exist"
    )
    assert_one_sentence(run(capsys, "embed", checkpoint, text, "-o", tmp_path / "x.txt"), "must end in .npz")
    assert_one_sentence(
        run(capsys, "embed", checkpoint, text, "-o", tmp_path / "no" / "x.npz"), tmp_path / "no", "create it"
    )
    for device in ("nonsense", "cuda:99"):
        result = run(capsys, "embed", checkpoint, text, "-o", output, "--device", device)
        assert_one_sentence(result, "--device must be a torch device", f"got {device}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.txt", "folder", "latin.txt", "text.txt"]


def test_output_that_is_a_link_or_exists(capsys, checkpoint, text, tmp_path):
    """The file that a link points to is replaced, not the link; of two hard links, only the one that is named."""
    target, link, other = tmp_path / "target.npz", tmp_path / "link.npz", tmp_path / "other.npz"
    target.write_bytes(b"old")
    link.symlink_to(target.name)
    os.link(target, other)
    assert run(capsys, "embed", checkpoint, text, "-o", link)[0] == 0
    assert link.is_symlink() and other.read_bytes() == b"old"
    with np.load(target) as arrays:
        assert len(arrays.files) == len(LINES) + 1
    target.unlink()
    assert run(capsys, "embed", checkpoint, text, "-o", link)[0] == 0
    assert link.is_symlink() and target.is_file()


def test_output_is_checked_before_the_work_starts(capsys, checkpoint, text, tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise AssertionError("work started")

    monkeypatch.setattr(checkpoints, "load", fail)

    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    result = run(capsys, "embed", checkpoint, text, "-o", tmp_path / "x.npz")
    assert_one_sentence(result, f"The folder {tmp_path} must be writable (Permission denied)")


@pytest.mark.skipif(not hasattr(os, "setuid") or os.getuid() != 0, reason="needs to be root to drop privileges")
def test_input_in_a_folder_that_may_not_be_read():
    """Not "does not exist": in a child without privileges, as root may read everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "closed")
        folder.mkdir()
        (folder / "text.txt").write_text("One\n")
        folder.chmod(0)
        os.chmod(name, 0o755)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setuid(65534)
                for arguments in ([folder / "text.txt", "-o", "/tmp/x.npz"], ["/dev/null", "-o", folder / "x.npz"]):
                    parsed = argparse.Namespace(input=str(arguments[0]), output=str(arguments[2]))
                    with pytest.raises(PermissionError, match=str(folder)):
                        check_arguments(parsed)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    "content, expected",
    [
        (b"One", [["One"]]),  # no line end
        (b"One\rTwo\r", [["One", "Two"]]),  # lines end at \n only
        (b"One\r\n\r\nTwo\r\n", [["One"], [], ["Two"]]),
        ("\u0301\u0302 \u200b \u202eabc\n".encode(), [["\u0301\u0302", "\u200b", "\u202e", "abc"]]),
        (b"One\x01\x1b Two\x7f\n", [["One", "Two"]]),
        (b"a" * 100_000 + b"\n", [["a" * 100_000]]),
        (b"<S> </S> <UNK> <PAD>\n", [["<S>", "</S>", "<UNK>", "<PAD>"]]),
        (b"a " * 20_000, [["a"] * 20_000]),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_unusual_text(capsys, checkpoint, tmp_path, content, expected):
    (tmp_path / "text.txt").write_bytes(content)
    assert run(capsys, "embed", checkpoint, tmp_path / "text.txt", "-o", tmp_path / "x.npz")[0] == 0
    with np.load(tmp_path / "x.npz") as arrays:
        assert json.loads(arrays["words"].item()) == expected
        assert [len(arrays[str(index)]) for index in range(len(expected))] == [len(words) for words in expected]


def test_empty_standard_input(capsys, checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    assert_one_sentence(run(capsys, "embed", checkpoint, "-o", tmp_path / "x.npz"), "standard input contains none")
    assert os.listdir(tmp_path) == []


def test_lines_are_counted_in_plain_files_only(text, tmp_path):
    compressed = tmp_path / "text.txt.gz"
    compressed.write_bytes(gzip.compress(text.read_bytes()))
    assert [count_lines(str(path)) for path in (text, compressed, "-")] == [4, None, None]


@pytest.mark.parametrize("signal_number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_no_file(checkpoint, tmp_path, signal_number, code):
    text, output = tmp_path / "text.txt", tmp_path / "vectors.npz"
    text.write_text("a sentence of some words\n" * 200_000)
    command = [sys.executable, "-m", "transformers_elmo.command", "embed", checkpoint, text, "-o", output]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.time() + 120
        while not list(tmp_path.glob(".vectors.npz.*")) and process.poll() is None and time.time() < deadline:
            time.sleep(0.1)
        process.send_signal(signal_number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert err.strip().splitlines()[-1:] == (["elmo: stopped"] if signal_number == signal.SIGINT else [])
    assert "Traceback" not in err
    assert os.listdir(tmp_path) == ["text.txt"]
