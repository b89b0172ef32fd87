# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""The section about training in the model card of a trained checkpoint."""

from importlib.metadata import version

from ..configuration_elmo import ElmoConfig
from ..model_card import fill_template, table
from .corpus import Corpus
from .recipe import Settings


def training_section(
    config: ElmoConfig,
    *,
    corpus: Corpus,
    settings: Settings,
    steps: int,
    perplexities: tuple[float, float, float] | None,
) -> str:
    """Describe how a checkpoint was trained. `perplexities` come from `last_perplexities`."""
    results = ""
    if perplexities is not None:
        header = [("held-out perplexity", "forward", "backward"), ("---",) * 3]
        results = table([*header, [f"{value:.2f}" for value in perplexities]]) + "\n"
    files = ", ".join(f"`{name}`" for name in settings.text.get("files", []))
    words, sentences = len(corpus.tokens), len(corpus)
    return fill_template(
        "training",
        version=version("transformers-elmo"),
        words=f"{words:,}",
        sentences=f"{sentences:,}",
        steps=f"{steps:,}",
        words_per_step=f"{settings.words_per_step:,}",
        epochs=steps * settings.words_per_step / max(words + sentences, 1),
        files=f" of {files}" if files else "",
        vocabulary=f"{config.vocab_size - 4:,}",  # without the special tokens
        distinct=f"{len(corpus.words):,}",
        command=settings.command,
        perplexities=results,
    )
