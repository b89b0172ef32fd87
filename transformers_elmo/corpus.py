"""Raw text to a corpus: the words of each sentence as numbers, once, in files that are mapped and not read.

A corpus knows every distinct word of its text, the most frequent first, and so depends on no vocabulary: the words that
a vocabulary lacks are still there, for their characters.
"""

import glob
import gzip
import hashlib
import json
import lzma
import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models
from tqdm import tqdm

VERSION = 1  # of the files; a corpus of another version is made anew
LINES = 1 << 12  # that are split at once
LONGEST = 1 << 20  # bytes of a line; a longer one goes on in the next
OPENERS = {".gz": gzip.open, ".xz": lzma.open}

# What a word is to the splitter of sentences.
PLAIN, LOWER, END, CLOSE, QUOTE = range(5)
ENDS = frozenset([".", "!", "?", "...", "…", "。", "！", "？", "।", "؟", "۔"])  # noqa: RUF001
CLOSES = frozenset([")", "]", "}", "”", "’", "»", "›", "''", "」", "』", "）"])  # noqa: RUF001
QUOTES = frozenset(['"', "'"])  # close what they have opened


@dataclass(frozen=True)
class Splitting:
    """How a line becomes sentences of words."""

    words: bool = False  # lines are words already, separated by spaces
    lines: bool = False  # a line is a sentence
    leave_out: tuple[str, ...] = ()  # words, set off by spaces, that are not there


class Corpus:
    """Sentences of words that are numbered by their frequency: number 0 is the most frequent.

    `tokens` (N,) are the words of all sentences, and `offsets` (sentences + 1,) where each begins; both are mapped.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.words = (self.folder / "words.txt").read_text(encoding="utf-8").split("\n")[:-1]
        self.counts = np.load(self.folder / "counts.npy")  # (words,)
        self.tokens = np.load(self.folder / "tokens.npy", mmap_mode="r")  # (N,)
        self.offsets = np.load(self.folder / "offsets.npy", mmap_mode="r")  # (sentences + 1,)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def vocabulary(self, min_count: int = 1, max_size: int | None = None) -> list[str]:
        """The words that occur so often, the most frequent first, and at most so many of them."""
        return self.words[: int((self.counts >= min_count).sum())][:max_size]

    @classmethod
    def build(cls, texts: Iterable[str], folder: str | Path, tokenizer, splitting: Splitting | None = None) -> "Corpus":
        """Split texts, each of any number of lines, and write them to a folder, which appears when it is whole."""
        folder = Path(folder)
        unfinished = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        try:
            write_corpus(texts, unfinished, tokenizer, splitting or Splitting())
            shutil.rmtree(folder, ignore_errors=True)
            unfinished.rename(folder)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        return cls(folder)


def write_corpus(texts: Iterable[str], folder: Path, tokenizer, splitting: Splitting):
    splitter = SentenceSplitter(tokenizer, splitting)
    lengths, raw = [], folder / "raw"
    with raw.open("wb") as file:
        for tokens, ends in splitter.split_all(texts):
            tokens.tofile(file)
            lengths.append(np.diff(ends, prepend=0))
    counts = np.zeros(len(splitter.numbers), dtype=np.int64)
    numbered = np.memmap(raw, dtype=np.uint32) if raw.stat().st_size else np.empty(0, dtype=np.uint32)
    chunks = range(0, len(numbered), 1 << 24)
    for start in chunks:
        counts += np.bincount(numbered[start : start + (1 << 24)], minlength=len(counts))
    # The most frequent first; of equally frequent words the one that came first.
    order = np.argsort(-counts, kind="stable")
    rank = np.empty(len(order), dtype=np.uint32)
    rank[order] = np.arange(len(order))
    tokens = np.lib.format.open_memmap(folder / "tokens.npy", "w+", np.uint32, (len(numbered),))
    for start in chunks:
        tokens[start : start + (1 << 24)] = rank[numbered[start : start + (1 << 24)]]
    tokens.flush()
    del numbered, tokens
    raw.unlink()
    offsets = np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64)
    np.save(folder / "offsets.npy", offsets)
    np.save(folder / "counts.npy", counts[order])
    words = list(splitter.numbers)
    with (folder / "words.txt").open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{words[number]}\n" for number in order)


class SentenceSplitter:
    """Lines of text to sentences of numbered words; a new word gets the next number.

    A sentence ends after . ! or ? and whatever closes after it, unless the line goes on in lower case. The periods of
    "Mr." and "U.S." are none: they belong to their words.
    """

    def __init__(self, tokenizer, splitting: Splitting):
        self.splitting = splitting
        self.left_out = {*splitting.leave_out, *tokenizer.all_special_tokens}
        self.numbers: dict[str, int] = {}
        self.kinds: list[int] = []  # of each word
        # The library splits the lines of a batch in parallel; only where words begin and end is of interest.
        self.backend = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
        self.backend.pre_tokenizer = tokenizer.backend_tokenizer.pre_tokenizer

    def split_all(self, texts: Iterable[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Batches of numbers of words (n,), and where their sentences end (s,); the next batch is split meanwhile."""
        with ThreadPoolExecutor(1) as thread:
            ahead = None
            for lines in self.batches(texts):
                words = thread.submit(self.split_words, lines)
                if ahead is not None:
                    yield self.number(ahead.result())
                ahead = words
            if ahead is not None:
                yield self.number(ahead.result())

    def batches(self, texts: Iterable[str]) -> Iterator[list[str]]:
        batch = []
        for text in texts:
            for line in text.split("\n"):
                if "<" in line or self.splitting.leave_out:  # special tokens have one
                    line = " ".join(word for word in line.split() if word not in self.left_out)
                if line and not line.isspace():
                    batch.append(line)
            if len(batch) >= LINES:
                yield batch
                batch = []
        if batch:
            yield batch

    def split_words(self, lines: list[str]) -> list[list[str]]:
        if self.splitting.words:
            return [line.split() for line in lines]
        encodings = self.backend.encode_batch(lines, add_special_tokens=False)
        return [[line[start:end] for start, end in e.offsets] for line, e in zip(lines, encodings)]

    def number(self, lines: list[list[str]]) -> tuple[np.ndarray, np.ndarray]:
        numbers, kinds = self.numbers, self.kinds
        tokens = []
        for words in lines:
            for word in words:
                number = numbers.get(word)
                if number is None:
                    number = numbers[word] = len(kinds)
                    kinds.append(kind_of(word))
                tokens.append(number)
        tokens = np.array(tokens, dtype=np.uint32)
        line_ends = np.cumsum([len(words) for words in lines])
        if self.splitting.lines:
            return tokens, line_ends
        return tokens, np.union1d(line_ends, sentence_ends(np.array(kinds, dtype=np.uint8)[tokens], line_ends))


def kind_of(word: str) -> int:
    if word in ENDS:
        return END
    if word in CLOSES:
        return CLOSE
    if word in QUOTES:
        return QUOTE
    return LOWER if word[0].islower() else PLAIN


def sentence_ends(kinds: np.ndarray, line_ends: np.ndarray) -> list[int]:
    """Where sentences end within lines, by the kinds of their words (n,)"""
    quotes = np.concatenate([[0], np.cumsum(kinds == QUOTE)])  # (n + 1,) before each word
    candidates = (kinds == END).nonzero()[0]
    lines = np.searchsorted(line_ends, candidates, side="right")
    starts = np.concatenate([[0], line_ends])[lines]
    found = []
    for place, begin, end in zip(candidates.tolist(), starts.tolist(), line_ends[lines].tolist()):
        after = place + 1
        while after < end and (
            kinds[after] in (END, CLOSE) or (kinds[after] == QUOTE and (quotes[after] - quotes[begin]) % 2)
        ):
            after += 1
        if after < end and kinds[after] != LOWER:
            found.append(after)
    return found


def find_files(patterns: Iterable[str]) -> list[Path]:
    """The files that paths and globs name, in order, or an error about the one that names none."""
    files = []
    for pattern in patterns:
        found = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern, recursive=True))
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
            for text, read in read_parquet(path, column) if path.suffix == ".parquet" else read_lines(path, errors):
                if ".jsonl" in path.suffixes or ".json" in path.suffixes:
                    text = column_of(text, column, path)
                yield text
                if before + read - bar.n > 1 << 20:
                    bar.update(before + read - bar.n)
            bar.update(before + path.stat().st_size - bar.n)


def read_lines(path: Path, errors: str) -> Iterator[tuple[str, int]]:
    """Lines of a UTF-8 file, a very long one in parts, and how many bytes of the file were read for them."""
    opener = OPENERS.get(path.suffix)
    with path.open("rb") as raw, opener(raw) if opener else raw as file:
        number = 0
        rest = b""
        while True:
            try:
                line = file.readline(LONGEST)
            except (EOFError, OSError, lzma.LZMAError, gzip.zlib.error) as error:
                raise ValueError(
                    f"{path} cannot be unpacked ({error}); it is cut off, or no {path.suffix} file."
                ) from None
            if not line and not rest:
                return
            number += not rest
            line, rest = rest + line, b""
            if b"\0" in line:
                raise ValueError(f"{path} must be text, and line {number} holds a zero byte: is it a binary file?")
            if len(line) >= LONGEST and not line.endswith(b"\n"):
                # Cut at the last space; what comes after it belongs to the next part.
                cut = line.rfind(b" ") + 1
                if not cut:
                    raise ValueError(f"Line {number} of {path} holds a word of {len(line):,} bytes: is it text?")
                line, rest = line[:cut], line[cut:]
            try:
                yield line.decode("utf-8", errors), raw.tell()
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path} must be UTF-8 text, and line {number} holds the byte 0x{line[error.start]:02x}; "
                    "convert it, or replace such bytes with --encoding-errors replace."
                ) from None


def column_of(line: str, column: str, path: Path) -> str:
    if not line.strip():
        return ""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} must hold a JSON object a line, got {line.strip()[:60]!r} ({error}).") from None
    if not isinstance(row, dict) or not isinstance(row.get(column), str):
        there = ", ".join(row) if isinstance(row, dict) else type(row).__name__
        raise ValueError(f"{path} must have a text in column {column!r}, it has: {there}; name another with --column.")
    return row[column]


def read_parquet(path: Path, column: str) -> Iterator[tuple[str, int]]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ValueError("Parquet files need pyarrow: pip install 'transformers-elmo[train]'.") from None
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path} is not a Parquet file: {error}") from None
    if column not in file.schema_arrow.names:
        there = ", ".join(file.schema_arrow.names)
        raise ValueError(f"{path} must have a column {column!r}, it has: {there}; name another with --column.")
    size, rows = path.stat().st_size, 0
    for batch in file.iter_batches(columns=[column]):
        rows += len(batch)
        for text in batch.column(0):
            yield text.as_py() or "", size * rows // max(file.metadata.num_rows, 1)


def corpus_of_files(
    files: list[Path], cache: str | Path, tokenizer, splitting: Splitting, column: str = "text", errors: str = "strict"
) -> Corpus:
    """The corpus of these files: made once, found again as long as the files and the splitting are the same."""
    facts = [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files]
    splitter = tokenizer.backend_tokenizer.pre_tokenizer.__getstate__().decode()
    key = json.dumps(
        [VERSION, facts, splitter, sorted(tokenizer.all_special_tokens), asdict(splitting), column, errors]
    )
    folder = Path(cache) / hashlib.sha256(key.encode()).hexdigest()[:16]
    if folder.is_dir():
        return Corpus(folder)
    return Corpus.build(read_texts(files, column, errors), folder, tokenizer, splitting)
