"""Measure how fast the model embeds words, compared with the limit of the machine and with AllenNLP.

    python benchmarks/model.py [--sizes small,original] [--sentences 256]
    ELMO_PEERS=…/python python benchmarks/model.py      # with AllenNLP, on the same words and weights

Only the model is timed; the text is tokenized beforehand. The limit is the speed of the LSTMs' matrix products alone:
the same sizes on the same machine, one after the other, as plain `torch.mm` with weights in (in, out) order. Running
both directions in parallel can exceed it. Weights are random; speed does not depend on them. Linux only.
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
from transformers_elmo.lstm_elmo import Packing


def time_products(config: ElmoConfig, batches: list[dict]) -> float:
    """Return the seconds that the LSTMs' matrix products take for these batches."""
    size, cells = config.output_dim, config.lstm_dim
    weight, projection = torch.randn(size, 4 * cells), torch.randn(cells, size)
    seconds = 0.0
    for batch in batches:
        batch_sizes = Packing.from_mask(batch["attention_mask"] != 0).batch_sizes
        x, h = torch.randn(sum(batch_sizes), size), torch.randn(max(batch_sizes), size)
        out = torch.randn(max(batch_sizes), cells)
        start = time.perf_counter()
        for _ in range(2 * config.num_hidden_layers):
            x @ weight
            for rows in batch_sizes:
                h[:rows] @ weight
                out[:rows] @ projection
        seconds += time.perf_counter() - start
    return seconds


def time_model(model: ElmoModel, batches: list[dict], rounds: int) -> float:
    """Return the seconds that the model takes for these batches, the fastest round of each."""
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
    parser.add_argument("--rounds", type=int, default=3, help="passes over all batches; the fastest of each counts")
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
                sample = [tokenizer.tokenize(text) for text in (texts if size > 1 else texts[:32])]
                for order, ordered in (("as in the text", sample), ("sorted by length", sorted(sample, key=len))):
                    parts = [ordered[start : start + size] for start in range(0, len(ordered), size)]
                    batches = [
                        tokenizer(part, is_split_into_words=True, padding=True, return_tensors="pt") for part in parts
                    ]
                    words = sum(map(len, sample))
                    ours = words / time_model(model, batches, arguments.rounds)
                    limit = words / min(time_products(config, batches) for _ in range(arguments.rounds))
                    row = f"{name}, batches of {size}, {order}"
                    print(f"{row:<44}{ours:>10,.0f}{limit:>10,.0f}{ours / limit:>8.2f}", end="", flush=True)
                    if with_peer:
                        (folder / "sentences.json").write_text(json.dumps(parts))
                        result = run_peer(row, "ELMO_PEERS", "allennlp_vectors", folder, arguments.rounds, threads)
                        peer = words / result["seconds"]
                        print(f"{peer:>10,.0f}{ours / peer:>8.2f}", end="", flush=True)
                    print()


if __name__ == "__main__":
    main()
