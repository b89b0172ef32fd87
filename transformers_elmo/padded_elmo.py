# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""The layers of ELMo over padded sentences, for `torch.export` and ONNX.

The rest of the model packs words, and its shapes and number of steps depend on the values of the mask, which a graph
cannot express. Here every sentence has T steps, and a masked one leaves the state unchanged. The results are the same;
only inference is exported, so there is no dropout.

Shapes: B sentences of at most T words of W characters; F convolution filters; character embeddings of size D; H LSTM
cells and P outputs of one direction; L layers.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.scan import scan, scan_op


def padded_layers(
    token_encoder: nn.Module,
    bilm: nn.Module,
    mask: torch.Tensor,
    input_ids: torch.Tensor | None,
    char_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
) -> list[torch.Tensor]:
    """mask (B, T), inputs as in `ElmoModel.forward` -> L + 1 layers (B, T, 2P), zeros at padding"""
    is_word = mask[..., None]  # (B, T, 1)
    x = encode_words(token_encoder, is_word, input_ids, char_ids) if inputs_embeds is None else inputs_embeds
    x = zero_padding(x, is_word).to(bilm.bias.dtype)  # (B, T, P)
    directions, layers = [x, x], [torch.cat([x, x], -1)]
    for layer in bilm.layers:
        lstms = layer.forward_lstm, layer.backward_lstm
        outputs = [
            padded_lstm(lstm, each, is_word, layer.cell_clip, layer.output_clip, reverse=lstm is layer.backward_lstm)
            for lstm, each in zip(lstms, directions)
        ]
        if layer.residual:
            outputs = [output + each for output, each in zip(outputs, directions)]
        directions = outputs
        layers.append(torch.cat(directions, -1))
    return layers


def zero_padding(x: torch.Tensor, is_word: torch.Tensor) -> torch.Tensor:
    return torch.where(is_word, x, torch.zeros_like(x))


def encode_words(
    token_encoder: nn.Module, is_word: torch.Tensor, input_ids: torch.Tensor | None, char_ids: torch.Tensor | None
) -> torch.Tensor:
    """Return the context-free vectors (B, T, P); those at padding are meaningless."""
    parts = []
    if token_encoder.word_embedding is not None and input_ids is not None:
        word_ids = zero_padding(input_ids, is_word.squeeze(-1)).long()  # (B, T), as ids at padding may be of any value
        parts.append(token_encoder.word_embedding(word_ids))
    if token_encoder.characters is not None and char_ids is not None:
        parts.append(encode_characters(token_encoder.characters, zero_padding(char_ids, is_word).long()))
    x = torch.cat(parts, -1)
    return x if token_encoder.projection is None else token_encoder.projection(x)


def encode_characters(encoder: nn.Module, char_ids: torch.Tensor) -> torch.Tensor:
    """char_ids (B, T, W) -> (B, T, F)"""
    embedded = encoder.embedding(char_ids.flatten(0, 1)).transpose(1, 2)  # (B * T, D, W)
    maxima = [F.conv1d(embedded, each.weight, each.bias).amax(2) for each in encoder.convolutions]
    x = encoder.activation(torch.cat(maxima, 1))  # (B * T, F)
    for highway in encoder.highways:
        x = highway(x)
    return x.unflatten(0, char_ids.shape[:2])


def padded_lstm(
    lstm: nn.Module,
    x: torch.Tensor,
    is_word: torch.Tensor,
    cell_clip: float | None,
    output_clip: float | None,
    reverse: bool,
) -> torch.Tensor:
    """Run one direction: x (B, T, P), is_word (B, T, 1) -> (B, T, P), zeros at padding"""
    size, cells = lstm.recurrent_weight.shape[0], lstm.recurrent_weight.shape[1] // 4
    bias = lstm.bias + lstm.forget_bias * (torch.arange(4 * cells, device=x.device) // cells == 1)
    x = x.to(bias.dtype).transpose(0, 1)  # (T, B, P)
    steps = [x @ lstm.input_weight + bias, is_word.transpose(0, 1)]  # (T, B, 4H), (T, B, 1)
    state = [x.new_zeros(x.shape[1], each) for each in (size, cells)]
    weights = tuple(each for each in (lstm.recurrent_weight, lstm.projection_weight) if each is not None)
    step = partial(padded_step, cell_clip=cell_clip, output_clip=output_clip)
    outputs = run_steps(step, state, [each.flip(0) for each in steps] if reverse else steps, weights)  # (T, B, P)
    return (outputs.flip(0) if reverse else outputs).transpose(0, 1)


def run_steps(step: Callable, state: list[torch.Tensor], steps: list[torch.Tensor], weights: tuple) -> torch.Tensor:
    """Call `step` for each index of the tensors in `steps`, as a loop in the graph, and return its stacked outputs."""
    if torch.compiler.is_dynamo_compiling():  # a strict export, which supports only `scan`

        def strict_step(state, inputs):
            h, c, output = step(*state, *inputs, *weights)
            return [h, c], output

        return scan(strict_step, state, steps)[1]
    # `scan` would compile the step, for seconds, and a model exported for fixed sizes could then not be exported for
    # dynamic ones in the same process.
    return scan_op(step, state, steps, weights)[-1]


def padded_step(h, c, gates, is_word, recurrent_weight, projection=None, *, cell_clip, output_clip):
    """h (B, P), c (B, H), gates (B, 4H), is_word (B, 1) -> the next h and c, the output (B, P)"""
    i, f, o, j = (gates + h @ recurrent_weight).chunk(4, 1)
    new_c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(j)
    if cell_clip is not None:
        new_c = new_c.clamp(-cell_clip, cell_clip)
    new_h = torch.sigmoid(o) * torch.tanh(new_c)
    if projection is not None:
        new_h = new_h @ projection
        if output_clip is not None:
            new_h = new_h.clamp(-output_clip, output_clip)
    # A masked step leaves the state unchanged.
    return torch.where(is_word, new_h, h), torch.where(is_word, new_c, c), zero_padding(new_h, is_word)
