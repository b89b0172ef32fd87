# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Readers of text that embedding and training share: plain, .gz, .xz, .jsonl and .parquet files, streamed."""

import codecs
import glob
import gzip
import json
import lzma
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tqdm import tqdm

ROWS = 1 << 12  # of a Parquet file that are read at once
LONGEST = 1 << 20  # bytes of a line; a longer one goes on in the next
OPENERS = {".gz": gzip.open, ".xz": lzma.open}

# Up to where a long line may be cut: a period and a space can belong together, as in "etc. and".
BETWEEN_WORDS_OF_BYTES = re.compile(rb"(?s).*[^.\s]\s")


def find_files(patterns: Iterable[str]) -> list[Path]:
    """The files that paths and globs name, in order, or an error about the one that names none."""
    files = []
    for pattern in patterns:
        found = [pattern]
        if not os.path.exists(pattern):
            found = sorted(path for path in glob.glob(pattern, recursive=True) if not os.path.isdir(path))
        if not found:
            raise ValueError(
                f"{pattern} names no file; give text, .gz, .xz, .jsonl or .parquet files, or globs of them."
            )
        for path in map(Path, found):
            if path.is_dir():
                raise ValueError(f"{path} is a folder; give the files in it, as in '{path}/*.txt'.")
            files.append(path)
    return list(dict.fromkeys(files))


def read_texts(files: list[Path], column: str = "text", errors: str = "strict") -> Iterator[str]:
    """The lines of text files, or the texts in a column of .jsonl and .parquet files, with a bar of the bytes read."""
    total = sum(path.stat().st_size for path in files)
    with tqdm(total=total, unit="B", unit_scale=True, desc="reading", disable=None) as bar:
        for path in files:
            before = bar.n
            for text, read in read_file(path, column, errors):
                yield text
                if before + read - bar.n > 1 << 20:
                    bar.update(before + read - bar.n)
            bar.update(before + path.stat().st_size - bar.n)


def read_file(path: Path, column: str, errors: str) -> Iterator[tuple[str, int]]:
    """Texts of a file, and how many of its bytes were read for them."""
    name = path.name.removesuffix(path.suffix) if path.suffix in OPENERS else path.name
    if name.endswith(".parquet"):
        return read_parquet(path, column)
    if name.endswith((".jsonl", ".json")):
        return read_json(path, column, errors)
    return ((line, read) for _, line, read in read_lines(path, errors))


def read_lines(path: Path, errors: str, whole: bool = False) -> Iterator[tuple[int, str, int]]:
    """The number and the text of each line of a UTF-8 file, a very long one in parts, and the bytes read so far."""
    opener = OPENERS.get(path.suffix)
    with path.open("rb") as raw, opener(raw) if opener else raw as file:
        number, ended, rest = 0, True, b""
        while True:
            try:
                line = file.readline(-1 if whole else LONGEST)
            except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
                if not opener:
                    raise
                raise ValueError(
                    f"{path} cannot be unpacked ({error}); it is cut off, or no {path.suffix} file: get it again."
                ) from None
            if not line and not rest:
                return
            number += ended
            if number == 1 and ended:
                line = line.removeprefix(codecs.BOM_UTF8)
            line, rest, ended = rest + line, b"", line.endswith(b"\n")
            if b"\0" in line:
                raise ValueError(
                    f"{path} must be UTF-8 text, and line {number} holds a zero byte: convert it if it is UTF-16, "
                    "leave it out if it is no text."
                )
            if len(line) >= LONGEST and not ended and not whole:
                part = BETWEEN_WORDS_OF_BYTES.match(line)
                if not part:
                    raise ValueError(
                        f"{path} must have spaces between its words, and line {number} has none in {len(line):,} "
                        "bytes: is it text?"
                    )
                line, rest = part[0], line[part.end() :]
            try:
                text = line.decode("utf-8", errors)
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path} must be UTF-8 text, and line {number} holds the byte 0x{line[error.start]:02x}; "
                    "convert it, or replace such bytes with --encoding-errors replace."
                ) from None
            yield number, text, raw.tell()


def read_json(path: Path, column: str, errors: str) -> Iterator[tuple[str, int]]:
    for number, line, read in read_lines(path, errors, whole=True):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{path} must hold a JSON object a line, got {line.strip()[:60]!r} in line {number} ({error}); "
                "mend the line, or name a file of plain text .txt."
            ) from None
        if not isinstance(row, dict) or not isinstance(row.get(column, row), (str, type(None))):
            there = ", ".join(row) if isinstance(row, dict) else f"a {type(row).__name__}"
            raise ValueError(
                f"{path} must have a text in column {column!r}, line {number} has: {there}; name another with --column."
            )
        yield row[column] or "", read


def read_parquet(path: Path, column: str) -> Iterator[tuple[str, int]]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ValueError("Parquet files need pyarrow: pip install 'transformers-elmo[train]'.") from None
    size, rows = path.stat().st_size, 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            there = file.schema_arrow.names
            if column not in there:
                raise ValueError(
                    f"{path} must have a column {column!r}, it has: {', '.join(there)}; name another with --column."
                )
            for batch in file.iter_batches(ROWS, columns=[column]):
                for text in batch.column(column).to_pylist():
                    if text is not None and not isinstance(text, str):
                        raise ValueError(
                            f"{path} must have a text in column {column!r}, it has: a {type(text).__name__}; "
                            f"name another with --column, of {', '.join(there)}."
                        )
                    yield text or "", size * rows // max(file.metadata.num_rows, 1)
                rows += len(batch)
    except (pyarrow.ArrowException, OSError) as error:
        if getattr(error, "errno", None):  # the system's, not Parquet's
            raise
        raise ValueError(
            f"{path} cannot be read as Parquet ({error}); it is cut off, or no .parquet file: get it again."
        ) from None
