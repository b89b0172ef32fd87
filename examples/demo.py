"""Show in a minute what ELMo does: the same word has different vectors in different sentences.

    make demo

Embeds ten sentences for each of eight ambiguous words (examples/senses.tsv) with the checkpoint in the package, and
asks for each sentence whether the nearest of the other nine uses the word in the same sense. The sentences were written
before the model was tried on them, and every word is shown, the hard ones too. Then come words that fill a gap (the
last one is too hard for this model), and a picture.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from transformers.utils import logging

from transformers_elmo import ElmoLanguageModel

OUTPUT = Path("demo_output")
SENSES = Path("examples/senses.tsv")  # word, sense, sentence
GAPS = [
    "She opened the ____ and went into the garden .",
    "He drank a cup of ____ with his breakfast .",
    "The ship lost her ____ in the storm .",
]


def elmo(*arguments: str):
    """Print an `elmo` command as a user would type it, and run it."""
    print(f"\n$ elmo {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", "transformers_elmo.command", *arguments], check=True)


def embed(words: list[str], sentences: list[str]) -> np.ndarray:
    """Return the top-layer vector of each word in its sentence, normalized to length 1 (n, 2P)."""
    text, output = OUTPUT / "sentences.txt", OUTPUT / "vectors.npz"
    text.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    elmo("embed", "default", str(text), "--pretokenized", "--layer", "top", "-o", str(output))
    with np.load(output) as arrays:
        tokens = json.loads(arrays["words"].item())
        vectors = np.stack([arrays[str(i)][line.index(word)] for i, (word, line) in enumerate(zip(words, tokens))])
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def print_nearest_neighbours(vectors: np.ndarray, words: list[str], senses: list[str], sentences: list[str]):
    """Print how often each word's nearest neighbour has the same sense, and the neighbour of its first sentence."""
    cosines = vectors @ vectors.T
    cosines[np.array(words)[:, None] != np.array(words)] = -1  # only sentences with the same word
    np.fill_diagonal(cosines, -1)
    nearest = cosines.argmax(1)
    print("\nIs the nearest neighbour of a word in its sentence the same word in the same sense?")
    correct = 0
    for word in dict.fromkeys(words):
        indices = [i for i, other in enumerate(words) if other == word]
        hits = sum(senses[i] == senses[nearest[i]] for i in indices)
        correct += hits
        first = indices[0]
        print(
            f"\n  {word}: {hits} of {len(indices)}, between {' and '.join(dict.fromkeys(senses[i] for i in indices))}"
        )
        for i in (first, nearest[first]):
            print(f"    {senses[i]:<9}  {sentences[i]}")
    chance = 4 / 9  # of the nine other sentences with the word, four have the same sense
    print(f"\n  All words: {correct} of {len(words)}; by chance it would be {len(words) * chance:.0f}.")


def draw(vectors: np.ndarray, words: list[str], senses: list[str]) -> Path:
    """Plot the first two principal components of each word's vectors, one colour per sense."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(words))
    figure = Figure(figsize=(12, 6), layout="constrained")
    for axes, word in zip(figure.subplots(2, len(names) // 2).flat, names):
        indices = [i for i, other in enumerate(words) if other == word]
        centred = vectors[indices] - vectors[indices].mean(0)
        points = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T  # (n, 2)
        for sense in dict.fromkeys(senses[i] for i in indices):
            axes.scatter(*points[[senses[i] == sense for i in indices]].T, label=sense, s=50, alpha=0.8)
        axes.set(title=word, xticks=[], yticks=[])
        axes.legend(fontsize=8)
    path = OUTPUT / "senses.png"
    figure.savefig(path, dpi=120)
    return path


def main():
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    os.chdir(Path(__file__).parents[1])
    OUTPUT.mkdir(exist_ok=True)
    elmo("info", "default")

    rows = [line.split("\t") for line in SENSES.read_text(encoding="utf-8").splitlines()]
    words, senses, sentences = map(list, zip(*rows))
    vectors = embed(words, sentences)
    print_nearest_neighbours(vectors, words, senses, sentences)

    language_model = ElmoLanguageModel.from_pretrained("default")
    print("\nWhich words fill a gap? Both language models together predict:\n")
    for sentence in GAPS:
        tokens = sentence.split()
        found = language_model.substitutes(tokens, tokens.index("____"), k=5)
        print(f"  {sentence}\n    {', '.join(f'{word} {probability:.0%}' for word, probability in found)}")
    print(f"\nA picture of the vectors: {draw(vectors, words, senses)}")


if __name__ == "__main__":
    main()
