# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Recipes of pretraining: optimizer, learning rate and batch. Light, as `elmo pretrain --help` names them."""

from dataclasses import dataclass

SIZES = ("mini", "small", "medium", "original")  # constructors of ElmoConfig


@dataclass
class Recipe:
    """How the weights are moved. The defaults are those for a small machine; `RECIPES` has the paper's."""

    optimizer: str = "muon"
    learning_rate: float = 1e-2
    schedule: str = "linear"  # down to zero at the last step
    warmup: float = 0.05  # share of the steps in which the rate rises
    max_norm: float = 1.0  # of all gradients together
    loss_scale: float = 1.0  # what the loss is multiplied by before its gradient is taken
    dropout: float = 0.0
    negative_samples: int = 2048
    rows: int = 128  # of text that a process reads at once
    window: int = 20  # words of each row in a step, through which gradients flow
    epochs: float = 1.0


RECIPES = {
    "default": Recipe(),
    # bilm-tf's train_elmo.py: its loss is multiplied by the window's length, and it clips what comes of that.
    "paper": Recipe("adagrad", 0.2, "constant", 0.0, 10.0, 20.0, 0.1, 8192, 128, 20, 10.0),
}
