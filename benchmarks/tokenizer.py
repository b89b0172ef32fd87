"""Measure how fast the tokenizer converts raw text to padded tensors.

    python benchmarks/tokenizer.py

Prints words per second for batches in text order and sorted by length, and the ratio to the speed of the backend, the
tokenizers library, alone on the same text.
"""

import time

from text import sentences

from transformers_elmo import ElmoTokenizer


def best_of(runs: int, function) -> float:
    """Return the seconds of the fastest run, the one least disturbed by other processes."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main():
    texts, source = sentences(12_800)
    print(f"{len(texts):,} sentences ({source}); words/s, best of 5")
    print(f"{'':<34}{'words/s':>12}{'of backend alone':>20}{'positions/word':>18}")
    tokenizer = ElmoTokenizer()
    for order, ordered in (("as in the text", texts), ("sorted by length", sorted(texts, key=len))):
        for size in (32, 128, 512):
            batches = [ordered[start : start + size] for start in range(0, len(ordered), size)]
            encoded = [tokenizer(batch, padding=True, return_tensors="pt") for batch in batches]
            words = sum(int(batch["attention_mask"].sum()) - 2 * len(batch["input_ids"]) for batch in encoded)
            positions = sum(batch["input_ids"].numel() for batch in encoded)
            del encoded

            def tokenize(batches=batches):
                for batch in batches:
                    tokenizer(batch, padding=True, return_tensors="pt")

            def run_backend(batches=batches):
                for batch in batches:
                    tokenizer.backend_tokenizer.encode_batch(batch)

            ours, backend = best_of(5, tokenize), best_of(5, run_backend)
            row = f"{order}, batches of {size}"
            print(f"{row:<34}{words / ours:>12,.0f}{backend / ours:>20.2f}{positions / words:>18.2f}")


if __name__ == "__main__":
    main()
