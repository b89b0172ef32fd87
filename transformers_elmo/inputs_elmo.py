# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Checks of the inputs of an ELMo model: each error says what was expected, what came and what to do.

Shapes: B sentences of at most T words of W characters; H LSTM cells and P outputs of one direction; L layers.
"""

from collections.abc import Sequence

import torch

from .configuration_elmo import ElmoConfig


@torch.compiler.disable
def check_inputs(
    config: ElmoConfig,
    input_ids: torch.Tensor | None,
    char_ids: torch.Tensor | None,
    attention_mask: torch.Tensor | None = None,
    inputs_embeds: torch.Tensor | None = None,
) -> torch.Tensor:
    """Check the inputs of a model and return the mask (B, T), true at words."""
    mask = check_shapes(config, input_ids, char_ids, attention_mask, inputs_embeds)
    if attention_mask is not None:
        is_wrong = (attention_mask != 0) & (attention_mask != 1)
        if is_wrong.any():
            raise ValueError(
                f"attention_mask must be 1 at words and 0 at padding, got {attention_mask[is_wrong][0].item()}."
            )
    return mask


def check_shapes(
    config: ElmoConfig,
    input_ids: torch.Tensor | None,
    char_ids: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
) -> torch.Tensor:
    """Check the shapes and dtypes of the inputs, which are known in an export too, and return the mask (B, T)."""
    ids = {"input_ids": input_ids, "char_ids": char_ids}
    for name, tensor in {**ids, "attention_mask": attention_mask, "inputs_embeds": inputs_embeds}.items():
        if tensor is not None and not isinstance(tensor, torch.Tensor):
            raise ValueError(f'{name} must be a tensor, got a {type(tensor).__name__}: use return_tensors="pt".')
        check_dense(name, tensor)
    ids = {
        name: ids[name] for name, kind in (("input_ids", "words"), ("char_ids", "characters")) if kind in config.inputs
    }
    if inputs_embeds is None:
        is_word = check_ids(config, ids)
    else:
        too_many = [name for name, tensor in ids.items() if tensor is not None]
        if too_many:
            raise ValueError(f"inputs_embeds replaces {' and '.join(ids)}; got {' and '.join(too_many)} too.")
        if inputs_embeds.dim() != 3 or inputs_embeds.shape[2] != config.output_dim:
            raise ValueError(
                f"inputs_embeds must have shape (sentences, words, {config.output_dim}), "
                f"got {tuple(inputs_embeds.shape)}."
            )
        if not inputs_embeds.is_floating_point():
            raise ValueError(f"inputs_embeds must be floating-point numbers, got {inputs_embeds.dtype}.")
        is_word = torch.ones(inputs_embeds.shape[:2], dtype=torch.bool, device=inputs_embeds.device)
    if attention_mask is None:
        return is_word
    if attention_mask.shape != is_word.shape:
        raise ValueError(
            f"attention_mask must have the shape of the words, {tuple(is_word.shape)}, "
            f"got {tuple(attention_mask.shape)}."
        )
    return attention_mask.to(is_word.device) != 0


def word_mask(config: ElmoConfig, input_ids, char_ids, attention_mask) -> torch.Tensor:
    """Return the mask (B, T), true at words, of inputs that have been checked."""
    if attention_mask is not None:
        return attention_mask != 0
    return (char_ids != 0).any(-1) if "characters" in config.inputs else input_ids != 0


@torch.compiler.disable
def check_labels(name: str, labels: torch.Tensor, shape: tuple[int, ...], number: int):
    """Check that labels are integers of a shape, from 0 to number - 1, or -100 where there is none."""
    if not isinstance(labels, torch.Tensor) or tuple(labels.shape) != shape:
        raise ValueError(f"{name} must be a tensor of shape {shape}, got {shape_or_type(labels)}.")
    check_dense(name, labels)
    check_integers(name, labels)
    labels = labels.long()  # unsigned types have no -100
    known = labels[labels != -100]
    if len(known) and not 0 <= int(known.min()) <= int(known.max()) < number:
        raise ValueError(
            f"{name} must be between 0 and {number - 1}, or -100 for none, "
            f"got values from {int(known.min())} to {int(known.max())}."
        )


def check_targets(targets: torch.Tensor, vocab_size: int):
    """Check the words that follow those of windows: (2, rows, words)"""
    if not isinstance(targets, torch.Tensor) or targets.dim() != 3 or len(targets) != 2:
        raise ValueError(f"targets must be a tensor of shape (2, rows, words), got {shape_or_type(targets)}.")
    check_labels("targets", targets, tuple(targets.shape), vocab_size)


def check_dense(name: str, tensor: torch.Tensor | None):
    if tensor is not None and (tensor.is_meta or tensor.is_nested or tensor.layout != torch.strided):
        raise ValueError(f"{name} must be a dense tensor on a CPU or GPU, got a sparse, nested or meta tensor.")


def check_integers(name: str, tensor: torch.Tensor):
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise ValueError(f"{name} must be integers, got {tensor.dtype}.")


def shape_or_type(value) -> str:
    return f"{tuple(value.shape)}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"


def check_ids(config: ElmoConfig, tensors: dict[str, torch.Tensor | None]) -> torch.Tensor:
    """Check the ids that a model reads, by name, and return the mask (B, T) of ids that are not padding."""
    width = config.max_characters_per_token
    shapes = {"input_ids": "(sentences, words)", "char_ids": f"(sentences, words, {width})"}
    ids = {}
    for name, tensor in tensors.items():
        if tensor is None:
            raise ValueError(
                f"A model with inputs={config.inputs!r} needs {name} of shape {shapes[name]}, got None: "
                f"pass the tokenizer's {name}."
            )
        if tensor.dim() != (2 if name == "input_ids" else 3) or (name == "char_ids" and tensor.shape[2] != width):
            raise ValueError(
                f"{name} must have shape {shapes[name]}, got {tuple(tensor.shape)}: "
                "use the tokenizer of this checkpoint."
            )
        ids[name] = tensor
    first, *others = ids.values()
    if any(tensor.shape[:2] != first.shape[:2] for tensor in others):
        raise ValueError(
            "input_ids and char_ids must describe the same words, "
            f"got shapes {' and '.join(str(tuple(tensor.shape)) for tensor in ids.values())}."
        )
    for name, tensor in ids.items():
        check_integers(name, tensor)
    return (ids["char_ids"] != 0).any(-1) if "char_ids" in ids else ids["input_ids"] != 0


@torch.compiler.disable
def check_ids_in_range(name: str, ids: torch.Tensor, vocab_size: int):
    if ids.numel() and not 0 <= ids.min() <= ids.max() < vocab_size:
        raise ValueError(
            f"{name} must be between 0 and {vocab_size - 1}, got values from {int(ids.min())} to {int(ids.max())}: "
            "use the tokenizer of this checkpoint."
        )


def check_state(config: ElmoConfig, state: Sequence[torch.Tensor], batch_size: int):
    sizes = config.output_dim, config.lstm_dim
    expected = [(config.num_hidden_layers, 2, batch_size, size) for size in sizes]
    if not isinstance(state, (list, tuple)):
        raise ValueError(f"The state must be a pair of tensors, got {shape_or_type(state)}.")
    got = [tuple(part.shape) if isinstance(part, torch.Tensor) else shape_or_type(part) for part in state]
    if got != expected:
        raise ValueError(f"The state of {batch_size} sentences must have the shapes {expected}, got {got}.")
    for part in state:
        check_dense("The state", part)
        if not part.is_floating_point():
            raise ValueError(f"The state must be floating-point numbers, got {part.dtype}.")


def select_layers(layers: Sequence[torch.Tensor], wanted: bool | list[int]) -> tuple[torch.Tensor | None, ...] | None:
    """Return all layers, none, or those whose indices are listed and None in place of the others."""
    if isinstance(wanted, int):
        return tuple(layers) if wanted else None
    if not isinstance(wanted, (list, tuple)) or not all(index in range(len(layers)) for index in wanted):
        raise ValueError(
            f"output_hidden_states must be True, False or a list of layers from 0 to {len(layers) - 1}, got {wanted!r}."
        )
    return tuple(layer if index in wanted else None for index, layer in enumerate(layers))
