"""How fast words become vectors, and how near that is to what the machine allows.

    python benchmarks/model.py [--sizes small,original] [--sentences 256]

The limit is the time that the matrix products of the LSTMs alone take, at the sizes of this run and on this machine, as
plain `torch.mm` of weights that lie (in, out). Weights are random; speed does not depend on them.
"""

import argparse
import time

import torch
from text import sentences

from transformers_elmo import ElmoConfig, ElmoModel, ElmoTokenizer
from transformers_elmo.modeling_elmo import Packing


def products(config: ElmoConfig, batches: list[dict]) -> float:
    """Seconds that the LSTMs' products take for these batches, and nothing else."""
    size, cells = config.output_dim, config.lstm_dim
    weight, projection = torch.randn(size, 4 * cells), torch.randn(cells, size)
    seconds = 0.0
    for batch in batches:
        steps = Packing.of(batch["attention_mask"] != 0).steps
        x, h = torch.randn(sum(steps), size), torch.randn(max(steps), size)
        out = torch.randn(max(steps), cells)
        start = time.perf_counter()
        for _ in range(2 * config.num_hidden_layers):
            x @ weight
            for rows in steps:
                h[:rows] @ weight
                out[:rows] @ projection
        seconds += time.perf_counter() - start
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="small,original")
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--batch-sizes", default="1,32,128")
    arguments = parser.parse_args()
    texts, source = sentences(arguments.sentences)
    tokenizer = ElmoTokenizer()
    torch.manual_seed(0)
    print(f"{len(texts)} sentences ({source}), {torch.get_num_threads()} threads, float32; best of 3")
    print(f"{'':<44}{'words/s':>10}{'limit':>10}{'ratio':>8}")
    for name in arguments.sizes.split(","):
        config = getattr(ElmoConfig, name)(vocab_size=4)
        model = ElmoModel(config).eval()
        for size in map(int, arguments.batch_sizes.split(",")):
            used = texts if size > 1 else texts[:32]
            for order, ordered in (("as in the text", used), ("sorted by length", sorted(used, key=len))):
                batches = [
                    tokenizer(ordered[start : start + size], padding=True, return_tensors="pt")
                    for start in range(0, len(ordered), size)
                ]
                words = sum(int(batch["attention_mask"].sum()) for batch in batches)
                ours, limit = [], []
                with torch.inference_mode():
                    model(**batches[0])
                    for _ in range(3):
                        start = time.perf_counter()
                        for batch in batches:
                            model(**batch)
                        ours.append(time.perf_counter() - start)
                        limit.append(products(config, batches))
                row = f"{name}, batches of {size}, {order}"
                ours, limit = words / min(ours), words / min(limit)
                print(f"{row:<44}{ours:>10,.0f}{limit:>10,.0f}{ours / limit:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
