"""Windows of text against bilm-tf's `_get_batch`, written out word by word, and against the tokenizer."""

import io
from itertools import chain, count, islice, pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

from transformers_elmo.pretrain.corpus import Corpus, Splitting
from transformers_elmo.pretrain.windows import IGNORED, Windows
from transformers_elmo.tokenization_elmo import ElmoTokenizer

WORDS = [f"w{number}" for number in range(300)]
TOKENIZER = ElmoTokenizer(vocab=WORDS, max_characters_per_token=8)
NAMES = {0: None, IGNORED: None, 1: "<S>", 2: "</S>"} | {number + 4: word for number, word in enumerate(WORDS)}
SENTENCES = st.lists(st.lists(st.sampled_from(WORDS[:20]), min_size=1, max_size=9), min_size=1, max_size=12)
OTHERS = "one two three four five six seven eight nine ten".split()


class GivenSentences:
    """A corpus of words that are given, without files."""

    def __init__(self, sentences):
        self.words = WORDS
        self.tokens = np.array([WORDS.index(word) for word in chain(*sentences)], dtype=np.uint32)
        self.offsets = np.cumsum([0, *map(len, sentences)])

    def __len__(self):
        return len(self.offsets) - 1


def distinct_sentences(lengths):
    """Sentences in which no word occurs twice, so that each is known by any of its words."""
    words = iter(WORDS)
    return [list(islice(words, length)) for length in lengths]


def windows_of(sentences, rows, window, **options):
    return Windows(GivenSentences(sentences), TOKENIZER, rows=rows, window=window, **options)


def naive_order(number, direction, seed=None, rank=0, world=1, epochs=None):
    """The sentences that one process reads, one after the other."""
    for epoch in count() if epochs is None else range(epochs):
        order = np.arange(number)
        if seed is not None:
            order = np.random.default_rng([seed, epoch, direction]).permutation(number)
        yield from order[rank::world].tolist()


def naive_batches(sentences, rows, window):
    """bilm-tf's `_get_batch`, but for the end: it drops the last windows, here they are filled up with None.

    sentences is a generator that all rows share.
    """
    streams = [[] for _ in range(rows)]
    while True:
        read, predicted = [], []
        for row in range(rows):
            row_read, row_predicted = [], []
            while len(row_read) < window:
                if len(streams[row]) <= 1:
                    following = next(sentences, None)
                    if following is None:
                        break
                    streams[row] = following
                number = min(len(streams[row]) - 1, window - len(row_read))
                row_read += streams[row][:number]
                row_predicted += streams[row][1 : number + 1]
                streams[row] = streams[row][number:]
            nothing = [None] * (window - len(row_read))
            read.append(row_read + nothing)
            predicted.append(row_predicted + nothing)
        if all(word is None for word in chain(*read)):
            return
        yield read, predicted


def naive_direction(sentences, direction, rows, window, **options):
    def in_order():
        for number in naive_order(len(sentences), direction, **options):
            words = ["<S>", *sentences[number], "</S>"]
            yield words[::-1] if direction else words

    return naive_batches(in_order(), rows, window)


def words_of(ids):
    """Words of ids (B, T), None where there is none."""
    return [[NAMES[number] for number in row] for row in ids.tolist()]


def directions_of(batches):
    """For each direction its batches as pairs of words read and predicted; the empty ones at the end left out."""
    directions = [], []
    for batch in batches:
        assert (batch["input_ids"] == 0).equal(batch["targets"] == IGNORED)
        for found, read, predicted in zip(directions, batch["input_ids"], batch["targets"]):
            if read.any():
                found.append((words_of(read), words_of(predicted)))
    return directions


def words_read(batches):
    """For each direction all words read and all words predicted, row after row and batch after batch."""
    return [
        tuple([word for batch in batches for row in batch[part] for word in row if word] for part in (0, 1))
        for batches in directions_of(batches)
    ]


def sentences_read(sentences, **options):
    """For each direction the numbers of the sentences in the order in which a single row reads them."""
    numbers = {sentence[end]: n for n, sentence in enumerate(sentences) for end in (0, -1)}
    found = []
    for direction, (read, _) in enumerate(words_read(windows_of(sentences, 1, 4, **options))):
        first = "</S>" if direction else "<S>"
        found.append([numbers[word] for before, word in pairwise(read) if before == first])
    return found


@given(
    SENTENCES,
    st.integers(1, 5),
    st.integers(1, 6),
    st.none() | st.integers(0, 3),
    st.none() | st.integers(1, 3),
    st.sampled_from([(0, 1), (0, 2), (1, 2), (2, 3)]),
)
@example([["w1"]], 5, 3, None, 1, (0, 1))
@example([["w1"]], 5, 3, 0, None, (0, 1))
@example([["w1"], ["w2"], ["w3"]], 2, 1, None, 2, (0, 1))
@example([["w1"] * 9], 1, 1, None, 1, (0, 1))
@example([["w1", "w2"], ["w3"]], 2, 4, None, 1, (2, 3))
def test_packing_equals_bilm_tf(sentences, rows, window, seed, epochs, process):
    rank, world = process
    options = {"seed": seed, "epochs": epochs, "rank": rank, "world": world}
    assume(epochs is not None or len(sentences) >= world)
    at_most = 12 if epochs is None else None
    found = directions_of(islice(windows_of(sentences, rows, window, **options), at_most))
    for direction in (0, 1):
        expected = islice(naive_direction(sentences, direction, rows, window, **options), at_most)
        assert found[direction] == list(expected)


@given(st.lists(st.integers(1, 12), max_size=20), st.integers(1, 6), st.integers(1, 9), st.none() | st.integers(0, 9))
def test_every_word_is_read_and_predicted_once_in_each_direction(lengths, rows, window, seed):
    sentences = distinct_sentences(lengths)
    words, ends = list(chain(*sentences)), len(sentences)
    found = words_read(windows_of(sentences, rows, window, seed=seed, epochs=1))
    for (read, predicted), first, last in zip(found, ("<S>", "</S>"), ("</S>", "<S>")):
        assert sorted(read) == sorted(words + [first] * ends)
        assert sorted(predicted) == sorted(words + [last] * ends)


def test_end_is_never_read():
    """Not forward, and the beginning not backward; neither is predicted the other way round."""
    (forward, backward), text = words_read(islice(windows_of(distinct_sentences([1, 4, 2]), 2, 3), 20)), set(WORDS)
    for (read, predicted), first, last in ((forward, "<S>", "</S>"), (backward, "</S>", "<S>")):
        assert set(read) - text == {first}
        assert set(predicted) - text == {last}


def test_directions_are_shuffled_differently():
    sentences, options = distinct_sentences([1] * 60), {"epochs": 2}
    found = sentences_read(sentences, seed=3, **options)
    shuffles = [tuple(order[start : start + 60]) for order in found for start in (0, 60)]
    assert len({*shuffles, tuple(range(60))}) == 5
    assert sentences_read(sentences, seed=3, **options) == found
    assert sentences_read(sentences, seed=4, **options) != found


def test_without_seed_sentences_are_read_in_their_order():
    assert sentences_read(distinct_sentences([1, 3] * 10), epochs=1) == [list(range(20))] * 2


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.integers(1, 5), st.none() | st.integers(0, 5))
@example([1, 2, 3], 5, 0)
def test_each_epoch_has_every_sentence_once_among_the_processes(lengths, world, seed):
    """The sentences of the processes are disjoint, and together all."""
    sentences, epochs = distinct_sentences(lengths), 3
    found = [sentences_read(sentences, seed=seed, rank=rank, world=world, epochs=epochs) for rank in range(world)]
    for direction in (0, 1):
        shares = [np.split(np.array(orders[direction], dtype=int), epochs) for orders in found]
        for epoch in range(epochs):
            assert sorted(chain.from_iterable(share[epoch] for share in shares)) == list(range(len(sentences)))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.integers(1, 4), st.integers(1, 4))
@example([1], 4, 4)
def test_epochs_go_on_without_a_gap(lengths, rows, window):
    for batch in islice(windows_of(distinct_sentences(lengths), rows, window, seed=1), 15):
        assert (batch["input_ids"] > 0).all() and (batch["targets"] > 0).all()


def test_chosen_sentences():
    sentences = distinct_sentences([3] * 10)
    windows = Windows(GivenSentences(sentences), TOKENIZER, np.array([1, 7]), rows=2, window=4, seed=0, epochs=1)
    for read, _ in words_read(windows):
        assert sorted(word for word in read if word in WORDS) == sorted(sentences[1] + sentences[7])


def equal(some, others):
    return len(some) == len(others) and all(
        batch.keys() == other.keys() and all(batch[name].equal(other[name]) for name in batch)
        for batch, other in zip(some, others)
    )


@given(SENTENCES, st.integers(1, 4), st.integers(1, 5), st.integers(0, 10), st.none() | st.integers(1, 3))
@example([["w1", "w2"]] * 3, 1, 3, 3, None)  # at the very end of an epoch
@example([["w1", "w2"]] * 3, 1, 3, 3, 2)
def test_goes_on_from_a_state_as_if_uninterrupted(sentences, rows, window, after, epochs):
    options = {"seed": 2, "epochs": epochs}
    at_most = after + 10  # several epochs of most of these
    uninterrupted = list(islice(windows_of(sentences, rows, window, **options), at_most))
    first = windows_of(sentences, rows, window, **options)
    before, states = list(islice(first, after)), io.BytesIO()
    torch.save(first.state_dict(), states)
    states.seek(0)
    list(islice(first, 3))  # the state is not moved by what is read later
    second = windows_of(sentences, rows, window, **options)
    second.load_state_dict(torch.load(states, weights_only=True))
    assert equal(before + list(islice(second, at_most - len(before))), uninterrupted)


def test_endless_windows_go_on_where_they_were():
    sentences = distinct_sentences([5, 2, 7])
    expected = list(islice(windows_of(sentences, 2, 3, seed=0), 8))
    windows = windows_of(sentences, 2, 3, seed=0)
    assert equal([*islice(windows, 3), *islice(windows, 5)], expected)


def test_finite_windows_can_be_read_again():
    """From their beginning, whether they were read to their end or not."""
    windows = windows_of(distinct_sentences([5, 2, 7]), 2, 3, seed=0, epochs=1)
    expected = list(windows)
    assert len(expected) == 4
    assert equal(list(windows), expected)
    next(iter(windows))
    assert equal(list(windows), expected)
    state = windows_of(distinct_sentences([5, 2, 7]), 2, 3, seed=0, epochs=1).state_dict()
    list(islice(windows, 2))
    windows.load_state_dict(state)
    assert equal(list(windows), expected)
    assert equal(list(windows), expected)


CHAR_VOCAB = ["<pad>", *"aehilnorstw", "<oov>", "<bow>", "<eow>", "<bos>", "<eos>"]


@pytest.mark.parametrize("backend", ["bytes", "characters"])
def test_agrees_with_the_tokenizer(tmp_path, backend):
    """Known words and unknown ones, and one so long that it is cut, where the cut word is known and where it is not."""
    sentences = ["the ratio is one", "Löwen roar .", "the interns", "internationale", "ratio"]
    vocab = ["the", "ratio", ".", "intern", "interns"]
    options = {"char_vocab": CHAR_VOCAB} if backend == "characters" else {}
    tokenizer = ElmoTokenizer(vocab=vocab, max_characters_per_token=8, **options)
    corpus = Corpus.build(sentences, tmp_path / "corpus", tokenizer, Splitting(words=True, lines=True))
    batches = list(Windows(corpus, tokenizer, rows=1, window=1, epochs=1))
    found = {name: torch.cat([batch[name] for batch in batches], 2).squeeze(1) for name in batches[0]}  # (2, N, ...)
    encoded = [tokenizer(s.split(), is_split_into_words=True, return_tensors="pt") for s in sentences]
    for direction in (0, 1):
        for name in ("input_ids", "char_ids"):
            expected = [e[name][0].flip(0) if direction else e[name][0] for e in encoded]
            assert found[name][direction].equal(torch.cat([rows[:-1] for rows in expected]))
            if name == "input_ids":
                assert found["targets"][direction].equal(torch.cat([rows[1:] for rows in expected]))
    # And in plain words.
    ids = found["input_ids"][0].tolist()
    known = {"the": 4, "ratio": 5, ".": 6, "interns": 8, "<S>": 1}
    if backend == "characters":
        known |= {"internationale": 7, "interns": 7}  # both are cut to "intern"
    words = [word for sentence in sentences for word in ["<S>", *sentence.split()]]
    assert ids == [known.get(word, 3) for word in words]
    targets = found["targets"][0].tolist()
    words = [word for sentence in sentences for word in [*sentence.split(), "</S>"]]
    assert targets == [(known | {"</S>": 2}).get(word, 3) for word in words]
    if backend == "bytes":
        spelled = tokenizer.convert_char_ids_to_words(found["char_ids"][0])
        assert spelled[:5] == ["<S>", "the", "ratio", "is", "one"]
        assert found["char_ids"][0, 0].tolist() == [259, 257, 260, *[261] * 5]
        assert found["char_ids"][1, 0].tolist() == [259, 258, 260, *[261] * 5]


def test_shapes_and_padding():
    batches = list(windows_of(distinct_sentences([2, 1]), 3, 4, epochs=1))
    assert [words_of(batch["input_ids"][0]) for batch in batches] == [
        [["<S>", "w0", "w1", "<S>"], [None] * 4, [None] * 4],
        [["w2", None, None, None], [None] * 4, [None] * 4],
    ]
    for batch in batches:
        assert batch["input_ids"].shape == batch["targets"].shape == (2, 3, 4)
        assert batch["char_ids"].shape == (2, 3, 4, 8)
        assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
        nothing = batch["input_ids"] == 0
        assert not batch["char_ids"][nothing].any() and batch["char_ids"][~nothing].all()
        assert (batch["targets"][nothing] == IGNORED).all()


def test_same_words_of_a_built_corpus(tmp_path):
    """From mapped files, with a loader around."""
    texts = [" ".join(OTHERS[: 1 + number % 10]) for number in range(40)]
    tokenizer = ElmoTokenizer(vocab=OTHERS, max_characters_per_token=8)
    corpus = Corpus.build(texts, tmp_path / "corpus", tokenizer, Splitting(lines=True))
    windows = Windows(corpus, tokenizer, rows=3, window=5, seed=0, epochs=1)
    loaded = list(torch.utils.data.DataLoader(windows, batch_size=None))
    assert equal(loaded, list(windows))
    for direction in (0, 1):
        ids = torch.cat([batch["input_ids"][direction].flatten() for batch in loaded])
        assert torch.bincount(ids[ids > 3] - 4).tolist() == list(range(40, 0, -4))


def test_no_sentences():
    assert list(windows_of([], 2, 3, epochs=1)) == []
    assert list(windows_of([["w1"]], 2, 3, epochs=1, rank=1, world=2)) == []


@pytest.mark.parametrize("number, world", [(0, 1), (2, 3)])
def test_endless_windows_need_a_sentence_for_each_process(number, world):
    for rank in range(world):
        with pytest.raises(ValueError, match=f"{world} have {number}: give more text, or fewer processes"):
            windows_of([["w1"]] * number, 2, 3, seed=0, rank=rank, world=world)


def test_state_of_other_rows():
    state = windows_of([["w1"]], 2, 3).state_dict()
    with pytest.raises(ValueError, match="state must be of 3 rows, got 2: go on with as many rows"):
        windows_of([["w1"]], 3, 3).load_state_dict(state)
