# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Export a checkpoint to the files that bilm-tf and AllenNLP read."""

import copy
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..configuration_elmo import ElmoConfig
from ..files import check_new_folder, new_folder
from ..modeling_elmo import ElmoPreTrainedModel
from ..tokenization_elmo import ElmoTokenizer
from .sources.bilm import SPECIAL_WORDS, import_h5py, read_vocabulary
from .weight_names import BILM


def export_bilm(model: ElmoPreTrainedModel, tokenizer: ElmoTokenizer, output: Path):
    """Write options.json, weights.hdf5 and, if the checkpoint has them, vocab.txt and softmax.hdf5 to a new folder.

    Converting them again gives the same weights bit for bit, except for the mix, which the format does not have, and
    for biases that include the forget bias.
    """
    check_expressible(model.config, tokenizer)
    h5py = import_h5py("Writing .hdf5 files")
    if getattr(model, "is_quantized", False):
        print("note         the int8 weights were converted to float32")
        model = copy.deepcopy(model).dequantize()
    weights = {name.removeprefix("elmo."): p.detach() for name, p in model.named_parameters()}
    has_words = tokenizer.vocab_size > len(tokenizer.all_special_tokens)
    check_new_folder(output)
    with new_folder(output) as staging:
        (staging / "options.json").write_text(json.dumps(bilm_options(model.config), indent=2) + "\n", encoding="utf-8")
        if has_words:
            tokenizer.save_vocabulary(str(staging))
            check_vocabulary(staging / "vocab.txt", model, tokenizer)
        written: set[str] = set()
        images: dict[Path, io.BytesIO] = {}
        rounding = 0.0
        for name in weights:
            found = BILM.to_original(name)
            if found is None or found[0] in written:  # the format has no mix and no classifier
                continue
            original, names, conversion = found
            tensors = [weights[n].to(torch.float32) for n in names]
            if name.endswith("_lstm.bias") and model.config.forget_bias != 1:
                tensors, error = fold_forget_bias(tensors[0], model.config.forget_bias)
                rounding = max(rounding, error)
            array = conversion.to_original(*tensors).contiguous().numpy()
            check_finite(name, array)
            path = staging / ("softmax.hdf5" if original.startswith("softmax/") else "weights.hdf5")
            # In memory first, as HDF5 crashes on a full disk.
            with h5py.File(images.setdefault(path, io.BytesIO()), "a") as file:
                file.create_dataset(original, data=array)
            written.add(original)
        for path, image in images.items():
            path.write_bytes(image.getbuffer())
        files = sorted(path.name for path in staging.iterdir())
    if rounding:
        print(f"note         the forget bias was subtracted from the weights, with a rounding error of {rounding:.1e}")
    config = model.config
    has_mix = config.mix != "learned" or any(weights["mix.weights"] != 0) or weights["mix.gamma"] != 1
    if has_mix or config.mix_layer_norm:
        print("note         the format has no layer mix, so it was dropped")
    print(f"saved        {output}: {', '.join(files)}")


def check_vocabulary(path: Path, model: ElmoPreTrainedModel, tokenizer: ElmoTokenizer):
    """Raise if the words that are read from vocab.txt are not those of the tokenizer, or not those of the weights."""
    known, words = {number: word for word, number in tokenizer.get_vocab().items()}, read_vocabulary(path)
    for number, word in enumerate(words, 1):
        if known.get(number) != word:
            raise ValueError(
                "The bilm format supports words on a line each, without spaces around them; the vocabulary has "
                f"{known.get(number)!r:.80} as word {number}."
            )
    missing = [word for word in SPECIAL_WORDS if word not in words]
    if missing:
        raise ValueError(f"The bilm format requires the words <S>, </S> and <UNK>; the tokenizer lacks {missing[0]}.")
    rows = model.config.vocab_size - 1
    if (hasattr(model, "lm_head") or model.config.inputs == "words") and len(words) != rows:
        raise ValueError(
            f"The tokenizer must have a word for each of the {rows:,} rows of the weights; it has {len(words):,}: use "
            "the files that were saved together."
        )


def check_finite(name: str, array: np.ndarray):
    count = int((~np.isfinite(array)).sum())
    if count:
        raise ValueError(
            f"{name} must contain finite numbers; {count} of {array.size} are NaN or infinite: the training diverged "
            "or the checkpoint is damaged, so export an earlier one."
        )


def check_expressible(config: ElmoConfig, tokenizer: ElmoTokenizer):
    """Raise if the format cannot represent the model."""
    own_char_vocab = "characters" in config.inputs and (
        tokenizer.char_vocab is not None or config.char_vocab_size != 262
    )
    if config.inputs == "words+characters" or own_char_vocab:
        raise ValueError(
            "The bilm format supports bytes or words as inputs; this model has "
            + ("both words and characters." if config.inputs == "words+characters" else "a character vocabulary.")
        )
    if config.projection_dim is not None and config.projection_dim >= config.lstm_dim:
        raise ValueError(
            f"The bilm format supports projections to fewer than the {config.lstm_dim} cells; that of this model is to "
            f"{config.projection_dim}."
        )
    if "characters" in config.inputs and tokenizer.swap_word_marks:
        raise ValueError("The bilm format has no swapped word marks; the tokenizer of this model has swap_word_marks.")
    if config.inputs == "words" and config.word_embedding_dim not in (None, config.output_dim):
        raise ValueError(
            f"The bilm format supports word embeddings of the LSTM's output size, {config.output_dim}; "
            f"those of this model have {config.word_embedding_dim} dimensions."
        )


def fold_forget_bias(bias: torch.Tensor, forget_bias: float) -> tuple[list[torch.Tensor], float]:
    """Return the bias (4H,) for a forget bias of 1 that is added at run time, and its rounding error."""
    exact = bias.double()
    exact.chunk(4)[1].add_(forget_bias - 1)  # gates i, f, o, j
    return [exact.float()], float((exact.float() - exact).abs().max())


def bilm_options(config: ElmoConfig) -> dict:
    """Return the options that bilm-tf, AllenNLP and `ElmoConfig.from_bilm_options` read."""
    options: dict[str, Any] = {
        "bidirectional": True,
        "dropout": config.dropout,
        "lstm": {
            "cell_clip": config.cell_clip,
            "dim": config.lstm_dim,
            "n_layers": config.num_hidden_layers,
            "proj_clip": config.projection_clip,
            "projection_dim": config.output_dim,
            "use_skip_connections": config.use_skip_connections,
        },
        "n_tokens_vocab": config.vocab_size - 1,
    }
    if config.num_negative_samples is not None:
        options["n_negative_samples_batch"] = config.num_negative_samples
    if config.inputs == "characters":
        options["char_cnn"] = {
            "activation": config.char_activation,
            "embedding": {"dim": config.char_embedding_dim},
            "filters": config.char_filters,
            "max_characters_per_token": config.max_characters_per_token,
            "n_characters": config.char_vocab_size,
            "n_highway": config.num_highway_layers,
        }
    return options
