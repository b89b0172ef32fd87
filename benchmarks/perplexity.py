"""Measure the held-out perplexity of a checkpoint, compared with a modified Kneser-Ney 5-gram of the same vocabulary.

    python benchmarks/perplexity.py [CHECKPOINT] --train FILES --held-out FILES

Both predict the same words and sentence ends, in both directions; out-of-vocabulary words are `<UNK>`. The 5-gram sees
only its own sentence, so compare it with "each sentence alone", from a zero state. "States carried" passes the LSTM
states from sentence to sentence in text order, as bilm-tf's evaluation does.
"""

import argparse
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from transformers.utils import logging

from kneser_ney import KneserNey
from transformers_elmo import ElmoLanguageModel, ElmoTokenizer
from transformers_elmo.pretrain.corpus import Corpus, Splitting, corpus_from_files
from transformers_elmo.pretrain.recipe import CACHE
from transformers_elmo.pretrain.trainer import held_out_losses
from transformers_elmo.pretrain.windows import Windows
from transformers_elmo.text import find_files

ORDER = 5


def output_rows(corpus: Corpus, tokenizer: ElmoTokenizer, backward: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return the output-layer row (N,) of each word, in reading order of the direction, and the sentence offsets."""
    vocabulary = tokenizer.get_vocab()
    rows = np.array([vocabulary.get(word, tokenizer.unk_token_id) - 1 for word in corpus.words])[corpus.tokens]
    offsets = np.asarray(corpus.offsets)
    if backward:
        starts, lengths = offsets[:-1], np.diff(offsets)
        positions = np.arange(len(rows)) - np.repeat(starts, lengths)  # of each word in its sentence
        rows = rows[np.repeat(offsets[1:], lengths) - 1 - positions]
    return rows, offsets


def ngram_loss(train: Corpus, held_out: Corpus, tokenizer: ElmoTokenizer, backward: bool) -> float:
    """Build an n-gram model and return its mean -log p of the held-out words and sentence ends."""
    ends = [tokenizer.bos_token_id - 1, tokenizer.eos_token_id - 1]
    bos, eos = reversed(ends) if backward else ends
    model = KneserNey(*output_rows(train, tokenizer, backward), len(tokenizer) - 1, ORDER, bos=bos, eos=eos)
    return -float(model.log_probabilities(*output_rows(held_out, tokenizer, backward)).mean())


def show(name: str, forward: float, backward: float):
    print(f"{name:<44} {math.exp((forward + backward) / 2):9.2f} {math.exp(forward):9.2f} {math.exp(backward):9.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", nargs="?", default="default", help="folder or name on the Hub (default: default)")
    parser.add_argument("--train", nargs="+", help="text for the 5-gram; without it, no 5-gram is built")
    parser.add_argument("--held-out", nargs="+", required=True, help="text to evaluate on")
    parser.add_argument("--cache", type=Path, default=CACHE, help="as in elmo pretrain (default: %(default)s)")
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    language_model = ElmoLanguageModel.from_pretrained(arguments.checkpoint)
    tokenizer = language_model.tokenizer
    options = {"cache": arguments.cache, "tokenizer": tokenizer, "splitting": Splitting()}
    held_out = corpus_from_files(find_files(arguments.held_out), **options)
    words, offsets = output_rows(held_out, tokenizer)
    unknown = (words == tokenizer.unk_token_id - 1).mean()
    print(f"{len(words):,} words in {len(offsets) - 1:,} sentences, {unknown:.2%} out of vocabulary")
    print(f"{'perplexity':<44} {'both':>9} {'forward':>9} {'backward':>9}")

    sentences = [[held_out.words[n] for n in held_out.tokens[start:end]] for start, end in pairwise(offsets)]
    alone = language_model.perplexity(sentences)
    show("ELMo, each sentence alone", math.log(alone.forward), math.log(alone.backward))
    with torch.no_grad():
        losses = held_out_losses(language_model.model, Windows(held_out, tokenizer, rows=64, window=20, epochs=1))
    show("ELMo, states carried", *(losses[:, 0] / losses[:, 1]).tolist())
    if arguments.train:
        train = corpus_from_files(find_files(arguments.train), **options)
        show(f"modified Kneser-Ney {ORDER}-gram", *(ngram_loss(train, held_out, tokenizer, b) for b in (False, True)))


if __name__ == "__main__":
    main()
