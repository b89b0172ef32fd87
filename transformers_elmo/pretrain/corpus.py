"""Raw text to a corpus: the words of each sentence as numbers, once, in files that are mapped and not read.

A corpus knows every distinct word of its text, the most frequent first, and so depends on no vocabulary: the words that
a vocabulary lacks are still there, for their characters.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from huggingface_hub.constants import HF_HOME
from tokenizers import Tokenizer, models

from ..files import new_folder
from ..text import LONGEST, read_texts
from ..tokenization_elmo import REPLACEMENT, SURROGATE

CACHE = Path(HF_HOME) / "elmo" / "text"  # where corpora of files are kept if nothing else is said
VERSION = 1  # of the files; a corpus of another version is made anew
LINES = 1 << 12  # that are split at once, or fewer with so many characters
CHUNK = 1 << 24  # numbers that are copied at once

# Up to where a long line may be cut: a period and a space can belong together, as in "etc. and".
BETWEEN_WORDS = re.compile(r"(?s).*[^.\s]\s")

# What a word is to the splitter of sentences.
PLAIN, LOWER, END, CLOSE, QUOTE, SINGLE_QUOTE = range(6)
ENDS = frozenset(["!", "?", "…", "。", "！", "？", "।", "؟", "۔"])  # noqa: RUF001  and runs of periods
CLOSES = frozenset([")", "]", "}", "”", "’", "»", "›", "''", "」", "』", "）"])  # noqa: RUF001
QUOTES = {'"': QUOTE, "'": SINGLE_QUOTE}  # close what one like them has opened


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
        with (self.folder / "words.txt").open(encoding="utf-8", newline="\n") as file:
            self.words = file.read().split("\n")[:-1]
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
        if isinstance(texts, str):
            raise ValueError(
                f"Texts must be an iterable of strings, got one string, {texts[:60]!r}: give a list of it."
            )
        folder = Path(folder)
        if folder.exists() and not (folder / "words.txt").is_file() and not is_empty_folder(folder):
            raise ValueError(
                f"{folder} must be a new folder or that of a corpus, and holds something else: name another."
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(folder, replace=True) as unfinished:
            write_corpus(texts, unfinished, tokenizer, splitting or Splitting())
        return cls(folder)


def is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def write_corpus(texts: Iterable[str], folder: Path, tokenizer, splitting: Splitting):
    splitter = SentenceSplitter(tokenizer, splitting)
    raw_tokens, raw_offsets = folder / "tokens.raw", folder / "offsets.raw"
    with raw_tokens.open("wb") as tokens_file, raw_offsets.open("wb") as offsets_file:
        total = 0
        offsets_file.write(np.zeros(1, dtype=np.int64))
        for tokens, ends in splitter.split_all(texts):
            tokens_file.write(tokens)
            offsets_file.write(total + ends)
            total += len(tokens)
    counts = np.zeros(len(splitter.numbers), dtype=np.int64)
    for chunk in chunks_of(raw_tokens, np.uint32):
        counts += np.bincount(chunk, minlength=len(counts))
    # The most frequent first; of equally frequent words the one that came first.
    order = np.argsort(-counts, kind="stable")
    rank = np.empty(len(order), dtype=np.uint32)
    rank[order] = np.arange(len(order))
    write_array(folder / "tokens.npy", (rank[chunk] for chunk in chunks_of(raw_tokens, np.uint32)), np.uint32, total)
    sentences = raw_offsets.stat().st_size // 8 - 1
    write_array(folder / "offsets.npy", chunks_of(raw_offsets, np.int64), np.int64, sentences + 1)
    np.save(folder / "counts.npy", counts[order])
    words = list(splitter.numbers)
    with (folder / "words.txt").open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{words[number]}\n" for number in order)
    raw_tokens.unlink()
    raw_offsets.unlink()


def chunks_of(path: Path, dtype) -> Iterator[np.ndarray]:
    with path.open("rb") as file:
        while len(chunk := np.fromfile(file, dtype, CHUNK)):
            yield chunk


def write_array(path: Path, chunks: Iterable[np.ndarray], dtype, length: int):
    """An .npy file of chunks; a map of it would end the program where the disk is full."""
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": (length,)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for chunk in chunks:
            file.write(chunk)


class SentenceSplitter:
    """Lines of text to sentences of numbered words; a new word gets the next number.

    A sentence ends after . ! or ? and whatever closes after it, unless the line goes on in lower case. The periods of
    "Mr." and "U.S." are none: they belong to their words.
    """

    def __init__(self, tokenizer, splitting: Splitting):
        self.splitting = splitting
        self.left_out = {*splitting.leave_out, *tokenizer.all_special_tokens}
        self.numbers: dict[str, int] = {}
        self.kinds = bytearray()  # of each word
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
        batch, size = [], 0
        for text in texts:
            if not isinstance(text, str):
                raise ValueError(f"A text must be a string, got {text!r:.80}; of rows, give the column with the text.")
            if not text.isascii():
                text = SURROGATE.sub(REPLACEMENT, text)  # as the tokenizer does
            for line in chain.from_iterable(map(in_parts, text.split("\n"))):
                if any(word in line for word in self.left_out):
                    line = " ".join(word for word in line.split() if word not in self.left_out)
                if not line or line.isspace():
                    continue
                batch.append(line)
                size += len(line)
                if len(batch) >= LINES or size >= LONGEST:
                    yield batch
                    batch, size = [], 0
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
        lengths = np.array(
            [len(words) for words in lines], dtype=np.int64
        )  # of lines, zero for one of control characters
        ends = np.cumsum(lengths)
        if not self.splitting.lines:
            ends = np.union1d(ends, sentence_ends(np.frombuffer(kinds, dtype=np.uint8)[tokens], lengths))
        return tokens, ends[np.diff(ends, prepend=0) > 0]


def in_parts(line: str) -> Iterator[str]:
    """A line, a very long one in parts that end between words."""
    start = 0
    while len(line) - start > LONGEST:
        part = BETWEEN_WORDS.match(line, start, start + LONGEST)
        if not part:
            raise ValueError(
                f"A text must have spaces between its words, got {LONGEST:,} characters without one after "
                f"{line[start : start + 40]!r}: is it text?"
            )
        yield part[0]
        start = part.end()
    yield line[start:]


def kind_of(word: str) -> int:
    if word in ENDS or not word.strip("."):
        return END
    if word in CLOSES:
        return CLOSE
    return QUOTES.get(word, LOWER if word[0].islower() else PLAIN)


def sentence_ends(kinds: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Where sentences end within lines, by the kinds of all words (n,) and the lengths of the lines"""
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)  # (n,) of each word's line
    closing = (kinds == END) | (kinds == CLOSE)
    for quote in QUOTES.values():
        marks = kinds == quote
        before = np.cumsum(marks) - marks  # (n,)
        closing |= marks & ((before - before[starts]) % 2 == 1)
    places = np.arange(len(kinds))
    last_end = np.maximum.accumulate(np.where(kinds == END, places, -1))  # (n,) so far
    last_other = np.maximum.accumulate(np.where(closing, -1, places))
    # A sentence begins at a word where nothing but what closes lies between it and an end in its line.
    ended = (last_end[:-1] > last_other[:-1]) & (last_end[:-1] >= starts[1:])
    return places[1:][ended & ~closing[1:] & (kinds[1:] != LOWER)]


def corpus_of_files(
    files: list[Path], cache: Path, tokenizer, splitting: Splitting, column: str = "text", errors: str = "strict"
) -> Corpus:
    """The corpus of these files: made once, found again as long as the files and the splitting are the same."""
    facts = [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files]
    splitter = tokenizer.backend_tokenizer.pre_tokenizer.__getstate__().decode()
    key = json.dumps(
        [VERSION, facts, splitter, sorted(tokenizer.all_special_tokens), asdict(splitting), column, errors]
    )
    folder = cache / hashlib.sha256(key.encode()).hexdigest()[:16]
    if folder.is_dir():
        return Corpus(folder)
    return Corpus.build(read_texts(files, column, errors), folder, tokenizer, splitting)
