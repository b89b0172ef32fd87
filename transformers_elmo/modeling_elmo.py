# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""ELMo (Peters et al. 2018, https://arxiv.org/abs/1802.05365) as a transformers model.

Follows allenai/bilm-tf, with two differences: no state is kept between calls, and masked words are skipped, so a
sentence's vectors depend on nothing but the sentence.

Shapes: B sentences of at most T words of W characters; N words in all, U of them distinct; F convolution filters;
character embeddings of size D; H LSTM cells and P outputs of one direction; L layers; V words in the vocabulary.
"""

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from pickle import UnpicklingError
from typing import ClassVar

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.autograd.function import once_differentiable
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import TokenClassifierOutput
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, ModelOutput, can_return_tuple

from .configuration_elmo import ElmoConfig
from .inputs_elmo import (
    check_ids_in_range,
    check_inputs,
    check_labels,
    check_shapes,
    check_state,
    check_targets,
    select_layers,
    word_mask,
)
from .lstm_elmo import (
    Packing,
    bidirectional_lstm,
    int8_products,
    lstm_inference,
    packed_products,
    plain_products,
    requires_grad,
    run_directions,
    stacked_products,
)
from .padded_elmo import padded_layers
from .products_elmo import PackedLinear, PlainLinear, PreparedWeights, can_compute_int8, packed_dtype, plain_is_faster
from .quantization_elmo import ElmoLinear, Int8Module, register, report_mismatches
from .softmax_elmo import full_softmax_loss, sampled_softmax_loss

# Words that are convolved at once: limits memory use and does not change the result.
CONVOLUTION_WORDS = 64
# In inference, at most this many sentences are read in both directions at once, if an LSTM weight is this small. Then a
# step is so short that calls cost more than products. The direction is part of the product, which rounds otherwise.
STACKED_SENTENCES = 4
STACKED_BYTES = 1 << 23

# Words whose context-free vectors are kept for the next batches in inference.
MAX_CACHED_WORDS = 1 << 15

BILM_WEIGHT = re.compile(r"^(elmo\.)?(token_encoder|bilm)\.")  # names of the biLM's weights, as opposed to a head's

BiLMState = tuple[torch.Tensor, torch.Tensor]  # h (L, 2, B, P), c (L, 2, B, H); direction 0 is forward


@torch.compiler.disable  # data-dependent shapes
def distinct_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the index (U,) of one of each distinct row, and the inverse (N,): `rows[index][inverse] == rows`."""
    # `torch.unique(dim=0)` sorts whole rows; sorting a polynomial hash of them is many times faster. Multiplication
    # wraps at 64 bits. If two distinct rows have the same hash, the comparison fails and whole rows are sorted.
    powers = torch.full((rows.shape[1],), 6364136223846793005, device=rows.device).cumprod(0)
    _, inverse = torch.unique((rows * powers).sum(1), return_inverse=True)

    def one_of_each(inverse):
        number = int(inverse.max()) + 1 if len(inverse) else 0
        return torch.zeros(number, dtype=torch.long, device=rows.device).scatter_(
            0, inverse, torch.arange(len(inverse), device=rows.device)
        )

    index = one_of_each(inverse)
    if not torch.equal(rows[index][inverse], rows):
        _, inverse = torch.unique(rows, dim=0, return_inverse=True)
        index = one_of_each(inverse)
    return index, inverse


def compute_dtype(weight: torch.Tensor, inputs: torch.Tensor) -> torch.dtype:
    """Return autocast's dtype where autocast is on, else the weight's."""
    device = inputs.device.type  # offloaded weights are on no device until they are used
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype


class ElmoPackedLinear(ElmoLinear):
    """A linear layer that packs its weight for inference."""

    def __init__(self, in_features: int, out_features: int):
        super().__init__(in_features, out_features)
        self.prepared = PreparedWeights()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (n, in) -> (n, out)"""
        if torch.compiler.is_compiling():
            return super().forward(x)
        dtype = compute_dtype(self.bias, x)
        # bfloat16 is more precise than int8, and faster than float32.
        packed = packed_dtype(torch.bfloat16 if self.is_int8("weight") else dtype, x.device)
        if requires_grad(x, self.weight, self.bias) or packed is None:
            self.prepared.drop()
            return super().forward(x)
        linear = self.prepared.get(
            packed, [self], lambda: PackedLinear(self.float_weight("weight").t().to(packed), self.bias.to(packed))
        )
        return linear(x).to(dtype)


class ElmoHighway(nn.Module):
    """y = g * relu(W_t x + b_t) + (1 - g) * x with g = sigmoid(W_c x + b_c) (Srivastava et al. 2015)."""

    def __init__(self, size: int):
        super().__init__()
        self.transform = ElmoPackedLinear(size, size)
        self.carry = ElmoPackedLinear(size, size)
        self.carry.initial_bias = -2.0  # a new highway mostly passes its input through

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = torch.sigmoid(self.carry(x))
        return gate * F.relu(self.transform(x)) + (1 - gate) * x


def pool_responses(
    embedded: torch.Tensor, width: int, product: Callable, num_positions: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the windows of embedded words, the filters' responses to them, and the largest response of each filter.

    embedded (u, t + width - 1, D), num_positions (F,), None for all t -> (u, t, D * width), (u, t, F), (u, F)
    """
    windows = embedded.unfold(1, width, 1).flatten(2)
    responses = product(windows.flatten(0, 1)).unflatten(0, windows.shape[:2])
    if num_positions is not None:
        is_outside = torch.arange(windows.shape[1], device=num_positions.device)[:, None] >= num_positions
        responses.masked_fill_(is_outside, -torch.inf)
    return windows, responses, responses.amax(1)


class MaxPooledConvolution(torch.autograd.Function):
    """max_t sum_kd K_kd e_(t+k)d: the largest response of each filter to each word, and its gradient.

    Only the position of the maximum has a gradient, so the backward pass needs this position, but not the responses.
    """

    @staticmethod
    def forward(ctx, embedded, kernels, num_positions):
        """embedded words (u, t + width - 1, D), kernels (F, D, width), num_positions (F,), None for all t -> (u, F)"""
        product = PlainLinear(kernels.flatten(1).t())
        windows, responses, maximum = pool_responses(embedded, kernels.shape[2], product, num_positions)
        # The first position of the maximum, in a fifth of the time that `max` takes to return its indices.
        length = windows.shape[1]
        countdown = torch.arange(length, 0, -1.0, device=embedded.device)[:, None]  # (t, 1): t ... 1
        argmax = length - (responses.eq_(maximum[:, None]) * countdown).amax(1)
        # NaN never equals the maximum; the clamp keeps its index valid.
        ctx.save_for_backward(windows, kernels, argmax.clamp_(max=length - 1).to(torch.int16))
        return maximum

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_maximum):
        windows, kernels, argmax = ctx.saved_tensors
        d_responses = grad_maximum.new_zeros(*windows.shape[:2], len(kernels))  # (u, t, F)
        d_responses = d_responses.scatter_(1, argmax[:, None].long(), grad_maximum[:, None]).flatten(0, 1)
        d_kernels = d_embedded = None
        if ctx.needs_input_grad[1]:
            d_kernels = (d_responses.t() @ windows.flatten(0, 1)).view_as(kernels)
        if ctx.needs_input_grad[0]:
            (words, length), (_, size, width) = windows.shape[:2], kernels.shape
            d_windows = (d_responses @ kernels.flatten(1)).view(words, length, size, width)
            d_embedded = grad_maximum.new_zeros(words, length + width - 1, size)
            for start in range(width):
                d_embedded[:, start : start + length] += d_windows[..., start]
        return d_embedded, d_kernels, None


class ElmoConvolution(nn.Conv1d):
    """The filters of one width. Only their own `forward` reads them, as offloaded weights require."""

    def forward(self, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return kernels as wide as the widest, padded with zeros, and bias: (filters, D, width), (filters,)"""
        return F.pad(self.weight, (0, width - self.kernel_size[0])), self.bias


class ElmoCharacterEncoder(nn.Module):
    """Character CNN: embedding, convolutions, maximum over positions, highway layers."""

    def __init__(self, config: ElmoConfig):
        super().__init__()
        # Only character 0, at masked positions, has a zero vector. The padding character inside a word is learned like
        # any other and takes part in every convolution.
        self.embedding = nn.Embedding(config.char_vocab_size, config.char_embedding_dim, padding_idx=0)
        self.convolutions = nn.ModuleList(
            ElmoConvolution(config.char_embedding_dim, number, width) for width, number in config.char_filters
        )
        self.highways = nn.ModuleList(ElmoHighway(config.num_filters) for _ in range(config.num_highway_layers))
        self.activation = getattr(torch, config.char_activation)
        self.prepared = PreparedWeights()

    def forward(self, char_ids: torch.Tensor) -> torch.Tensor:
        """char_ids (U, W) -> (U, F)"""
        x = self.activation(self.convolve(char_ids))  # after the maximum, as in bilm-tf
        for highway in self.highways:
            x = highway(x)
        return x

    @torch.compiler.disable  # custom autograd function
    def convolve(self, char_ids: torch.Tensor) -> torch.Tensor:
        """Return the largest response of each filter to each word: (U, W) -> (U, F)"""
        widths, length = [each.kernel_size[0] for each in self.convolutions], char_ids.shape[1]
        widest = max(widths)
        weights = [*self.convolutions.parameters()]
        dtype = compute_dtype(weights[0], char_ids)
        wants_grad = requires_grad(self.embedding.weight, *weights)
        if wants_grad:
            self.prepared.drop()
            kernels, bias = self.kernels(widest, dtype)
        elif packed := packed_dtype(dtype, char_ids.device):
            kernels, bias = self.prepared.get(
                packed, self.convolutions, lambda: self.product(PackedLinear, widest, packed)
            )
        else:
            kernels, bias = self.product(PlainLinear, widest, dtype)
        by_length, groups = self.group_by_length(char_ids)
        char_ids = F.pad(char_ids, (0, widest))
        maxima, num_positions = [], None
        with torch.autocast(char_ids.device.type, enabled=False):
            for words, end in groups:  # the longest words last
                embedded = self.embedding(char_ids[words, : end + widest]).to(dtype)  # (u, t + width - 1, D)
                if num_positions is None and end + widest > length:
                    filters = zip(self.convolutions, widths)
                    num_positions = torch.cat(
                        [char_ids.new_full((each.out_channels,), length - width + 1) for each, width in filters]
                    )
                if wants_grad:
                    maxima.append(MaxPooledConvolution.apply(embedded, kernels, num_positions))
                else:
                    maxima.append(pool_responses(embedded, widest, kernels, num_positions)[2])
            return (torch.cat(maxima)[by_length.argsort()] + bias).to(dtype)

    def kernels(self, width: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the kernels of all filters, as wide as the widest, and their bias: (F, D, width), (F,)

        Padded with zeros, they are one product, with a sixth more terms at the released sizes, which is faster than one
        per width. In a long word, wide filters have fewer positions than narrow ones.
        """
        kernels, bias = map(torch.cat, zip(*[each(width) for each in self.convolutions]))
        return kernels.to(dtype), bias.to(dtype)

    def product(self, linear: Callable, width: int, dtype: torch.dtype) -> tuple[Callable, torch.Tensor]:
        """Return the product of windows (n, D * width) with the kernels of all filters, and their bias (F,)"""
        kernels, bias = self.kernels(width, dtype)
        return linear(kernels.flatten(1).t()), bias

    @torch.compiler.disable  # data-dependent shapes
    def group_by_length(self, char_ids: torch.Tensor) -> tuple[torch.Tensor, list[tuple[torch.Tensor, int]]]:
        """Return the words' order by length (U,), and groups of words in this order, each with its greatest length.

        All windows that lie wholly in the padding at the end of a word have the same response, so one of them is enough
        for the maximum: a short word is convolved up to its end, plus one such window.
        """
        width = char_ids.shape[1]
        ends = (char_ids != char_ids[:, -1:]) * torch.arange(1, width + 1, device=char_ids.device)
        ends, by_length = ends.amax(1).sort()  # (U,)
        longest = [*ends[CONVOLUTION_WORDS - 1 :: CONVOLUTION_WORDS].tolist(), int(ends[-1]) if len(ends) else 0]
        return by_length, list(zip(by_length.split(CONVOLUTION_WORDS), longest))


class ElmoTokenEncoder(nn.Module):
    """The context-free vector x of each word, from its characters, its id or both.

    It stays float32 in a model of half precision, where rounding here would cost more accuracy than in all LSTMs. Each
    word is encoded only once, so that is nearly as fast.
    """

    def __init__(self, config: ElmoConfig):
        super().__init__()
        self.word_embedding = self.characters = self.projection = None
        self.prepared = PreparedWeights()
        width = 0
        if "words" in config.inputs:
            width += config.word_embedding_dim or config.output_dim
            self.word_embedding = nn.Embedding(config.vocab_size, width, padding_idx=0)
        if "characters" in config.inputs:
            width += config.num_filters
            self.characters = ElmoCharacterEncoder(config)
        # bilm-tf projects only where the sizes differ, ELMoForManyLangs always.
        if width != config.output_dim or config.inputs == "words+characters":
            self.projection = ElmoPackedLinear(width, config.output_dim)

    def forward(
        self, word_ids: torch.Tensor | None, char_ids: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """word_ids (N,), char_ids (N, W), None for an input that the model does not use -> distinct words (U, P), (N,)

        The second result is the row of each word in the first: each distinct word is encoded once.
        """
        ids = [ids if ids.dim() == 2 else ids[:, None] for ids in (word_ids, char_ids) if ids is not None]
        index, inverse = distinct_rows(torch.cat(ids, 1))
        words = [None if each is None else each[index] for each in (word_ids, char_ids)]
        if self.can_recall(index):
            return self.encode_or_recall(*words), inverse
        self.prepared.drop()
        return self.encode(*words), inverse

    def _apply(self, fn, recurse=True):
        def convert(tensor: torch.Tensor) -> torch.Tensor:
            converted = fn(tensor)
            is_rounded = tensor.dtype == torch.float32 and converted.dtype in (torch.bfloat16, torch.float16)
            return tensor.to(converted.device) if is_rounded else converted

        return super()._apply(convert, recurse)

    def can_recall(self, ids: torch.Tensor) -> bool:
        """Return whether vectors of earlier batches can be used: packed weights give a word the same bits every time.

        Rows of a word embedding are not recalled, since a change of one row would not be noticed.
        """
        if self.word_embedding is not None or torch.compiler.is_compiling() or requires_grad(*self.parameters()):
            return False
        return packed_dtype(compute_dtype(next(self.parameters()), ids), ids.device) is not None

    def encode_or_recall(self, word_ids: None, char_ids: torch.Tensor) -> torch.Tensor:
        """Encode the words that have not been encoded before: char_ids (U, W) -> (U, P)"""
        dtype = compute_dtype(next(self.parameters()), char_ids)
        known = self.prepared.get(("words", dtype), [self], dict)
        keys = [row.tobytes() for row in char_ids.to(torch.int32).numpy()]
        vectors = [known.get(key) for key in keys]
        if new := [number for number, vector in enumerate(vectors) if vector is None]:
            for number, vector in zip(new, self.encode(None, char_ids[new])):
                vectors[number] = vector
            if len(known) + len(new) > MAX_CACHED_WORDS:
                known.clear()
            known.update((keys[number], vectors[number]) for number in new[:MAX_CACHED_WORDS])
        return torch.stack(vectors) if vectors else self.encode(None, char_ids)

    def encode(self, word_ids: torch.Tensor | None, char_ids: torch.Tensor | None) -> torch.Tensor:
        """word_ids (U,), char_ids (U, W) -> (U, P)"""
        parts = []
        if self.word_embedding is not None and word_ids is not None:
            parts.append(self.word_embedding(word_ids))
        if self.characters is not None and char_ids is not None:
            parts.append(self.characters(char_ids))
        x = torch.cat(parts, 1)  # (U, E): the word embedding first, as in ELMoForManyLangs
        return x if self.projection is None else self.projection(x)


class ElmoLSTM(Int8Module):
    """The weights of one direction of one layer, for the equations of `lstm_elmo.py`."""

    def __init__(self, config: ElmoConfig):
        super().__init__()
        size, cells = config.output_dim, config.lstm_dim
        self.input_weight = nn.Parameter(torch.empty(size, 4 * cells))
        self.recurrent_weight = nn.Parameter(torch.empty(size, 4 * cells))
        self.bias = nn.Parameter(torch.empty(4 * cells))
        self.projection_weight = nn.Parameter(torch.empty(cells, size)) if config.projection_dim is not None else None
        self.forget_bias = config.forget_bias

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor, keep_int8: bool = False) -> list:
        """Return x, W, R, b, V, h, c in the compute dtype, the forget bias added to b.

        With `keep_int8`, int8 weights are returned as they are, with their scales: (P, 4H), (4H,)
        """
        dtype = compute_dtype(self.bias, x)
        x, bias, projection, h, c = [
            None if tensor is None else tensor.to(dtype) for tensor in (x, self.bias, self.projection_weight, h, c)
        ]
        weights = [
            self.int8_weight(name) if keep_int8 and self.is_int8(name) else self.float_weight(name).to(dtype)
            for name in ("input_weight", "recurrent_weight")
        ]
        cells = c.shape[1]
        # TensorFlow adds the forget bias at run time, so the weights do not contain it.
        bias = bias + self.forget_bias * (torch.arange(4 * cells, device=x.device) // cells == 1).to(dtype)
        return [x, *weights, bias, projection, h, c]


class ElmoLayer(GradientCheckpointingLayer):
    """Both directions of one layer, independent of each other."""

    def __init__(self, config: ElmoConfig, index: int):
        super().__init__()
        self.forward_lstm = ElmoLSTM(config)
        self.backward_lstm = ElmoLSTM(config)
        self.residual = config.use_skip_connections and index > 0
        self.dropout = config.dropout
        self.cell_clip, self.output_clip = config.cell_clip, config.projection_clip
        # The largest possible h, None for no limit: without a projection it is o * tanh(c). The layers below have added
        # their h to x.
        self.h_bound = 1.0 if config.projection_dim is None else config.projection_clip
        self.num_summed = index if config.use_skip_connections else 1
        self.prepared = PreparedWeights()

    def forward(self, forward_x, backward_x, h, c, batch_sizes: list[int], words=None, same_start: bool = False):
        """forward_x, backward_x (N, P), each in its reading order; h (2, B, P), c (2, B, H) -> the same four

        With `words`, forward_x and backward_x (U, P) are distinct words, and words (N,) of each direction the row that
        each of its steps reads. `same_start`: all sentences start with the same word from a zero state.
        """
        lstms, x = (self.forward_lstm, self.backward_lstm), [forward_x, backward_x]
        # Dropout is for training the biLM itself: a frozen biLM gives the same vectors in training mode.
        drops = [self.dropout > 0 and self.training and lstm.bias.requires_grad for lstm in lstms]
        wants_grad = requires_grad(*x, h, c, *self.parameters())
        if words is not None and (any(drops) or wants_grad):
            # x[index] would sum gradients in an order that changes from run to run.
            x, words = [F.embedding(index, each) for index, each in zip(words, x)], None
        x = [F.dropout(each, self.dropout, drop) for each, drop in zip(x, drops)]
        if wants_grad:
            self.prepared.drop()
            inputs = [tensor for lstm, *each in zip(lstms, x, h, c) for tensor in lstm(*each)]
            results = bidirectional_lstm(
                inputs, batch_sizes=batch_sizes, cell_clip=self.cell_clip, output_clip=self.output_clip
            )
        else:
            results = self.inference(x, words or (None, None), h, c, batch_sizes, same_start)
        outputs, last_h, last_c = map(list, zip(*results))
        if self.residual:  # added to the output, not to the recurrent h
            outputs = [output + each for output, each in zip(outputs, x)]
        return *outputs, torch.stack(last_h), torch.stack(last_c)

    @torch.compiler.disable
    def inference(self, x, words, h, c, batch_sizes, same_start) -> Sequence[tuple[torch.Tensor, ...]]:
        """Return outputs (N, P), last h (B, P) and last c (B, H) of each direction, without a gradient."""
        lstms = self.forward_lstm, self.backward_lstm
        options = batch_sizes, self.cell_clip, self.output_clip, same_start

        def weights(keep_int8: bool = False) -> list[list]:
            """W, R, b, V of each direction"""
            return [lstm(*each, keep_int8=keep_int8)[1:5] for lstm, *each in zip(lstms, x, h, c)]

        dtype, recurrent_weight = compute_dtype(lstms[0].bias, h), lstms[0].recurrent_weight
        packed = packed_dtype(dtype, h.device)
        is_packed_float32 = dtype == packed == torch.float32
        h, c = h.to(dtype), c.to(torch.promote_types(dtype, torch.float32))
        if lstms[0].is_int8("recurrent_weight") and self.h_bound is not None and can_compute_int8(h.device):
            bound = self.h_bound
            products = self.prepared.get(
                ("int8", dtype),
                lstms,
                lambda: [
                    int8_products(each, input_bound=self.num_summed * bound, output_bound=bound)
                    for each in weights(keep_int8=True)
                ],
            )
        elif is_packed_float32 and h.shape[1] <= STACKED_SENTENCES and recurrent_weight.nbytes <= STACKED_BYTES:
            stacked = self.prepared.get("stacked", lstms, lambda: stacked_products(*zip(*weights())))
            x = torch.stack([each if index is None else each[index] for index, each in zip(words, x)])
            x = x.to(dtype)
            return list(zip(*lstm_inference(stacked, x, None, h, c, *options)))
        elif packed is None or (is_packed_float32 and plain_is_faster(recurrent_weight)):
            products = [plain_products(*each) for each in weights()]
        else:
            products = self.prepared.get(dtype, lstms, lambda: [packed_products(each, packed) for each in weights()])
        with torch.autocast(h.device.type, enabled=False):
            forward, backward = [(*each, *options) for each in zip(products, x, words, h, c)]
            mean_rows = sum(batch_sizes) // max(len(batch_sizes), 1)
            return run_directions(lstm_inference, forward, backward, device=h.device, batch_size=mean_rows)


class ElmoBiLM(nn.Module):
    """The two language models: L layers that read a sentence forward, and L that read it backward."""

    def __init__(self, config: ElmoConfig):
        super().__init__()
        self.layers = nn.ModuleList(ElmoLayer(config, index) for index in range(config.num_hidden_layers))
        self.sizes = config.output_dim, config.lstm_dim

    @property
    def bias(self) -> torch.Tensor:
        """A bias, whose dtype is that of all LSTMs."""
        return self.layers[0].forward_lstm.bias

    def forward(
        self, x: torch.Tensor, words: torch.Tensor, packing: Packing, state: BiLMState | None = None
    ) -> tuple[list[torch.Tensor], BiLMState]:
        """Distinct words x (U, P), words (N,) in rows of x, state before the first word of each sentence
        -> L + 1 layers (N, 2P), state after the last word"""
        orders = [words[order] for order in packing.orders]
        same_start = False
        if state is None:
            state = self.initial_state(x, len(packing.sentences))
            same_start = all(starts_alike(order[: sum(packing.batch_sizes[:1])]) for order in orders)
        state = tuple(part[:, :, packing.sentences] for part in state)
        outputs, (h, c) = self.run_layers(x, orders, packing.batch_sizes, state, same_start)
        x = F.embedding(words, x)
        layers = [torch.cat([x, x], 1)]
        layers += [torch.cat([y[order] for y, order in zip(pair, packing.inverse_orders)], 1) for pair in outputs]
        ranks = packing.sentences.argsort()
        return layers, (h[:, :, ranks], c[:, :, ranks])

    def initial_state(self, x: torch.Tensor, batch_size: int) -> BiLMState:
        """Return zeros with the dtype and device of x."""
        h, c = [x.new_zeros(len(self.layers), 2, batch_size, size) for size in self.sizes]
        return h, c

    def run_layers(
        self,
        x: torch.Tensor,
        words: Sequence[torch.Tensor] | None,
        batch_sizes: list[int],
        state: BiLMState,
        same_start: bool = False,
    ) -> tuple[list[tuple[torch.Tensor, torch.Tensor]], BiLMState]:
        """Distinct words x (U, P), rows of x in the reading order of each direction (N,)
        -> outputs of each layer and direction (N, P), last state"""
        outputs, last_h, last_c = [], [], []
        forward = backward = x
        for layer, h_0, c_0 in zip(self.layers, *state):
            forward, backward, h_n, c_n = layer(forward, backward, h_0, c_0, batch_sizes, words, same_start)
            words = None
            outputs.append((forward, backward))
            last_h.append(h_n)
            last_c.append(c_n)
        return outputs, (torch.stack(last_h), torch.stack(last_c))


@torch.compiler.disable  # a value decides
def starts_alike(words: torch.Tensor) -> bool:
    return len(words) > 0 and bool((words == words[0]).all())


class ElmoMix(nn.Module):
    """ELMo = gamma * sum_j s_j h_j, equation (1) of the paper."""

    def __init__(self, config: ElmoConfig):
        super().__init__()
        self.kind, self.layer_norm = config.mix, config.mix_layer_norm
        self.fixed_weights = config.mix_weights or [0.0] * config.num_hidden_layers + [1.0]  # the latter: "top"
        self.weights = nn.Parameter(torch.zeros(config.num_hidden_layers + 1)) if config.mix == "learned" else None
        self.gamma = nn.Parameter(torch.ones(1)) if config.mix != "fixed" else None

    def forward(self, layers: list[torch.Tensor] | None = None, mask: torch.Tensor | None = None):
        """L + 1 layers (B, T, 2P), zero where mask (B, T) is false -> (B, T, 2P); without layers: s_0 ... s_L, gamma"""
        weights = list(torch.softmax(self.weights, 0)) if self.kind == "learned" else self.fixed_weights
        if layers is None or mask is None:
            return weights, 1.0 if self.gamma is None else self.gamma
        if self.kind == "top":
            return self.gamma * layers[-1]
        if self.layer_norm:
            layers = [self.normalize(layer, mask[..., None]) for layer in layers]
        mixed = sum(weight * layer for weight, layer in zip(weights, layers))
        return mixed if self.gamma is None else self.gamma * mixed

    @staticmethod
    def normalize(layer: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        # One mean and variance for the whole batch, AllenNLP's epsilon, no scale and no shift. Sums over a batch would
        # overflow in half precision.
        wide = layer.to(torch.promote_types(layer.dtype, torch.float32))
        number = (mask.sum() * layer.shape[-1]).clamp(min=1)
        centered = (wide - wide.sum() / number) * mask
        return (centered / torch.sqrt(centered.square().sum() / number + 1e-13)).to(layer.dtype)


class ElmoPreTrainedModel(PreTrainedModel):
    config: ElmoConfig
    base_model_prefix = "elmo"
    supports_gradient_checkpointing = True
    _no_split_modules = ["ElmoTokenEncoder", "ElmoLayer"]
    _keep_in_fp32_modules_strict = ["token_encoder"]
    _keys_to_ignore_on_load_unexpected = [r"^lm_head\."]  # when only the biLM of a language model is loaded

    # Writes README.md into a folder without one, called as (model, folder, name). Set by the package; the copy of this
    # file in a checkpoint has no templates.
    model_card_writer: ClassVar[Callable | None] = None

    def __init__(self, config: ElmoConfig):
        if getattr(config, "model_type", None) != "elmo":  # its class can come from a copy of this code
            raise ValueError(f"A model is made from an ElmoConfig, got {config!r:.80}; or use from_pretrained.")
        config.validate()  # it may have been changed
        super().__init__(config)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the LSTMs and the vectors."""
        return self.base_model.bilm.bias.dtype

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path, *args, output_loading_info=False, ignore_mismatched_sizes=False, **kwargs
    ):
        """Load a checkpoint as transformers does, except that weights which contradict the configuration are an error.

        transformers would load what fits and fill the rest with random numbers. That is right for a new head, the
        mix included, and wrong for the biLM. `ignore_mismatched_sizes` replaces a head of another size with a new one.
        """
        register()
        try:
            check_index(pretrained_model_name_or_path, kwargs.get("subfolder", ""))
            model, info = super().from_pretrained(
                pretrained_model_name_or_path,
                *args,
                output_loading_info=True,
                ignore_mismatched_sizes=ignore_mismatched_sizes,
                **kwargs,
            )
        except (SafetensorError, UnpicklingError) as error:
            # torch advises to load what it refuses without a check.
            reason = "no weights" if isinstance(error, UnpicklingError) else error
            raise OSError(
                f"The weights of {pretrained_model_name_or_path} cannot be read ({reason}): "
                "the file is truncated or not a safetensors file. Download or save it again."
            ) from error
        model._freeze()
        for parameter in model.parameters():
            # Weights can start at any address of the memory-mapped file, and the rounding of a product depends on the
            # alignment of its operands: only aligned weights reproduce the saved model to the last bit.
            if parameter.data_ptr() % 64:
                parameter.data = parameter.data.clone()
        return (model, info) if output_loading_info else model

    @staticmethod
    def _load_pretrained_model(model, state_dict, checkpoint_files, load_config, *args, **kwargs):
        expected = model.state_dict()  # on the meta device
        int8 = {name.removeprefix("elmo.") for name, weight in expected.items() if weight.dtype == torch.int8}
        if int8:
            int8.add("lm_head.weight")  # also when only the biLM is loaded
        for file in [file for file in checkpoint_files or [] if file.endswith(".safetensors")]:
            with safe_open(file, framework="pt") as weights:
                dtypes = {name: weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118
            for name, dtype in dtypes.items():  # transformers would convert one to the other
                if name.removeprefix("elmo.") in int8 and dtype != "I8":
                    raise OSError(f"{file} must contain int8 weights; {name} has type {dtype}.")
                if name.removeprefix("elmo.") not in int8 and not dtype.startswith(("F", "BF")):
                    raise OSError(f"{file} must contain floating-point weights; {name} has type {dtype}.")
        loading_info, offloaded = PreTrainedModel._load_pretrained_model(
            model, state_dict, checkpoint_files, load_config, *args, **kwargs
        )
        report_mismatches(model, expected, loading_info)
        return loading_info, offloaded

    @staticmethod
    def _finalize_model_loading(model, load_config, loading_info):
        # Called before memory is allocated for weights that the checkpoint lacks.
        checkpoint = load_config.pretrained_model_name_or_path
        if checkpoint is not None:  # without a checkpoint, all weights are new
            wrong = [
                f"{name} has shape {tuple(found)}, not {tuple(expected)}"
                for name, found, expected in loading_info.mismatched_keys
                if BILM_WEIGHT.match(name) or not load_config.ignore_mismatched_sizes
            ]
            is_complete = model.config.architectures == [type(model).__name__]  # else, the head is new
            wrong += [
                f"{name} is missing" for name in loading_info.missing_keys if is_complete or BILM_WEIGHT.match(name)
            ]
            wrong += [f"{name} is unexpected" for name in loading_info.unexpected_keys if BILM_WEIGHT.match(name)]
            if wrong:
                shown = "; ".join(sorted(wrong)[:3]) + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else "")
                is_head = loading_info.mismatched_keys and not any(map(BILM_WEIGHT.match, wrong))
                raise RuntimeError(
                    f"The weights of {checkpoint} contradict its configuration: {shown}. "
                    "Use the config.json that was saved with them"
                    + (", or ignore_mismatched_sizes=True for a new head." if is_head else ".")
                )
        return PreTrainedModel._finalize_model_loading(model, load_config, loading_info)

    def save_pretrained(self, save_directory, is_main_process: bool = True, *args, **kwargs):
        """Save the model as transformers does, with a model card if the folder lacks one."""
        if not getattr(self, "is_quantized", False):  # a new model with the configuration of a quantized one
            self.config.__dict__.pop("quantization_config", None)
        super().save_pretrained(save_directory, is_main_process, *args, **kwargs)
        if self.model_card_writer is not None and is_main_process:
            self.model_card_writer(save_directory)

    def _upload_modified_files(self, working_dir, repo_id, *args, **kwargs):
        # `push_to_hub` has just written transformers' empty template where the repository had no card.
        if self.model_card_writer is not None:
            self.model_card_writer(working_dir, repo_id)
        return super()._upload_modified_files(working_dir, repo_id, *args, **kwargs)

    def _freeze(self):
        """Freeze the biLM below a head, unless the configuration says otherwise."""
        if self.base_model is not self:
            self.freeze_bilm(self.config.freeze_bilm)

    def freeze_bilm(self, frozen: bool = True):
        """Freeze the biLM and its token encoder or, with `frozen=False`, unfreeze them."""
        if not frozen and getattr(self, "is_quantized", False):
            raise ValueError("A quantized biLM cannot be trained, got freeze_bilm=False: call dequantize() first.")
        self.base_model.token_encoder.requires_grad_(not frozen)
        self.base_model.bilm.requires_grad_(not frozen)

    def half(self):
        return self.to(torch.float16)  # transformers refuses it for quantized models; here int8 stays int8

    def float(self):
        return self.to(torch.float32)

    def resize_token_embeddings(self, new_num_tokens=None, pad_to_multiple_of=None, mean_resizing=True):
        """Resize the word embedding. A character model reads any word and has no such table."""
        for name, number in (("new_num_tokens", new_num_tokens), ("pad_to_multiple_of", pad_to_multiple_of)):
            if isinstance(number, float) and name == "pad_to_multiple_of" and "words" in self.config.inputs:
                continue  # transformers has its own message
            if number is not None and (not isinstance(number, Integral) or number < 1):
                raise ValueError(f"{name} must be an integer, at least 1, got {number!r:.80}.")
        if "words" in self.config.inputs:
            return super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        size, multiple = int(new_num_tokens or self.config.vocab_size), int(pad_to_multiple_of or 1)
        self.config.vocab_size = -(-size // multiple) * multiple
        return self.get_input_embeddings()

    @torch.no_grad()
    def _init_weights(self, module):
        """Initialize as bilm-tf does. No parameter is left out: what a checkpoint lacks is uninitialized memory."""
        if isinstance(module, nn.Embedding):
            init.uniform_(module.weight, -1.0, 1.0)
            if module.padding_idx is not None:
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, nn.Conv1d):
            if self.config.char_activation == "relu":
                init.uniform_(module.weight, -0.05, 0.05)
            else:
                init.normal_(module.weight, 0.0, (module.in_channels * module.kernel_size[0]) ** -0.5)
            init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            init.normal_(module.weight, 0.0, module.in_features**-0.5)
            init.constant_(module.bias, getattr(module, "initial_bias", 0.0))
        elif isinstance(module, ElmoLSTM):
            init.xavier_uniform_(module.input_weight)
            init.xavier_uniform_(module.recurrent_weight)
            init.zeros_(module.bias)
            if module.projection_weight is not None:
                init.xavier_uniform_(module.projection_weight)
        elif isinstance(module, ElmoMix):
            if module.weights is not None:
                init.zeros_(module.weights)
            if module.gamma is not None:
                init.ones_(module.gamma)


def check_index(folder: str | os.PathLike | None, subfolder: str):
    """Raise an error if a folder's index of weights is damaged or names files outside the folder."""
    path = os.path.join(folder or "", subfolder or "", SAFE_WEIGHTS_INDEX_NAME)
    if folder is None or not os.path.isfile(path):
        return
    try:
        with open(path, encoding="utf-8") as file:
            index = json.load(file)
        names = {*index["weight_map"].values()} | {*dict(index["metadata"])}
        is_valid = all(isinstance(name, str) for name in names)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        is_valid = False
    if not is_valid:
        raise OSError(f"{path} must be the index of a checkpoint's weights. Download or save it again.")
    outside = [name for name in index["weight_map"].values() if os.path.basename(name) != name]
    if outside:
        raise OSError(f"{path} must name files in its own folder, got {outside[0]!r}.")


@dataclass
class ElmoModelOutput(ModelOutput):
    """Outputs of `ElmoModel`.

    Args:
        last_hidden_state (`torch.FloatTensor` of shape `(B, T, 2P)`): the ELMo vectors, aligned with the input, its
            boundaries included; exactly zero at padding.
        hidden_states (`tuple(torch.FloatTensor)`, *optional*): the L + 1 layers `(B, T, 2P)` that are mixed: the
            context-free word vectors (twice, side by side), then each LSTM layer, forward half first.
        state (`tuple(torch.FloatTensor)`, *optional*): LSTM outputs `(L, 2, B, P)` and cells `(L, 2, B, H)` after the
            last word in each direction.
    """

    last_hidden_state: torch.FloatTensor | None = None
    hidden_states: tuple[torch.FloatTensor | None, ...] | None = None
    state: BiLMState | None = None


class ElmoModel(ElmoPreTrainedModel):
    """ELMo: contextual word vectors.

    ```python
    >>> inputs = tokenizer(["Don 't stop !"], return_tensors="pt")
    >>> model(**inputs).last_hidden_state.shape     # <S> Don 't stop ! </S>
    torch.Size([1, 6, 1024])
    ```
    """

    def __init__(self, config: ElmoConfig):
        super().__init__(config)
        self.token_encoder = ElmoTokenEncoder(config)
        self.bilm = ElmoBiLM(config)
        self.mix = ElmoMix(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the embedding of words where the model reads word ids, of characters otherwise."""
        encoder = self.token_encoder
        if encoder.word_embedding is not None:
            return encoder.word_embedding
        return encoder.characters.embedding  # type: ignore[union-attr]  # one of the two always exists

    def set_input_embeddings(self, value: nn.Embedding):
        if self.token_encoder.word_embedding is not None:
            self.token_encoder.word_embedding = value
        else:
            self.token_encoder.characters.embedding = value  # type: ignore[union-attr]  # as above

    @torch.no_grad()
    def layer_weights(self) -> dict[str, float]:
        """Return the mix by name: `words` (layer 0), `lstm_1` ... `lstm_L`, and `gamma`."""
        names = ["words"] + [f"lstm_{layer}" for layer in range(1, self.config.num_hidden_layers + 1)]
        weights, gamma = self.mix()
        return {name: float(weight) for name, weight in zip([*names, "gamma"], [*weights, gamma])}

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        char_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        state: BiLMState | None = None,
        output_state: bool = False,
        output_hidden_states: bool | list[int] | None = None,
    ) -> ElmoModelOutput:
        r"""
        Args:
            input_ids (`(B, T)`): word ids. Used by models with word input, ignored by others.
            char_ids (`(B, T, W)`): characters of the same words, a row of zeros at padding.
            attention_mask (`(B, T)`): zero at padding. By default, padding is where ids are zero.
            inputs_embeds (`(B, T, P)`): context-free word vectors, instead of ids and characters.
            state: LSTM outputs and cells to start each sentence with, as returned by an earlier call; zeros by default.
            output_state: return the state after the last word. The model itself remembers nothing.
            output_hidden_states: return all layers, or only those whose indices are listed.
        """
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if torch.compiler.is_exporting():
            if state is not None or output_state:
                raise ValueError("A model is exported without state and output_state; got one of them: omit it.")
            mask = check_shapes(self.config, input_ids, char_ids, attention_mask, inputs_embeds)
            layers = padded_layers(self.token_encoder, self.bilm, mask, input_ids, char_ids, inputs_embeds)
            return ElmoModelOutput(self.mix(layers, mask), select_layers(layers, output_hidden_states))
        mask = check_inputs(
            self.config,
            input_ids=input_ids,
            char_ids=char_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
        )
        packing = Packing.from_mask(mask)
        if inputs_embeds is None:
            x, words = self.encode_words(input_ids, char_ids, packing.positions)  # (U, P), (N,)
        else:
            x = inputs_embeds.flatten(0, 1)[packing.positions]  # (N, P)
            words = torch.arange(len(x), device=x.device)
        if state is not None:
            check_state(self.config, state, batch_size=len(mask))
        layers, last_state = self.bilm(x, words, packing, state)
        layers = [unpack(layer, packing, mask) for layer in layers]
        return ElmoModelOutput(
            last_hidden_state=self.mix(layers, mask),
            hidden_states=select_layers(layers, output_hidden_states),
            state=last_state if output_state or state is not None else None,
        )

    def encode_words(
        self, input_ids: torch.Tensor | None, char_ids: torch.Tensor | None, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the context-free vectors (U, P) of the distinct words at `positions` (N,) of the flattened batch, and
        the row of each word in them (N,)."""
        encoder, word_ids, characters = self.token_encoder, None, None
        if encoder.word_embedding is not None and input_ids is not None:
            word_ids = input_ids.flatten(0, 1)[positions].long()  # (N,)
            check_ids_in_range("input_ids", word_ids, encoder.word_embedding.num_embeddings)
        if encoder.characters is not None and char_ids is not None:
            characters = char_ids.flatten(0, 1)[positions].long()  # (N, W)
            check_ids_in_range("char_ids", characters, encoder.characters.embedding.num_embeddings)
        x, inverse = encoder(word_ids, characters)
        return x.to(compute_dtype(self.bilm.bias, x)), inverse


def unpack(layer: torch.Tensor, packing: Packing, mask: torch.Tensor) -> torch.Tensor:
    """Pad packed words: (N, 2P) -> (B, T, 2P), zeros at padding"""
    padded = layer.new_zeros(mask.numel(), layer.shape[1]).index_copy(0, packing.positions.to(layer.device), layer)
    return padded.view(*mask.shape, layer.shape[1])


@dataclass
class ElmoForPreTrainingOutput(ModelOutput):
    """Outputs of `ElmoForPreTraining`.

    Args:
        loss (`torch.FloatTensor`, *optional*): mean of both directions' losses.
        forward_loss, backward_loss (`torch.FloatTensor`, *optional*): -log p of the next word, mean over the words.
        perplexity, forward_perplexity, backward_perplexity (`torch.FloatTensor`, *optional*): exp of these losses for
            the full softmax, None for the sampled one.
        forward_logits (`torch.FloatTensor` of shape `(B, T, vocab_size)`, *optional*): logits of the word after each
            word, by id; for id 0, padding, the lowest finite number. Not returned with labels or targets.
        backward_logits (`torch.FloatTensor` of shape `(B, T, vocab_size)`, *optional*): logits of the word before each
            word.
        hidden_states, state: as in `ElmoModelOutput`; windows have no hidden states.
    """

    loss: torch.FloatTensor | None = None
    forward_loss: torch.FloatTensor | None = None
    backward_loss: torch.FloatTensor | None = None
    perplexity: torch.FloatTensor | None = None
    forward_perplexity: torch.FloatTensor | None = None
    backward_perplexity: torch.FloatTensor | None = None
    forward_logits: torch.FloatTensor | None = None
    backward_logits: torch.FloatTensor | None = None
    hidden_states: tuple[torch.FloatTensor | None, ...] | None = None
    state: BiLMState | None = None


class ElmoLMHead(ElmoLinear):
    """The softmax that both directions share: row r is the word with id r + 1."""

    def forward(self, hidden, targets=None, num_samples: int | None = None):
        """Return logits: hidden (..., P) -> (..., V - 1)

        With targets, rows (N,) of each direction, hidden is (N, P) of each, and the sum of the -log p of each
        direction's targets is returned, by the full softmax or one of `num_samples` negative samples.
        """
        if targets is None:
            return super().forward(hidden)
        weight = self.float_weight("weight")
        softmax = {"weight": weight, "bias": self.bias, "dtype": compute_dtype(weight, hidden[0])}
        if num_samples is not None:
            return sampled_softmax_loss(hidden, targets=targets, num_samples=num_samples, **softmax)
        return [full_softmax_loss(h, targets=rows, **softmax)[0] for h, rows in zip(hidden, targets)]


class ElmoForPreTraining(ElmoPreTrainedModel):
    """The two language models: each direction predicts its next word, by one softmax that both share.

    Word ids are sorted by frequency, the most frequent word first: training draws its negative samples by rank.
    """

    accepts_loss_kwargs = False  # all windows have equally many words, so a mean of means is the mean

    def __init__(self, config: ElmoConfig):
        super().__init__(config)
        self.elmo = ElmoModel(config)
        self.lm_head = ElmoLMHead(config.output_dim, config.vocab_size - 1)
        self.post_init()
        self._freeze()

    def _freeze(self):
        self.elmo.mix.requires_grad_(False)  # the language models do not use it

    def resize_token_embeddings(self, new_num_tokens=None, pad_to_multiple_of=None, mean_resizing=True):
        """Resize the word embedding, where there is one, and `lm_head`, whose new rows start as in a new model."""
        if self.lm_head.weight.dtype == torch.int8:
            rows, scales = self.lm_head.weight, self.lm_head.weight_scale
            self.lm_head.dequantize_weight("weight")
            self.lm_head.requires_grad_(False)
            try:
                return self.resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
            finally:
                self.lm_head.quantize_weight("weight")
                number = min(len(rows), len(self.lm_head.weight))
                self.lm_head.weight.data[:number] = rows[:number]  # to the last bit
                self.lm_head.weight_scale[:number] = scales[:number]
        old = self.lm_head
        table = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        rows = self.config.vocab_size - 1
        if rows == old.out_features:
            self.lm_head = old
            return table
        # transformers has given it a row for padding too.
        self.lm_head = ElmoLMHead(old.in_features, rows, device=old.weight.device, dtype=old.weight.dtype)
        self._init_weights(self.lm_head)
        self.lm_head._is_hf_initialized = True  # else `post_init` would overwrite the old rows
        self.lm_head.requires_grad_(old.weight.requires_grad)
        with torch.no_grad():
            for new, kept in zip(self.lm_head.parameters(), old.parameters()):
                new[: len(kept)] = kept[:rows]
        return table

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        char_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        targets: torch.LongTensor | None = None,
        state: BiLMState | None = None,
        output_state: bool = False,
        output_hidden_states: bool | list[int] | None = None,
    ) -> ElmoForPreTrainingOutput:
        r"""
        Read sentences in both directions or, with `targets`, windows of running text (see `forward_windows`).

        Args: those of `ElmoModel`, and
            labels (`(B, T)`): the word ids of the sentences, usually `input_ids`: each direction predicts the word
                that it reads next. -100 at words that should not be predicted.
            targets (`(2, B, T)`): the next word at each position of a window, in each direction.
        """
        if targets is not None:
            if labels is not None or attention_mask is not None:
                raise ValueError("Windows, the inputs with targets, take neither labels nor attention_mask; got one.")
            return self.forward_windows(input_ids, char_ids, targets=targets, state=state)
        outputs = self.elmo(
            input_ids=input_ids,
            char_ids=char_ids,
            attention_mask=attention_mask,
            state=state,
            output_state=output_state,
            output_hidden_states=True,
        )
        top = outputs.hidden_states[-1].chunk(2, -1)  # two of (B, T, P)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        rest = {"hidden_states": select_layers(outputs.hidden_states, output_hidden_states), "state": outputs.state}
        if labels is None:
            logits = [self.lm_head(half) for half in top]  # (B, T, V - 1)
            logits = [F.pad(each, (1, 0), value=torch.finfo(each.dtype).min) for each in logits]
            return ElmoForPreTrainingOutput(forward_logits=logits[0], backward_logits=logits[1], **rest)
        mask = word_mask(self.config, input_ids, char_ids, attention_mask)
        check_labels("labels", labels, tuple(mask.shape), self.config.vocab_size)
        targets = next_word_targets(labels.long(), mask.to(labels.device))  # (2, B, T)
        losses = self.mean_losses([half.flatten(0, 1) for half in top], targets.flatten(1))
        return self.loss_output(losses, **rest)

    def forward_windows(
        self,
        input_ids: torch.LongTensor | None,
        char_ids: torch.LongTensor | None,
        targets: torch.LongTensor,
        state: BiLMState | None = None,
    ) -> ElmoForPreTrainingOutput:
        """Predict the next words of windows, rows of running text without padding, one window for each direction.

        Args:
            input_ids (`(2, B, T)`), char_ids (`(2, B, T, W)`): the words, those of the backward direction in its
                reading order.
            targets (`(2, B, T)`): the next word in each direction, -100 for none.
            state: the state returned for the previous window, to continue where it ended. No gradient flows through it.
        """
        check_targets(targets, self.config.vocab_size)
        _, batch_size, window = targets.shape
        input_ids, char_ids = [
            ids.flatten(0, 1) if isinstance(ids, torch.Tensor) and ids.dim() > 2 else ids
            for ids in (input_ids, char_ids)
        ]
        mask = check_inputs(self.config, input_ids=input_ids, char_ids=char_ids)
        if mask.shape != (2 * batch_size, window):
            raise ValueError(
                f"The words of windows must have the shape of their targets, {tuple(targets.shape)}, "
                f"got {len(mask)} rows of {mask.shape[1]} words, both directions together."
            )
        positions = torch.arange(mask.numel(), device=mask.device).view(targets.shape)
        positions = positions.transpose(1, 2).flatten()  # (2 * T * B,), step by step
        x, words = self.elmo.encode_words(input_ids, char_ids, positions)  # (U, P), (2 * T * B,)
        if state is None:
            state = self.elmo.bilm.initial_state(x, batch_size)
        else:
            check_state(self.config, state, batch_size)
        outputs, last_state = self.elmo.bilm.run_layers(x, words.chunk(2), [batch_size] * window, state)
        losses = self.mean_losses(outputs[-1], targets.long().transpose(1, 2).flatten(1))
        return self.loss_output(losses, state=tuple(part.detach() for part in last_state))

    def mean_losses(self, hidden: Sequence[torch.Tensor], targets: torch.Tensor) -> list[torch.Tensor]:
        """Return the mean -log p of each direction's targets: hidden (N, P), targets (N,) of ids, -100 for none"""
        known = [(ids > 0).nonzero().squeeze(1).to(h.device) for h, ids in zip(hidden, targets)]
        hidden = [F.dropout(h[indices], self.config.dropout, self.training) for h, indices in zip(hidden, known)]
        rows = [ids.to(h.device)[indices] - 1 for h, ids, indices in zip(hidden, targets, known)]
        sums = self.lm_head(hidden, rows, self.num_samples)
        return [total / max(len(indices), 1) for total, indices in zip(sums, known)]

    @property
    def num_samples(self) -> int | None:
        """The number of negative samples, None for the full softmax."""
        number = self.config.num_negative_samples
        return number if self.training and number is not None and number < self.lm_head.out_features else None

    def loss_output(self, losses: list[torch.Tensor], **rest) -> ElmoForPreTrainingOutput:
        loss = (losses[0] + losses[1]) / 2
        is_full = self.num_samples is None
        perplexities = [torch.exp(each.detach()) if is_full else None for each in (loss, *losses)]
        return ElmoForPreTrainingOutput(loss, *losses, *perplexities, **rest)


def next_word_targets(labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the labels after and before each word: labels, mask (B, T) -> (2, B, T), -100 at padding and the ends"""
    rows, columns = mask.nonzero(as_tuple=True)  # (N,), sentence by sentence
    targets = labels.new_full((2, *labels.shape), -100)
    same = rows[1:] == rows[:-1]
    here, after = [(rows[part][same], columns[part][same]) for part in (slice(None, -1), slice(1, None))]
    targets[0][here] = labels[after]
    targets[1][after] = labels[here]
    return targets


class ElmoForTokenClassification(ElmoPreTrainedModel):
    """A label for each word: the ELMo vectors, dropout and a linear layer.

    The mix and the linear layer are trained, the biLM only with `freeze_bilm=False`.
    """

    def __init__(self, config: ElmoConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.elmo = ElmoModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()
        self._freeze()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        char_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        output_hidden_states: bool | list[int] | None = None,
        **loss_kwargs,
    ) -> TokenClassifierOutput:
        r"""
        Args: those of `ElmoModel`, and
            labels (`(B, T)`): the label of each word, -100 where there is none: special tokens, padding.
            loss_kwargs: passed on by Trainer, above all `num_items_in_batch`: the loss is then the sum over the
                labelled words divided by it, so accumulated gradients equal those of one large batch.
        """
        outputs = self.elmo(
            input_ids=input_ids,
            char_ids=char_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            output_hidden_states=output_hidden_states,
        )
        logits = self.classifier(self.dropout(outputs.last_hidden_state))  # (B, T, labels)
        loss = None
        if labels is not None:
            check_labels("labels", labels, tuple(logits.shape[:2]), self.num_labels)
            loss = self.loss_function(logits, labels.long(), self.config, **loss_kwargs)
        return TokenClassifierOutput(loss=loss, logits=logits, hidden_states=outputs.hidden_states)


ElmoModel.register_for_auto_class("AutoModel")
ElmoForPreTraining.register_for_auto_class("AutoModelForPreTraining")
ElmoForTokenClassification.register_for_auto_class("AutoModelForTokenClassification")

__all__ = ["ElmoForPreTraining", "ElmoForTokenClassification", "ElmoModel", "ElmoPreTrainedModel"]
