# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""The README.md of a checkpoint on the Hub: what it is, where it comes from, how exact it is, how it is used."""

import re
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from huggingface_hub import ModelCardData

from ..configuration_elmo import ElmoConfig
from .verification import TOLERANCE, Verification

TEMPLATE = """\
---
{metadata}
---

# {title}

ELMo ([Peters et al. 2018](https://arxiv.org/abs/1802.05365)) for
[transformers](https://github.com/huggingface/transformers): {hidden_size} numbers for each word of a sentence, which
depend on the sentence. {inputs}

## Usage

```python
{usage}
```

The code comes with the checkpoint (`trust_remote_code=True`). Where the package transformers-elmo is installed and
imported, its code is used instead and the argument is not needed.

## Sizes

| | |
|---|---|
{sizes}
"""

VECTORS = """\
import torch
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}", trust_remote_code=True)
model = AutoModel.from_pretrained("{name}", trust_remote_code=True)

sentences = [["The", "bank", "of", "the", "river"], ["Any", "wörd", "will", "do"]]
inputs = tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
with torch.no_grad():
    outputs = model(**inputs, output_hidden_states=True)

print(outputs.last_hidden_state.shape)  # (2, 7, {hidden_size}): the mix, with a vector for each boundary of a sentence
print(len(outputs.hidden_states))  # {layers}: words without context, then the LSTM layers"""

TAGGER = """\
from transformers import pipeline

tagger = pipeline("token-classification", "{name}", trust_remote_code=True, aggregation_strategy="first")
print(tagger("The bank of the river was steep."))"""

INPUTS = {
    "characters": "A word is read from its characters, so that any word will do.",
    "words": "A word is read from its id in a vocabulary.",
    "words+characters": "A word is read from its characters and from its id in a vocabulary.",
}

SOURCE = """
## Source

Converted by transformers-elmo {version} from {format}:

| file | bytes | SHA-256 |
|---|---|---|
{files}
{notes}
## Parity

Computed from the source's own arrays in plain numpy (float64), and by this checkpoint in a fresh process (float32), for
{words} words of {sentences} sentences, among them unknown words, rare characters and words that are too long. A
difference above {tolerance:g} (above a millionth of the largest number, where that is above 10) would have stopped it.
The next word's numbers, where there is a softmax, are logarithms of probabilities.

| | largest number | largest difference |
|---|---|---|
{parity}
"""


TRAINING = """
## Training

By transformers-elmo {version} on {words} words in {sentences} sentences, {steps} steps of {words_of_a_step} words
({epochs:.2f} epochs){files}. The vocabulary has the {vocabulary} most frequent of {distinct} distinct words.

```
{command}
```

{perplexities}
![loss and perplexity](curves.png)
"""


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
        return TRAINING.format(
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


@dataclass(frozen=True)
class Provenance:
    """Where a checkpoint comes from and how near it is to it."""

    format: str
    files: list[tuple[str, int, str]]  # name, bytes, SHA-256
    verification: Verification
    notes: list[str] = field(default_factory=list)


def model_card(
    config: ElmoConfig,
    name: str,
    parameters: int,
    language: str | None = None,
    license: str | None = None,
    title: str | None = None,
    provenance: Provenance | None = None,
    training: Training | None = None,
) -> str:
    """The text of README.md. `name` is what the usage loads: a folder, or a repository on the Hub."""
    is_tagger = config.architectures == ["ElmoForTokenClassification"]
    task = "token-classification" if is_tagger else "feature-extraction"
    metadata = ModelCardData(
        language=language,
        license=license,
        library_name="transformers",
        tags=["elmo", "bilm", "contextual-word-embeddings", task],
        pipeline_tag=task,
    )
    usage = (TAGGER if is_tagger else VECTORS).format(
        name=name, hidden_size=config.hidden_size, layers=config.num_hidden_layers + 1
    )
    text = TEMPLATE.format(
        metadata=metadata.to_yaml(),
        title=title or Path(name).name,
        hidden_size=config.hidden_size,
        inputs=INPUTS[config.inputs],
        usage=usage,
        sizes=table(sizes(config, parameters)),
    )
    if training is not None:
        text += training.section(config)
    if provenance is not None:
        text += SOURCE.format(
            version=version("transformers-elmo"),
            format=provenance.format,
            files=table((f"`{file}`", f"{size:,}", f"`{digest}`") for file, size, digest in provenance.files),
            notes="".join(f"\n- {note}" for note in provenance.notes) + ("\n" if provenance.notes else ""),
            words=provenance.verification.words,
            sentences=provenance.verification.sentences,
            tolerance=TOLERANCE,
            parity=table(
                (row.name, f"{row.largest:.2f}", f"{row.difference:.1e}") for row in provenance.verification.rows
            ),
        )
    return text


def sizes(config: ElmoConfig, parameters: int) -> list[tuple[str, str]]:
    rows = [("parameters", f"{parameters:,}")]
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


def table(rows) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def renamed(card: str, name: str) -> str:
    """A card made here with usage that loads `name`; any other card as it is."""
    usage = (
        r'^(?:tokenizer = AutoTokenizer\.from_pretrained\(|tagger = pipeline\("[\w-]+", )"([^"]*)", trust_remote_code'
    )
    found = re.search(usage, card, re.MULTILINE)
    end = '", trust_remote_code'
    return card if found is None else card.replace(f'"{found[1]}{end}', f'"{name}{end}')
