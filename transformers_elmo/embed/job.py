# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Embed sentences: ELMo vectors for every word of a text."""

import itertools
import json
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch

from ..batching import BATCH_WORDS, map_in_batches
from ..files import new_file
from ..language_model import evaluation_mode, input_device
from ..modeling_elmo import ElmoModel
from ..text import check_column, display_name, has_columns, read_column, read_lines
from ..tokenization_elmo import ElmoTokenizer
from . import LAYERS

Sentence = str | list[str]  # raw text or a list of words


def embed(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    sentences: Iterable[Sentence],
    layer: str = "mix",
    batch_words: int = BATCH_WORDS,
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Yield the words of each sentence and their vectors, without the sentence boundaries.

    A sentence is raw text or a list of words. The vectors have shape (words, 2P), or (layers, words, 2P) with
    `layer="all"`. `"mix"` is the checkpoint's own mix of layers, `"words"` the context-free word vectors below the
    LSTMs, `"top"` the last LSTM layer. A batch has at most `batch_words` words, twice as many with its padding, or one
    sentence. The model may be in training mode: dropout is off meanwhile, and the mode is restored.
    """
    if isinstance(sentences, str):
        raise ValueError(f"sentences must be a list of sentences, got the string {sentences[:60]!r}; put it in a list.")
    if not isinstance(sentences, Iterable):
        raise ValueError(f"sentences must be a list of sentences, got {sentences!r:.60}.")
    if not isinstance(model, ElmoModel):
        raise ValueError(f"model must be an ElmoModel, got {type(model).__name__}; pass the base_model of another one.")
    if not isinstance(tokenizer, ElmoTokenizer):
        raise ValueError(f"tokenizer must be an ElmoTokenizer, got {type(tokenizer).__name__}.")
    if not isinstance(batch_words, int) or batch_words < 1:
        raise ValueError(f"batch_words must be a whole number, at least 1; got {batch_words!r:.60}.")
    if layer not in LAYERS:
        raise ValueError(f"layer must be one of {', '.join(LAYERS)}; got {layer!r}.")
    words = (split_words(tokenizer, sentence) for sentence in sentences)
    return map_in_batches(lambda batch: embed_batch(model, tokenizer, batch, layer), words, batch_words)


def split_words(tokenizer: ElmoTokenizer, sentence: Sentence) -> list[str]:
    if not isinstance(sentence, (str, list, tuple)):
        raise ValueError(f"a sentence must be a string or a list of words, got {sentence!r:.60}.")
    return tokenizer.tokenize(sentence) if isinstance(sentence, str) else list(sentence)


def embed_batch(
    model: ElmoModel, tokenizer: ElmoTokenizer, words: list[list[str]], layer: str
) -> Iterator[tuple[list[str], np.ndarray]]:
    inputs = tokenizer(
        words, is_split_into_words=True, padding=True, return_special_tokens_mask=True, return_tensors="pt"
    )
    is_word = inputs.pop("special_tokens_mask").numpy() == 0  # (B, T): neither boundary nor padding
    with evaluation_mode(model), torch.inference_mode():
        outputs = model(**inputs.to(input_device(model)), output_hidden_states=layer != "mix")
    if layer == "mix":
        vectors = [outputs.last_hidden_state]  # (B, T, 2P)
    elif layer == "all":
        vectors = outputs.hidden_states  # L + 1 of (B, T, 2P)
    else:
        vectors = [outputs.hidden_states[0 if layer == "words" else -1]]
    for sentence, mask, *layers in zip(words, is_word, *[each.float().cpu().numpy() for each in vectors]):
        rows = np.stack([each[mask] for each in layers]) if layer == "all" else layers[0][mask]
        if not np.isfinite(rows).all():
            raise ValueError(
                f"The vectors must be finite numbers; the model computes infinite ones or NaN, in {model.dtype}, for "
                f"the sentence {' '.join(sentence)[:60]!r}: use float32, and check the weights."
            )
        yield sentence, rows


def read_sentences(
    path: str, pretokenized: bool = False, column: str = "text", encoding_errors: str = "strict"
) -> Iterator[Sentence]:
    """Stream the sentences of a file: one per line, or per row of a .jsonl or .parquet file; `-` is standard input.

    Raise if all of them are blank.
    """
    lines: Iterator[str]
    check_column(column, [path])
    if has_columns(path):
        lines = (" ".join(text.split()) for text, _ in read_column(Path(path), column, encoding_errors))
    else:
        lines = (line.strip() for line in read_lines(path, encoding_errors))
    num_blank = 0
    for line in lines:
        if line:
            break
        num_blank += 1
    else:
        raise ValueError(
            f"The input must contain text, one sentence per line or row; {display_name(path)} contains none."
        )
    lines = itertools.chain(itertools.repeat("", num_blank), [line], lines)
    return (line.split() for line in lines) if pretokenized else lines


def write_npz(path: str | Path, embedded: Iterable[tuple[list[str], np.ndarray]]) -> tuple[int, int]:
    """Write one array per sentence, named by its index, and `words`, the words of all sentences as JSON.

    The file appears only when it is complete. Return the numbers of sentences and words.
    """
    num_sentences = num_words = 0
    with (
        new_file(path) as unfinished,
        zipfile.ZipFile(unfinished, "w") as archive,
        tempfile.TemporaryFile(dir=unfinished.parent) as words_json,
    ):
        for sentence, vectors in embedded:
            with archive.open(f"{num_sentences}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, vectors)
            words_json.write(b", " if num_sentences else b"[")
            words_json.write(json.dumps(sentence).encode("ascii"))
            num_sentences += 1
            num_words += len(sentence)
        words_json.write(b"]" if num_sentences else b"[]")
        with archive.open("words.npy", "w", force_zip64=True) as member:
            # A scalar string array, without holding the text in memory: numpy stores strings as UTF-32.
            header = {"descr": f"<U{words_json.tell()}", "fortran_order": False, "shape": ()}
            np.lib.format.write_array_header_1_0(member, header)
            words_json.seek(0)
            while block := words_json.read(1 << 20):
                member.write(block.decode("ascii").encode("utf-32-le"))
    return num_sentences, num_words
