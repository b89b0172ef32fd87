"""Training runs of seconds: a made-up language, a tiny model, and comparisons of the trained weights."""

import os
import random
import signal
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

from helpers.models import tiny_config
from transformers_elmo import ElmoForPreTraining, ElmoTokenizer
from transformers_elmo.pretrain.corpus import Corpus
from transformers_elmo.pretrain.job import pretrain
from transformers_elmo.pretrain.recipe import Recipe, Settings
from transformers_elmo.pretrain.trainer import ElmoPretrainer

SIZES = {"lstm_dim": 12, "projection_dim": 8, "char_filters": [[1, 4], [2, 4]], "char_embedding_dim": 4}
RECIPE = Recipe(rows=4, window=5, negative_samples=6, warmup_ratio=0.1, learning_rate=0.02, dropout=0.1)
FAST = ["--rows", "4", "--window", "5", "--negative-samples", "6", "--log-every", "1", "--save-every", "2"]


def made_up_text(sentences: int = 300, seed: int = 0) -> str:
    """Generate a language that can be learned: each word depends on the one before."""
    draw = random.Random(seed)
    after = {"the": ["cat", "dog", "old"], "old": ["cat", "dog"], "cat": ["sat", "ran"], "dog": ["sat", "ran"]}
    after |= {"sat": ["on", "."], "ran": ["to", "."], "on": ["the"], "to": ["the"]}
    lines = []
    for _ in range(sentences):
        words = ["the"]
        while words[-1] != "." and len(words) < 12:
            words.append(draw.choice(after[words[-1]]))
        lines.append(" ".join(words).replace(" .", "."))
    return "\n".join(lines) + "\n"


def train(corpus: Corpus, folder: Path | str, resume: bool = False, callbacks=None, **options) -> ElmoPretrainer:
    """Train a tiny model for 8 steps. Options are fields of the recipe or of the settings."""
    recipe = replace(RECIPE, **{name: options.pop(name) for name in list(options) if hasattr(RECIPE, name)})
    tokenizer = ElmoTokenizer(vocab=corpus.vocabulary())
    torch.manual_seed(0)
    config = tiny_config(**SIZES, char_vocab_size=262, max_characters_per_token=50, vocab_size=len(tokenizer))
    config.dropout, config.num_negative_samples = recipe.dropout, recipe.negative_samples
    defaults = {"steps": 8, "save_every": 2, "log_every": 1}
    settings = Settings(output=str(folder), recipe=recipe, cpu=True, **{**defaults, **options})
    model = ElmoForPreTraining(config)
    return pretrain(model, tokenizer, corpus, settings, resume=resume, callbacks=callbacks)


def load_weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def assert_same_weights(folder: Path, other: Path):
    """Assert that the weights are equal, bit for bit."""
    weights, expected = load_weights(folder), load_weights(other)
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        assert torch.equal(weight, expected[name]), name


def logged_losses(trainer: ElmoPretrainer) -> list[float]:
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


class StopAt(TrainerCallback):
    """Send the signal of Ctrl-C at a known step."""

    def __init__(self, step: int):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)  # the copy that torchrun forwards
