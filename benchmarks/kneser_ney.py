"""A modified interpolated Kneser-Ney n-gram language model in plain numpy, the baseline for trained language models.

Chen & Goodman 1998, An Empirical Study of Smoothing Techniques for Language Modeling, as KenLM's lmplz computes it
without pruning. The id of an n-gram is its rank among those of its order, looked up by an integer key that combines the
id of its first n - 1 words with its last word.

Shapes: N words in S sentences; T = N + 2S with <s> and </s>; V ids; M n-grams of one order, C of one order less.
"""

import numpy as np

FALLBACK = 0.5, 1.0, 1.5  # as lmplz --discount_fallback


def discounts_of(counts: np.ndarray) -> np.ndarray:
    """Return D(c) for c = 0, 1, 2, 3+ (4,), from counts (M,): equation (26), or FALLBACK in a small corpus."""
    n = np.bincount(np.minimum(counts, 5), minlength=5)  # n[c] n-grams have count c
    if n[1:4].all():
        y = n[1] / (n[1] + 2 * n[2])
        found = [c - (c + 1) * y * n[c + 1] / n[c] for c in (1, 2, 3)]
        if min(found) > 0:
            return np.array([0, *found])
    return np.array([0, *FALLBACK])


class KneserNey:
    """p(w | context) = (c - D(c)) / total + backoff(context) p(w | context without its first word)

    c is the number of occurrences for the longest n-grams and those that begin with <s>, and for all others the number
    of distinct words that precede it. total is the sum of c over w, backoff the sum of D(c) over w, divided by total.
    Without a context, the last term is backoff / (V - 1). After an unseen context, backoff is 1 and the first term 0.

    Args:
        tokens: (N,) integer ids below vocab_size. <unk> is a word like any other.
        offsets: (S + 1,) from 0 to N: sentence s is tokens[offsets[s] : offsets[s + 1]].
        vocab_size: V. Every id except bos can be predicted.
        order: length of the longest n-grams, at least 1.
        bos, eos: ids of <s> and </s>, below vocab_size and not in tokens.
    """

    def __init__(self, tokens, offsets, vocab_size: int, order: int = 5, *, bos: int, eos: int):
        self.vocab_size, self.bos, self.eos = vocab_size, bos, eos
        text = self._text(tokens, offsets)
        ids = text  # (T,) of the n-gram that ends here, -1 if it would start before the sentence
        self.keys = [np.arange(vocab_size)]  # (M,) for each order, ascending
        suffixes = [np.zeros(vocab_size, dtype=np.int32)]  # (M,) ids of the n-grams without their first word
        counts = [np.bincount(text, minlength=vocab_size)]  # (M,)
        counts[0][bos] = 0  # never predicted
        for _ in range(1, order):
            ends, keys = self._extend(ids, text)
            by_key = keys.argsort()
            ends, keys = ends[by_key], keys[by_key]
            first = np.flatnonzero(np.diff(keys, prepend=-1))  # (M,)
            suffixes.append(ids[ends[first]])
            before = np.bincount(suffixes[-1], minlength=len(counts[-1]))  # (C,) distinct preceding words
            counts[-1] = np.where(before > 0, before, counts[-1])  # no word precedes <s>
            self.keys.append(keys[first])
            counts.append(np.diff(first, append=len(keys)))
            ids = np.full(len(text), -1, dtype=np.int32)
            ids[ends] = np.repeat(np.arange(len(first), dtype=np.int32), counts[-1])

        self.discounts, self.probabilities, self.backoffs = [], [], []  # (4,), (M,) and (C,) for each order
        lower = np.array([1 / (vocab_size - 1)])  # (C,)
        for keys, suffix, count in zip(self.keys, suffixes, counts):
            discounts = discounts_of(count)
            context = keys // vocab_size  # (M,)
            taken = discounts[np.minimum(count, 3)]  # (M,)
            total = np.bincount(context, count, minlength=len(lower))  # (C,), 0 if no word follows
            divisor = total.clip(1)
            backoff = np.where(total > 0, np.bincount(context, taken, minlength=len(lower)) / divisor, 1)  # (C,)
            lower = (count - taken) / divisor[context] + backoff[context] * lower[suffix]  # (M,)
            self.discounts.append(discounts)
            self.probabilities.append(lower)
            self.backoffs.append(backoff)

    def log_probabilities(self, tokens, offsets) -> np.ndarray:
        """Return log p (N + S,) of the words of each sentence and its end, given the words before."""
        text = ids = self._text(tokens, offsets)
        p = self.probabilities[0][text]  # (T,)
        for keys, probabilities, backoffs in zip(self.keys[1:], self.probabilities[1:], self.backoffs[1:]):
            ends, ngrams = self._extend(ids, text)  # those with a known context
            p[ends] *= backoffs[ids[ends - 1]]
            rank = np.searchsorted(keys, ngrams)
            found = np.flatnonzero(rank < len(keys))
            found = found[keys[rank[found]] == ngrams[found]]
            p[ends[found]] = probabilities[rank[found]]
            ids = np.full(len(text), -1, dtype=np.int32)
            ids[ends[found]] = rank[found]
        return np.log(p[text != self.bos])

    def _text(self, tokens, offsets) -> np.ndarray:
        """Return ids (T,) with <s> and </s> around each sentence."""
        tokens, offsets = np.asarray(tokens, dtype=np.int32), np.asarray(offsets)
        if offsets[0] != 0 or offsets[-1] != len(tokens):
            raise ValueError(
                f"offsets must go from 0 to {len(tokens)}, the number of tokens, got {offsets[0]} to {offsets[-1]}"
            )
        text = np.insert(tokens, np.repeat(offsets, 2)[1:-1], np.tile([self.bos, self.eos], len(offsets) - 1))
        if len(text) and not 0 <= text.min() <= text.max() < self.vocab_size:
            raise ValueError(f"ids must be at least 0 and below {self.vocab_size}, got {text.min()} to {text.max()}")
        if np.isin(tokens, (self.bos, self.eos)).any():
            raise ValueError("sentences must not contain <s> or </s>")
        return text

    def _extend(self, ids: np.ndarray, text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where n-grams one word longer than those in ids end, and their keys."""
        ends = 1 + np.flatnonzero((ids[:-1] >= 0) & (text[1:] != self.bos))
        return ends, ids[ends - 1].astype(np.int64) * self.vocab_size + text[ends]
