# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Verify that a converted checkpoint computes what its source does, on fixed sentences.

The source runs in plain numpy on its original arrays (numpy_elmo.py), the checkpoint in a fresh process with the code
that is saved in it (checkpoint_activations.py).
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import checkpoint_activations, numpy_elmo
from .sources import Source

# What a user can do about a checkpoint that fails.
REMEDY = (
    "nothing was saved: download the source again, and if that does not help, report it with the source's address to "
    "https://github.com/transformers-elmo/transformers-elmo/issues."
)

TOLERANCE = 1e-5
# Relative to the largest value, for values above 10, where float32 has fewer decimals. Rounding errors of LSTM layers
# grow with the word vectors that they read, and trained vectors of <S> and </S> can be above 100. A logit sums the
# errors of a whole vector.
RELATIVE_TOLERANCE = 1e-6
RELATIVE_TOLERANCE_OF_LOGITS = 1e-5

# Short and long, repeated and rare words, several scripts, characters of one to four bytes, words above the maximum
# length.
SENTENCES = [
    sentence.split()
    for sentence in (
        "Pretrained biLMs compute representations useful for NLP tasks .",
        "Yes",
        "The bank of the river was steep , and the boat drifted away from the bank of the river .",
        "Don 't ask Dr. Müller 's naïve café — façade , 3,000 € or ½ % of £ 1.50 ?",
        "Привет , мир ! 你好 世界 。 こんにちは 안녕 שלום سلام नमस्ते 😀 👩‍👩‍👧 𐍈𐌰",
        "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft "
        + "x" * 47
        + " "
        + "y" * 48
        + " "
        + "ж" * 49
        + " "
        + "z" * 300,
        "When the train that the man who had lost his hat was waiting for came in at last , it was so late that nobody "
        "who stood on the platform could remember where he had wanted to go when he had left his house .",
    )
]


@dataclass(frozen=True)
class Parity:
    """One row of the parity table."""

    name: str
    largest: float  # absolute value in the source
    difference: float  # largest absolute difference of the checkpoint


@dataclass(frozen=True)
class Verification:
    """The parity table, and the size of the text it was measured on."""

    rows: list[Parity]
    sentences: int
    words: int


@dataclass(frozen=True)
class Activations:
    """The outputs of the source or of the checkpoint for the sentences."""

    layers: list[np.ndarray]  # (L + 1, T, 2P) per sentence
    mixes: list[np.ndarray]  # (T, 2P) per sentence
    word_ids: list[list[int]] | None  # (T,) per sentence, None without a word embedding and lm_head
    next_words: np.ndarray | None  # log-probabilities (2, T, V) of the first sentence, None without an lm_head

    def parts(self) -> dict[str, list[np.ndarray]]:
        """Return the arrays for each row of the parity table."""
        names = ["words", *(f"lstm_{layer}" for layer in range(1, len(self.layers[0])))]
        parts = {name: [layers[j] for layers in self.layers] for j, name in enumerate(names)}
        next_words = {} if self.next_words is None else {"next word": [self.next_words]}
        return {**parts, "mix": self.mixes, **next_words}


@np.errstate(all="ignore")  # NaN fails below
def verify(source: Source, checkpoint: Path) -> Verification:
    """Compare a checkpoint with its source; raise if they differ by more than the tolerance."""
    words = known_words(source.tokenizer)
    sentences = [*SENTENCES, words] if words else SENTENCES
    # The checkpoint first: its process frees all of its memory before the source is read.
    actual = run_checkpoint(checkpoint, sentences)
    expected = run_source(source, sentences)
    expected_parts, actual_parts = expected.parts(), actual.parts()
    largest_input = max(np.abs(array).max() for array in expected_parts["words"])
    rows = [parity(name, part, actual_parts[name], largest_input) for name, part in expected_parts.items()]
    if expected.word_ids not in (None, actual.word_ids):
        raise RuntimeError(f"The converted checkpoint must have the word ids of its source, but it does not; {REMEDY}")
    return Verification(rows, len(sentences), sum(map(len, sentences)))


def known_words(tokenizer) -> list[str]:
    """Return up to twelve words, spread evenly over the sorted vocabulary."""
    not_words = (*tokenizer.all_special_tokens, "<row ", "<line ")  # the last two are placeholders
    words = [word for word in sorted(tokenizer.get_vocab()) if not word.startswith(not_words)]
    return words[:: max(1, len(words) // 12)][:12]


def run_source(source: Source, sentences: list[list[str]]) -> Activations:
    """Run the original arrays in plain numpy."""
    tokenizer = source.tokenizer
    layers = source.compute_layers([[tokenizer.bos_token, *sentence, tokenizer.eos_token] for sentence in sentences])
    weights, gamma = source.read_parameter("mix.weights"), source.read_parameter("mix.gamma")
    weights = np.zeros(len(layers[0])) if weights is None else weights
    scale = 1.0 if gamma is None else gamma.item()
    mixes = [numpy_elmo.mix(sentence, weights, scale, source.mix_layer_norm) for sentence in layers]
    weight, bias = source.read_parameter("lm_head.weight"), source.read_parameter("lm_head.bias")
    next_words = None
    if weight is not None and bias is not None:
        next_words = numpy_elmo.next_words(layers[0], weight, bias.reshape(-1))
    return Activations(layers, mixes, word_ids(source, sentences), next_words)


def word_ids(source: Source, sentences: list[list[str]]) -> list[list[int]] | None:
    """Return the word ids of each sentence, boundaries included: a word's row plus one, as 0 is padding."""
    tokenizer, rows = source.tokenizer, source.word_rows
    if rows is None:
        return None
    # ELMoForManyLangs truncates words before it looks them up.
    length = None if tokenizer.char_vocab is None else tokenizer.max_characters_per_token - 2
    ids = [[rows.get(word[:length], rows[tokenizer.unk_token]) + 1 for word in sentence] for sentence in sentences]
    return [[rows[tokenizer.bos_token] + 1, *row, rows[tokenizer.eos_token] + 1] for row in ids]


def run_checkpoint(checkpoint: Path, sentences: list[list[str]]) -> Activations:
    """Run a checkpoint in a fresh process, with the code that is saved in it."""
    with tempfile.TemporaryDirectory() as folder:
        inputs, output = Path(folder) / "sentences.json", Path(folder) / "activations.npz"
        inputs.write_text(json.dumps(sentences), encoding="utf-8")
        # Passed as text: a script's folder would be first in sys.path, and this package must not be importable from it.
        script = Path(checkpoint_activations.__file__).read_text(encoding="utf-8")
        result = subprocess.run(
            [sys.executable, "-c", script, str(checkpoint.resolve()), str(inputs), str(output)],
            cwd=folder,
            env=os.environ | {"HF_MODULES_CACHE": str(Path(folder) / "modules"), "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
        )
        if result.returncode != 0:
            last = result.stderr.strip().splitlines()[-1:] or [f"exit code {result.returncode}: is memory free?"]
            raise RuntimeError(
                f"The converted checkpoint cannot be loaded and run ({last[0][:300].rstrip('.')}); {REMEDY}"
            )
        with np.load(output) as arrays:
            layers, mixes, ids = [
                [arrays[f"{part}_{number}"] for number in range(len(sentences))] for part in ("layers", "mix", "ids")
            ]
            next_words = arrays.get("next_words")
    return Activations(layers, mixes, [row.tolist() for row in ids], next_words)


def parity(name: str, expected: list[np.ndarray], actual: list[np.ndarray], largest_input: float) -> Parity:
    """Compare the arrays of one row, one per sentence; raise if they differ by more than the tolerance."""
    if [a.shape for a in expected] != [b.shape for b in actual]:
        shapes = f"{[a.shape for a in expected]}; they are {[b.shape for b in actual]}"
        raise RuntimeError(f"The converted checkpoint's {name} must have shapes {shapes}; {REMEDY}")
    # np.max propagates NaN, Python's max does not.
    largest, difference = np.max([(np.abs(a).max(), np.abs(a - b).max()) for a, b in zip(expected, actual)], axis=0)
    if name == "next word":
        tolerance = max(TOLERANCE, largest * RELATIVE_TOLERANCE_OF_LOGITS)
    else:
        tolerance = max(TOLERANCE, max(largest, largest_input) * RELATIVE_TOLERANCE)
    if not difference <= tolerance:
        raise RuntimeError(
            f"The converted checkpoint must compute what its source does, within {tolerance:.0e}; "
            f"{name} differs by {difference:.1e}; {REMEDY}"
        )
    return Parity(name, float(largest), float(difference))
