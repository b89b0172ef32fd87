# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Stream text for embedding and training: plain, .gz, .xz, .jsonl and .parquet files, and standard input.

Training reads texts (`find_files`, `read_texts`) and may get a very long line in parts. Embedding reads sentences
(`read_lines`, `read_column`), none of them merged, dropped or split.
"""

import codecs
import glob
import gzip
import json
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tqdm import tqdm

STDIN = "-"
DEFAULT_COLUMN = "text"
BOM = "\ufeff"  # byte order mark, which Windows puts at the beginning of files
DECOMPRESSORS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
MAX_PART = 1 << 20  # bytes of a line that are read at once for training; a longer line is read in parts
MAX_LINE = 1 << 26  # bytes of a line to embed, or of a line of JSON
PARQUET_ROWS = 1 << 6  # rows that are read at once; few, as a tiny file can repeat a huge text
PARQUET_TEXT = ("string", "large_string", "string_view", "null")  # types of a column, or of the values of a dictionary

# The longest part of a long line that ends between two words, but not after a period: whether a period belongs to the
# word before it, as in "etc.", depends on the next word.
WHOLE_WORDS = re.compile(r"(?s).*[^.\s]\s")
WHOLE_WORDS_BYTES = re.compile(WHOLE_WORDS.pattern.encode())


def find_files(patterns: Iterable[str]) -> list[Path]:
    """Expand paths and globs to files, in order and without duplicates; a pattern that matches no file is an error."""
    if isinstance(patterns, str):
        raise ValueError(f"Files must be a list of paths and globs, got the string {patterns[:60]!r}: wrap it.")
    files = []
    for path in (Path(path) for pattern in patterns for path in expand_pattern(pattern)):
        if path.is_dir():
            name = display_name(path)
            raise ValueError(f"{name} is a folder; pass the files in it, for example '{name}/*.txt'.")
        files.append(path)
    return list(dict.fromkeys(files))


def expand_pattern(pattern: str) -> list[str]:
    """Return the path itself if it exists, and else the files that it matches as a glob."""
    try:
        os.stat(pattern)
        return [pattern]
    except (FileNotFoundError, NotADirectoryError):
        if os.path.islink(pattern):  # to a file that does not exist
            raise
    matches = sorted(path for path in glob.glob(pattern, recursive=True) if not os.path.isdir(path))
    if not matches:
        folder = os.path.dirname(pattern)
        if os.path.isdir(folder):
            os.listdir(folder)  # an error, if the folder is not readable
        raise ValueError(
            f"{display_name(pattern)} matches no file; pass text, .gz, .xz, .jsonl or .parquet files, or globs of them."
        )
    return matches


def read_texts(
    files: list[Path], column: str = DEFAULT_COLUMN, encoding_errors: str = "strict", show_progress: bool = True
) -> Iterator[str]:
    """Yield the lines of text files, and the texts in one column of .jsonl and .parquet files.

    A very long line comes in parts that end between words. The progress bar counts bytes; it is shown on a terminal
    only.
    """
    sizes = [path.stat().st_size for path in files]
    with tqdm(
        total=sum(sizes), unit="B", unit_scale=True, desc="reading", disable=None if show_progress else True
    ) as progress:
        for path, size in zip(files, sizes):
            before = progress.n
            for text, bytes_read in read_file(path, column, encoding_errors):
                yield text
                if before + bytes_read - progress.n > 1 << 20:
                    progress.update(before + bytes_read - progress.n)
            progress.update(before + size - progress.n)


def read_lines(path: str | Path, encoding_errors: str = "strict", max_bytes: int | None = MAX_LINE) -> Iterator[str]:
    r"""Yield the lines of a text file without their line ends: item k is line k, blank lines included.

    `path` may end in .gz or .xz, or be `-` for standard input. Lines end at \n or \r\n and nowhere else. A line longer
    than `max_bytes` is an error, so that a file without line ends is never read into memory whole.
    """
    for line in decode_lines(path, encoding_errors, max_bytes=max_bytes):
        yield line.text


def read_file(path: Path, column: str, encoding_errors: str) -> Iterator[tuple[str, int]]:
    """Yield the texts of a file, each with the number of bytes read so far."""
    if has_columns(path):
        return read_column(path, column, encoding_errors)
    return ((line.text, line.bytes_read) for line in decode_lines(path, encoding_errors, split_long_lines=True))


def has_columns(path: str | Path) -> bool:
    """Return whether a file has rows and columns instead of lines, by its suffix."""
    return uncompressed_suffix(Path(path)) in (".parquet", ".jsonl", ".ndjson", ".json")


def check_column(column: str, paths: Iterable[str | Path]):
    """Raise if a column is chosen and no file has columns."""
    if column != DEFAULT_COLUMN and not any(has_columns(path) for path in paths):
        raise ValueError(
            f"--column {column} needs a .jsonl or .parquet file, and there is none: leave it out, or rename the file."
        )


def uncompressed_suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix in DECOMPRESSORS else suffix


def read_column(path: Path, column: str, encoding_errors: str) -> Iterator[tuple[str, int]]:
    """Yield the texts in a column of a .jsonl or .parquet file, each with the number of bytes read so far."""
    if uncompressed_suffix(path) == ".parquet":
        return read_parquet(path, column, encoding_errors)
    return read_json_lines(path, column, encoding_errors)


def read_json_lines(path: Path, column: str, encoding_errors: str) -> Iterator[tuple[str, int]]:
    name = display_name(path)
    for number, line, bytes_read in decode_lines(path, encoding_errors, max_bytes=MAX_LINE):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{name} must hold one JSON object per line, got {line.strip()[:60]!r} in line {number} "
                f"({error}); correct the line, or rename the file to .txt if it is plain text."
            ) from None
        if not isinstance(row, dict) or column not in row or not isinstance(row[column], (str, type(None))):
            found = f"a {type(row).__name__}"
            if isinstance(row, dict):
                found = shortened(", ".join(f"{key} ({type(value).__name__})" for key, value in row.items()))
            raise ValueError(
                f"{name} must have text in column {column!r}, line {number} has: {found}; "
                "choose another column with --column."
            )
        yield (row[column] or "").removeprefix(BOM), bytes_read


def read_parquet(path: Path, column: str, encoding_errors: str) -> Iterator[tuple[str, int]]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ValueError("Parquet files need pyarrow: pip install 'transformers-elmo[embed]'.") from None
    name, size, rows_read = display_name(path), path.stat().st_size, 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            columns = file.schema_arrow.names
            if columns.count(column) != 1:
                raise ValueError(
                    f"{name} must have one column {column!r}, it has: {shortened(', '.join(columns))}; "
                    "choose another column with --column."
                )
            kind = file.schema_arrow.field(column).type
            if str(getattr(kind, "value_type", kind)) not in PARQUET_TEXT or kind.num_fields:
                raise ValueError(
                    f"{name} must have text in column {column!r}, it has {shortened(str(kind))} values; "
                    f"choose another column with --column, one of {shortened(', '.join(columns))}."
                )
            for batch in file.iter_batches(PARQUET_ROWS, columns=[column]):
                for text in column_values(batch.column(column), encoding_errors):
                    yield (text or "").removeprefix(BOM), size * rows_read // max(file.metadata.num_rows, 1)
                rows_read += len(batch)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} must be UTF-8 text; it holds the byte 0x{error.object[error.start]:02x} after row {rows_read}: "
            "convert it to UTF-8, or replace such bytes with --encoding-errors replace."
        ) from None
    except (pyarrow.ArrowException, OSError) as error:
        if getattr(error, "errno", None):  # the operating system's error, not Parquet's
            raise
        raise ValueError(
            f"{name} cannot be read as Parquet ({shortened(' '.join(str(error).split()))}); "
            "it is truncated or not a .parquet file: download it again."
        ) from None


def column_values(column: Any, encoding_errors: str) -> list:
    """Return the values of a column in a batch of pyarrow, which does not check that strings are UTF-8."""
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        if encoding_errors == "strict":
            raise
        values = column.cast("binary").to_pylist()
        return [value if value is None else value.decode("utf-8", encoding_errors) for value in values]


def display_name(path: str | Path) -> str:
    return "standard input" if path == STDIN else printable(str(path))


def printable(text: str) -> str:
    """Escape line ends, control characters and lone surrogates, so that a message stays on its line of the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, length: int = 200) -> str:
    """Return a stranger's text as part of a sentence."""
    return printable(text if len(text) <= length else f"{text[:length]}...")


class Line(NamedTuple):
    number: int  # from 1
    text: str  # without its line end
    bytes_read: int  # of the file so far, before decompression


def decode_lines(
    path: str | Path, encoding_errors: str, max_bytes: int | None = None, split_long_lines: bool = False
) -> Iterator[Line]:
    """Yield the lines of a UTF-8 text file; with `split_long_lines`, the parts of a long one share its number."""
    name = display_name(path)
    for number, line, bytes_read in raw_lines(path, name, max_bytes, split_long_lines):
        if b"\0" in line:
            raise ValueError(
                f"{name} must be UTF-8 text; line {number} holds a zero byte: convert it if it is UTF-16, "
                "leave it out if it is not text."
            )
        try:
            text = line.decode("utf-8", encoding_errors)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name} must be UTF-8 text; line {number} holds the byte 0x{line[error.start]:02x}: "
                "convert it to UTF-8, or replace such bytes with --encoding-errors replace."
            ) from None
        if text.endswith("\n"):
            text = text[:-2] if text.endswith("\r\n") else text[:-1]
        yield Line(number, text, bytes_read)


def raw_lines(
    path: str | Path, name: str, max_bytes: int | None, split_long_lines: bool
) -> Iterator[tuple[int, bytes, int]]:
    """Yield the number and the bytes of each line, decompressed and without a byte order mark, and the bytes read."""
    limit = -1
    if split_long_lines:
        limit = MAX_PART
    elif max_bytes is not None:
        limit = max_bytes + 1
    number, is_line_end, rest = 0, True, b""
    with open_binary(path) as (raw, file):
        seekable = raw.seekable()  # a pipe has no position
        while True:
            try:
                line = file.readline(limit)
            except (EOFError, OSError, MemoryError, lzma.LZMAError, zlib.error) as error:
                if isinstance(error, OSError) and error.errno is not None:  # the operating system's error
                    raise OSError(error.errno, error.strerror, name) from error
                if file is raw:
                    raise
                suffix = Path(path).suffix
                raise ValueError(
                    f"{name} cannot be decompressed ({str(error) or type(error).__name__}); it is truncated or not a "
                    f"{suffix} file: download it again."
                ) from None
            if is_line_end:  # not only in the first line, as files may have been concatenated
                line = line.removeprefix(codecs.BOM_UTF8)
            if not line and not rest:
                return
            number += is_line_end
            line, rest, is_line_end = rest + line, b"", line.endswith(b"\n")
            if split_long_lines and len(line) >= MAX_PART and not is_line_end:
                part = WHOLE_WORDS_BYTES.match(line)
                if not part:
                    raise ValueError(
                        f"{name} must have spaces between words; line {number} has none in {len(line):,} bytes: "
                        "is it text?"
                    )
                line, rest = part[0], line[part.end() :]
            elif max_bytes is not None and len(line) > max_bytes:
                raise ValueError(
                    f"{name} must have lines of at most {max_bytes:,} bytes; line {number} is longer: is it text?"
                )
            yield number, line, raw.tell() if seekable else 0


@contextmanager
def open_binary(path: str | Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open a file or standard input; yield the file itself and a stream of its decompressed bytes."""
    if path == STDIN:
        if sys.stdin is None:
            raise ValueError("Standard input must be open, and is closed; pass a file.")
        yield sys.stdin.buffer, sys.stdin.buffer
        return
    path = Path(path)
    with path.open("rb") as raw:
        decompress = DECOMPRESSORS.get(path.suffix.lower())
        if decompress is None:
            yield raw, raw
            return
        with decompress(raw) as file:
            yield raw, file
