"""Sentences in, ELMo vectors out: the job behind `elmo embed`."""

import json
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch

from ..files import new_file
from . import LAYERS


def embed(
    model, tokenizer, sentences: Iterable[str | list[str]], layer: str = "mix", batch_size: int = 32
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Yield the words of each sentence and their vectors, without the sentence's boundaries.

    A sentence is raw text or a list of words. The vectors are (words, 2P), or (layers, words, 2P) with `layer="all"`:
    `"mix"` is the checkpoint's own mix, `"words"` the layer without context, `"top"` the last LSTM layer.
    """
    if layer not in LAYERS:
        raise ValueError(f"layer must be one of {', '.join(LAYERS)}; got {layer!r}.")
    model.eval()
    for batch in batches(sentences, batch_size):
        words = [tokenizer.tokenize(sentence) if isinstance(sentence, str) else sentence for sentence in batch]
        inputs = tokenizer(
            words, is_split_into_words=True, padding=True, return_special_tokens_mask=True, return_tensors="pt"
        )
        is_word = inputs.pop("special_tokens_mask").numpy() == 0  # (B, T): no boundary, no padding
        inputs = inputs.to(model.device)
        with torch.inference_mode():
            outputs = model(**inputs, output_hidden_states=layer != "mix")
        if layer == "mix":
            vectors = outputs.last_hidden_state
        elif layer == "all":
            vectors = torch.stack(outputs.hidden_states, 1)
        else:
            vectors = outputs.hidden_states[0 if layer == "words" else -1]
        for sentence, rows, kept in zip(words, vectors.float().cpu().numpy(), is_word):
            yield sentence, rows[..., kept, :]


def batches(items: Iterable, size: int) -> Iterator[list]:
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def write_npz(path: str | Path, embedded: Iterable[tuple[list[str], np.ndarray]]) -> tuple[int, int]:
    """Write an array for each sentence, named by its line number from 0 on, and `words`, their words as JSON.

    The file appears under its name when it is whole. Returns the number of sentences and of words.
    """
    path = Path(path)
    words = []
    with new_file(path) as unfinished, zipfile.ZipFile(unfinished, "w") as archive:

        def add(name: str, array: np.ndarray):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array)

        for index, (sentence, vectors) in enumerate(embedded):
            add(str(index), vectors)
            words.append(sentence)
        add("words", np.array(json.dumps(words)))
    return len(words), sum(map(len, words))
