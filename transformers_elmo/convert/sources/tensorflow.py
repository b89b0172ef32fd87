# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""TensorFlow checkpoints of bilm-tf's training, and Google's TensorFlow Hub module."""

import re
from functools import partial
from pathlib import Path

from ...files import read_json
from .. import weight_names
from ..tensor_bundle import TensorBundle
from . import ExtraFiles, Source, StoredArray
from .bilm import bilm_source, find_options, find_vocab, options_from_shapes, some_of

# Variables that are not weights of the model: the optimizer's state and counters.
TRAINING_VARIABLE = re.compile(
    r"(.*/)?(Adagrad(_\d+)?|Adam(_\d+)?|Momentum|global_step|beta[12]_power|train_perplexity)"
)


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the prefixes of the training checkpoints in a folder, the last step last."""
    steps = {}
    for path in folder.glob("*.index"):
        if match := re.fullmatch(r"(.*?ckpt.*?)(?:-(\d+))?\.index", path.name):
            steps[folder / path.name.removesuffix(".index")] = int(match[2] or 0)
    return sorted(steps, key=lambda prefix: steps[prefix])


def open_checkpoint(prefix: Path, extra_files: ExtraFiles) -> Source:
    """Open a checkpoint of bilm-tf's training, which includes the softmax."""
    extra_files.reject("softmax", format="a TensorFlow checkpoint, which includes it")
    arrays = checkpoint_arrays(prefix)
    if not any(name.startswith("lm/") for name in arrays):
        raise ValueError(f"{prefix} must be a bilm-tf checkpoint, with variables lm/…; it has {some_of(arrays)}.")
    options_file = find_options(prefix, extra_files)
    options = read_json(options_file)
    if options.get("share_embedding_softmax") and "lm/embedding" in arrays:
        arrays.setdefault("lm/softmax/W", arrays["lm/embedding"])
    return bilm_source(
        format="a bilm-tf training checkpoint",
        name_table=weight_names.BILM_CHECKPOINT,
        arrays=arrays,
        options=options,
        options_file=options_file,
        vocab_file=find_vocab(prefix.parent, extra_files),
    )


def open_tf_hub(folder: Path, extra_files: ExtraFiles) -> Source:
    """Open a TensorFlow Hub module, which comes without options and vocabulary."""
    extra_files.reject("options", "vocab", "softmax", format="a TensorFlow Hub module")
    if not (folder / "variables" / "variables.index").is_file():
        raise FileNotFoundError(
            f"{folder} must contain variables/variables.index of a TensorFlow Hub module; it does not."
        )
    # The graph stores its LSTM states in variables too.
    arrays = {
        name.removeprefix("module/"): array
        for name, array in checkpoint_arrays(folder / "variables" / "variables").items()
        if not re.fullmatch(r"(module/)?bilm/Variable(_\d+)?", name)
    }
    options = options_from_shapes(
        arrays=arrays,
        names={
            "embedding": "bilm/char_embed",
            "convolution": "bilm/CNN/W_cnn_{i}",
            "highway": "bilm/CNN_high_{i}/W_carry",
            "projection": "bilm/RNN_0/RNN/MultiRNNCell/Cell{i}/rnn/lstm_cell/projection/kernel",
        },
        path=folder,
        filter_size=lambda shape: (shape[1], shape[3]),  # of (1, width, D, number)
        lstm_size=lambda shape: shape,
    )
    return bilm_source(
        format="a TensorFlow Hub module",
        name_table=weight_names.TF_HUB,
        arrays=arrays,
        options=options,
        options_file=folder,
        vocab_file=None,
    )


def checkpoint_arrays(prefix: Path) -> dict[str, StoredArray]:
    """Return the variables of a checkpoint, without the optimizer's."""
    bundle = TensorBundle(prefix)
    return {
        name: StoredArray(prefix, name, bundle.shape(name), partial(bundle.__getitem__, name), bundle.dtype(name))
        for name in bundle
        if not TRAINING_VARIABLE.fullmatch(name)
    }
