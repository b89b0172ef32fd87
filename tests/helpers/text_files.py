"""One text in files of every kind that can be read."""

import gzip
import json
import lzma
from pathlib import Path

import pytest

TEXT = "The cat sat. It sat!\n\nLöwen roar, Mr. Smith\nThe cat 的\n"


def gzipped(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def json_lines(text: str, column: str = "text") -> bytes:
    return "".join(json.dumps({"id": 1, column: line}) + "\n" for line in text.split("\n")).encode()


def write_parquet(path: Path, row_group_size: int = 2, **columns):
    table = pytest.importorskip("pyarrow").table(columns)
    pytest.importorskip("pyarrow.parquet").write_table(table, path, row_group_size=row_group_size)


TEXT_FILES = [  # name and content
    ("a.txt", TEXT.encode()),
    ("a", TEXT.encode()),
    ("a.json.txt", TEXT.encode()),
    ("a.txt.gz", gzipped(TEXT.encode())),
    ("a.gz", gzipped(TEXT[:9].encode()) + gzipped(TEXT[9:].encode())),
    ("a.xz", lzma.compress(TEXT.encode())),
    ("a.jsonl", json_lines(TEXT)),
    ("a.ndjson", json_lines(TEXT)),
    ("a.json", json_lines(TEXT) + b"\n \n" + b'{"text": null}'),
    ("a.jsonl", json.dumps({"text": TEXT}, ensure_ascii=False).encode()),
    ("a.jsonl.gz", gzipped(json_lines(TEXT))),
    ("a.jsonl.xz", lzma.compress(json_lines(TEXT))),
    # line ends and byte order mark of Windows
    ("a.txt", TEXT.replace("\n", "\r\n").encode("utf-8-sig")),
    ("a.txt.gz", gzipped(TEXT.encode("utf-8-sig"))),
    ("a.jsonl", b"\xef\xbb\xbf" + json_lines(TEXT).replace(b"\n", b"\r\n")),
]
