"""What ELMo is, in a minute: one word, several sentences, several vectors.

    make demo

Makes a small checkpoint from a fixed seed (its weights are random: it shows how things are used, not what a trained
model knows), looks at it and embeds a few sentences with the `elmo` command, and compares the vectors of one word.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from transformers.utils import logging

from transformers_elmo import ElmoConfig, ElmoModel, ElmoTokenizer

FOLDER = Path("demo_output")
SENTENCES = """\
He sat down on the bank of the river and took off his shoes.
The bank of the river was steep, and the boat drifted away.
She took the money to the bank before it closed at four o'clock.
Don't ask the bank; Mr. Smith's U.S. account is empty!
"""


def elmo(*arguments: str):
    """Run the `elmo` command of this environment, shown as a user would type it."""
    print(f"\n$ elmo {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", "transformers_elmo.command", *arguments], check=True)


def main():
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    os.chdir(Path(__file__).parents[1])
    FOLDER.mkdir(exist_ok=True)
    checkpoint, text, vectors = FOLDER / "checkpoint", FOLDER / "sentences.txt", FOLDER / "vectors.npz"
    torch.manual_seed(0)
    filters = [[1, 16], [2, 32], [3, 64], [4, 128]]
    config = ElmoConfig.small(vocab_size=4, lstm_dim=256, projection_dim=64, char_filters=filters)
    ElmoModel(config).save_pretrained(checkpoint)
    ElmoTokenizer().save_pretrained(checkpoint)
    text.write_text(SENTENCES, encoding="utf-8")

    elmo("info", str(checkpoint))
    elmo("embed", str(checkpoint), str(text), "-o", str(vectors))

    with np.load(vectors) as arrays:
        words = json.loads(arrays["words"].item())
        banks = [arrays[str(line)][words[line].index("bank")] for line in range(len(words))]  # (4, 2P)
    banks = np.stack([bank / np.linalg.norm(bank) for bank in banks])
    print("\nOne word, four sentences: the cosines between the vectors of 'bank'")
    for line, cosines in zip(words, banks @ banks.T):
        print("  ", "  ".join(f"{cosine:5.3f}" for cosine in cosines), "  ", " ".join(line))
    print(f"\nEverything is in {FOLDER.name}/. The weights are random, so the cosines say only that context counts.")


if __name__ == "__main__":
    main()
