# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""The model card of a checkpoint, its README.md on the Hub: metadata, usage and architecture.

The texts are in `templates/`. Jobs add sections of their own, on a conversion's source or on the training. Cards are
published, so they name files and folders without the folders that these are in.
"""

import copy
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData
from transformers import PreTrainedModel

from .configuration_elmo import ElmoConfig

TEMPLATES = Path(__file__).parent / "templates"
EMPTY_TEMPLATE = "This model card has been automatically generated."  # what `push_to_hub` of transformers uploads
# The folders of a path, which is absolute or leaves the working directory: /home/me/, ~/, ../, C:\
LOCAL_FOLDERS = re.compile(r"""(?<![^\s'"`=(])(?:~[\w-]*|[A-Za-z]:|\.\.)?(?:[/\\]+[^\s/\\'"`]+)*[/\\]+(?=[^\s/\\])""")
INPUTS = {
    "characters": "Words are read as characters, so no word is unknown.",
    "words": "Words are looked up in a vocabulary.",
    "words+characters": "Words are read as characters and looked up in a vocabulary.",
}


def write_model_card(model: PreTrainedModel, folder: str | Path, name: str | None = None):
    """Write the README.md of a saved model, unless it has one; transformers' empty template does not count.

    Args:
        model: the model that was saved.
        folder: where it was saved.
        name: the repository that the usage loads, the folder's name by default. Its last part is the title.
    """
    readme = Path(folder) / "README.md"
    if readme.exists() and EMPTY_TEMPLATE not in readme.read_text(encoding="utf-8", errors="replace"):
        return
    config: Any = copy.copy(model.config)
    config.architectures = [type(model).__name__]
    card = model_card(config, name or Path(folder).as_posix(), model.num_parameters())
    readme.write_text(card, encoding="utf-8")


def model_card(
    config: ElmoConfig,
    name: str,
    num_parameters: int,
    language: str | None = None,
    license: str | None = None,
    title: str | None = None,
    sections: Sequence[str] = (),
) -> str:
    """Return the text of a README.md.

    Args:
        config: the model's configuration.
        name: the repository that the usage loads, or the folder, of which only the last part is shown.
        num_parameters: of the model.
        language, license: as the Hub spells them, e.g. "en" and "apache-2.0".
        title: the heading, the last part of `name` by default.
        sections: Markdown texts to append, without the folders of local paths.
    """
    name = public_name(name)
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
        title=" ".join((title or Path(name).name).split()),
        hidden_size=config.hidden_size,
        inputs=INPUTS[config.inputs],
        usage=usage.rstrip("\n"),
        architecture=table(architecture(config, num_parameters)),
    )
    text = "\n".join([text, *(LOCAL_FOLDERS.sub("", section) for section in sections)])
    return text.encode("utf-8", "replace").decode("utf-8")  # file names may have bytes that are not UTF-8


def public_name(name: str) -> str:
    """Return the name of a repository unchanged, and of a local path its last part."""
    if re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) and not {".", ".."} & set(name.split("/")):
        return name
    last = Path(os.path.abspath(name)).name or "elmo"  # "." has no name of its own
    return "".join(char if char.isprintable() and char not in '"\\' else "_" for char in last)


def fill_template(template: str, **fields) -> str:
    """Return the text of `templates/{template}.md` with its fields filled in."""
    return (TEMPLATES / f"{template}.md").read_text(encoding="utf-8").format(**fields)


def table(rows: Iterable[Sequence[str]]) -> str:
    """Return the rows of a Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def architecture(config: ElmoConfig, num_parameters: int) -> list[tuple[str, str]]:
    """Return the rows of the architecture table."""
    rows = [("parameters", f"{num_parameters:,}")]
    if "characters" in config.inputs:
        filters = " ".join(f"{width}x{number}" for width, number in config.char_filters)
        rows += [
            ("characters", f"{config.char_vocab_size - 1}, up to {config.max_characters_per_token} per word"),
            ("filters", f"{filters} (width x number), highway layers: {config.num_highway_layers}"),
        ]
    if "words" in config.inputs:
        rows.append(("words", f"{config.vocab_size - 1:,}"))
    rows.append(("LSTM", f"{config.num_hidden_layers} layers x 2 directions x {config.lstm_dim} cells"))
    if config.projection_dim is not None:
        rows.append(("projection", f"{config.projection_dim}"))
    rows.append(("options", behavior(config)))
    if config.architectures == ["ElmoForPreTraining"]:
        rows.append(("lm_head", f"{config.vocab_size - 1:,} words, with `AutoModelForPreTraining`"))
    return rows


def behavior(config: ElmoConfig) -> str:
    """Return the options that change the vectors, but that no shape of a weight shows."""
    options = []
    if "characters" in config.inputs:
        options += [f"{config.max_characters_per_token} characters per word", config.char_activation]
    options.append(f"{'' if config.use_skip_connections else 'no '}skip connections")
    for name, clip in (("cells", config.cell_clip), ("outputs", config.projection_clip)):
        options.append(f"{name} {'not clipped' if clip is None else f'clipped to {clip:g}'}")
    return ", ".join(options)


def rename_usage(card: str, name: str) -> str:
    """Return a card of `model_card` with a usage section that loads `name`; return any other card unchanged."""
    usage = (
        r'^(?:tokenizer = AutoTokenizer\.from_pretrained\(|tagger = pipeline\("[\w-]+", )"([^"]*)", trust_remote_code'
    )
    found = re.search(usage, card, re.MULTILINE)
    end = '", trust_remote_code'
    return card if found is None else card.replace(f'"{found[1]}{end}', f'"{name}{end}')
