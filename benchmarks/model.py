"""How fast words become vectors, and how near that is to what the machine allows.

    python benchmarks/model.py [--sizes small,original] [--sentences 256]
    ELMO_PEERS=…/python python benchmarks/model.py      # beside AllenNLP too, on the same words and weights

Ours is the time of the model alone: words are split and their characters looked up before. The limit is the time that
the matrix products of the LSTMs alone take, at the sizes of this run and on this machine, one after the other as plain
`torch.mm` of weights that lie (in, out); the two directions side by side can be faster. Weights are random; speed does
not depend on them. Linux only.
"""

import argparse
import contextlib
import json
import os
import tempfile
import time
from pathlib import Path

import torch
from peers import run_peer
from text import sentences
from watch import Watch

from transformers_elmo import ElmoConfig, ElmoModel, ElmoTokenizer
from transformers_elmo.convert.export import export_bilm
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


def measure(model: ElmoModel, batches: list[dict], rounds: int) -> float:
    watch = Watch(batches, rounds)
    with torch.inference_mode():
        for batch in watch:
            model(**batch)
    return sum(watch.seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="small,original")
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--batch-sizes", default="1,32,128")
    parser.add_argument("--rounds", type=int, default=3, help="over all batches; the fastest time of each counts")
    arguments = parser.parse_args()
    texts, source = sentences(arguments.sentences)
    tokenizer, threads = ElmoTokenizer(), torch.get_num_threads()
    torch.manual_seed(0)
    print(f"{len(texts)} sentences ({source}), {threads} threads, float32; best of {arguments.rounds}")
    with_peer = "ELMO_PEERS" in os.environ
    print(f"{'':<44}{'words/s':>10}{'limit':>10}{'ratio':>8}" + f"{'AllenNLP':>10}{'ratio':>8}" * with_peer)
    for name in arguments.sizes.split(","):
        config = getattr(ElmoConfig, name)(vocab_size=4)
        model = ElmoModel(config).eval()
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            with contextlib.redirect_stdout(None):
                export_bilm(model, tokenizer, folder / "bilm")
            for size in map(int, arguments.batch_sizes.split(",")):
                used = [tokenizer.tokenize(text) for text in (texts if size > 1 else texts[:32])]
                for order, ordered in (("as in the text", used), ("sorted by length", sorted(used, key=len))):
                    parts = [ordered[start : start + size] for start in range(0, len(ordered), size)]
                    batches = [
                        tokenizer(part, is_split_into_words=True, padding=True, return_tensors="pt") for part in parts
                    ]
                    words = sum(map(len, used))
                    ours = words / measure(model, batches, arguments.rounds)
                    limit = words / min(products(config, batches) for _ in range(arguments.rounds))
                    row = f"{name}, batches of {size}, {order}"
                    print(f"{row:<44}{ours:>10,.0f}{limit:>10,.0f}{ours / limit:>8.2f}", end="", flush=True)
                    if with_peer:
                        (folder / "sentences.json").write_text(json.dumps(parts))
                        found = run_peer(row, "ELMO_PEERS", "allennlp_vectors", folder, arguments.rounds, threads)
                        peer = words / found["seconds"]
                        print(f"{peer:>10,.0f}{ours / peer:>8.2f}", end="", flush=True)
                    print()


if __name__ == "__main__":
    main()
