# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Uses of the two language models of a checkpoint: perplexity, word scores, substitutes, next words."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral

import torch

from .batching import BATCH_WORDS, batches, map_in_batches
from .checkpoints import has_lm_head, load_config, load_model, load_tokenizer
from .modeling_elmo import ElmoForPreTraining, next_word_targets
from .softmax_elmo import log_uniform
from .tokenization_elmo import ElmoTokenizer

SCORED_WORDS = 128  # words whose probabilities over the whole vocabulary are computed at once

Text = str | list[str]  # raw text, or words


@dataclass
class WordScores:
    """log p of each word of a sentence, (n,): given the words before it, those after it, and both"""

    words: list[str]
    forward: torch.Tensor
    backward: torch.Tensor
    combined: torch.Tensor


@dataclass
class Perplexity:
    """exp of the mean -log p of words and sentence boundaries; for `both`, the mean is over both directions"""

    both: float
    forward: float
    backward: float
    words: int  # predicted in each direction


class ElmoLanguageModel:
    """The forward and the backward language model of a checkpoint, with its tokenizer.

    ```python
    >>> language_model = ElmoLanguageModel.from_pretrained("default")
    >>> language_model.substitutes("She opened the door and went out.", 3, k=2)
    [('door', 0.83), ('window', 0.06)]
    ```
    """

    def __init__(self, model: ElmoForPreTraining, tokenizer: ElmoTokenizer):
        if not isinstance(model, ElmoForPreTraining) or not isinstance(tokenizer, ElmoTokenizer):
            got = f"{type(model).__name__} and {type(tokenizer).__name__}"
            raise ValueError(f"A language model is made of an ElmoForPreTraining and an ElmoTokenizer, got {got}.")
        if len(tokenizer) != model.config.vocab_size:
            raise ValueError(
                f"The tokenizer must know the {model.config.vocab_size:,} words of the model's lm_head; "
                f"its vocabulary has {len(tokenizer):,}."
            )
        self.model, self.tokenizer = model, tokenizer

    @classmethod
    def from_pretrained(
        cls, checkpoint: str = "default", device: str | torch.device = "cpu", dtype: torch.dtype | None = None
    ) -> "ElmoLanguageModel":
        """Load a folder, a model on the Hub, or `"default"`, the checkpoint in this package."""
        config = load_config(checkpoint)
        if not has_lm_head(config):
            raise ValueError(
                f"{checkpoint} must be a checkpoint of ElmoForPreTraining; it has no lm_head, "
                f"its architecture is {', '.join(config.architectures or ['ElmoModel'])}."
            )
        model = load_model(checkpoint, config, with_lm_head=True, dtype=dtype)
        try:
            model = model.to(device)
        except (AssertionError, NotImplementedError, RuntimeError) as error:
            raise ValueError(f"device must be a torch device of this machine, got {device}: {error}") from error
        return cls(model.eval(), load_tokenizer(checkpoint))

    @torch.no_grad()
    def perplexity(self, texts: list[Text], batch_words: int = BATCH_WORDS) -> Perplexity:
        """Return the perplexity of texts, each read from a zero state, by the full softmax of each direction."""
        check_integer("batch_words", batch_words)
        sums, number = torch.zeros(2, dtype=torch.float64), 0
        words = self._words(texts)
        for batch in batches(list(map(len, words)), batch_words):
            inputs, top = self._top_layer([words[index] for index in batch])
            targets = next_word_targets(inputs["input_ids"], inputs["attention_mask"] != 0)  # (2, B, T)
            for d, (hidden, ids) in enumerate(zip(top.chunk(2, -1), targets)):
                known = ids > 0
                sums[d] += self.model.lm_head([hidden[known]], [ids[known] - 1])[0].double().cpu()
            number += int(known.sum())
        if not number:
            raise ValueError("perplexity needs at least one text, got none.")
        forward, backward = (sums / number).tolist()
        return Perplexity(math.exp((forward + backward) / 2), math.exp(forward), math.exp(backward), number)

    @torch.no_grad()
    def score(self, sentences: list[Text], batch_words: int = BATCH_WORDS) -> list[WordScores]:
        """Return log p of each word of each sentence.

        Words that the vocabulary lacks are scored as `<UNK>`; as context, they are read by their characters.
        """
        words = self._words(sentences)
        check_integer("batch_words", batch_words)
        return list(map_in_batches(self._score_batch, words, batch_words))

    def _score_batch(self, sentences: list[list[str]]) -> Iterator[WordScores]:
        for words, rows, left, right in self._contexts(sentences):
            parts = [torch.empty(3, 0)]
            for start in range(0, len(rows), SCORED_WORDS):
                chunk = slice(start, start + SCORED_WORDS)
                log_p = self._log_probabilities(left[chunk], right[chunk])  # 3 of (n, V)
                parts.append(torch.stack([p.gather(1, rows[chunk, None]).squeeze(1).cpu() for p in log_p]))
            yield WordScores(words, *torch.cat(parts, 1))

    @torch.no_grad()
    def substitutes(self, sentence: Text, position: int, k: int = 10) -> list[tuple[str, float]]:
        """Return the k most probable words at a position, counted in words from 0, and their probabilities.

        The word at the position itself is not read.
        """
        check_integer("k", k)
        ((words, _, left, right),) = self._contexts(self._words([sentence]))
        if isinstance(position, bool) or not isinstance(position, Integral) or not -len(words) <= position < len(words):
            raise ValueError(
                f"position must be the index of one of the sentence's {len(words)} words, got {position!r:.80}."
            )
        combined = self._log_probabilities(left[position, None], right[position, None])[2][0]
        return self._most_probable(combined, k)

    @torch.no_grad()
    def next_words(self, text: Text, k: int = 10, direction: str = "forward") -> list[tuple[str, float]]:
        """Return the k most probable words after a text or, with `direction="backward"`, before it."""
        if direction not in ("forward", "backward"):
            raise ValueError(f'direction must be "forward" or "backward", got {direction!r:.80}.')
        check_integer("k", k)
        _, top = self._top_layer(self._words([text]))
        forward, backward = top[0].chunk(2, -1)  # (n + 2, P)
        # The hidden state at the last word, not at the </S> after it.
        hidden = forward[-2] if direction == "forward" else backward[1]
        return self._most_probable(torch.log_softmax(self.model.lm_head(hidden).float(), -1), k)

    def _words(self, texts: list[Text]) -> list[list[str]]:
        if isinstance(texts, str):
            raise ValueError("A list of sentences is expected, got one string: put it into a list.")
        if not isinstance(texts, (list, tuple)):
            raise ValueError(f"A list of sentences is expected, got a {type(texts).__name__}.")
        for text in texts:
            if not isinstance(text, (str, list, tuple)) or not all(isinstance(word, str) for word in text):
                raise ValueError(f"A sentence must be a string or a list of words, got {text!r:.80}.")
        return [self.tokenizer.tokenize(text) if isinstance(text, str) else list(text) for text in texts]

    def _top_layer(self, sentences: list[list[str]]) -> tuple[dict, torch.Tensor]:
        """Return the model's inputs for a batch, sentence boundaries included, and its top layer (B, T, 2P)."""
        tokenizer, elmo = self.tokenizer, self.model.elmo
        # Boundaries are added here, since a tokenizer can be configured not to add them.
        inputs = tokenizer(
            [[tokenizer.bos_token, *words, tokenizer.eos_token] for words in sentences],
            is_split_into_words=True,
            add_special_tokens=False,
            padding=True,
            return_tensors="pt",
        )
        # The padding token in a text is a word that the vocabulary lacks.
        is_padding = (inputs["input_ids"] == 0) & (inputs["attention_mask"] != 0)
        inputs["input_ids"][is_padding] = tokenizer.unk_token_id
        inputs = inputs.to(input_device(self.model))
        with evaluation_mode(self.model):
            return inputs, elmo(**inputs, output_hidden_states=[len(elmo.bilm.layers)]).hidden_states[-1]

    def _contexts(
        self, sentences: list[list[str]]
    ) -> Iterator[tuple[list[str], torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Yield each sentence's words, their rows in `lm_head` (n,), and their left and right contexts (n, P)."""
        inputs, top = self._top_layer(sentences)
        for words, ids, mask, layer in zip(sentences, inputs["input_ids"], inputs["attention_mask"], top):
            forward, backward = layer[mask != 0].chunk(2, -1)  # (n + 2, P)
            yield words, ids[mask != 0][1:-1] - 1, forward[:-2], backward[2:]

    def _log_probabilities(self, left: torch.Tensor, right: torch.Tensor) -> list[torch.Tensor]:
        """Return log p of all words given their left, their right and both contexts (n, P) -> 3 of (n, V)

        p(w | left, right) ~ p(w | left) p(w | right) / p(w) if the contexts are independent given the word. p(w)
        follows Zipf's law, as in training.
        """
        forward, backward = [torch.log_softmax(self.model.lm_head(h).float(), -1) for h in (left, right)]
        number = forward.shape[-1]
        prior = torch.log(log_uniform(torch.arange(number, device=forward.device), number)).float()
        return [forward, backward, torch.log_softmax(forward + backward - prior, -1)]

    def _most_probable(self, log_p: torch.Tensor, k: int) -> list[tuple[str, float]]:
        special = [token_id - 1 for token_id in self.tokenizer.all_special_ids if 0 < token_id <= len(log_p)]
        log_p = log_p.clone()
        log_p[special] = -torch.inf
        values, rows = log_p.topk(min(k, len(log_p) - len(special)))
        words = self.tokenizer.convert_ids_to_tokens((rows + 1).tolist())
        return list(zip(words, values.exp().tolist()))


def check_integer(name: str, number: int):
    if isinstance(number, bool) or not isinstance(number, Integral) or number < 1:
        raise ValueError(f"{name} must be an integer, at least 1, got {number!r:.80}.")


def input_device(model: torch.nn.Module) -> torch.device:
    """Return the device of the model or, if its weights are offloaded, the CPU: accelerate moves inputs itself."""
    return torch.device("cpu") if model.device.type == "meta" else model.device


@contextmanager
def evaluation_mode(model: torch.nn.Module) -> Iterator[None]:
    """Turn off training mode, and restore it in every submodule when the block ends."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
