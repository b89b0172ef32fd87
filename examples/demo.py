"""What ELMo is, in a minute: one word, several sentences, several vectors.

    make demo

Opens the checkpoint that comes with the package, embeds sentences with the `elmo` command, and shows what context does
to a word: the nearest neighbours of "play" in other sentences (Table 4 of the paper), words whose similarity changes
with their sentences, words that would fit into a gap, and a picture of it all.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from transformers.utils import logging

from transformers_elmo import DEFAULT_CHECKPOINT, ElmoForPreTraining, ElmoTokenizer

FOLDER = Path("demo_output")
PLAYS = Path("examples/play.txt")  # senses and sentences
QUERIES = {
    "theatre": "The second act of her play was better than the first .",
    "sport": "He hopes to play against the old champions in the next match .",
    "music": "He sat down and began to play softly upon the piano .",
    "children": "She called the boys , who were at play in the garden .",
}
BANKS = [
    "He sat down on the bank of the river and took off his shoes .",
    "The boat drifted to the bank , where the grass was high .",
    "She took the money to the bank before it closed at four .",
    "The bank lent him a thousand pounds at five per cent .",
]


def elmo(*arguments: str):
    """Run the `elmo` command of this environment, shown as a user would type it."""
    print(f"\n$ elmo {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", "transformers_elmo.command", *arguments], check=True)


def vectors_of(word: str, sentences: list[str], name: str) -> tuple[np.ndarray, np.ndarray]:
    """The vector of a word in each sentence, of length 1: with its context and without, (n, 2P) each"""
    text, vectors = FOLDER / f"{name}.txt", FOLDER / f"{name}.npz"
    text.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    elmo("embed", "default", str(text), "--words", "--layer", "all", "-o", str(vectors))
    with np.load(vectors) as arrays:
        words = json.loads(arrays["words"].item())
        found = np.stack([arrays[str(i)][:, line.index(word)] for i, line in enumerate(words)])  # (n, layers, 2P)
    in_context, alone = found[:, 1:].mean(1), found[:, 0]
    return tuple(part / np.linalg.norm(part, axis=-1, keepdims=True) for part in (in_context, alone))


def neighbours(queries: np.ndarray, plays: np.ndarray, senses: list[str], sentences: list[str]):
    print("\nThe nearest neighbours of 'play' among", len(sentences), "sentences (Table 4 of the paper)")
    right = 0
    for (sense, sentence), cosines in zip(QUERIES.items(), queries @ plays.T):
        best = np.argsort(-cosines)[:3]
        right += sum(senses[i] == sense for i in best)
        print(f"\n  {sense:<9} {sentence}")
        for i in best:
            print(f"    {cosines[i]:.2f}    {senses[i]:<9} {sentences[i]}")
    print(f"\n  {right} of {3 * len(QUERIES)} neighbours have the sense of the sentence; by chance it would be 3.")


def picture(plays: np.ndarray, senses: list[str]):
    """The vectors of 'play' in the two directions in which they differ most, a colour for each sense"""
    from matplotlib.figure import Figure

    centred = plays - plays.mean(0)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:2]
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    for sense in QUERIES:
        points = centred[[s == sense for s in senses]] @ directions.T
        axes.scatter(*points.T, label=sense, s=60, alpha=0.8)
    axes.set(title="one word, 32 sentences: the vectors of 'play'", xticks=[], yticks=[])
    axes.legend()
    path = FOLDER / "play.png"
    figure.savefig(path, dpi=120)
    print(f"\nA picture of them: {path}")


def main():
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    os.chdir(Path(__file__).parents[1])
    FOLDER.mkdir(exist_ok=True)
    elmo("info", "default")

    senses, sentences = zip(*(line.split("\t") for line in PLAYS.read_text(encoding="utf-8").splitlines()))
    in_context, alone = vectors_of("play", [*sentences, *QUERIES.values()], "play")
    plays, queries = in_context[: len(sentences)], in_context[len(sentences) :]
    print(f"Without context all of them are one vector: the cosines are {(alone @ alone.T).min():.3f} and more.")
    neighbours(queries, plays, senses, sentences)
    picture(plays, senses)

    banks, _ = vectors_of("bank", BANKS, "bank")
    print("\nThe cosines between the vectors of 'bank' in four sentences")
    for sentence, cosines in zip(BANKS, banks @ banks.T):
        print("  ", "  ".join(f"{cosine:.2f}" for cosine in cosines), "  ", sentence)

    model = ElmoForPreTraining.from_pretrained(DEFAULT_CHECKPOINT)
    tokenizer = ElmoTokenizer.from_pretrained(DEFAULT_CHECKPOINT)
    print("\nThe language models behind it: what would fit into a gap, by both sides of it")
    for sentence in ("She opened the ____ and went into the garden .", "He drank a cup of ____ with his breakfast ."):
        words = sentence.split()
        found = model.substitutes(words, words.index("____"), tokenizer, k=6)
        print(f"   {sentence}    {', '.join(f'{word} {probability:.0%}' for word, probability in found)}")
    print(f"\nEverything is in {FOLDER.name}/.")


if __name__ == "__main__":
    main()
