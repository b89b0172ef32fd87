# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Does a converted checkpoint compute what its source does? Measured on fixed sentences, every time.

The source is computed in plain numpy from its own arrays (numpy_elmo.py), the checkpoint in a fresh process by the code
that it carries (checkpoint_activations.py).
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

TOLERANCE = 1e-5
# Of numbers above 10 float32 has fewer decimals: then this part of the largest. A next word's logarithm sums up the
# differences of a whole vector.
RELATIVE = 1e-6
RELATIVE_OF_NEXT_WORDS = 1e-5

# Short and long, repeated and rare words, several scripts, characters of one to four bytes, words that are too long.
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
    largest: float  # number of the source
    difference: float  # of the checkpoint from it


@dataclass(frozen=True)
class Verification:
    rows: list[Parity]
    sentences: int
    words: int


@dataclass(frozen=True)
class Computed:
    """What one of the two makes of the sentences."""

    layers: list[np.ndarray]  # (L + 1, T, 2P) of each sentence
    mixes: list[np.ndarray]  # (T, 2P)
    word_ids: list[list[int]] | None  # (T,), None where there are no rows for words
    next_words: np.ndarray | None  # (2, T, V) of the first sentence, None where there is no softmax

    def parts(self) -> dict[str, list[np.ndarray]]:
        """The rows of the parity table."""
        names = ["words", *(f"lstm_{layer}" for layer in range(1, len(self.layers[0])))]
        parts = {name: [layers[j] for layers in self.layers] for j, name in enumerate(names)}
        softmax = {} if self.next_words is None else {"next word": [self.next_words]}
        return {**parts, "mix": self.mixes, **softmax}


def verify(source: Source, checkpoint: Path) -> Verification:
    """Compare a checkpoint with its source; an error where they are too far apart."""
    words = known_words(source.tokenizer)
    sentences = [*SENTENCES, words] if words else SENTENCES
    # In this order neither has to wait in memory for the other.
    got = compute_by_checkpoint(checkpoint, sentences)
    expected = compute_by_source(source, sentences)
    got_parts = got.parts()
    rows = [parity(name, part, got_parts[name]) for name, part in expected.parts().items()]
    if expected.word_ids not in (None, got.word_ids):
        raise RuntimeError("The converted checkpoint must give words the ids of its source, nothing was written.")
    return Verification(rows, len(sentences), sum(map(len, sentences)))


def known_words(tokenizer) -> list[str]:
    """Some words of the vocabulary, from the first to the last."""
    no_words = (*tokenizer.all_special_tokens, "<row ", "<line ")  # the last two stand where a row has no word
    words = [word for word in sorted(tokenizer.get_vocab()) if not word.startswith(no_words)]
    return words[:: max(1, len(words) // 12)][:12]


def compute_by_source(source: Source, sentences: list[list[str]]) -> Computed:
    """In plain numpy, from the source's own arrays."""
    tokenizer = source.tokenizer
    layers = source.layers([[tokenizer.bos_token, *sentence, tokenizer.eos_token] for sentence in sentences])
    weights, gamma = source.array_of("mix.weights"), source.array_of("mix.gamma")
    weights = np.zeros(len(layers[0])) if weights is None else weights
    gamma = 1.0 if gamma is None else gamma.item()
    mixes = [numpy_elmo.mix(sentence, weights, gamma, source.layer_norm) for sentence in layers]
    weight, bias = source.array_of("lm_head.weight"), source.array_of("lm_head.bias")
    next_words = None if weight is None else numpy_elmo.next_words(layers[0], weight, bias.reshape(-1))
    return Computed(layers, mixes, word_ids(source, sentences), next_words)


def word_ids(source: Source, sentences: list[list[str]]) -> list[list[int]] | None:
    """The rows of words in the source, counted from 1; ELMoForManyLangs cuts words before it looks them up."""
    tokenizer, words = source.tokenizer, source.words
    if words is None:
        return None
    room = None if tokenizer.char_vocab is None else tokenizer.max_characters_per_token - 2
    ids = [[words.get(word[:room], words[tokenizer.unk_token]) + 1 for word in sentence] for sentence in sentences]
    return [[words[tokenizer.bos_token] + 1, *row, words[tokenizer.eos_token] + 1] for row in ids]


def compute_by_checkpoint(checkpoint: Path, sentences: list[list[str]]) -> Computed:
    """In a fresh process, by the code in the checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        given, output = Path(folder) / "sentences.json", Path(folder) / "activations.npz"
        given.write_text(json.dumps(sentences), encoding="utf-8")
        # As text, so that the folder of this package is not where the process looks for modules first.
        script = Path(checkpoint_activations.__file__).read_text(encoding="utf-8")
        result = subprocess.run(
            [sys.executable, "-c", script, str(checkpoint.resolve()), str(given), str(output)],
            cwd=folder,
            env=os.environ | {"HF_MODULES_CACHE": str(Path(folder) / "modules"), "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
        )
        if result.returncode != 0:
            last = result.stderr.strip().splitlines()[-1:] or [f"exit code {result.returncode}"]
            raise RuntimeError(f"The converted checkpoint cannot be used, nothing was written: {last[0]}")
        with np.load(output) as arrays:
            layers, mixes, ids = [
                [arrays[f"{part}_{number}"] for number in range(len(sentences))] for part in ("layers", "mix", "ids")
            ]
            next_words = arrays.get("next_words")
    return Computed(layers, mixes, [row.tolist() for row in ids], next_words)


def parity(name: str, expected: list[np.ndarray], got: list[np.ndarray]) -> Parity:
    if [a.shape for a in expected] != [b.shape for b in got]:
        shapes = f"{[a.shape for a in expected]}, not {[b.shape for b in got]}"
        raise RuntimeError(f"The converted checkpoint must give {name} of the shapes {shapes}, nothing was written.")
    # numpy's maximum is NaN where one of the numbers is, Python's is not.
    largest, difference = np.max([(np.abs(a).max(), np.abs(a - b).max()) for a, b in zip(expected, got)], axis=0)
    allowed = max(TOLERANCE, largest * (RELATIVE_OF_NEXT_WORDS if name == "next word" else RELATIVE))
    if not difference <= allowed:
        raise RuntimeError(
            f"The converted checkpoint must compute what its source does to {allowed:.0e}; "
            f"{name} differs by {difference:.1e}, so that nothing was written."
        )
    return Parity(name, float(largest), float(difference))
