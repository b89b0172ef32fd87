"""Measure how fast the language models train, compared with plain autograd, the originals and matrix products alone.

    python benchmarks/pretraining.py [--size small] [--rows 32] [--threads 2]
    ELMO_PEERS=…/python ELMO_PEERS_TF=…/python python benchmarks/pretraining.py     # with AllenNLP and bilm-tf

A step computes the sampled-softmax losses of a window of text in each direction and their gradients, clips these and
updates the weights with Adagrad, as in the paper's recipe. Each line is measured in its own process on the same
windows: after a warm-up step, the fastest of several passes over each window counts. A token counts once, though both
directions read it. Preparing the windows is not measured.

- ours: the step of `elmo pretrain` without its bookkeeping, and the same with `--bf16`
- plain autograd: the same weights, samples and losses (checked at every step), one LSTM step at a time, and the
  characters of every token encoded even if the word is repeated; also with freed memory kept, as in `elmo pretrain` and
  in our other lines
- bilm-tf: its own training loop in TensorFlow
- matrix products: those that our step needs, as `torch.mm` into allocated memory. Those of the convolutions count once,
  without gradients: max pooling passes the gradient to one position per word and filter.

AllenNLP cannot train language models, so the second table has forward and backward passes through the whole biLM with
all weights trainable, over sentences of 15 to 25 words. The peers are those of tests/test_peers.py and compute in
float32; they are skipped if their variable is not set. Linux only.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from peers import environment, run, run_peer
from text import sentences
from watch import Watch

from transformers_elmo import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer
from transformers_elmo.convert.export import bilm_options, export_bilm
from transformers_elmo.lstm_elmo import plain_lstm
from transformers_elmo.memory import keep_freed_memory
from transformers_elmo.modeling_elmo import distinct_rows
from transformers_elmo.pretrain.corpus import Corpus
from transformers_elmo.pretrain.recipe import RECIPES, SIZES, Recipe
from transformers_elmo.pretrain.trainer import OPTIMIZERS
from transformers_elmo.pretrain.windows import Windows
from transformers_elmo.softmax_elmo import log_uniform, log_uniform_sample

# Relative, for the loss of the first step and of later ones: rounding errors grow, and bf16 soon diverges.
TOLERANCES, BF16_TOLERANCES = (1e-5, 1e-3), (1e-2, np.inf)


def ours(model: ElmoForPreTraining, batch: dict, state):
    """Return the loss and the new state."""
    outputs = model(**batch, state=state)
    return outputs.loss, outputs.state


def plain(model: ElmoForPreTraining, batch: dict, state):
    """Return the same loss and state, step by step in plain autograd. Tensors of words are (T, B, P)."""
    config, encoder = model.config, model.elmo.token_encoder
    _, rows, steps = batch["targets"].shape
    if state is None:
        state = [torch.zeros(config.num_hidden_layers, 2, rows, n) for n in (config.output_dim, config.lstm_dim)]
    layers = [plain_word_vectors(encoder, char_ids.transpose(0, 1)) for char_ids in batch["char_ids"]]
    last = [[], []]
    for layer, *pairs in zip(model.elmo.bilm.layers, *state):
        for d, (lstm, h, c) in enumerate(zip((layer.forward_lstm, layer.backward_lstm), *pairs)):
            x = F.dropout(layers[d], config.dropout)
            inputs = lstm(x.flatten(0, 1), h, c)
            outputs, h, c = plain_lstm(*inputs, [rows] * steps, config.cell_clip, config.projection_clip)
            outputs = outputs.view_as(x)
            layers[d] = outputs + x if layer.residual else outputs
            last[0].append(h.detach())
            last[1].append(c.detach())
    hidden = [F.dropout(x.flatten(0, 1), config.dropout) for x in layers]
    drawn = [log_uniform_sample(config.num_negative_samples, len(model.lm_head.bias), "cpu") for _ in hidden]
    targets = [words.t().flatten() - 1 for words in batch["targets"]]
    losses = [plain_loss(model.lm_head, *direction) for direction in zip(hidden, targets, drawn)]
    return sum(losses) / 2, [torch.stack(part).unflatten(0, (-1, 2)) for part in last]


def plain_word_vectors(encoder, char_ids: torch.Tensor) -> torch.Tensor:
    """Encode words from their characters: (T, B, W) -> (T, B, P)."""
    embedded = encoder.characters.embedding(char_ids.flatten(0, 1)).transpose(1, 2)  # (N, D, W)
    convolved = [F.conv1d(embedded, each.weight, each.bias) for each in encoder.characters.convolutions]
    x = torch.cat([each.max(-1).values for each in convolved], 1)
    x = encoder.characters.activation(x)
    for highway in encoder.characters.highways:
        gate = torch.sigmoid(highway.carry(x))
        x = gate * F.relu(highway.transform(x)) + (1 - gate) * x
    return encoder.projection(x).unflatten(0, char_ids.shape[:2])


def plain_loss(lm_head, hidden: torch.Tensor, targets: torch.Tensor, drawn: tuple[torch.Tensor, int]) -> torch.Tensor:
    """Return the sampled-softmax loss of one direction."""
    samples, draws = drawn

    def corrected_bias(words):
        expected = -torch.expm1(draws * torch.log1p(-log_uniform(words, len(lm_head.bias))))
        return lm_head.bias[words] - torch.log(expected).float()

    true = (hidden * lm_head.weight[targets]).sum(1) + corrected_bias(targets)
    scores = hidden @ lm_head.weight[samples].t() + corrected_bias(samples)
    scores = scores.masked_fill(targets[:, None] == samples, -torch.inf)
    return F.cross_entropy(torch.cat([true[:, None], scores], 1), torch.zeros_like(targets))


def train(loss_function, config: ElmoConfig, recipe: Recipe, folder: Path, rounds: int, bf16: bool):
    torch.manual_seed(0)
    model = ElmoForPreTraining(config).train()
    optimizer = OPTIMIZERS[recipe.optimizer](model, recipe.learning_rate)
    watch, state, losses = Watch(read_windows(folder), rounds), None, []
    for batch in watch:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss, state = loss_function(model, batch, state)
        (loss * recipe.loss_scale).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    watch.report(losses)


def read_windows(folder: Path) -> list[dict[str, torch.Tensor]]:
    with np.load(folder / "windows.npz") as file:
        arrays = {name: torch.from_numpy(file[name]) for name in file}
    return [dict(zip(arrays, tensors)) for tensors in zip(*arrays.values())]


def product_shapes(model: ElmoForPreTraining, batch: dict, recipe: Recipe) -> Iterator[tuple[int, int, int]]:
    """Yield (n, a, b) for each matrix product (n, a) x (a, b) of a step."""
    config, characters = model.config, model.elmo.token_encoder.characters
    size, cells, filters = config.output_dim, config.lstm_dim, config.num_filters
    char_ids = batch["char_ids"].flatten(0, 2)
    first, _ = distinct_rows(char_ids)
    _, groups = characters.group_by_length(char_ids[first])
    for width, number in config.char_filters:
        yield sum(len(words) * (used - width + 1) for words, used in groups), config.char_embedding_dim * width, number

    def with_gradients(n, a, b, parts=1):
        """Yield the product and its two gradients; with `parts`, the first two are split along n."""
        yield from [(n // parts, a, b), (n // parts, b, a)] * parts
        yield a, n, b

    for _ in range(2 * config.num_highway_layers):
        yield from with_gradients(len(first), filters, filters)
    yield from with_gradients(len(first), filters, size)
    tokens = recipe.rows * recipe.window
    for _ in range(2 * config.num_hidden_layers):
        yield from with_gradients(tokens, size, 4 * cells)
        yield from with_gradients(tokens, size, 4 * cells, recipe.window)
        yield from with_gradients(tokens, cells, size, recipe.window)
    for _ in range(2):
        yield from with_gradients(tokens, size, recipe.negative_samples)


def run_products(config: ElmoConfig, recipe: Recipe, folder: Path, rounds: int):
    model, matrices = ElmoForPreTraining(config), {}

    def matrix(role, *shape):
        if (role, shape) not in matrices:
            matrices[role, shape] = torch.randn(shape)
        return matrices[role, shape]

    steps = [
        [
            (matrix("left", n, a), matrix("right", a, b), matrix("out", n, b))
            for n, a, b in product_shapes(model, batch, recipe)
        ]
        for batch in read_windows(folder)
    ]
    watch = Watch(steps, rounds)
    for step in watch:
        for left, right, out in step:
            torch.mm(left, right, out=out)
    watch.report()


def train_on_sentences(config: ElmoConfig, folder: Path, rounds: int, bf16: bool):
    model, tokenizer = bilm(config).train(), ElmoTokenizer()
    batches = [
        tokenizer(batch, is_split_into_words=True, padding=True, return_tensors="pt")
        for batch in json.loads((folder / "sentences.json").read_text())
    ]
    watch, losses = Watch(batches, rounds), []
    for batch in watch:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            layers = model(**batch, output_hidden_states=True).hidden_states
        loss = sum(layer.float().square().mean() for layer in layers)
        loss.backward()
        model.zero_grad()
        losses.append(loss.item())
    watch.report(losses)


def bilm(config: ElmoConfig) -> ElmoModel:
    torch.manual_seed(0)
    return ElmoModel(ElmoConfig(**{**config.to_dict(), "dropout": 0.0}))  # AllenNLP has no dropout


def write_inputs(config: ElmoConfig, recipe: Recipe, windows: int, folder: Path) -> tuple[str, int]:
    """Write the inputs of all measurements: windows, sentences, and options and weights for the peers.

    Returns the source of the text and the number of words in the sentences.
    """
    texts, source = sentences(4_000)
    corpus = Corpus.build(texts, folder / "corpus", ElmoTokenizer())
    tokenizer = ElmoTokenizer(vocab=corpus.vocabulary(max_size=config.vocab_size - 4))  # without the special tokens
    batches = list(islice(Windows(corpus, tokenizer, rows=recipe.rows, window=recipe.window, seed=0), windows))
    np.savez(folder / "windows.npz", **{name: torch.stack([batch[name] for batch in batches]) for name in batches[0]})

    chosen = [[corpus.words[word] for word in sentence] for sentence in np.split(corpus.tokens, corpus.offsets[1:-1])]
    chosen = [sentence for sentence in chosen if 15 <= len(sentence) <= 25][: windows * recipe.rows]
    starts = range(0, len(chosen), recipe.rows)
    (folder / "sentences.json").write_text(json.dumps([chosen[start : start + recipe.rows] for start in starts]))

    with contextlib.redirect_stdout(None):
        export_bilm(bilm(config), ElmoTokenizer(), folder / "bilm")
    options = bilm_options(config) | {
        "all_clip_norm_val": recipe.max_grad_norm,
        "batch_size": recipe.rows,
        "learning_rate": recipe.learning_rate,
        "n_epochs": 1,
        "n_negative_samples_batch": recipe.negative_samples,
        "unroll_steps": recipe.window,
    }
    options["char_cnn"]["n_characters"] = 261  # bilm-tf's training code uses 261, its inference code 262
    (folder / "training.json").write_text(json.dumps(options))
    return source, sum(map(len, chosen))


class Table:
    """Measures each line in a process of its own and prints it."""

    def __init__(self, folder: Path, arguments: argparse.Namespace):
        self.folder, self.rounds, self.threads = folder, arguments.rounds, arguments.threads

    def head(self, title: str, unit: str, number: int):
        """Start a table of lines that process `number` units each."""
        self.number, self.first = number, None
        print(f"\n{title:<44}{unit:>10}{'of ours':>9}{'memory before':>15}{'peak':>9}{'of the steps':>14}")

    def line(self, title: str, name: str, *options: str):
        command = [sys.executable, __file__, *sys.argv[1:], "--line", name, str(self.folder), *options]
        result = run(command, environment(self.folder, self.threads), title)
        self.show(title, result, BF16_TOLERANCES if "--bf16" in options else TOLERANCES)

    def peer(self, title: str, name: str, variable: str):
        result = run_peer(title, variable, name, self.folder, self.rounds, self.threads)
        if result is not None:
            self.show(title, result, TOLERANCES)

    def show(self, title: str, result: dict, tolerances: tuple[float, float]):
        self.first = self.first or result
        for number, (loss, expected) in enumerate(zip(result["losses"], self.first["losses"])):
            if abs(loss - expected) > tolerances[number > 0] * abs(expected):
                sys.exit(f"{title} computes something else: its loss at step {number} is {loss}, ours is {expected}.")
        speed, ratio = self.number / result["seconds"], self.first["seconds"] / result["seconds"]
        before, peak = result["before"] / 1e6, result["peak"] / 1e6
        memory = f"{before:>12,.0f} MB{peak:>6,.0f} MB{peak - before:>11,.0f} MB"
        print(f"{title:<44}{speed:>10,.0f}{ratio:>9.2f}{memory}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--rows", type=int, default=32, help="rows of a window, and sentences of a batch")
    parser.add_argument("--window", type=int, default=20, help="words per row")
    parser.add_argument("--vocabulary", type=int, default=40_000, help="words of the output layer")
    parser.add_argument("--negatives", type=int, default=8192, help="negative samples")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--windows", type=int, default=4, help="number of windows")
    parser.add_argument("--rounds", type=int, default=3, help="passes over the windows")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--line", nargs=2, help=argparse.SUPPRESS)  # measure this line with inputs from this folder
    for option in ("--bf16", "--keep-memory"):
        parser.add_argument(option, action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.negatives >= arguments.vocabulary:
        parser.error(
            f"--negatives must be smaller than --vocabulary, {arguments.vocabulary}; got {arguments.negatives}"
        )
    recipe = replace(
        RECIPES["paper"],
        rows=arguments.rows,
        window=arguments.window,
        loss_scale=arguments.window,
        negative_samples=arguments.negatives,
        dropout=arguments.dropout,
    )
    config = getattr(ElmoConfig, arguments.size)(
        vocab_size=arguments.vocabulary + 1, dropout=recipe.dropout, num_negative_samples=recipe.negative_samples
    )
    if arguments.line:
        name, folder = arguments.line[0], Path(arguments.line[1])
        if name != "plain" or arguments.keep_memory:
            keep_freed_memory()
        if name == "products":
            run_products(config, recipe, folder, arguments.rounds)
        elif name == "sentences":
            train_on_sentences(config, folder, arguments.rounds, arguments.bf16)
        else:
            train({"ours": ours, "plain": plain}[name], config, recipe, folder, arguments.rounds, arguments.bf16)
        return

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        source, words = write_inputs(config, recipe, arguments.windows, folder)
        table = Table(folder, arguments)
        print(
            f"{arguments.size} ({config.lstm_dim}/{config.output_dim}), {arguments.vocabulary:,} words, "
            f"{recipe.negative_samples:,} negatives, dropout {recipe.dropout}; {source}, {arguments.threads} threads, "
            f"float32 unless noted; best of {arguments.rounds} for each of {arguments.windows} windows"
        )
        title = f"training, windows of {recipe.rows} x {recipe.window}"
        table.head(title, "tokens/s", arguments.windows * recipe.rows * recipe.window)
        table.line("ours", "ours")
        table.line("ours, bf16", "ours", "--bf16")
        table.line("plain autograd", "plain")
        table.line("plain autograd, freed memory kept", "plain", "--keep-memory")
        table.peer("bilm-tf", "bilm_tf", "ELMO_PEERS_TF")
        table.line("matrix products", "products")
        table.head(f"forward and backward, {recipe.rows} sentences", "words/s", words)
        table.line("ours", "sentences")
        table.line("ours, bf16", "sentences", "--bf16")
        table.peer("AllenNLP", "allennlp", "ELMO_PEERS")


if __name__ == "__main__":
    main()
