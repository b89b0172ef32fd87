"""Windows of text against bilm-tf's `_get_batch`, written word by word, and against the tokenizer."""

import io
from itertools import chain, count, islice, pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

from transformers_elmo.pretrain.corpus import Corpus, Splitting
from transformers_elmo.pretrain.windows import IGNORE_INDEX, Windows
from transformers_elmo.tokenization_elmo import ElmoTokenizer

WORDS = [f"w{number}" for number in range(300)]
TOKENIZER = ElmoTokenizer(vocab=WORDS, max_characters_per_token=8)
NAMES = {0: None, IGNORE_INDEX: None, 1: "<S>", 2: "</S>"} | {number + 4: word for number, word in enumerate(WORDS)}
SENTENCES = st.lists(st.lists(st.sampled_from(WORDS[:20]), min_size=1, max_size=9), min_size=1, max_size=12)
NUMBER_WORDS = "one two three four five six seven eight nine ten".split()


class InMemoryCorpus:
    """A corpus without files."""

    def __init__(self, sentences):
        self.words = WORDS
        self.tokens = np.array([WORDS.index(word) for word in chain(*sentences)], dtype=np.uint32)
        self.offsets = np.cumsum([0, *map(len, sentences)])

    def __len__(self):
        return len(self.offsets) - 1


def distinct_sentences(lengths):
    """Make sentences that have no word in common, so that any word identifies its sentence."""
    words = iter(WORDS)
    return [list(islice(words, length)) for length in lengths]


def make_windows(sentences, rows, window, **options):
    return Windows(InMemoryCorpus(sentences), TOKENIZER, rows=rows, window=window, **options)


def naive_order(number, direction, seed=None, rank=0, world_size=1, epochs=None):
    """Yield the sentences that one process reads."""
    for epoch in count() if epochs is None else range(epochs):
        order = np.arange(number)
        if seed is not None:
            order = np.random.default_rng([seed, epoch, direction]).permutation(number)
        yield from order[rank::world_size].tolist()


def naive_batches(sentences, rows, window):
    """Pack as bilm-tf's `_get_batch` does, except that the last windows are padded with None instead of dropped.

    `sentences` is a generator that all rows share.
    """
    streams = [[] for _ in range(rows)]
    while True:
        inputs, targets = [], []
        for row in range(rows):
            row_inputs, row_targets = [], []
            while len(row_inputs) < window:
                if len(streams[row]) <= 1:
                    following = next(sentences, None)
                    if following is None:
                        break
                    streams[row] = following
                number = min(len(streams[row]) - 1, window - len(row_inputs))
                row_inputs += streams[row][:number]
                row_targets += streams[row][1 : number + 1]
                streams[row] = streams[row][number:]
            padding = [None] * (window - len(row_inputs))
            inputs.append(row_inputs + padding)
            targets.append(row_targets + padding)
        if all(word is None for word in chain(*inputs)):
            return
        yield inputs, targets


def naive_direction(sentences, direction, rows, window, **options):
    def ordered_sentences():
        for number in naive_order(len(sentences), direction, **options):
            words = ["<S>", *sentences[number], "</S>"]
            yield words[::-1] if direction else words

    return naive_batches(ordered_sentences(), rows, window)


def words_of(ids):
    """Return the words of ids (B, T), None for padding."""
    return [[NAMES[number] for number in row] for row in ids.tolist()]


def split_directions(batches):
    """Return the batches of each direction as pairs of input words and target words, without empty ones at the end."""
    directions = [], []
    for batch in batches:
        assert (batch["input_ids"] == 0).equal(batch["targets"] == IGNORE_INDEX)
        for found, inputs, targets in zip(directions, batch["input_ids"], batch["targets"]):
            if inputs.any():
                found.append((words_of(inputs), words_of(targets)))
    return directions


def flat_words(batches):
    """Return all input words and all target words of each direction, batch by batch and row by row."""
    return [
        tuple([word for batch in batches for row in batch[part] for word in row if word] for part in (0, 1))
        for batches in split_directions(batches)
    ]


def sentence_order(sentences, **options):
    """Return the indices of the sentences of each direction in the order in which a single row reads them."""
    numbers = {sentence[end]: n for n, sentence in enumerate(sentences) for end in (0, -1)}
    found = []
    for direction, (inputs, _) in enumerate(flat_words(make_windows(sentences, 1, 4, **options))):
        first = "</S>" if direction else "<S>"
        found.append([numbers[word] for before, word in pairwise(inputs) if before == first])
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
    rank, world_size = process
    options = {"seed": seed, "epochs": epochs, "rank": rank, "world_size": world_size}
    assume(epochs is not None or len(sentences) >= world_size)
    at_most = 12 if epochs is None else None
    found = split_directions(islice(make_windows(sentences, rows, window, **options), at_most))
    for direction in (0, 1):
        expected = islice(naive_direction(sentences, direction, rows, window, **options), at_most)
        assert found[direction] == list(expected)


@given(st.lists(st.integers(1, 12), max_size=20), st.integers(1, 6), st.integers(1, 9), st.none() | st.integers(0, 9))
def test_every_word_is_input_and_target_once_in_each_direction(lengths, rows, window, seed):
    sentences = distinct_sentences(lengths)
    words, ends = list(chain(*sentences)), len(sentences)
    found = flat_words(make_windows(sentences, rows, window, seed=seed, epochs=1))
    for (inputs, targets), first, last in zip(found, ("<S>", "</S>"), ("</S>", "<S>")):
        assert sorted(inputs) == sorted(words + [first] * ends)
        assert sorted(targets) == sorted(words + [last] * ends)


def test_sentence_end_is_never_an_input():
    """Forward, </S> is only a target and <S> only an input; backward, it is the other way round."""
    (forward, backward), text = flat_words(islice(make_windows(distinct_sentences([1, 4, 2]), 2, 3), 20)), set(WORDS)
    for (inputs, targets), first, last in ((forward, "<S>", "</S>"), (backward, "</S>", "<S>")):
        assert set(inputs) - text == {first}
        assert set(targets) - text == {last}


def test_directions_are_shuffled_differently():
    sentences, options = distinct_sentences([1] * 60), {"epochs": 2}
    found = sentence_order(sentences, seed=3, **options)
    shuffles = [tuple(order[start : start + 60]) for order in found for start in (0, 60)]
    assert len({*shuffles, tuple(range(60))}) == 5
    assert sentence_order(sentences, seed=3, **options) == found
    assert sentence_order(sentences, seed=4, **options) != found


def test_without_seed_sentences_are_read_in_order():
    assert sentence_order(distinct_sentences([1, 3] * 10), epochs=1) == [list(range(20))] * 2


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.integers(1, 5), st.none() | st.integers(0, 5))
@example([1, 2, 3], 5, 0)
def test_processes_share_the_sentences_of_each_epoch(lengths, world_size, seed):
    """No two processes read the same sentence, and together they read all."""
    sentences, epochs = distinct_sentences(lengths), 3
    found = [
        sentence_order(sentences, seed=seed, rank=rank, world_size=world_size, epochs=epochs)
        for rank in range(world_size)
    ]
    for direction in (0, 1):
        shares = [np.split(np.array(orders[direction], dtype=int), epochs) for orders in found]
        for epoch in range(epochs):
            assert sorted(chain.from_iterable(share[epoch] for share in shares)) == list(range(len(sentences)))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.integers(1, 4), st.integers(1, 4))
@example([1], 4, 4)
def test_no_padding_between_epochs(lengths, rows, window):
    for batch in islice(make_windows(distinct_sentences(lengths), rows, window, seed=1), 15):
        assert (batch["input_ids"] > 0).all() and (batch["targets"] > 0).all()


def test_subset_of_sentences():
    sentences = distinct_sentences([3] * 10)
    windows = Windows(InMemoryCorpus(sentences), TOKENIZER, np.array([1, 7]), rows=2, window=4, seed=0, epochs=1)
    for inputs, _ in flat_words(windows):
        assert sorted(word for word in inputs if word in WORDS) == sorted(sentences[1] + sentences[7])


def equal(some, others):
    return len(some) == len(others) and all(
        batch.keys() == other.keys() and all(batch[name].equal(other[name]) for name in batch)
        for batch, other in zip(some, others)
    )


@given(SENTENCES, st.integers(1, 4), st.integers(1, 5), st.integers(0, 10), st.none() | st.integers(1, 3))
@example([["w1", "w2"]] * 3, 1, 3, 3, None)  # at the very end of an epoch
@example([["w1", "w2"]] * 3, 1, 3, 3, 2)
def test_resumes_from_a_state(sentences, rows, window, after, epochs):
    options = {"seed": 2, "epochs": epochs}
    at_most = after + 10  # several epochs of most of these
    uninterrupted = list(islice(make_windows(sentences, rows, window, **options), at_most))
    first = make_windows(sentences, rows, window, **options)
    before, states = list(islice(first, after)), io.BytesIO()
    torch.save(first.state_dict(), states)
    states.seek(0)
    list(islice(first, 3))  # the state does not change when reading continues
    second = make_windows(sentences, rows, window, **options)
    second.load_state_dict(torch.load(states, weights_only=True))
    assert equal(before + list(islice(second, at_most - len(before))), uninterrupted)


def test_goes_back_to_a_state():
    """Also from a later epoch, whose sentences are in another order; the state does not change meanwhile."""
    windows = make_windows(distinct_sentences([5, 2, 7, 3, 4, 6]), 2, 3, seed=0)
    list(islice(windows, 2))
    state = windows.state_dict()
    expected = list(islice(windows, 12))
    windows.load_state_dict(state)
    assert equal(list(islice(windows, 12)), expected)


def test_endless_windows_continue_in_a_new_iterator():
    sentences = distinct_sentences([5, 2, 7])
    expected = list(islice(make_windows(sentences, 2, 3, seed=0), 8))
    windows = make_windows(sentences, 2, 3, seed=0)
    assert equal([*islice(windows, 3), *islice(windows, 5)], expected)


def test_finite_windows_restart_in_a_new_iterator():
    """Whether they were read to their end or not."""
    windows = make_windows(distinct_sentences([5, 2, 7]), 2, 3, seed=0, epochs=1)
    expected = list(windows)
    assert len(expected) == 4
    assert equal(list(windows), expected)
    next(iter(windows))
    assert equal(list(windows), expected)
    state = make_windows(distinct_sentences([5, 2, 7]), 2, 3, seed=0, epochs=1).state_dict()
    list(islice(windows, 2))
    windows.load_state_dict(state)
    assert equal(list(windows), expected)
    assert equal(list(windows), expected)


CHAR_VOCAB = ["<pad>", *"aehilnorstw", "<oov>", "<bow>", "<eow>", "<bos>", "<eos>"]


@pytest.mark.parametrize("backend", ["bytes", "characters"])
def test_agrees_with_the_tokenizer(tmp_path, backend):
    """Known and unknown words, and a truncated word that is in the vocabulary or is not."""
    sentences = ["the ratio is one", "Löwen roar .", "the interns", "internationale", "ratio"]
    vocab = ["the", "ratio", ".", "intern", "interns"]
    options = {"char_vocab": CHAR_VOCAB} if backend == "characters" else {}
    tokenizer = ElmoTokenizer(vocab=vocab, max_characters_per_token=8, **options)
    corpus = Corpus.build(
        sentences, tmp_path / "corpus", tokenizer, Splitting(pretokenized=True, one_sentence_per_line=True)
    )
    batches = list(Windows(corpus, tokenizer, rows=1, window=1, epochs=1))
    found = {name: torch.cat([batch[name] for batch in batches], 2).squeeze(1) for name in batches[0]}  # (2, N, ...)
    encoded = [tokenizer(s.split(), is_split_into_words=True, return_tensors="pt") for s in sentences]
    for direction in (0, 1):
        for name in ("input_ids", "char_ids"):
            expected = [e[name][0].flip(0) if direction else e[name][0] for e in encoded]
            assert found[name][direction].equal(torch.cat([rows[:-1] for rows in expected]))
            if name == "input_ids":
                assert found["targets"][direction].equal(torch.cat([rows[1:] for rows in expected]))
    # The same, written out.
    ids = found["input_ids"][0].tolist()
    known = {"the": 4, "ratio": 5, ".": 6, "interns": 8, "<S>": 1}
    if backend == "characters":
        known |= {"internationale": 7, "interns": 7}  # both are truncated to "intern"
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
    batches = list(make_windows(distinct_sentences([2, 1]), 3, 4, epochs=1))
    assert [words_of(batch["input_ids"][0]) for batch in batches] == [
        [["<S>", "w0", "w1", "<S>"], [None] * 4, [None] * 4],
        [["w2", None, None, None], [None] * 4, [None] * 4],
    ]
    for batch in batches:
        assert batch["input_ids"].shape == batch["targets"].shape == (2, 3, 4)
        assert batch["char_ids"].shape == (2, 3, 4, 8)
        assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
        padding = batch["input_ids"] == 0
        assert not batch["char_ids"][padding].any() and batch["char_ids"][~padding].all()
        assert (batch["targets"][padding] == IGNORE_INDEX).all()


def test_memory_mapped_corpus_in_a_data_loader(tmp_path):
    texts = [" ".join(NUMBER_WORDS[: 1 + number % 10]) for number in range(40)]
    tokenizer = ElmoTokenizer(vocab=NUMBER_WORDS, max_characters_per_token=8)
    corpus = Corpus.build(texts, tmp_path / "corpus", tokenizer, Splitting(one_sentence_per_line=True))
    windows = Windows(corpus, tokenizer, rows=3, window=5, seed=0, epochs=1)
    loaded = list(torch.utils.data.DataLoader(windows, batch_size=None))
    assert equal(loaded, list(windows))
    for direction in (0, 1):
        ids = torch.cat([batch["input_ids"][direction].flatten() for batch in loaded])
        assert torch.bincount(ids[ids > 3] - 4).tolist() == list(range(40, 0, -4))


def test_no_sentences():
    assert list(make_windows([], 2, 3, epochs=1)) == []
    assert list(make_windows([["w1"]], 2, 3, epochs=1, rank=1, world_size=2)) == []


@pytest.mark.parametrize("number, world_size", [(0, 1), (2, 3)])
def test_endless_windows_need_a_sentence_for_each_process(number, world_size):
    for rank in range(world_size):
        with pytest.raises(ValueError, match=f"there are {number} sentences for {world_size} processes: use more text"):
            make_windows([["w1"]] * number, 2, 3, seed=0, rank=rank, world_size=world_size)


def test_state_with_another_number_of_rows():
    state = make_windows([["w1"]], 2, 3).state_dict()
    with pytest.raises(ValueError, match="state must have 3 rows, got 2: resume with the same number of rows"):
        make_windows([["w1"]], 3, 3).load_state_dict(state)
