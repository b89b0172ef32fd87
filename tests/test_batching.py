"""Test batches by a budget of words."""

import sys
from itertools import count, pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformers_elmo import batching, memory
from transformers_elmo.batching import SORTED_BATCHES, TRIMMED_WINDOWS, batches, map_in_batches, windows
from transformers_elmo.products_elmo import round_rows

sentences = st.lists(st.lists(st.sampled_from("abc"), max_size=12), max_size=40)
budgets = st.integers(1, 60) | st.integers(100, 400)


def fits(lengths, batch_words):
    """Return whether sentences of these lengths may be in one batch."""
    words, padded = sum(length + 2 for length in lengths), len(lengths) * (max(lengths) + 2)
    return len(lengths) == 1 or (words <= batch_words and padded <= 2 * batch_words)


@given(sentences, budgets)
def test_results_are_in_the_order_of_the_sentences(sentences, batch_words):
    seen = []

    def compute(batch):
        seen.append(batch)
        return ("".join(words) for words in batch)

    assert list(map_in_batches(compute, iter(sentences), batch_words)) == ["".join(words) for words in sentences]
    assert sum(map(len, seen)) == len(sentences)
    assert all(fits([*map(len, batch)], batch_words) for batch in seen)


@given(st.lists(st.integers(0, 30), max_size=40) | st.lists(st.integers(0, 4), min_size=60, max_size=120), budgets)
def test_batches_are_sorted_by_length_and_full(lengths, batch_words):
    found = list(batches(lengths, batch_words))
    assert sorted(index for batch in found for index in batch) == list(range(len(lengths)))
    order = [lengths[index] for batch in found for index in batch]
    assert order == sorted(lengths, reverse=True)
    for batch, following in pairwise(found):
        # It could not have taken the sentences up to the next number that needs no padding.
        size = next(size for size in count(len(batch) + 1) if round_rows(size) == size)
        assert round_rows(len(batch)) == len(batch)
        more = [lengths[index] for index in [*batch, *following][:size]]
        assert len(more) < size or not fits(more, batch_words)


@given(sentences, budgets)
def test_windows_end_where_they_have_enough_words(sentences, num_words):
    found = list(windows(iter(sentences), num_words))
    assert [sentence for window in found for sentence in window] == sentences
    for number, window in enumerate(found):
        sizes = [len(sentence) + 2 for sentence in window]
        assert sum(sizes[:-1]) < num_words
        assert number == len(found) - 1 or sum(sizes) >= num_words


def test_a_stream_is_read_one_window_at_a_time_and_results_are_freed():
    class Result:
        alive = 0

        def __init__(self):
            Result.alive += 1

        def __del__(self):
            Result.alive -= 1

    num_read = 0

    def stream():
        nonlocal num_read
        while True:
            num_read += 1
            yield ["word"] * 8

    results = map_in_batches(lambda batch: [Result() for _ in batch], stream(), batch_words=20)
    window = 2 * SORTED_BATCHES
    for number in range(5 * window):
        next(results)
        assert num_read == (number // window + 1) * window
        assert Result.alive < window


def test_freed_memory_is_returned_in_long_texts_only(monkeypatch):
    events = []
    monkeypatch.setattr(batching, "return_freed_memory", lambda: events.append("returned"))
    num_windows = 2 * TRIMMED_WINDOWS + 1

    def compute(batch):
        events.append("batch")
        return batch

    list(map_in_batches(compute, [["word"] * 8] * SORTED_BATCHES * num_windows, batch_words=10))
    batches_between = ["batch"] * SORTED_BATCHES * TRIMMED_WINDOWS
    assert events == [*batches_between, "returned", *batches_between, "returned", *["batch"] * SORTED_BATCHES]


@pytest.mark.parametrize("platform", [sys.platform, "darwin"])
def test_memory_is_returned_where_the_system_can(monkeypatch, platform):
    called = []
    library = SimpleNamespace(malloc_trim=called.append) if platform == "linux" else SimpleNamespace()
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(sys, "platform", platform)
    memory.return_freed_memory()
    assert called == ([0] if platform == "linux" else [])


@pytest.mark.parametrize("batch_words", [1, 5, 100])
def test_no_sentences(batch_words):
    assert list(map_in_batches(list, [], batch_words)) == []
