# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""The model card of a checkpoint, its README.md on the Hub: what it is, its sizes, how it is used.

The texts are in `templates/`. Jobs add sections of their own: where a converted checkpoint comes from, how a trained
one was trained.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from huggingface_hub import ModelCardData

from .configuration_elmo import ElmoConfig

TEMPLATES = Path(__file__).parent / "templates"
INPUTS = {
    "characters": "A word is read from its characters, so that any word will do.",
    "words": "A word is read from its id in a vocabulary.",
    "words+characters": "A word is read from its characters and from its id in a vocabulary.",
}


def fill_template(template: str, **fields) -> str:
    return (TEMPLATES / f"{template}.md").read_text(encoding="utf-8").format(**fields)


def model_card(
    config: ElmoConfig,
    name: str,
    num_parameters: int,
    language: str | None = None,
    license: str | None = None,
    title: str | None = None,
    sections: Sequence[str] = (),
) -> str:
    """Return the text of README.md. `name` is what the usage loads: a folder, or a repository on the Hub."""
    is_tagger = config.architectures == ["ElmoForTokenClassification"]
    task = "token-classification" if is_tagger else "feature-extraction"
    metadata = ModelCardData(
        language=language,
        license=license,
        library_name="transformers",
        tags=["elmo", "bilm", "contextual-word-embeddings", task],
        pipeline_tag=task,
    )
    usage = fill_template(
        "usage_tagger" if is_tagger else "usage_vectors",
        name=name,
        hidden_size=config.hidden_size,
        layers=config.num_hidden_layers + 1,
    )
    text = fill_template(
        "model_card",
        metadata=metadata.to_yaml(),
        title=title or Path(name).name,
        hidden_size=config.hidden_size,
        inputs=INPUTS[config.inputs],
        usage=usage.rstrip("\n"),
        sizes=table(sizes(config, num_parameters)),
    )
    return "\n".join([text, *sections])


def sizes(config: ElmoConfig, num_parameters: int) -> list[tuple[str, str]]:
    rows = [("parameters", f"{num_parameters:,}")]
    if "characters" in config.inputs:
        filters = " ".join(f"{width}x{number}" for width, number in config.char_filters)
        rows += [
            ("characters", f"{config.char_vocab_size - 1}, {config.max_characters_per_token} to a word"),
            ("filters", f"{filters}, {config.num_highway_layers} highway layers"),
        ]
    if "words" in config.inputs:
        rows.append(("words", f"{config.vocab_size - 1:,}"))
    rows.append(("LSTM", f"{config.num_hidden_layers} layers x 2 directions x {config.lstm_dim} cells"))
    if config.projection_dim is not None:
        rows.append(("projection", f"{config.projection_dim}"))
    if config.architectures == ["ElmoForPreTraining"]:
        rows.append(("softmax", f"{config.vocab_size - 1:,} words, by `AutoModelForPreTraining`"))
    return rows


def table(rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def rename_usage(card: str, name: str) -> str:
    """A card made here with usage that loads `name`; any other card as it is."""
    usage = (
        r'^(?:tokenizer = AutoTokenizer\.from_pretrained\(|tagger = pipeline\("[\w-]+", )"([^"]*)", trust_remote_code'
    )
    found = re.search(usage, card, re.MULTILINE)
    end = '", trust_remote_code'
    return card if found is None else card.replace(f'"{found[1]}{end}', f'"{name}{end}')
