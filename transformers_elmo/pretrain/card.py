# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""What the model card of a trained checkpoint says of its training."""

from dataclasses import dataclass
from importlib.metadata import version

from ..configuration_elmo import ElmoConfig
from ..model_card import fill_template, table


@dataclass(frozen=True)
class Training:
    """How a checkpoint was trained."""

    words: int
    sentences: int
    distinct: int
    steps: int
    words_of_a_step: int
    files: list[str]
    command: str
    perplexities: tuple[float, float, float] | None  # held out: both directions, forward, backward

    def section(self, config: ElmoConfig) -> str:
        perplexities = ""
        if self.perplexities is not None:
            rows = [("held-out perplexity", "forward", "backward"), ("---",) * 3]
            perplexities = table([*rows, [f"{value:.2f}" for value in self.perplexities]]) + "\n"
        return fill_template(
            "training",
            version=version("transformers-elmo"),
            words=f"{self.words:,}",
            sentences=f"{self.sentences:,}",
            steps=f"{self.steps:,}",
            words_of_a_step=f"{self.words_of_a_step:,}",
            epochs=self.steps * self.words_of_a_step / max(self.words + self.sentences, 1),
            files=" of " + ", ".join(f"`{name}`" for name in self.files) if self.files else "",
            vocabulary=f"{config.vocab_size - 4:,}",
            distinct=f"{self.distinct:,}",
            command=self.command,
            perplexities=perplexities,
        )
