"""Checkpoints that users name: opened, or one sentence about why not."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig

from .configuration_elmo import ElmoConfig
from .modeling_elmo import ElmoForPreTraining, ElmoModel
from .tokenization_elmo import ElmoTokenizer

# The checkpoint that comes with the package, a small English ELMo; the command knows it as "default".
DEFAULT_CHECKPOINT = str(Path(__file__).parent / "default_checkpoint")


def resolve(checkpoint: str) -> str:
    """Where a checkpoint is that users name: a folder or a repository on the Hub as it is, `default` in the package."""
    return DEFAULT_CHECKPOINT if checkpoint == "default" else checkpoint


@contextmanager
def user_errors(checkpoint: str) -> Iterator[None]:
    """Say what is wrong with a checkpoint where transformers would tell of its files and of the network."""
    try:
        yield
    except StrictDataclassError as error:
        raise ValueError(f"The config.json of {checkpoint} must describe an ELMo model: {error}") from error
    except OSError as error:
        if os.path.isdir(checkpoint) or "cannot be read" in str(error):
            raise
        raise ValueError(
            f"{checkpoint} is neither a folder with a checkpoint nor a model that can be reached on the Hub; "
            "give the path of a folder, or check the name and the network."
        ) from error


def load_config(checkpoint: str) -> ElmoConfig:
    checkpoint = resolve(checkpoint)
    with user_errors(checkpoint):
        config = AutoConfig.from_pretrained(checkpoint)
    if config.model_type != "elmo":
        raise ValueError(f"{checkpoint} must be an ELMo checkpoint, it is of type {config.model_type}.")
    return config


def has_lm_head(config: ElmoConfig) -> bool:
    return config.architectures == ["ElmoForPreTraining"]


def load_model(
    checkpoint: str, config: ElmoConfig, with_lm_head: bool = False, dtype: torch.dtype | None = None
) -> ElmoModel | ElmoForPreTraining:
    """Its biLM whole, with its softmax if that is asked for; a new softmax where it has none."""
    model_class = ElmoForPreTraining if with_lm_head else ElmoModel
    options = {} if dtype is None else {"dtype": dtype}
    checkpoint = resolve(checkpoint)
    with user_errors(checkpoint):
        model, report = model_class.from_pretrained(checkpoint, config=config, output_loading_info=True, **options)
    missing = [name for name in report["missing_keys"] if has_lm_head(config) or not name.startswith("lm_head.")]
    if missing:
        raise ValueError(f"{checkpoint} must hold the weights of an ELMo model, it lacks {min(missing)}.")
    return model


def load_tokenizer(checkpoint: str) -> ElmoTokenizer:
    checkpoint = resolve(checkpoint)
    with user_errors(checkpoint):
        return ElmoTokenizer.from_pretrained(checkpoint)
