# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Batches by a budget of words: sentences of similar length together, results in the order of the sentences."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from .memory import return_freed_memory

Sentence = TypeVar("Sentence", bound=Sequence)
Result = TypeVar("Result")

BATCH_WORDS = 4096  # large enough for the speed of large matrix products, small enough to stay in the processor's cache
MAX_PADDING = 2  # padding takes memory, but no time
# Sentences are sorted by length within this many batches, whose results are in memory at once.
SORTED_BATCHES = 8
# Freed memory is returned to the system each time this many windows have been read.
TRIMMED_WINDOWS = 2


def map_in_batches(
    compute: Callable[[list[Sentence]], Iterable[Result]],
    sentences: Iterable[Sentence],
    batch_words: int = BATCH_WORDS,
) -> Iterator[Result]:
    """Yield the results of all sentences, in their order; `compute` is called with a batch and returns its results.

    A sentence is a list of words. Those of a window of the stream are sorted by length, so a batch needs little
    padding.
    """
    for number, window in enumerate(windows(sentences, SORTED_BATCHES * batch_words)):
        if number and number % TRIMMED_WINDOWS == 0:
            return_freed_memory()
        results: deque = deque([None] * len(window))
        for batch in batches(list(map(len, window)), batch_words):
            for index, result in zip(batch, compute([window[index] for index in batch])):
                results[index] = result
        while results:  # each is freed once it has been used
            yield results.popleft()


def windows(sentences: Iterable[Sentence], num_words: int) -> Iterator[list[Sentence]]:
    """Yield consecutive sentences, each time as many as first reach a number of words, boundaries included."""
    window: list[Sentence] = []
    size = 0
    for sentence in sentences:
        window.append(sentence)
        size += len(sentence) + 2
        if size >= num_words:
            yield window
            window, size = [], 0
    if window:
        yield window


def batches(lengths: Sequence[int], batch_words: int) -> Iterator[list[int]]:
    """Yield batches of indices, from the longest sentences to the shortest.

    A batch has at most `batch_words`, boundaries included, and at most MAX_PADDING times as many with its padding; or
    one sentence. The number of its sentences is one that `round_rows` leaves as it is, except in the last batch. That
    one has few sentences, which take as long as many: it is fast because they are the shortest.
    """
    from .products_elmo import round_rows  # imports torch, which `elmo embed --help` does without

    batch: list[int] = []
    num_words = 0
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        batch.append(index)
        num_words += lengths[index] + 2
        while len(batch) > 1 and (
            num_words > batch_words or len(batch) * (lengths[batch[0]] + 2) > MAX_PADDING * batch_words
        ):
            size = max(size for size in range(1, len(batch)) if round_rows(size) == size)
            yield batch[:size]
            batch = batch[size:]
            num_words = sum(lengths[index] + 2 for index in batch)
    if batch:
        yield batch
