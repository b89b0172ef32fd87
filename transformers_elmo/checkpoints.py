# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Load the checkpoint that a user names, or say in one sentence why it cannot be loaded."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig

from .configuration_elmo import ElmoConfig
from .modeling_elmo import ElmoForPreTraining, ElmoModel
from .tokenization_elmo import ElmoTokenizer

# The checkpoint that ships with the package, a small English ELMo; users may call it "default".
DEFAULT_CHECKPOINT = str(Path(__file__).parent / "default_checkpoint")


def load(checkpoint: str, with_lm_head: bool = False) -> tuple[ElmoModel | ElmoForPreTraining, ElmoTokenizer]:
    """Load a model and its tokenizer. `with_lm_head` keeps the language-model head of a checkpoint that has one."""
    config = load_config(checkpoint)
    model = load_model(checkpoint, config, with_lm_head=with_lm_head and has_lm_head(config))
    return model, load_tokenizer(checkpoint)


def load_config(checkpoint: str) -> ElmoConfig:
    checkpoint = resolve(checkpoint)
    if os.path.isdir(checkpoint) and not os.path.isfile(os.path.join(checkpoint, "config.json")):
        raise FileNotFoundError(f"{checkpoint} must be the folder of a checkpoint; it has no config.json.")
    with user_errors(checkpoint):
        config = AutoConfig.from_pretrained(checkpoint)
    if config.model_type != "elmo":
        raise ValueError(f"{checkpoint} must be an ELMo checkpoint; its model type is {config.model_type!r}.")
    return config


def load_model(
    checkpoint: str, config: ElmoConfig, with_lm_head: bool = False, dtype: torch.dtype | None = None
) -> ElmoModel | ElmoForPreTraining:
    """Load the biLM, with the language-model head if asked; a checkpoint without one gets a new, random head."""
    model_class: type[ElmoModel | ElmoForPreTraining] = ElmoForPreTraining if with_lm_head else ElmoModel
    options: dict[str, Any] = {} if dtype is None else {"dtype": dtype}
    checkpoint = resolve(checkpoint)
    with user_errors(checkpoint):
        model, report = model_class.from_pretrained(checkpoint, config=config, output_loading_info=True, **options)
    missing = [name for name in report["missing_keys"] if has_lm_head(config) or not name.startswith("lm_head.")]
    if missing:
        raise ValueError(f"{checkpoint} must contain all weights of its ELMo model; {min(missing)} is missing.")
    return model


def load_tokenizer(checkpoint: str) -> ElmoTokenizer:
    checkpoint = resolve(checkpoint)
    with user_errors(checkpoint):
        return ElmoTokenizer.from_pretrained(checkpoint)


def has_lm_head(config: ElmoConfig) -> bool:
    return config.architectures == ["ElmoForPreTraining"]


def resolve(checkpoint: str) -> str:
    """Return the path of the package's own checkpoint for "default", and any other folder or Hub name unchanged."""
    return DEFAULT_CHECKPOINT if checkpoint == "default" else checkpoint


@contextmanager
def user_errors(checkpoint: str) -> Iterator[None]:
    """Replace errors about config fields and network requests by one sentence about the checkpoint."""
    try:
        yield
    except StrictDataclassError as error:
        raise ValueError(f"The config.json of {checkpoint} must describe an ELMo model: {error}") from error
    except OSError as error:
        if os.path.isdir(checkpoint) or "cannot be read" in str(error):  # the message is clear as it is
            raise
        raise ValueError(
            f"{checkpoint} is neither a folder with a checkpoint nor a model that can be reached on the Hub; "
            "check the path or the name, and the network connection."
        ) from error
