# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Split raw text into sentences and words once, and store the words as numbers in memory-mapped files.

A corpus numbers all distinct words of its text, the most frequent first, and so is independent of any vocabulary: words
that a vocabulary lacks keep their spelling.
"""

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models

from ..files import new_folder, sha256_of
from ..text import WHOLE_WORDS, read_texts
from ..tokenization_elmo import REPLACEMENT, SURROGATE
from .output import CHECKSUMS_FILE, find_damage, write_checksums

VERSION = 2  # of the file format; a cached corpus of another version is rebuilt
FILES = ("words.txt", "counts.npy", "tokens.npy", "offsets.npy", CHECKSUMS_FILE)
BATCH_LINES = 1 << 12  # lines that are split at once, fewer if together they reach MAX_CHARACTERS
MAX_CHARACTERS = 1 << 20  # of a line; a longer one is split in parts
CHUNK = 1 << 24  # numbers that are copied at once

# Kinds of words for the sentence splitter.
OTHER, LOWERCASE, SENTENCE_END, CLOSING, DOUBLE_QUOTE, SINGLE_QUOTE = range(6)
# Runs of periods end sentences too.
SENTENCE_ENDS = frozenset(["!", "?", "…", "。", "！", "？", "।", "؟", "۔"])  # noqa: RUF001
CLOSING_MARKS = frozenset([")", "]", "}", "”", "’", "»", "›", "''", "」", "』", "）"])  # noqa: RUF001
QUOTES = {'"': DOUBLE_QUOTE, "'": SINGLE_QUOTE}  # every second one in a line is a closing mark


@dataclass(frozen=True)
class Splitting:
    """Options for splitting text into sentences and words."""

    pretokenized: bool = False  # words are already separated by spaces
    one_sentence_per_line: bool = False
    drop_tokens: tuple[str, ...] = ()  # space-separated tokens to drop from the text, for example <unk>

    def __post_init__(self):
        for token in self.drop_tokens:
            if token.split() != [token]:
                raise ValueError(f"A token to drop must be a word without spaces; got {token!r}.")


def corpus_from_files(
    files: list[Path],
    *,
    cache: Path,
    tokenizer,
    splitting: Splitting,
    column: str = "text",
    encoding_errors: str = "strict",
) -> "Corpus":
    """Load the corpus of these files from the cache, or build it if the files or the splitting have changed."""
    # Unlike the modification time, the time of the last change of a file or its attributes cannot be set.
    stats = [(str(path.resolve()), s.st_size, s.st_mtime_ns, s.st_ctime_ns) for path in files for s in [path.stat()]]
    pre_tokenizer = tokenizer.backend_tokenizer.pre_tokenizer.__getstate__().decode()
    special_tokens = sorted(tokenizer.all_special_tokens)
    key = json.dumps([VERSION, stats, pre_tokenizer, special_tokens, asdict(splitting), column, encoding_errors])
    if cache.exists() and not cache.is_dir():
        raise ValueError(f"--cache must be a folder; {cache} is a file: choose another name.")
    folder = cache / hashlib.sha256(key.encode()).hexdigest()[:16]
    if folder.is_dir():
        try:
            return Corpus(folder)
        except DamagedCorpusError as error:
            print(f"{error} The text is read again.", file=sys.stderr)
    return Corpus.build(read_texts(files, column, encoding_errors), folder, tokenizer, splitting)


class DamagedCorpusError(ValueError):
    """A folder that is not as `Corpus.build` wrote it."""


class Corpus:
    """Sentences of words that are numbered by frequency; number 0 is the most frequent word.

    `tokens` (N,) are the words of all sentences, `offsets` (S + 1,) where each sentence begins; both are memory-mapped.
    `sha256` identifies the content.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        if damage := find_damage(self.folder):
            raise DamagedCorpusError(f"{self.folder} must be a corpus as it was written; {damage}.")
        self.sha256 = sha256_of(self.folder / CHECKSUMS_FILE)
        with (self.folder / "words.txt").open(encoding="utf-8", newline="\n") as file:
            self.words = file.read().split("\n")[:-1]
        self.counts = np.load(self.folder / "counts.npy")  # (words,)
        self.tokens = np.load(self.folder / "tokens.npy", mmap_mode="r")  # (N,)
        self.offsets = np.load(self.folder / "offsets.npy", mmap_mode="r")  # (S + 1,)

    @classmethod
    def build(cls, texts: Iterable[str], folder: str | Path, tokenizer, splitting: Splitting | None = None) -> "Corpus":
        """Split texts of one or more lines and write the corpus to a folder, which appears only when it is complete."""
        if isinstance(texts, str):
            raise ValueError(
                f"texts must be an iterable of strings, got a single string, {texts[:60]!r}: wrap it in a list."
            )
        folder = Path(folder)
        is_empty = folder.is_dir() and not any(folder.iterdir())
        if folder.exists() and not any((folder / name).is_file() for name in FILES) and not is_empty:
            raise ValueError(
                f"{folder} must be a new folder or contain a corpus, and contains something else: choose another one."
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(folder, replace=True) as unfinished:
            write_corpus(texts, unfinished, tokenizer, splitting or Splitting())
        return cls(folder)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def vocabulary(self, min_count: int = 1, max_size: int | None = None) -> list[str]:
        """Return the words that occur at least `min_count` times, the most frequent first, at most `max_size`."""
        return self.words[: int((self.counts >= min_count).sum())][:max_size]


def write_corpus(texts: Iterable[str], folder: Path, tokenizer, splitting: Splitting):
    """Number words in the order of their first appearance, then renumber them by frequency."""
    splitter = SentenceSplitter(tokenizer, splitting)
    raw_tokens, raw_offsets = folder / "tokens.raw", folder / "offsets.raw"
    with raw_tokens.open("wb") as tokens_file, raw_offsets.open("wb") as offsets_file:
        total = 0
        offsets_file.write(np.zeros(1, dtype=np.int64).data)
        for tokens, ends in splitter.split_all(texts):
            tokens_file.write(tokens.data)
            offsets_file.write((total + ends).data)
            total += len(tokens)
    counts = np.zeros(len(splitter.numbers), dtype=np.int64)
    for chunk in read_chunks(raw_tokens, np.uint32):
        counts += np.bincount(chunk, minlength=len(counts))
    order = np.argsort(-counts, kind="stable")  # words of equal frequency stay in the order of their first appearance
    rank = np.empty(len(order), dtype=np.uint32)
    rank[order] = np.arange(len(order))
    write_array(folder / "tokens.npy", (rank[chunk] for chunk in read_chunks(raw_tokens, np.uint32)), np.uint32, total)
    sentences = raw_offsets.stat().st_size // 8 - 1
    write_array(folder / "offsets.npy", read_chunks(raw_offsets, np.int64), np.int64, sentences + 1)
    write_array(folder / "counts.npy", [counts[order]], np.int64, len(order))
    words = list(splitter.numbers)
    with (folder / "words.txt").open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{words[number]}\n" for number in order)
    raw_tokens.unlink()
    raw_offsets.unlink()
    write_checksums(folder)


def read_chunks(path: Path, dtype) -> Iterator[np.ndarray]:
    with path.open("rb") as file:
        while len(chunk := np.fromfile(file, dtype, CHUNK)):
            yield chunk


def write_array(path: Path, chunks: Iterable[np.ndarray], dtype, length: int):
    """Write chunks to an .npy file. Not through a memory map, which kills the process when the disk is full."""
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": (length,)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for chunk in chunks:
            file.write(chunk.data)


class SentenceSplitter:
    """Split lines of text into sentences of numbered words; a new word gets the next number.

    A sentence ends after . ! or ? and the closing marks that follow, unless the line continues in lower case. The
    periods of "Mr." and "U.S." do not end a sentence: the tokenizer keeps them in their words.
    """

    def __init__(self, tokenizer, splitting: Splitting):
        self.splitting = splitting
        self.dropped = {*splitting.drop_tokens, *tokenizer.all_special_tokens}
        self.numbers: dict[str, int] = {}
        self.kinds = bytearray()  # of each word
        # Splits the lines of a batch in parallel. Only the offsets of its tokens are used, so any vocabulary will do.
        self.backend = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
        self.backend.pre_tokenizer = tokenizer.backend_tokenizer.pre_tokenizer

    def split_all(self, texts: Iterable[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield batches of word numbers (n,) and sentence ends (s,), while a thread splits the next batch."""
        with ThreadPoolExecutor(1) as thread:
            previous = None
            for lines in self.batches(texts):
                words = thread.submit(self.split_words, lines)
                if previous is not None:
                    yield self.number(previous.result())
                previous = words
            if previous is not None:
                yield self.number(previous.result())

    def batches(self, texts: Iterable[str]) -> Iterator[list[str]]:
        """Yield batches of nonblank lines, without the tokens to drop."""
        batch: list[str] = []
        size = 0
        for text in texts:
            if not isinstance(text, str):
                raise ValueError(
                    f"A text must be a string, got {text!r:.80}; for a dataset, pass its text column: dataset['text']."
                )
            if not text.isascii():
                text = SURROGATE.sub(REPLACEMENT, text)  # as the tokenizer does
            for line in chain.from_iterable(map(split_long_line, text.split("\n"))):
                if any(token in line for token in self.dropped):
                    line = " ".join(token for token in line.split() if token not in self.dropped)
                if not line or line.isspace():
                    continue
                batch.append(line)
                size += len(line)
                if len(batch) >= BATCH_LINES or size >= MAX_CHARACTERS:
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch

    def split_words(self, lines: list[str]) -> list[list[str]]:
        if self.splitting.pretokenized:
            return [line.split() for line in lines]
        encodings = self.backend.encode_batch(lines, add_special_tokens=False)
        return [[line[start:end] for start, end in e.offsets] for line, e in zip(lines, encodings)]

    def number(self, lines: list[list[str]]) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of all words (n,), and where sentences end (s,)."""
        numbers, kinds = self.numbers, self.kinds
        tokens = []
        for words in lines:
            for word in words:
                number = numbers.get(word)
                if number is None:
                    number = numbers[word] = len(kinds)
                    kinds.append(kind_of(word))
                tokens.append(number)
        token_array = np.array(tokens, dtype=np.uint32)
        # A line of control characters has no words.
        lengths = np.array([len(words) for words in lines], dtype=np.int64)
        ends = np.cumsum(lengths)
        if not self.splitting.one_sentence_per_line:
            ends = np.union1d(ends, sentence_ends(np.frombuffer(kinds, dtype=np.uint8)[token_array], lengths))
        return token_array, ends[np.diff(ends, prepend=0) > 0]


def split_long_line(line: str) -> Iterator[str]:
    """Yield a line of at most MAX_CHARACTERS as it is, a longer one in parts that end between words."""
    start = 0
    while len(line) - start > MAX_CHARACTERS:
        part = WHOLE_WORDS.match(line, start, start + MAX_CHARACTERS)
        if not part:
            raise ValueError(
                f"A text must have spaces between words, got {MAX_CHARACTERS:,} characters without a space after "
                f"{line[start : start + 40]!r}: is it text?"
            )
        yield part[0]
        start = part.end()
    yield line[start:]


def kind_of(word: str) -> int:
    if word in SENTENCE_ENDS or not word.strip("."):
        return SENTENCE_END
    if word in CLOSING_MARKS:
        return CLOSING
    return QUOTES.get(word, LOWERCASE if word[0].islower() else OTHER)


def sentence_ends(kinds: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Find where sentences end within lines, from the kinds of all words (n,) and the lengths of the lines."""
    line_starts = np.repeat(np.cumsum(lengths) - lengths, lengths)  # (n,) for each word
    closing = (kinds == SENTENCE_END) | (kinds == CLOSING)
    for quote in QUOTES.values():
        marks = kinds == quote
        marks_before = np.cumsum(marks) - marks  # (n,)
        closing |= marks & ((marks_before - marks_before[line_starts]) % 2 == 1)
    positions = np.arange(len(kinds))
    last_end = np.maximum.accumulate(np.where(kinds == SENTENCE_END, positions, -1))  # (n,) up to each word
    last_other = np.maximum.accumulate(np.where(closing, -1, positions))
    # A sentence starts at a word if only closing marks lie between it and a sentence end in the same line.
    after_end = (last_end[:-1] > last_other[:-1]) & (last_end[:-1] >= line_starts[1:])
    return positions[1:][after_end & ~closing[1:] & (kinds[1:] != LOWERCASE)]
