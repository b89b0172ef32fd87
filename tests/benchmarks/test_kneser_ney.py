"""benchmarks/kneser_ney.py against the formulas, n-gram by n-gram in dictionaries, and against results of KenLM."""

import importlib.util
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

MODULE = Path(__file__).resolve().parents[2] / "benchmarks" / "kneser_ney.py"
spec = importlib.util.spec_from_file_location("kneser_ney", MODULE)
kneser_ney = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kneser_ney)

BOS, EOS = 3, 1  # between the ids of words: the code must not rely on the values
WORDS = [0, 2, 4, 5, 6, 7]  # 7 is in no training text
VOCAB_SIZE = 8
SENTENCES = st.lists(st.lists(st.sampled_from(WORDS[:-1]), max_size=8), min_size=1, max_size=12)


class Naive:
    """The formulas, n-gram by n-gram."""

    def __init__(self, sentences, order, vocab_size=VOCAB_SIZE):
        occurrences = Counter()
        for sentence in sentences:
            words = (BOS, *sentence, EOS)
            for n in range(1, order + 1):
                occurrences.update(words[start : start + n] for start in range(len(words) - n + 1))
        del occurrences[BOS,]
        preceding_words = Counter(ngram[1:] for ngram in occurrences)
        self.order, self.vocab_size, self.discounts = order, vocab_size, {}
        self.followers = defaultdict(dict)  # counts of the words that follow each context
        for ngram, count in occurrences.items():
            is_raw = len(ngram) == order or ngram[0] == BOS
            self.followers[ngram[:-1]][ngram[-1]] = count if is_raw else preceding_words[ngram]
        for n in range(1, order + 1):
            of_order = [found for context, found in self.followers.items() if len(context) == n - 1]
            counts = [count for found in of_order for count in found.values()]
            n1, n2, n3, n4 = map(counts.count, (1, 2, 3, 4))
            self.discounts[n] = {1: 0.5, 2: 1.0, 3: 1.5}
            if n1 and n2 and n3:
                y = n1 / (n1 + 2 * n2)
                d1, d2, d3 = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
                if d1 > 0 and d2 > 0 and d3 > 0:
                    self.discounts[n] = {1: d1, 2: d2, 3: d3}

    def probability(self, word, context):
        lower = self.probability(word, context[1:]) if context else 1 / (self.vocab_size - 1)
        followers, discounts = self.followers.get(context), self.discounts[len(context) + 1]
        if followers is None:
            return lower
        total = sum(followers.values())
        backoff = sum(discounts[min(count, 3)] for count in followers.values()) / total
        count = followers.get(word, 0)
        return (count - (discounts[min(count, 3)] if count else 0)) / total + backoff * lower

    def log_probabilities(self, sentences):
        found = []
        for sentence in sentences:
            words = (BOS, *sentence, EOS)
            for end in range(1, len(words)):
                found.append(np.log(self.probability(words[end], words[max(0, end - self.order + 1) : end])))
        return found


def flat(sentences):
    """Return tokens (N,) and offsets (S + 1,)."""
    return [word for sentence in sentences for word in sentence], np.cumsum([0, *map(len, sentences)])


def build(sentences, order, vocab_size=VOCAB_SIZE):
    return kneser_ney.KneserNey(*flat(sentences), vocab_size, order, bos=BOS, eos=EOS)


@given(SENTENCES, st.lists(st.lists(st.sampled_from(WORDS), max_size=8), max_size=4), st.integers(1, 6))
def test_log_probabilities_match_the_formulas(sentences, others, order):
    texts = sentences + others
    np.testing.assert_allclose(
        build(sentences, order).log_probabilities(*flat(texts)),
        Naive(sentences, order).log_probabilities(texts),
        rtol=1e-12,
    )


def test_log_probabilities_match_the_formulas_without_fallback():
    """Word frequencies are so unequal that no order needs the fallback discounts."""
    draw = np.random.default_rng(0)
    sentences = [[int(word) for word in 4 + draw.zipf(1.4, draw.integers(12)) % 496] for _ in range(2000)]
    model, naive = build(sentences[:1900], 4, 500), Naive(sentences[:1900], 4, 500)
    for n, discounts in enumerate(model.discounts, 1):
        assert tuple(discounts[1:]) != kneser_ney.FALLBACK
        np.testing.assert_allclose(discounts[1:], list(naive.discounts[n].values()), rtol=1e-12)
    for texts in (sentences[:100], sentences[1900:]):
        np.testing.assert_allclose(model.log_probabilities(*flat(texts)), naive.log_probabilities(texts), rtol=1e-12)


@given(SENTENCES, st.lists(st.sampled_from(WORDS), max_size=8), st.integers(1, 6))
def test_probabilities_sum_to_one(sentences, context, order):
    """In seen and unseen contexts, over all words and the sentence end."""
    model, position = build(sentences, order), len(context)
    words = [model.log_probabilities([*context, word], [0, position + 1])[position] for word in WORDS]
    end = model.log_probabilities(context, [0, position])[position]
    assert np.exp([*words, end]).sum() == pytest.approx(1, abs=1e-12)


def test_log_probabilities_match_kenlm():
    """Decimal logarithms from lmplz -o 4 --discount_fallback of KenLM 0.3.0 on a tiny corpus."""
    ids = dict(zip("abcde", WORDS))  # e is in no sentence: KenLM's <unk>

    def encode(text):
        return [[ids[word] for word in sentence] for sentence in text.split("/")]

    corpus = encode("abcabd/abcc/babc/ddab/a/abdcabc//cabcd")
    model = kneser_ney.KneserNey(*flat(corpus), VOCAB_SIZE - 1, 4, bos=BOS, eos=EOS)
    found = model.log_probabilities(*flat(encode("abcabd/dcba//eabacab"))) / np.log(10)
    expected = """
        -0.401286 -0.188554 -0.289285 -0.619437 -0.052369 -0.515170 -0.341319
        -0.832890 -1.007687 -1.545022 -0.654643 -1.003826
        -0.769663
        -1.570829 -0.714482 -0.263114 -0.955673 -1.413452 -0.507551 -0.111929 -0.984563
    """
    np.testing.assert_allclose(found, np.array(expected.split(), dtype=float), atol=1e-6)


@pytest.mark.parametrize(
    "tokens, offsets, message",
    [
        ([0, 2, 4], [0, 2], "offsets must go from 0 to 3, the number of tokens, got 0 to 2"),
        ([0, 8], [0, 2], "ids must be at least 0 and below 8, got 0 to 8"),
        ([0, BOS], [0, 2], "sentences must not contain <s> or </s>"),
        ([EOS], [0, 1], "sentences must not contain <s> or </s>"),
    ],
)
def test_invalid_input_raises_an_error(tokens, offsets, message):
    model = build([[0]], 2)
    with pytest.raises(ValueError, match=message):
        kneser_ney.KneserNey(tokens, offsets, VOCAB_SIZE, bos=BOS, eos=EOS)
    with pytest.raises(ValueError, match=message):
        model.log_probabilities(tokens, offsets)
