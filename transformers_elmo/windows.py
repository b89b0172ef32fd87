"""A corpus to windows of text, packed as bilm-tf packs them: rows without padding, each going on where it ended.

A row reads sentence after sentence. Forward it reads `<S>` and the words and predicts the words and `</S>`, so that
`</S>` is never read; backward the other way round. The directions read different shuffles of the sentences.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import IterableDataset

from .corpus import Corpus

IGNORED = -100  # a target that is none


class Direction:
    """The rows of one direction, and where each of them is."""

    def __init__(
        self,
        corpus: Corpus,
        sentences: np.ndarray,
        rows: int,
        window: int,
        backward: bool,
        seed: int | None = None,
        rank: int = 0,
        world: int = 1,
        epochs: int | None = None,
    ):
        """Without a seed, sentences are read in their order; without epochs, for ever. Of `world` processes, each
        reads its own share of every epoch."""
        self.corpus, self.sentences, self.window, self.backward = corpus, sentences, window, backward
        self.seed, self.rank, self.world, self.epochs = seed, rank, world, epochs
        # The numbers of <S>, </S> and of no word come after those of the words.
        self.first, self.last, self.nothing = [len(corpus.words) + i for i in range(3)]
        if backward:
            self.first, self.last = self.last, self.first
        self.epoch = self.position = 0
        self.sentence = np.full(rows, -1)  # (B,) that each row reads, -1 for none
        self.done = np.zeros(rows, dtype=np.int64)  # (B,) words that it has predicted of it

    def state_dict(self) -> dict:
        return {
            "epoch": self.epoch,
            "position": self.position,
            "sentence": torch.from_numpy(self.sentence.copy()),
            "done": torch.from_numpy(self.done.copy()),
        }

    def load_state_dict(self, state: dict):
        self.epoch, self.position = state["epoch"], state["position"]
        self.sentence, self.done = state["sentence"].numpy().copy(), state["done"].numpy().copy()
        self.__dict__.pop("order", None)

    def next_sentence(self) -> int:
        """The next sentence of this epoch or of the next, -1 at the end of the last one"""
        while self.epochs is None or self.epoch < self.epochs:
            if "order" not in self.__dict__:
                order = self.sentences
                if self.seed is not None:
                    random = np.random.default_rng([self.seed, self.epoch, self.backward])
                    order = random.permutation(order)
                self.order = order[self.rank :: self.world]
            if self.position < len(self.order):
                self.position += 1
                return int(self.order[self.position - 1])
            self.epoch, self.position = self.epoch + 1, 0
            del self.order
        return -1

    def next_window(self) -> tuple[np.ndarray, np.ndarray]:
        """The words that are read and those to predict, (B, T) each"""
        shape = len(self.sentence), self.window
        read, predicted = np.full(shape, self.nothing), np.full(shape, self.nothing)
        for row in range(shape[0]):
            filled = 0
            while filled < self.window:
                if self.sentence[row] < 0:
                    self.sentence[row], self.done[row] = self.next_sentence(), 0
                    if self.sentence[row] < 0:
                        break
                start, end = self.corpus.offsets[self.sentence[row] : self.sentence[row] + 2].tolist()
                words = self.corpus.tokens[start:end]
                words = [self.first, *(words[::-1] if self.backward else words).tolist(), self.last]
                done = int(self.done[row])
                number = min(len(words) - 1 - done, self.window - filled)
                read[row, filled : filled + number] = words[done : done + number]
                predicted[row, filled : filled + number] = words[done + 1 : done + 1 + number]
                filled += number
                self.done[row] += number
                if done + number == len(words) - 1:
                    self.sentence[row] = -1
        return read, predicted


class Windows(IterableDataset):
    """Batches of windows for `ElmoForPreTraining`: input_ids and targets (2, B, T), char_ids (2, B, T, W).

    A batch is made when it is asked for, and `state_dict` tells where the next one begins.
    """

    def __init__(
        self,
        corpus: Corpus,
        tokenizer,
        sentences: np.ndarray | None = None,
        rows: int = 128,
        window: int = 20,
        **options,
    ):
        super().__init__()
        self.corpus, self.tokenizer = corpus, tokenizer
        if sentences is None:
            sentences = np.arange(len(corpus))
        self.directions = [
            Direction(corpus, sentences, rows, window, backward, **options) for backward in (False, True)
        ]
        self.fresh = self.state_dict()
        known = tokenizer.get_vocab()
        specials = [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id]
        words = [known.get(word, tokenizer.unk_token_id) for word in corpus.words]
        self.word_ids = np.array(words + specials)  # of each number
        self.spelled = [tokenizer.bos_token, tokenizer.eos_token, None]

    def spell(self, numbers: np.ndarray) -> np.ndarray:
        """The characters of words, (n, W)"""
        words, first_special = self.corpus.words, len(self.corpus.words)
        return self.tokenizer.convert_words_to_char_ids(
            [words[n] if n < first_special else self.spelled[n - first_special] for n in numbers.tolist()]
        )

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        if self.directions[0].epochs is not None:  # text that ends is read from its beginning each time
            self.load_state_dict(self.fresh)
        while True:
            read, predicted = map(np.stack, zip(*(direction.next_window() for direction in self.directions)))
            if (read == self.directions[0].nothing).all():
                return
            distinct, places = np.unique(read, return_inverse=True)
            targets = self.word_ids[predicted]
            targets[predicted == self.directions[0].nothing] = IGNORED
            yield {
                "input_ids": torch.from_numpy(self.word_ids[read]),
                "char_ids": torch.from_numpy(self.spell(distinct)[places.reshape(read.shape)]),
                "targets": torch.from_numpy(targets),
            }

    def state_dict(self) -> dict:
        return {"forward": self.directions[0].state_dict(), "backward": self.directions[1].state_dict()}

    def load_state_dict(self, state: dict):
        for direction, name in zip(self.directions, ("forward", "backward")):
            direction.load_state_dict(state[name])
