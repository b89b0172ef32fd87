"""Sentences for the benchmarks: modern English of the shared folder or, without it, random ones like them."""

import gzip
import os
import random
import re
from pathlib import Path

# Data outside the repository: golden files, texts, stubs for the peers.
SHARED = Path(os.environ.get("ELMO_SHARED", Path(__file__).resolve().parents[2] / "shared"))
TEXT = SHARED / "data" / "text" / "modern" / "valid.txt.gz"  # textbooks, opinions of a court, an almanac


def sentences(number: int) -> tuple[list[str], str]:
    """Return raw sentences from all parts of the text, and their source."""
    if TEXT.exists():
        with gzip.open(TEXT, "rt", encoding="utf-8") as file:
            found = [part for line in file for part in re.split(r"(?<=[.!?]) ", line.strip()) if part]
        return found[:: max(1, len(found) // number)][:number], "modern English"
    rng = random.Random(0)
    # Word frequencies fall as 1 / rank, and word lengths grow slowly with the rank.
    ranks = range(1, 20_001)
    words = ["".join(rng.choices("etaoinshrdlu", k=1 + int(rank**0.2) + rng.randrange(3))) for rank in ranks]
    weights = [1 / rank for rank in ranks]
    generated = [" ".join(rng.choices(words, weights, k=max(1, int(rng.gauss(22, 12))))) + "." for _ in range(number)]
    return generated, "random sentences"
