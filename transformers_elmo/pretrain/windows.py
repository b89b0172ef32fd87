# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Pack a corpus into windows as bilm-tf does: rows without padding, each continuing where its last window ended.

A row reads sentence after sentence. Forward, it reads `<S>` and the words and predicts the words and `</S>`, so that
`</S>` is never read; backward, it is the other way round. The two directions read different shuffles of the sentences.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import IterableDataset

from .corpus import Corpus

IGNORE_INDEX = -100  # target at padding, as in torch's cross entropy


class Windows(IterableDataset):
    """Batches of windows for `ElmoForPreTraining`: input_ids and targets (2, B, T), char_ids (2, B, T, W).

    Batches are made on demand, and `state_dict` is the position of the next one. `options` are those of
    `DirectionReader`.
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
            DirectionReader(corpus, sentences, rows=rows, window=window, backward=backward, **options)
            for backward in (False, True)
        ]
        self.initial_state, self.resumed = self.state_dict(), False
        vocabulary = tokenizer.get_vocab()
        special_ids = [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id]
        # With a character vocabulary, words are truncated before they are looked up, as in the tokenizer.
        length = None if tokenizer.char_vocab is None else tokenizer.max_characters_per_token - 2
        word_ids = [vocabulary.get(word[:length], tokenizer.unk_token_id) for word in corpus.words]
        self.word_ids = np.array(word_ids + special_ids)  # vocabulary id of each number
        self.special_words = [tokenizer.bos_token, tokenizer.eos_token, None]

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        # Endless windows continue where they were; finite ones restart, unless a state has just been loaded.
        if self.directions[0].epochs is not None and not self.resumed:
            self.load_state_dict(self.initial_state)
        self.resumed = False
        padding = self.directions[0].padding
        while True:
            inputs, targets = map(np.stack, zip(*(direction.next_window() for direction in self.directions)))
            if (inputs == padding).all():
                return
            distinct, positions = np.unique(inputs, return_inverse=True)
            target_ids = self.word_ids[targets]
            target_ids[targets == padding] = IGNORE_INDEX
            yield {
                "input_ids": torch.from_numpy(self.word_ids[inputs]),
                "char_ids": torch.from_numpy(self.spell(distinct)[positions.reshape(inputs.shape)]),
                "targets": torch.from_numpy(target_ids),
            }

    def spell(self, numbers: np.ndarray) -> np.ndarray:
        """Return the character ids of words, (n, W)."""
        words, first_special = self.corpus.words, len(self.corpus.words)
        return self.tokenizer.convert_words_to_char_ids(
            [words[n] if n < first_special else self.special_words[n - first_special] for n in numbers.tolist()]
        )

    def state_dict(self) -> dict:
        return {"forward": self.directions[0].state_dict(), "backward": self.directions[1].state_dict()}

    def load_state_dict(self, state: dict):
        for direction, name in zip(self.directions, ("forward", "backward")):
            direction.load_state_dict(state[name])
        self.resumed = True


class DirectionReader:
    """The rows of one direction, and the position of each in the text.

    Words are represented by their numbers in the corpus; `<S>`, `</S>` and padding have the next three numbers.

    Args:
        corpus: the text to read.
        sentences: (S,) indices of the sentences to read.
        rows, window: B and T of the windows.
        backward: read each sentence from its end.
        seed: seed of the shuffles, one per epoch; None reads the sentences in order.
        rank, world_size: in every epoch, each of `world_size` processes reads its own share of the sentences.
        epochs: number of epochs to read; None reads forever.
    """

    def __init__(
        self,
        corpus: Corpus,
        sentences: np.ndarray,
        *,
        rows: int,
        window: int,
        backward: bool,
        seed: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        epochs: int | None = None,
    ):
        if epochs is None and len(sentences) < world_size:
            raise ValueError(
                f"Each process needs a sentence to read; there are {len(sentences)} sentences for {world_size} "
                "processes: use more text or fewer processes."
            )
        self.corpus, self.sentences, self.window, self.backward = corpus, sentences, window, backward
        self.seed, self.rank, self.world_size, self.epochs = seed, rank, world_size, epochs
        self.first, self.last, self.padding = (len(corpus.words) + i for i in range(3))
        if backward:
            self.first, self.last = self.last, self.first
        self.order: np.ndarray | None = None  # of this process's sentences in this epoch
        self.epoch = self.position = 0  # the next sentence is order[position]
        self.sentence = np.full(rows, -1)  # (B,) index of the sentence that each row is reading, -1 for none
        self.offset = np.zeros(rows, dtype=np.int64)  # (B,) words of that sentence already predicted

    def next_window(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the inputs and the targets of the next window, (B, T) each."""
        shape = len(self.sentence), self.window
        inputs, targets = np.full(shape, self.padding), np.full(shape, self.padding)
        for row in range(shape[0]):
            filled = 0
            while filled < self.window:
                if self.sentence[row] < 0:
                    self.sentence[row], self.offset[row] = self.next_sentence(), 0
                    if self.sentence[row] < 0:
                        break
                words = self.words_from(int(self.sentence[row]), int(self.offset[row]), self.window - filled)
                length = len(words) - 1
                inputs[row, filled : filled + length] = words[:-1]
                targets[row, filled : filled + length] = words[1:]
                filled += length
                self.offset[row] += length
                if words[-1] == self.last:
                    self.sentence[row] = -1
        return inputs, targets

    def next_sentence(self) -> int:
        """Return the next sentence of this epoch or of the following one, -1 after the last epoch."""
        while self.epochs is None or self.epoch < self.epochs:
            if self.order is None:
                order = self.sentences
                if self.seed is not None:
                    order = np.random.default_rng([self.seed, self.epoch, self.backward]).permutation(order)
                self.order = order[self.rank :: self.world_size]
            if self.position < len(self.order):
                self.position += 1
                return int(self.order[self.position - 1])
            self.epoch, self.position, self.order = self.epoch + 1, 0, None
        return -1

    def words_from(self, sentence: int, start: int, length: int) -> list[int]:
        """Return up to `length` words to read and the one after them, from position `start` of `<S> words </S>`."""
        begin, end = self.corpus.offsets[sentence : sentence + 2].tolist()
        stop = min(start + length, end - begin + 1) + 1  # <S> is at position 0, the first word at 1
        first, last = max(start - 1, 0), min(stop - 1, end - begin)
        if self.backward:
            words = self.corpus.tokens[end - last : end - first][::-1].tolist()
        else:
            words = self.corpus.tokens[begin + first : begin + last].tolist()
        return [self.first] * (start == 0) + words + [self.last] * (stop == end - begin + 2)

    def state_dict(self) -> dict:
        return {
            "epoch": self.epoch,
            "position": self.position,
            "sentence": torch.from_numpy(self.sentence.copy()),
            "offset": torch.from_numpy(self.offset.copy()),
        }

    def load_state_dict(self, state: dict):
        if len(state["sentence"]) != len(self.sentence):
            raise ValueError(
                f"The state must have {len(self.sentence)} rows, got {len(state['sentence'])}: "
                "resume with the same number of rows."
            )
        self.epoch, self.position, self.order = state["epoch"], state["position"], None
        self.sentence, self.offset = (state[name].cpu().numpy().copy() for name in ("sentence", "offset"))
