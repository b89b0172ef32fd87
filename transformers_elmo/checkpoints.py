# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Load the checkpoint that a user names, or say in one sentence why it cannot be loaded."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch
from transformers.utils import cached_file

from .configuration_elmo import ElmoConfig
from .files import RUST_ERROR, reason
from .modeling_elmo import ElmoForPreTraining, ElmoForTokenClassification, ElmoModel, ElmoPreTrainedModel
from .tokenization_elmo import ElmoTokenizer

AnyElmo = TypeVar("AnyElmo", bound=ElmoPreTrainedModel)

# The checkpoint that ships with the package, a small English ELMo; users may call it "default".
DEFAULT_CHECKPOINT = str(Path(__file__).parent / "default_checkpoint")


def load(
    checkpoint: str, with_lm_head: bool = False, with_classifier: bool = False
) -> tuple[ElmoPreTrainedModel, ElmoTokenizer]:
    """Load a model and its tokenizer. `with_lm_head` and `with_classifier` keep the head of a checkpoint with one."""
    config = load_config(checkpoint)
    model = load_model(
        checkpoint,
        config,
        with_lm_head=with_lm_head and has_lm_head(config),
        with_classifier=with_classifier and config.architectures == ["ElmoForTokenClassification"],
    )
    tokenizer = load_tokenizer(checkpoint)
    check_tokenizer(checkpoint, config, tokenizer)
    return model, tokenizer


def load_config(checkpoint: str) -> ElmoConfig:
    checkpoint = resolve(checkpoint)
    if os.path.isdir(checkpoint):
        if not os.path.isfile(os.path.join(checkpoint, "config.json")):
            raise FileNotFoundError(f"{checkpoint} must be the folder of a checkpoint; it has no config.json.")
    else:
        try:
            cached_file(checkpoint, "config.json")
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{checkpoint} is neither a folder with a checkpoint nor a model that can be reached on the Hub; "
                "check the path or the name, and the network connection."
            ) from error
    with user_errors(checkpoint):
        # Not AutoConfig, which would offer to run the code of another model.
        fields, _ = ElmoConfig.get_config_dict(checkpoint)
        if fields.get("model_type") != "elmo":
            raise ValueError(
                f"{checkpoint} must be an ELMo checkpoint; its model type is {fields.get('model_type')!r}."
            )
        try:
            config = ElmoConfig.from_pretrained(checkpoint)
        except ValueError as error:
            raise ValueError(f"The config.json of {checkpoint} must describe an ELMo model: {error}") from error
    config.return_dict = True  # a checkpoint can ask for tuples
    return config


def load_model(
    checkpoint: str,
    config: ElmoConfig,
    with_lm_head: bool = False,
    with_classifier: bool = False,
    dtype: torch.dtype | None = None,
) -> ElmoPreTrainedModel:
    """Load the biLM, with a head if asked; a checkpoint without a language-model head gets a new, random one."""
    model_class: type[ElmoPreTrainedModel] = ElmoModel
    if with_lm_head or with_classifier:
        model_class = ElmoForPreTraining if with_lm_head else ElmoForTokenClassification
    return load_as(model_class, checkpoint, config, **({} if dtype is None else {"dtype": dtype}))


def load_as(model_class: type[AnyElmo], checkpoint: str, config: ElmoConfig, **options) -> AnyElmo:
    """Load a model of a class, with options of `from_pretrained`, and check that it has all weights."""
    checkpoint = resolve(checkpoint)
    with user_errors(checkpoint):
        model, report = model_class.from_pretrained(checkpoint, config=config, output_loading_info=True, **options)
    missing = [name for name in report["missing_keys"] if has_lm_head(config) or not name.startswith("lm_head.")]
    if missing:
        raise ValueError(f"{checkpoint} must contain all weights of its ELMo model; {min(missing)} is missing.")
    for name, weight in (*model.named_parameters(), *model.named_buffers()):  # buffers: the scales of int8 weights
        if not weight.isfinite().all():
            raise ValueError(f"The weights of {checkpoint} must be finite numbers; {name} contains NaN or infinity.")
    return model


def load_tokenizer(checkpoint: str) -> ElmoTokenizer:
    checkpoint = resolve(checkpoint)
    with user_errors(checkpoint):
        return ElmoTokenizer.from_pretrained(checkpoint)


def check_tokenizer(checkpoint: str, config: ElmoConfig, tokenizer: ElmoTokenizer):
    """Raise a ValueError if a checkpoint's tokenizer belongs to another model."""
    sizes = []
    if "characters" in config.inputs:
        symbols = 261 if tokenizer.char_vocab is None else len(tokenizer.char_vocab)  # bytes and marks
        sizes.append(("max_characters_per_token", tokenizer.max_characters_per_token))
        sizes.append(("char_vocab_size", symbols + 1))
    if "words" in config.inputs:
        sizes.append(("vocab_size", len(tokenizer)))
    for name, size in sizes:
        if size != getattr(config, name):
            raise ValueError(
                f"The tokenizer of {checkpoint} must match its config.json, where {name} is {getattr(config, name):,}; "
                f"the tokenizer's is {size:,}: use the files that were saved together."
            )


def has_lm_head(config: ElmoConfig) -> bool:
    return config.architectures == ["ElmoForPreTraining"]


def is_quantized(config: ElmoConfig) -> bool:
    return getattr(config, "quantization_config", None) is not None


def resolve(checkpoint: str) -> str:
    """Return the path of the package's own checkpoint for "default", and any other folder or Hub name unchanged."""
    return DEFAULT_CHECKPOINT if checkpoint == "default" else checkpoint


@contextmanager
def user_errors(checkpoint: str) -> Iterator[None]:
    """Turn what a damaged file makes transformers raise, a KeyError for example, into one sentence."""
    try:
        yield
    except Exception as error:
        if RUST_ERROR.search(str(error)) or (isinstance(error, OSError) and error.errno and error.filename is None):
            raise OSError(f"A file of {checkpoint} cannot be read: {reason(error)}.") from error
        if isinstance(error, (OSError, ValueError, RuntimeError)) and not isinstance(error, RecursionError):
            raise
        raise ValueError(
            f"{checkpoint} must be an ELMo checkpoint; its files cannot be read ({type(error).__name__}: {error}): "
            "download or save it again."
        ) from error
