"""Sentences to measure with: those of ../shared/data where it is there, made ones of the same kind otherwise."""

import gzip
import random
import re
from pathlib import Path

NOVEL = Path(__file__).parents[2] / "shared" / "data" / "text" / "novels" / "valid.txt.gz"


def sentences(number: int) -> tuple[list[str], str]:
    """Raw sentences, and where they are from."""
    if NOVEL.exists():
        with gzip.open(NOVEL, "rt", encoding="utf-8") as file:
            found = [part for line in file for part in re.split(r"(?<=[.!?]) ", line.strip()) if part]
        return found[:number], "novels"
    rng = random.Random(0)
    # Word frequencies fall as 1 / rank, and lengths rise with the logarithm of the rank.
    ranks = range(1, 20_001)
    words = ["".join(rng.choices("etaoinshrdlu", k=1 + int(rank**0.2) + rng.randrange(3))) for rank in ranks]
    weights = [1 / rank for rank in ranks]
    made = [" ".join(rng.choices(words, weights, k=max(1, int(rng.gauss(17, 10))))) + "." for _ in range(number)]
    return made, "made sentences"
