# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""The options of a training run. Imports neither torch nor transformers, so that `elmo pretrain --help` is quick."""

import json
import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from huggingface_hub.constants import HF_HOME

SIZES = ("mini", "small", "medium", "original")  # constructors of ElmoConfig
CACHE = Path(HF_HOME) / "elmo" / "text"  # default folder for tokenized text
OPTIMIZERS = ("muon", "adagrad")
SMALLEST = 5e-324  # the smallest number above 0
MAX_NUMBER = 10**9  # of steps, rows and the like


def check_initial_model(checkpoint: str | None, size: str | None, config_file: Path | None):
    if checkpoint == "":
        raise ValueError("--init must be a folder or a name on the Hub; got an empty one.")
    if checkpoint and (size or config_file):
        raise ValueError("--size and --config describe a new model; leave them out, or leave out --init.")
    if size and size not in SIZES:
        raise ValueError(f"The size of a new model must be one of {', '.join(SIZES)}; got {size!r}.")


def check_number(
    settings: object,
    name: str,
    minimum: float,
    maximum: float = math.inf,
    *,
    is_whole: bool = True,
    below: bool = False,
):
    """Raise unless a field is a number in a range; with `below`, the maximum itself is excluded."""
    value = getattr(settings, name)
    types = (int,) if is_whole else (int, float)
    is_number = isinstance(value, types) and not isinstance(value, bool)
    if not (is_number and minimum <= value <= maximum and math.isfinite(value) and not (below and value == maximum)):
        kind = "a whole number" if is_whole else "a number"
        least = f"at least {minimum:,}" if is_whole or minimum == 0 else "above 0"
        most = "" if maximum == math.inf else f" and {'below' if below else 'at most'} {maximum:,}"
        raise ValueError(f"{name} must be {kind}, {least}{most}; got {value!r}.")


@dataclass
class Recipe:
    """Hyperparameters of training. The defaults suit a small machine; `RECIPES["paper"]` has the paper's."""

    optimizer: str = "muon"
    learning_rate: float = 1e-2
    schedule: str = "linear"  # decay to zero at the last step
    warmup_ratio: float = 0.05  # fraction of the steps
    max_grad_norm: float = 1.0  # over all parameters
    loss_scale: float = 1.0  # factor on the loss before backpropagation
    dropout: float = 0.0
    negative_samples: int | None = 2048
    rows: int = 128  # streams of text that a process reads in parallel: its batch size
    window: int = 20  # words per row and step; gradients are truncated there
    epochs: float = 1.0

    def __post_init__(self):
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer must be one of {', '.join(OPTIMIZERS)}; got {self.optimizer!r}.")
        for name in ("learning_rate", "max_grad_norm", "loss_scale"):
            check_number(self, name, SMALLEST, MAX_NUMBER, is_whole=False)
        check_number(self, "epochs", SMALLEST, is_whole=False)
        check_number(self, "warmup_ratio", 0, 1, is_whole=False)
        check_number(self, "dropout", 0, 1, is_whole=False, below=True)
        for name in ("rows", "window"):
            check_number(self, name, 1, MAX_NUMBER)
        if self.negative_samples is not None:  # the full softmax
            check_number(self, "negative_samples", 1, MAX_NUMBER)


RECIPES = {
    "default": Recipe(),
    # bilm-tf's train_elmo.py multiplies the loss by the window length and clips the gradient of that.
    "paper": Recipe(
        optimizer="adagrad",
        learning_rate=0.2,
        schedule="constant",
        warmup_ratio=0.0,
        max_grad_norm=10.0,
        loss_scale=20.0,
        dropout=0.1,
        negative_samples=8192,
        rows=128,
        window=20,
        epochs=10.0,
    ),
}


def may_change_on_resume(**options):
    return field(metadata={"must_match_on_resume": False}, **options)


@dataclass
class Settings:
    """The settings of a training run. Those that its weights depend on must be the same when it is resumed."""

    output: str = may_change_on_resume()
    recipe: Recipe = field(default_factory=Recipe)
    steps: int = 0  # 0 for as many as the recipe's epochs take
    gradient_accumulation: int = 1
    bf16: bool = False
    seed: int = 0
    held_out_words: int = 50_000  # of the text to hold out, at most 5%, if there is no held-out text
    # Filled in by the job.
    text: dict = field(default_factory=dict)
    model: dict = field(default_factory=dict)
    vocabulary_sha256: str = ""
    initial_weights_sha256: str = ""  # of the checkpoint that training starts from, if any
    processes: int = 1
    log_every: int = may_change_on_resume(default=50)  # in steps, like the next two
    save_every: int = may_change_on_resume(default=1000)
    eval_every: int = may_change_on_resume(default=1000)
    report_to: str = may_change_on_resume(default="none")
    cpu: bool = may_change_on_resume(default=False)  # use the CPU even if there is an accelerator
    save_half: bool = may_change_on_resume(default=False)  # store the final weights in float16
    # For the model card.
    language: str | None = may_change_on_resume(default=None)
    license: str | None = may_change_on_resume(default=None)
    command: str = may_change_on_resume(default="")

    def __post_init__(self):
        self.output = str(self.output)
        for name in ("gradient_accumulation", "log_every", "save_every", "eval_every"):
            check_number(self, name, 1, MAX_NUMBER)
        for name in ("steps", "held_out_words"):
            check_number(self, name, 0, MAX_NUMBER)
        check_number(self, "seed", 0, 2**32 - 1)

    @property
    def words_per_step(self) -> int:
        return self.recipe.rows * self.recipe.window * self.gradient_accumulation * self.processes

    def differences(self, saved: dict) -> list[str]:
        """Describe the settings that must be those of the run to resume, and are not."""

        def flatten(settings: dict) -> dict:
            flat: dict = {}
            for name in (f.name for f in fields(self) if f.metadata.get("must_match_on_resume", True)):
                value = settings.get(name)
                flat |= {f"{name}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
            return flat

        # Through JSON, which turns tuples into lists.
        new, old = flatten(json.loads(json.dumps(asdict(self)))), flatten(saved)
        hashes = {
            "text.sha256": "the text",
            "text.held_out_sha256": "the held-out text",
            "vocabulary_sha256": "the vocabulary",
            "initial_weights_sha256": "the initial model",
        }
        return [
            f"{hashes[name]} is another one" if name in hashes else f"{name} is {new.get(name)}, was {old.get(name)}"
            for name in sorted(new.keys() | old.keys())
            if new.get(name) != old.get(name)
        ]
