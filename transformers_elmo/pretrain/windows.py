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
        if epochs is None and len(sentences) < world:
            raise ValueError(
                f"Each process must have a sentence to read, and {world} have {len(sentences)}: give more text, "
                "or fewer processes."
            )
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
        if len(state["sentence"]) != len(self.sentence):
            raise ValueError(
                f"The state must be of {len(self.sentence)} rows, got {len(state['sentence'])}: "
                "go on with as many rows as before."
            )
        self.epoch, self.position = state["epoch"], state["position"]
        self.sentence, self.done = (state[name].cpu().numpy().copy() for name in ("sentence", "done"))
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

    def part(self, sentence: int, start: int, room: int) -> list[int]:
        """What a sentence is from a place on, its ends included: so many words to read and one more, if it has them"""
        begin, end = self.corpus.offsets[sentence : sentence + 2].tolist()
        stop = min(start + room, end - begin + 1) + 1  # the beginning is at place 0, the first word at 1
        words = slice(max(start - 1, 0), min(stop - 1, end - begin))
        if self.backward:
            words = self.corpus.tokens[end - words.stop : end - words.start][::-1].tolist()
        else:
            words = self.corpus.tokens[begin + words.start : begin + words.stop].tolist()
        return [self.first] * (start == 0) + words + [self.last] * (stop == end - begin + 2)

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
                words = self.part(int(self.sentence[row]), int(self.done[row]), self.window - filled)
                number = len(words) - 1
                read[row, filled : filled + number] = words[:-1]
                predicted[row, filled : filled + number] = words[1:]
                filled += number
                self.done[row] += number
                if words[-1] == self.last:
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
        self.fresh, self.loaded = self.state_dict(), False
        known = tokenizer.get_vocab()
        specials = [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id]
        # Of a model with a character vocabulary, words are cut before they are looked up, as in the tokenizer.
        room = None if tokenizer.char_vocab is None else tokenizer.max_characters_per_token - 2
        words = [known.get(word[:room], tokenizer.unk_token_id) for word in corpus.words]
        self.word_ids = np.array(words + specials)  # of each number
        self.spelled = [tokenizer.bos_token, tokenizer.eos_token, None]

    def spell(self, numbers: np.ndarray) -> np.ndarray:
        """The characters of words, (n, W)"""
        words, first_special = self.corpus.words, len(self.corpus.words)
        return self.tokenizer.convert_words_to_char_ids(
            [words[n] if n < first_special else self.spelled[n - first_special] for n in numbers.tolist()]
        )

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        # Text that ends is read from its beginning each time, or from where a state that was loaded says.
        if self.directions[0].epochs is not None and not self.loaded:
            self.load_state_dict(self.fresh)
        self.loaded = False
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
        self.loaded = True
