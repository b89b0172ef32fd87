"""Tiny models with random weights that reach every branch, and random batches for them. Everything is seeded."""

import torch

from transformers_elmo.configuration_elmo import ElmoConfig

WORDS_AND_CHARACTERS = {"inputs": "words+characters", "word_embedding_dim": 3}

# Every option of the model, alone and in combinations.
MODEL_OPTIONS = {
    "defaults": {},
    "tanh": {"char_activation": "tanh"},
    "other sizes": {"vocab_size": 4, "char_vocab_size": 5, "max_characters_per_token": 6, "char_embedding_dim": 1},
    "one filter as wide as a word": {"char_filters": [[12, 4]]},
    "no highway": {"num_highway_layers": 0},
    "three highways": {"num_highway_layers": 3},
    "no token projection": {"projection_dim": 12, "lstm_dim": 15},
    "no lstm projection": {"projection_dim": None},
    "no projection at all": {"projection_dim": None, "lstm_dim": 12},
    "more outputs than cells": {"projection_dim": 9},
    "sizes whose matrix products are split": {"lstm_dim": 16, "projection_dim": 8},
    "one layer": {"num_hidden_layers": 1},
    "three layers": {"num_hidden_layers": 3},
    "no cell clip": {"cell_clip": None},
    "no output clip": {"projection_clip": None},
    "no clips": {"cell_clip": None, "projection_clip": None},
    "integer clips": {"cell_clip": 1, "projection_clip": 1},
    "no residual": {"use_skip_connections": False, "num_hidden_layers": 3},
    "no forget bias": {"forget_bias": 0},
    "large forget bias": {"forget_bias": 2.5},
    "training options": {
        "dropout": 0.9,
        "freeze_bilm": False,
        "classifier_dropout": 0.9,
        "num_negative_samples": 3,
    },
    "top": {"mix": "top"},
    "top with layer norm": {"mix": "top", "mix_layer_norm": True},
    "fixed": {"mix": "fixed", "mix_weights": [0.5, -2.0, 3]},
    "layer norm": {"mix_layer_norm": True},
    "fixed with layer norm": {"mix": "fixed", "mix_weights": [0.5, -2.0, 3], "mix_layer_norm": True},
    "words": {"inputs": "words"},
    "word embedding of another size": {"inputs": "words", "word_embedding_dim": 3},
    "words, no lstm projection, one layer": {"inputs": "words", "projection_dim": None, "num_hidden_layers": 1},
    "words and characters": WORDS_AND_CHARACTERS,
    "words and characters as wide as the output": {**WORDS_AND_CHARACTERS, "projection_dim": 15},
    "words and characters, no lstm projection": {
        **WORDS_AND_CHARACTERS,
        "projection_dim": None,
        "num_highway_layers": 1,
        "forget_bias": 0,
        "cell_clip": None,
    },
}


def tiny_config(**options) -> ElmoConfig:
    """Return a configuration of 12 filters, 7 cells and 5 outputs, with clips that the weights of `randomize` reach."""
    sizes = {
        "vocab_size": 11,
        "char_vocab_size": 9,
        "max_characters_per_token": 12,
        "char_embedding_dim": 4,
        "char_filters": [[1, 3], [2, 4], [3, 5]],
        "lstm_dim": 7,
        "projection_dim": 5,
        "cell_clip": 0.9,
        "projection_clip": 0.5,
    }
    return ElmoConfig(**{**sizes, **options})


def randomize(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Fill every parameter with random values, padding rows and biases too: zeros and ones would hide errors."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        if name.endswith("gamma"):
            values = 1.3 + 0.2 * values
        elif "embedding" in name:
            values = 0.8 * values
        elif "lstm" in name and values.dim() == 2:
            values *= 1.2 / values.shape[0] ** 0.5  # (in, out)
        elif values.dim() > 1:
            values *= 1.2 / values[0].numel() ** 0.5  # (out, in) or (out, in, width)
        else:
            values *= 0.5
        parameter.data.copy_(values)
    return model


def random_batch(config: ElmoConfig, lengths: list[int], seed: int = 0, repeats: bool = True) -> dict:
    """Return input_ids (B, T), char_ids (B, T, W) and attention_mask (B, T), padded on the right.

    As in the tokenizer's output, words end in padding characters, the highest character id. With repeats, the batch
    has only five distinct words.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(low, high, *shape):
        return torch.randint(low, high, shape, generator=generator)

    width, pad = config.max_characters_per_token, config.char_vocab_size - 1
    longest = max(lengths, default=0)
    mask = torch.arange(longest) < torch.tensor(lengths, dtype=torch.long)[:, None]  # (B, T)
    distinct = 5 if repeats else max(int(mask.sum()), 1)
    chars = draw(1, pad, distinct, width)  # (distinct, W)
    # The first word fills the whole width, the second has one character.
    ends = torch.cat([torch.tensor([width, 1]), draw(1, width + 1, distinct)])[:distinct]
    chars[torch.arange(width) >= ends[:, None]] = pad
    words = draw(1, config.vocab_size, distinct)
    if repeats:  # two words with the same characters, two with the same id
        chars[3], words[3] = chars[2], words[2] % (config.vocab_size - 1) + 1
        words[4] = words[2]
    chosen = draw(0, distinct, len(lengths), longest)  # (B, T)
    if not repeats:
        chosen[mask] = torch.arange(int(mask.sum()))
    return {
        "input_ids": words[chosen] * mask,
        "char_ids": chars[chosen] * mask[..., None],
        "attention_mask": mask.long(),
    }
