"""Measure what packed, bf16 and int8 products change: vectors, tagging accuracy, and a sentence's own batch.

    python benchmarks/accuracy.py [CHECKPOINT] [--tags FOLDER]

- vectors: the cosine of each word's vector with that of plain fp32 products, by layer, without boundaries; for fp32
  itself, the largest difference
- tagging: a linear classifier is trained on the fp32 vectors of the words in FOLDER/train.tsv.gz, and tags those in
  FOLDER/dev.tsv.gz by the vectors of each precision. The columns of the files are words and tags, a blank line ends a
  sentence.
- batches: the largest difference between the vectors of a sentence alone and in batches of 8, 33 and 64 in any order,
  with one thread and with two, relative to the largest number
"""

import argparse
import gzip
import random
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from compare import Sentences, cosines, inputs_of, layers_of, load_models, split
from text import SHARED, sentences
from transformers.utils import logging

from transformers_elmo import ElmoModel, ElmoTokenizer
from transformers_elmo.checkpoints import resolve
from transformers_elmo.embed.job import embed

NUM_SENTENCES, NUM_IN_BATCHES = 1000, 64
EPOCHS, BATCH_SIZE, LEARNING_RATE = 10, 256, 2e-3


def print_vectors(models: dict[str, ElmoModel], tokenizer: ElmoTokenizer):
    words = [tokenizer.tokenize(text) for text in sentences(NUM_SENTENCES)[0]]
    with torch.backends.mkldnn.flags(enabled=False):
        exact = layers_of(models["fp32"], tokenizer, words)
    for precision, model in models.items():
        found = layers_of(model, tokenizer, words)
        layers = [f"layer {n} {mean:.6f} / {lowest:.6f}" for n, (mean, lowest) in enumerate(cosines(found, exact))]
        difference = max(np.abs(a - b).max() for a, b in zip(found, exact))
        print(f"{precision}: mean / lowest cosine {', '.join(layers)}; largest difference {difference:.1e}", flush=True)


def read_tags(path: Path) -> tuple[Sentences, list[str]]:
    """Return the words of each sentence, and the tags of all words."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [line.split() for line in file]
    found = [[*group] for is_sentence, group in groupby(rows, bool) if is_sentence]
    return [[row[0] for row in sentence] for sentence in found], [row[1] for sentence in found for row in sentence]


def vectors_of(model: ElmoModel, tokenizer: ElmoTokenizer, words: Sentences) -> torch.Tensor:
    """Return the ELMo vectors of all words (N, 2P)."""
    return torch.from_numpy(np.concatenate([vectors for _, vectors in embed(model, tokenizer, words)]))


def train_classifier(x: torch.Tensor, labels: torch.Tensor) -> torch.nn.Module:
    """Train a linear classifier: vectors (N, 2P), labels (N,)"""
    torch.manual_seed(0)
    classifier = torch.nn.Sequential(
        torch.nn.BatchNorm1d(x.shape[1]), torch.nn.Linear(x.shape[1], int(labels.max()) + 1)
    )
    optimizer = torch.optim.Adam(classifier.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, EPOCHS)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(BATCH_SIZE):
            torch.nn.functional.cross_entropy(classifier(x[rows]), labels[rows]).backward()
            optimizer.step()
            optimizer.zero_grad()
        schedule.step()
    return classifier.eval()


def print_tagging(models: dict[str, ElmoModel], tokenizer: ElmoTokenizer, folder: Path):
    if not folder.is_dir():
        print(f"tagging is skipped: there is no folder {folder}")
        return
    (train, train_tags), (dev, dev_tags) = [read_tags(folder / f"{name}.tsv.gz") for name in ("train", "dev")]
    kinds = sorted({*train_tags, *dev_tags})
    train_labels, dev_labels = [torch.tensor([*map(kinds.index, tags)]) for tags in (train_tags, dev_tags)]
    classifier = train_classifier(vectors_of(models["fp32"], tokenizer, train), train_labels)
    for precision, model in models.items():
        with torch.no_grad():
            found = classifier(vectors_of(model, tokenizer, dev)).argmax(1)
        print(f"{precision}: tagging accuracy {100 * (found == dev_labels).float().mean():.2f} %", flush=True)


@torch.no_grad()
def layers_in_batches(model: ElmoModel, tokenizer: ElmoTokenizer, words: Sentences, size: int) -> list[torch.Tensor]:
    """Return the layers (L + 1, T, 2P) of each sentence, boundaries included, computed in batches of a size."""
    found = []
    for batch in split(words, size):
        inputs = inputs_of(tokenizer, batch)
        layers = torch.stack(model(**inputs, output_hidden_states=True).hidden_states, 1)  # (B, L + 1, T, 2P)
        found += [each[:, mask != 0] for each, mask in zip(layers, inputs["attention_mask"])]
    return found


def print_batches(models: dict[str, ElmoModel], tokenizer: ElmoTokenizer):
    words = [tokenizer.tokenize(text) for text in sentences(NUM_IN_BATCHES)[0]]
    threads = torch.get_num_threads()
    for precision, model in models.items():
        alone = layers_in_batches(model, tokenizer, words, 1)
        largest = 0.0
        for number in (1, 2):
            torch.set_num_threads(number)
            for size in (1, 8, 33, 64):
                order = random.Random(size).sample(range(len(words)), len(words))
                found = layers_in_batches(model, tokenizer, [words[index] for index in order], size)
                for index, layers in zip(order, found):
                    scale = alone[index].abs().max()
                    largest = max(largest, float((layers - alone[index]).abs().max() / scale))
        torch.set_num_threads(threads)
        print(f"{precision}: largest difference of a sentence alone and in batches {largest:.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", nargs="?", default="default", help="a folder; default: %(default)s")
    parser.add_argument("--tags", type=Path, default=SHARED / "data" / "pos-ewt", help="default: %(default)s")
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    checkpoint = Path(resolve(arguments.checkpoint))
    models, tokenizer = load_models(checkpoint), ElmoTokenizer.from_pretrained(checkpoint)
    print_vectors(models, tokenizer)
    print_batches(models, tokenizer)
    print_tagging(models, tokenizer, arguments.tags)


if __name__ == "__main__":
    main()
