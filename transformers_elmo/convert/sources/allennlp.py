# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""The ELMo inside an AllenNLP model: the biLM and the trained mix."""

import math
import re
from pathlib import Path

import numpy as np

from ...files import read_json
from ...tokenization_elmo import ElmoTokenizer
from .. import numpy_elmo, weight_names
from . import ExtraFiles, Source, StoredArray
from .bilm import bilm_config, float64_reader, option_notes, options_from_shapes
from .pickles import pickled_arrays

CHARACTER_EMBEDDING = "_elmo_lstm._token_embedder._char_embedding_weights"  # in every `Elmo` module


def open_allennlp(folder: Path, extra_files: ExtraFiles) -> Source:
    """Open the ELMo in the folder of an unpacked model.tar.gz."""
    extra_files.reject("vocab", "softmax", format="an AllenNLP model")
    path = folder / "weights.th"
    notes: list[str] = []
    arrays = elmo_arrays(pickled_arrays(path), path, notes)
    settings = elmo_settings(read_json(folder / "config.json")) if (folder / "config.json").is_file() else {}
    options, options_file = find_options(folder, extra_files, settings, arrays)
    if not options.get("char_cnn"):
        raise ValueError(f"{options_file} must contain the options of a character model; it has no char_cnn.")
    characters = arrays[CHARACTER_EMBEDDING]
    if len(characters.shape) != 2 or characters.shape[0] != 262:
        raise ValueError(f"{path}: {characters.name} must have 262 rows; its shape is {characters.shape}.")
    mix_layer_norm = settings.get("do_layer_norm", False)
    if not isinstance(mix_layer_norm, bool):
        raise ValueError(
            f"{folder / 'config.json'}: do_layer_norm must be true or false; it is {mix_layer_norm!r:.40}."
        )
    config = bilm_config(
        options,
        options_file,
        forget_bias=0.0,  # the weights include it
        max_characters_per_token=50,  # AllenNLP ignores the options' value
        char_vocab_size=262,
        mix_layer_norm=mix_layer_norm,
    )
    notes += option_notes(options, options_file)
    return Source(
        format="an AllenNLP model",
        config=config,
        tokenizer=ElmoTokenizer(),
        name_table=weight_names.ALLENNLP,
        arrays=arrays,
        compute_layers=numpy_elmo.AllenNlp(options, float64_reader(arrays)),
        text_files=[options_file],
        mix_layer_norm=mix_layer_norm,
        notes=notes,
    )


def elmo_arrays(arrays: dict[str, StoredArray], path: Path, notes: list[str]) -> dict[str, StoredArray]:
    """Return the weights of the `Elmo` module in a model, by their names in the module."""
    prefixes = [name.removesuffix(CHARACTER_EMBEDDING) for name in arrays if name.endswith(CHARACTER_EMBEDDING)]
    if not prefixes:
        raise ValueError(f"{path} must contain an ELMo, with a weight …{CHARACTER_EMBEDDING}; it does not.")
    prefix = prefixes[0]
    if len(prefixes) > 1:
        notes.append(f"The model has {len(prefixes)} ELMos; this is {prefix.rstrip('.')}.")
    others = [name for name in arrays if not name.startswith(prefix)]
    if others:
        parts = ", ".join(dict.fromkeys(name.split(".")[0] for name in others))
        notes.append(f"{len(others)} weights outside of the ELMo were dropped: {parts:.200}.")
    elmo = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    # A cache of the vectors of frequent words, computed from their characters.
    elmo.pop("_elmo_lstm._word_embedding.weight", None)
    mixes = sorted({name.split(".")[0] for name in elmo if name.startswith("scalar_mix_")} - {"scalar_mix_0"})
    if mixes:
        notes.append(f"The model has {len(mixes) + 1} mixes; this is the first, scalar_mix_0.")
    elmo = {name: array for name, array in elmo.items() if name.split(".")[0] not in mixes}
    # AllenNLP stores one array per weight of the mix.
    weights: list[StoredArray] = []
    while (weight := elmo.pop(f"scalar_mix_0.scalar_parameters.{len(weights)}", None)) is not None:
        weights.append(weight)
    if weights:
        elmo["scalar_mix_0.scalar_parameters"] = StoredArray(
            file=path,
            name=prefix + "scalar_mix_0.scalar_parameters",
            shape=(sum(math.prod(weight.shape) for weight in weights),),
            load=lambda: np.concatenate([weight.read() for weight in weights]),
            dtype=max(weights, key=lambda weight: weight.dtype != "float32").dtype,
        )
    return elmo


def elmo_settings(config) -> dict:
    """Return the settings of the ELMo, which may be anywhere in a model's configuration."""
    parts = [config]  # not recursive, as a stranger's file may be nested deeply
    while parts:
        part = parts.pop()
        if isinstance(part, dict) and "options_file" in part:
            return part
        children = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        parts += reversed(list(children))
    return {}


def find_options(
    folder: Path, extra_files: ExtraFiles, settings: dict, arrays: dict[str, StoredArray]
) -> tuple[dict, Path]:
    """Return the options of the biLM: passed by the user, archived, or those of AllenNLP's releases.

    A path in the archive's config.json is not read: it is the archive's author who chose it.
    """
    name, weights = str(settings.get("options_file", "")), folder / "weights.th"
    if (path := extra_files.get("options")) is not None:
        return read_json(path), path
    for candidate in (*folder.glob("fta/**/*options*"), *folder.glob("*options*.json")):
        if candidate.is_file():
            return read_json(candidate), candidate
    if not re.search(r"/elmo_2x\d+_\d+_2048cnn_[12]xhighway(_\w+)?_options\.json$", name):
        problem = f"{name} is not in the archive" if name else "config.json does not name them"
        raise FileNotFoundError(f"{weights} requires the options of its ELMo, but {problem}: pass them with --options.")
    options = options_from_shapes(
        arrays=arrays,
        names={
            "embedding": CHARACTER_EMBEDDING,
            "convolution": "_elmo_lstm._token_embedder.char_conv_{i}.weight",
            "highway": "_elmo_lstm._token_embedder._highways._layers.{i}.weight",
            "projection": "_elmo_lstm._elmo_lstm.forward_layer_{i}.state_projection.weight",
        },
        path=weights,
        filter_size=lambda shape: shape[::-2],  # of (number, D, width)
        lstm_size=lambda shape: shape[::-1],  # of (P, H)
    )
    return options, weights
