"""Readers of text: files of every kind, standard input, and one sentence about each that cannot be read."""

import errno
import gzip
import importlib.util
import io
import json
import lzma
import os
import sys
import tempfile
import threading
import tracemalloc
from contextlib import contextmanager
from functools import cache
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.fuzz import damage, damaged, fuzz
from helpers.text_files import TEXT, TEXT_FILES, gzipped, json_lines, write_parquet
from transformers_elmo import text as text_module
from transformers_elmo.embed.job import read_sentences
from transformers_elmo.text import find_files, read_lines, read_texts

TEXT_LINES = ["The cat sat. It sat!", "Löwen roar, Mr. Smith", "The cat 的"]
LONG_TEXT = "".join(f"line {number}\n" for number in range(2000)).encode()


def name_only(value):
    """The ids of parametrized tests: strings, but no bytes."""
    return value if isinstance(value, str) else ""


def read_nonblank_lines(path: Path, **options) -> list[str]:
    return [line for text in read_texts([path], **options) for line in text.split("\n") if line.strip()]


@pytest.mark.parametrize("name, content", TEXT_FILES, ids=name_only)
def test_files(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    assert read_nonblank_lines(path) == TEXT_LINES


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    texts, path = [*TEXT.split("\n"), None], tmp_path / "a.parquet"
    for kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())):
        columns = {"text": pyarrow.array(texts).cast(kind), "text.b": pyarrow.array(texts[::-1]), "n": range(6)}
        write_parquet(path, **columns)
        assert read_nonblank_lines(path) == TEXT_LINES
    assert read_nonblank_lines(path, column="text.b") == TEXT_LINES[::-1]


def test_another_column(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json_lines(TEXT, "body"))
    assert read_nonblank_lines(path, column="body") == TEXT_LINES


def test_last_line_ends_with_its_file(tmp_path):
    names = ["b.txt", "a.jsonl", "c.txt.gz"]
    for name, content in zip(names, (b"b 1", b'{"text": "a 1"}', gzipped(b"\xef\xbb\xbfc 1"))):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "empty.jsonl").write_bytes(b"\xef\xbb\xbf")
    (tmp_path / "empty.gz").write_bytes(b"")
    files = [tmp_path / name for name in ["empty.jsonl", *names, "empty.gz"]]
    assert [text for text in read_texts(files) if text] == ["b 1", "a 1", "c 1"]


def test_globs(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("b.txt", "a.txt", "c[1].txt", "sub/d.txt", "e.gz"):
        (tmp_path / name).write_text("a")

    def find(*patterns):
        return [str(path.relative_to(tmp_path)) for path in find_files([f"{tmp_path}/{p}" for p in patterns])]

    assert find("*.txt") == ["a.txt", "b.txt", "c[1].txt"]
    assert find("c[1].txt") == ["c[1].txt"]
    assert find("[b-c]*", "a.txt") == ["b.txt", "c[1].txt", "a.txt"]
    assert find("b.txt", "*.txt", "./b.txt") == ["b.txt", "a.txt", "c[1].txt"]  # no duplicates
    assert find("**/*.txt") == ["a.txt", "b.txt", "c[1].txt", "sub/d.txt"]
    assert find("*") == ["a.txt", "b.txt", "c[1].txt", "e.gz"]  # no folders


@pytest.mark.parametrize("limit", [64, 65, 66, 67, 250])
def test_long_lines_are_split_between_words(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(text_module, "MAX_PART", limit)
    draw = np.random.default_rng(limit)
    words = draw.choice(["the", "etc.", "No.", "5", "é" * 9, "的" * 5, "😀", "end.", "a\u2028b", "ö\tö"], 300)
    path = tmp_path / "a.txt"
    path.write_text(" ".join(words), encoding="utf-8")
    parts = list(read_texts([path]))
    assert len(parts) > 3 and "".join(parts) == " ".join(words)
    assert all(part[-1].isspace() and part[-2] != "." for part in parts[:-1])


def test_line_numbers_after_long_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(text_module, "MAX_PART", 8)
    for text in (
        b"aaa bbb ccc\n",
        b"aaa bbb \n",
        b"aaaa bbb cccc\n",
        b"aaaaaaa\n",
        b"aaaaaa\n",
        b"\xef\xbb\xbfaaa bb c\n",
    ):
        path = tmp_path / "a.txt"
        path.write_bytes(text + b"ok\n\xff\n")
        with pytest.raises(ValueError, match="line 3 holds the byte 0xff"):
            list(read_texts([path]))


def test_long_line_without_spaces(tmp_path, monkeypatch):
    monkeypatch.setattr(text_module, "MAX_PART", 32)
    path = tmp_path / "a.txt"
    path.write_text("ok\nthe cat " + 80 * "é", encoding="utf-8")
    with pytest.raises(ValueError, match=r"a.txt must have spaces .* line 2 has none in \d\d bytes: is it text\?"):
        list(read_texts([path]))


def set_stdin(monkeypatch, content: bytes):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def naive_lines(content: bytes) -> list[str]:
    """Split at \n, and drop the \r before it and a byte order mark at the beginning of a line."""
    *lines, last = [line.removeprefix("\ufeff") for line in content.decode().split("\n")]
    return [line.removesuffix("\r") for line in lines] + [last] * bool(last)


@given(st.lists(st.sampled_from(["a", "é的", " ", "\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\ufeff"])))
@example(["a", "\r", "\n", "\r", "\n", "\n", "a"])
@example(["\ufeff", "\ufeff", "a", "\r"])
@example(["a", "\n", "\ufeff", "a", "\n", "\ufeff", "\n", "a", "\ufeff"])
def test_lines_equal_those_of_a_naive_reader(pieces):
    content = "".join(pieces).encode()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for name, write in (("a.txt", bytes), ("a.gz", gzip.compress), ("a.txt.xz", lzma.compress)):
            path = Path(folder) / name
            path.write_bytes(write(content))
            assert list(read_lines(path)) == list(read_lines(str(path))) == naive_lines(content)
        set_stdin(patch, content)
        assert list(read_lines("-")) == naive_lines(content)


def test_lines_are_never_split(tmp_path, monkeypatch):
    """A long line is one sentence, as is a line of JSON."""
    monkeypatch.setattr(text_module, "MAX_PART", 16)
    path = tmp_path / "a.jsonl"
    path.write_text("word " * 100 + "\n\n{}\n")
    assert list(read_lines(path)) == ["word " * 100, "", "{}"]


def test_line_that_is_too_long(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("ok\nthe cat sat on the mat\nok\n")
    assert list(read_lines(path, max_bytes=23)) == list(read_lines(path, max_bytes=None))
    with pytest.raises(ValueError, match=r"a.txt must have lines of at most 22 bytes; line 2 is longer: is it text\?"):
        list(read_lines(path, max_bytes=22))


def test_bytes_that_are_not_utf8(tmp_path, monkeypatch):
    path, content = tmp_path / "a.txt", b"ok\r\nna\xefve\nok"
    path.write_bytes(content)
    set_stdin(monkeypatch, content)
    for source, name in ((path, str(path)), ("-", "standard input")):
        with pytest.raises(ValueError) as caught:
            list(read_lines(source))
        assert str(caught.value).startswith(f"{name} must be UTF-8 text; line 2 holds the byte 0xef: convert it")
        assert "--encoding-errors replace" in str(caught.value)
    assert list(read_lines(path, encoding_errors="replace")) == ["ok", "na\ufffdve", "ok"]


def test_standard_input_is_streamed(monkeypatch):
    class Endless(io.RawIOBase):
        def __init__(self):
            self.numbers = count()

        def readable(self):
            return True

        def readinto(self, buffer):
            line = f"line {next(self.numbers)}\n".encode()
            buffer[: len(line)] = line
            return len(line)

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Endless())))
    assert list(islice(read_lines("-"), 3)) == ["line 0", "line 1", "line 2"]


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="needs /dev/fd")
@pytest.mark.parametrize("read", [read_lines, lambda path: read_texts([Path(path)])], ids=["lines", "texts"])
def test_pipes(read):
    """As from `<(zcat ...)` in a shell: they have no position and no size."""
    out, into = os.pipe()
    writer = threading.Thread(target=lambda: (os.write(into, b"a 1\nb 2\n"), os.close(into)))
    writer.start()
    assert list(read(f"/dev/fd/{out}")) == ["a 1", "b 2"]
    writer.join()
    os.close(out)


@pytest.mark.parametrize("name", ["a.txt", "a.gz", "a.xz", "a.jsonl", "a.parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch, name):
    monkeypatch.setattr(text_module, "PARQUET_ROWS", 64)
    path = tmp_path / name

    def peak(lines: int) -> int:
        texts = ["The cat sat. It sat! It was a cat."] * lines
        content = "\n".join(texts).encode()
        if name == "a.parquet":
            write_parquet(path, text=texts)
        elif name == "a.jsonl":
            path.write_bytes(json_lines("\n".join(texts)))
        else:
            path.write_bytes({".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)(content))
        tracemalloc.start()
        try:
            assert sum(1 for _ in read_texts([path])) == lines
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(100)  # imports and caches
    # The larger file has 665,000 bytes more. Parquet's metadata grows with it.
    assert peak(20_000) < peak(1_000) + 150_000


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.txt", b"ok\nnot\0ok\n", "UTF-8 text; line 2 holds a zero byte: convert it if .* leave it out if"),
        ("a.txt", TEXT.encode("utf-16"), "line 1 holds (a zero byte|the byte 0xff)"),
        ("a.txt", b"ok\n\nL\xf6wen\n", "UTF-8 text; line 3 holds the byte 0xf6: convert it to UTF-8, or .* replace"),
        ("a.txt.gz", gzipped(b"ok\nL\xf6wen\n"), "a.txt.gz must be UTF-8 text; line 2 holds the byte 0xf6"),
        ("a.jsonl", b'{"text": "ok"}\n{"text": "\xf6"}', "line 2 holds the byte 0xf6"),
        ("a.gz", gzipped(LONG_TEXT)[:-20], r"cannot be decompressed \(.*\); it is truncated or not a .gz file: downl"),
        ("a.gz", gzipped(LONG_TEXT)[:4], "a.gz cannot be decompressed .* download it again"),
        ("a.gz", gzipped(LONG_TEXT)[:-6] + b"\1" * 6, "a.gz cannot be decompressed .* download it again"),
        ("a.gz", gzipped(b"")[:10] + b"\xff" * 30, "a.gz cannot be decompressed .* download it again"),  # zlib's error
        ("a.gz", LONG_TEXT, "a.gz cannot be decompressed .* not a .gz file"),
        ("a.xz", lzma.compress(LONG_TEXT)[:-20], "a.xz cannot be decompressed .* it is truncated or not a .xz file: d"),
        ("a.xz", lzma.compress(LONG_TEXT)[:9], "a.xz cannot be decompressed"),
        ("a.xz", LONG_TEXT, "a.xz cannot be decompressed .* not a .xz file"),
        ("a.jsonl.gz", gzipped(LONG_TEXT)[:-20], "a.jsonl.gz (cannot be decompressed|must hold one JSON object)"),
        (
            "a.jsonl",
            b'{"text": "ok"}\nThe cat',
            "one JSON object per line, got 'The cat' in line 2 .* correct the line",
        ),
        ("a.jsonl", b'{"text": "cut', "one JSON object per line, got .* in line 1 .* correct the line, or rename"),
        ("a.json", b'[\n{"text": "ok"}]', r"one JSON object per line, got '\[' in line 1"),
        ("a.jsonl", b"[" * 100_000, "one JSON object per line, got"),
        ("a.jsonl", b'["ok"]', "have text in column 'text', line 1 has: a list; choose another column with --column"),
        ("a.jsonl", b'"ok"', "have text in column 'text', line 1 has: a str"),
        ("a.jsonl", b"null", "have text in column 'text', line 1 has: a NoneType"),
        (
            "a.jsonl",
            b'\n{"body": "ok", "n": 1}',
            r"column 'text', line 2 has: body \(str\), n \(int\); choose another column",
        ),
        ("a.jsonl", b'{"text": "ok", "n": ' + b"9" * 5000 + b"}", "one JSON object per line, got .* in line 1"),
        (
            "a.jsonl",
            b'{"a\\n\\u001b": 1, "' + b"b" * 9999 + b'": 1}',
            r"line 1 has: a\\n\\x1b \(int\), b{150,199}\.\.\.;",
        ),
        ("a\n\x1b[31m.jsonl", b"[", r"/a\\n\\x1b\[31m.jsonl must hold one JSON object per line"),
        ("a.XZ", LONG_TEXT, "a.XZ cannot be decompressed .* not a .XZ file"),
        ("a.jsonl", b'{"text": 5}', r"text in column 'text', line 1 has: text \(int\); choose another"),
        (
            "a.parquet",
            LONG_TEXT,
            r"a.parquet cannot be read as Parquet \(.*\); it is truncated or not a .parquet file: download",
        ),
        ("a.parquet", b"", "a.parquet cannot be read as Parquet"),
    ],
    ids=name_only,
)
def test_bad_files(tmp_path, name, content, message):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        list(read_texts([path]))
    assert str(caught.value).isprintable() and str(path.parent) in str(caught.value)


def test_bad_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    write_parquet(path, body=["ok"] * 500, n=range(500))
    with pytest.raises(ValueError, match=r"a.parquet must have one column 'text', it has: body, n; choose .* --column"):
        list(read_texts([path]))
    with pytest.raises(
        ValueError, match=r"must have text in column 'n', it has int64 values; choose .* one of body, n"
    ):
        list(read_texts([path], column="n"))
    content = path.read_bytes()
    for broken in (content[:-9], b"PAR1" + b"\xff" * 200 + content[204:]):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"a.parquet cannot be read as Parquet"):
            list(read_texts([path], column="body"))


def test_strings_of_parquet_that_are_not_utf8(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    write_parquet(path, text=pyarrow.array([b"ok", b"L\xf6wen", None]).view(pyarrow.string()))
    with pytest.raises(ValueError, match=r"a.parquet must be UTF-8 text; it holds the byte 0xf6 .*replace"):
        list(read_texts([path]))
    assert list(read_texts([path], encoding_errors="replace")) == ["ok", "L\ufffdwen", ""]


@pytest.mark.parametrize("kind", ["binary", "list", "struct", "bool", "timestamp", "duration", "dictionary"])
def test_columns_of_parquet_without_text(tmp_path, kind):
    pyarrow = pytest.importorskip("pyarrow")
    values = {
        "binary": pyarrow.array([b"a"]),
        "list": pyarrow.array([["a"]]),
        "struct": pyarrow.array([{"a": "b"}]),
        "bool": pyarrow.array([], pyarrow.bool_()),
        "timestamp": pyarrow.array([2**60], pyarrow.timestamp("us")),  # no datetime of Python
        "duration": pyarrow.array([2**62], pyarrow.duration("s")),
        "dictionary": pyarrow.array([b"a"]).dictionary_encode(),
    }
    write_parquet(tmp_path / "a.parquet", text=values[kind])
    with pytest.raises(
        ValueError, match=rf"a.parquet must have text in column 'text', it has .*{kind}.* values; choose"
    ):
        list(read_texts([tmp_path / "a.parquet"]))


def test_a_column_of_parquet_that_occurs_twice(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table([["a"], ["b"]], names=["text", "text"]), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a.parquet must have one column 'text', it has: text, text; choose another"):
        list(read_texts([tmp_path / "a.parquet"]))


def test_byte_order_marks_in_columns(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "\\ufeffa 1"}\n\xef\xbb\xbf{"text": "\xef\xbb\xbfb 2"}')
    assert list(read_texts([path])) == ["a 1", "b 2"]
    write_parquet(tmp_path / "a.parquet", text=["\ufeffa 1"])
    assert list(read_texts([tmp_path / "a.parquet"])) == ["a 1"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.xz"])
def test_a_line_of_json_is_not_read_into_memory_whole(tmp_path, monkeypatch, name):
    monkeypatch.setattr(text_module, "MAX_LINE", 1 << 16)
    path = tmp_path / name
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(b'{"text": "ok"}\n{"text": "' + b"a" * (1 << 25)))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"a.jsonl.* must have lines of at most 65,536 bytes; line 2 is longer"):
            list(read_texts([path]))
        assert tracemalloc.get_traced_memory()[1] < 1 << 24  # xz has a dictionary of 8 MB
    finally:
        tracemalloc.stop()


def test_a_long_text_that_a_parquet_file_repeats_is_not_held_often(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    write_parquet(path, row_group_size=4096, text=["a " * (1 << 15)] * 4096)
    assert path.stat().st_size < 1 << 20
    before = pyarrow.total_allocated_bytes()
    assert max(pyarrow.total_allocated_bytes() - before for _ in read_texts([path])) < 1 << 25  # of 1 << 28


def test_errors_of_reading_name_the_file(tmp_path, monkeypatch):
    """As of a failing disk or a stale network folder: the operating system names no file then."""

    class Failing(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, buffer):
            raise OSError(errno.EIO, "Input/output error")

    @contextmanager
    def open_failing(path):
        file = io.BufferedReader(Failing())
        yield file, gzip.GzipFile(fileobj=file) if str(path).endswith(".gz") else file

    monkeypatch.setattr(text_module, "open_binary", open_failing)
    for path, name in ((tmp_path / "a.txt", "a.txt"), (tmp_path / "a.gz", "a.gz"), ("-", "standard input")):
        with pytest.raises(OSError, match=f"{name}'$"):
            list(read_lines(path))


def test_a_file_that_vanishes_or_shrinks_while_it_is_read(tmp_path):
    for change in (Path.unlink, lambda path: os.truncate(path, 0)):
        path = tmp_path / "a.txt"
        path.write_text("a 1\nb 2\n" * 100_000)
        texts = read_texts([path])
        next(texts)
        change(path)
        assert 1 <= sum(1 for _ in texts) < 200_000  # what was buffered, or all


@pytest.mark.skipif(not hasattr(os, "setuid") or os.getuid() != 0, reason="needs to be root to drop privileges")
def test_files_that_may_not_be_read():
    """Not "No such file": in a child without privileges, as root may read everything."""
    with tempfile.TemporaryDirectory() as name:
        folder, file, closed = Path(name), Path(name, "b.txt"), Path(name, "closed")
        closed.mkdir()
        for path, mode in ((file, 0), (closed / "a.txt", 0o644), (closed, 0), (folder, 0o755)):
            if not path.is_dir():
                path.write_text("a")
            path.chmod(mode)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setuid(65534)
                for read, path in (
                    (lambda: find_files([str(closed / "a.txt")]), closed),
                    (lambda: find_files([str(closed / "*.txt")]), closed),
                    (lambda: list(read_texts(find_files([str(folder / "*.txt")]))), file),
                    (lambda: list(read_lines(closed / "a.txt")), closed),
                ):
                    with pytest.raises(PermissionError, match=str(path)):
                        read()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0


def test_broken_links_and_other_files(tmp_path):
    (tmp_path / "link.txt").symlink_to("nowhere")
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(FileNotFoundError, match=r"link\.txt"):
        find_files([str(tmp_path / "link.txt")])
    with pytest.raises(OSError, match=r"loop\.txt"):
        find_files([str(tmp_path / "loop.txt")])
    with pytest.raises(FileNotFoundError, match=r"link\.txt"):
        list(read_texts(find_files([str(tmp_path / "link*")])))
    with pytest.raises(ValueError, match=r"folder\.txt is a folder"):
        find_files([str(tmp_path / "folder.txt")])
    with pytest.raises(OSError, match=r"File name too long.*aaa"):
        find_files(["a" * 5000])
    with pytest.raises(ValueError, match=r"must be a list of paths and globs, got the string 'a.txt'"):
        find_files("a.txt")


@cache
def seeds() -> dict[str, bytes]:
    """Return small files of every kind, by name."""
    contents = {name: content for name, content in TEXT_FILES if not name.endswith(".txt") or len(content) < 200}
    if importlib.util.find_spec("pyarrow"):
        import pyarrow

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.parquet"
            strings = pyarrow.array([*TEXT.split("\n"), None])
            for name, column in (("plain.parquet", strings), ("dictionary.parquet", strings.dictionary_encode())):
                write_parquet(path, text=column, n=range(6))
                contents[name] = path.read_bytes()
    return contents


def assert_texts_or_one_sentence(folder: Path, name: str, content: bytes):
    """Read a file as for training and as for embedding."""
    path = folder / name
    path.write_bytes(content)
    for read in (
        lambda: read_texts([path]),
        lambda: read_texts([path], encoding_errors="replace"),
        lambda: read_sentences(str(path)),
        lambda: read_sentences(str(path), pretokenized=True),
    ):
        try:
            for text in read():
                assert isinstance(text, str) or all(isinstance(word, str) for word in text)
        except (ValueError, OSError) as error:
            assert not isinstance(error, UnicodeError) and str(path) in str(error) and str(error).isprintable(), error


@settings(max_examples=400)
@given(data=st.data())
def test_damaged_files(tmp_path_factory, data):
    contents = seeds()
    name = data.draw(st.sampled_from([*contents]))
    content = data.draw(damaged(contents[name]))
    assert_texts_or_one_sentence(tmp_path_factory.getbasetemp(), name, content)


@pytest.mark.slow
def test_many_damaged_files(tmp_path):
    contents = seeds()

    def check(random):
        name = random.choice([*contents])
        assert_texts_or_one_sentence(tmp_path, name, damage(contents[name], random))

    assert fuzz(check, 20_000) == []


def test_bad_bytes_are_replaced(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"L\xf6wen roar\nok \xe7\x9a\n")
    assert list(read_texts([path], encoding_errors="replace")) == ["L\ufffdwen roar", "ok \ufffd"]
    path = tmp_path / "a.jsonl"
    path.write_bytes(json.dumps({"text": "L?wen"}).encode().replace(b"?", b"\xf6"))
    assert list(read_texts([path], encoding_errors="replace")) == ["L\ufffdwen"]


def test_missing_files_and_folders(tmp_path):
    for pattern in ("a.txt", "*.txt", "[a.txt"):
        with pytest.raises(ValueError, match=r"\.txt matches no file; pass text, .gz, .xz, .jsonl or .parquet files"):
            find_files([f"{tmp_path}/{pattern}"])
    with pytest.raises(ValueError, match=r"is a folder; pass the files in it, for example '.*/\*.txt'"):
        find_files([str(tmp_path)])
    with pytest.raises(FileNotFoundError, match=r"a\.txt"):
        list(read_texts([tmp_path / "a.txt"]))
