# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""ELMo (Peters et al. 2018, https://arxiv.org/abs/1802.05365) as a transformers model.

Follows allenai/bilm-tf to the bit where it can, and says where it does not: no state is kept between calls, and words
that are masked do not exist, whatever stands beside them.

Shapes: B sentences of at most T words of W characters; N words in all, U of them distinct; F convolution filters;
H LSTM cells and P outputs of one direction; L layers.
"""

import math
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import nn
from torch.autograd.function import once_differentiable
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import TokenClassifierOutput
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_elmo import ElmoConfig

# Words whose convolutions are computed together, and the rows of gates that are computed before the time loop when
# nothing is kept for a backward pass: both bound the memory, not the result.
CONVOLUTION_WORDS = 64
GATE_BYTES = 1 << 26
# A chunk of the softmax's scores: as large as fits into a cache, and enough rows for a fast product.
SCORE_BYTES = 1 << 21
SCORE_ROWS = 128
# Products of at most so many rows are computed in parts.
FEW_ROWS = 16
PARTS = 8

OF_BILM = re.compile(r"^(elmo\.)?(token_encoder|bilm)\.")  # names of weights that no head brings

BiLMState = tuple[torch.Tensor, torch.Tensor]  # outputs (L, 2, B, P), cells (L, 2, B, H); direction 0 is forward


@torch.compiler.disable  # sizes that depend on the words
def distinct_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices of one row of each kind (U,), and for each row its kind (N,), so that `rows[first][kind] == rows`."""
    # `torch.unique(dim=0)` sorts whole rows; sorting a polynomial hash of them is many times faster. Multiplication
    # wraps at 64 bits. Two different rows with one hash are found by comparing, and then the slow way is taken.
    powers = torch.full((rows.shape[1],), 6364136223846793005, device=rows.device).cumprod(0)
    _, kind = torch.unique((rows * powers).sum(1), return_inverse=True)

    def first_of_each(kind):
        number = int(kind.max()) + 1 if len(kind) else 0
        return torch.zeros(number, dtype=torch.long, device=rows.device).scatter_(
            0, kind, torch.arange(len(kind), device=rows.device)
        )

    first = first_of_each(kind)
    if not torch.equal(rows[first][kind], rows):
        _, kind = torch.unique(rows, dim=0, return_inverse=True)
        first = first_of_each(kind)
    return first, kind


def computing_dtype(weight: torch.Tensor) -> torch.dtype:
    """The precision that is computed in: the weight's, or that of autocast where it is on."""
    device = weight.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype


def wants_gradient(*tensors: torch.Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


class ElmoHighway(nn.Module):
    """y = g * relu(W_t x + b_t) + (1 - g) * x with g = sigmoid(W_c x + b_c) (Srivastava et al. 2015)."""

    def __init__(self, size: int):
        super().__init__()
        self.transform = nn.Linear(size, size)
        self.carry = nn.Linear(size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = torch.sigmoid(self.carry(x))
        return gate * F.relu(self.transform(x)) + (1 - gate) * x


class LargestResponses(torch.autograd.Function):
    """What filters find in a word at the place where each finds most, max_t sum_kd K_kd e_(t+k)d, and its gradient.

    Only one place of each word and filter has a gradient, so that nothing is kept but where it is.
    """

    @staticmethod
    def forward(ctx, embedded, kernels, places, keep):
        """embedded (u, t + width - 1, D), kernels (F, D, width), places of each (F,) or None for all t -> (u, F)"""
        windows = embedded.unfold(1, kernels.shape[2], 1).flatten(2)  # (u, t, D * width)
        responses = (windows.flatten(0, 1) @ kernels.flatten(1).t()).view(*windows.shape[:2], len(kernels))
        length = windows.shape[1]
        if places is not None:
            responses.masked_fill_(torch.arange(length, device=places.device)[:, None] >= places, -torch.inf)
        largest = responses.amax(1)  # (u, F)
        if keep:
            # The first place, in a fifth of the time that `max` takes to tell it. What is not a number has none.
            backwards = torch.arange(length, 0, -1.0, device=embedded.device)[:, None]  # (t, 1): t ... 1
            first = length - (responses.eq_(largest[:, None]) * backwards).amax(1)
            ctx.save_for_backward(windows, kernels, first.clamp_(max=length - 1).to(torch.int16))
        return largest

    @staticmethod
    @once_differentiable
    def backward(ctx, d_largest):
        windows, kernels, places = ctx.saved_tensors
        d_responses = d_largest.new_zeros(*windows.shape[:2], len(kernels))  # (u, t, F)
        d_responses = d_responses.scatter_(1, places[:, None].long(), d_largest[:, None]).flatten(0, 1)
        d_kernels = d_embedded = None
        if ctx.needs_input_grad[1]:
            d_kernels = (d_responses.t() @ windows.flatten(0, 1)).view_as(kernels)
        if ctx.needs_input_grad[0]:
            (words, length), (_, size, width) = windows.shape[:2], kernels.shape
            d_windows = (d_responses @ kernels.flatten(1)).view(words, length, size, width)
            d_embedded = d_largest.new_zeros(words, length + width - 1, size)
            for start in range(width):
                d_embedded[:, start : start + length] += d_windows[..., start]
        return d_embedded, d_kernels, None, None


class ElmoCharacterEncoder(nn.Module):
    """Words from their characters: embedding, convolutions, maximum over positions, highway layers."""

    def __init__(self, config: ElmoConfig):
        super().__init__()
        # Character 0 is the only one with a zero vector. The padding character inside a word is learned like any
        # other and takes part in every convolution.
        self.embedding = nn.Embedding(config.char_vocab_size, config.char_embedding_dim, padding_idx=0)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.char_embedding_dim, number, width) for width, number in config.char_filters
        )
        self.highways = nn.ModuleList(ElmoHighway(config.num_filters) for _ in range(config.num_highway_layers))
        self.activation = getattr(torch, config.char_activation)

    def forward(self, char_ids: torch.Tensor) -> torch.Tensor:
        """char_ids (U, W) -> (U, F)"""
        x = self.activation(self.convolve(char_ids))  # the maximum comes first, the activation after it
        for highway in self.highways:
            x = highway(x)
        return x

    @torch.compiler.disable  # a gradient of our own
    def convolve(self, char_ids: torch.Tensor) -> torch.Tensor:
        """The largest response of each filter to each word: (U, W) -> (U, F)"""
        widths, length = [each.kernel_size[0] for each in self.convolutions], char_ids.shape[1]
        widest = max(widths)
        # Zeros make all filters as wide as the widest: one product with more terms, a sixth at the released sizes, is
        # faster than one for each width. At the end of a long word wide filters have fewer places than narrow ones.
        weights = [F.pad(each.weight, (0, widest - width)) for each, width in zip(self.convolutions, widths)]
        kernels, bias = torch.cat(weights), torch.cat([each.bias for each in self.convolutions])
        dtype = computing_dtype(kernels)
        kernels, bias = kernels.to(dtype), bias.to(dtype)  # (F, D, width), (F,)
        by_length, groups = self.group_by_length(char_ids)
        char_ids = F.pad(char_ids, (0, widest))
        found, places = [], None
        with torch.autocast(char_ids.device.type, enabled=False):
            for words, end in groups:  # the longest last
                embedded = self.embedding(char_ids[words, : end + widest]).to(dtype)  # (u, t + width - 1, D)
                if places is None and end + widest > length:
                    filters = zip(self.convolutions, widths)
                    places = torch.cat([char_ids.new_full(each.bias.shape, length - w + 1) for each, w in filters])
                found.append(LargestResponses.apply(embedded, kernels, places, wants_gradient(embedded, kernels)))
            return torch.cat(found)[by_length.argsort()] + bias

    @torch.compiler.disable  # sizes that depend on the words
    def group_by_length(self, char_ids: torch.Tensor) -> tuple[torch.Tensor, list[tuple[torch.Tensor, int]]]:
        """Words from the shortest to the longest (U,), and groups of them with the end of the longest.

        Windows that lie wholly in the padding at the end of a word all give the same number, so that one of them is
        enough for the maximum: a short word is convolved up to its end and one such window.
        """
        width = char_ids.shape[1]
        ends = (char_ids != char_ids[:, -1:]) * torch.arange(1, width + 1, device=char_ids.device)
        ends, by_length = ends.amax(1).sort()  # (U,)
        longest = [*ends[CONVOLUTION_WORDS - 1 :: CONVOLUTION_WORDS].tolist(), int(ends[-1]) if len(ends) else 0]
        return by_length, list(zip(by_length.split(CONVOLUTION_WORDS), longest))


class ElmoTokenEncoder(nn.Module):
    """The context-free vector x of each word, from its characters, its id or both."""

    def __init__(self, config: ElmoConfig):
        super().__init__()
        self.word_embedding = self.characters = self.projection = None
        width = 0
        if "words" in config.inputs:
            width += config.word_embedding_dim or config.output_dim
            self.word_embedding = nn.Embedding(config.vocab_size, width, padding_idx=0)
        if "characters" in config.inputs:
            width += config.num_filters
            self.characters = ElmoCharacterEncoder(config)
        # bilm-tf projects only where the sizes differ, ELMoForManyLangs always.
        if width != config.output_dim or config.inputs == "words+characters":
            self.projection = nn.Linear(width, config.output_dim)

    def forward(self, word_ids: torch.Tensor | None, char_ids: torch.Tensor | None) -> torch.Tensor:
        """word_ids (N,), char_ids (N, W), the one that is not read None -> (N, P)"""
        read = [ids if ids.dim() == 2 else ids[:, None] for ids in (word_ids, char_ids) if ids is not None]
        # Each distinct word is encoded once and its vector copied to where the word stands; on the way back the
        # gradients of its copies are added up.
        first, kind = distinct_rows(torch.cat(read, 1))
        x = []
        if self.word_embedding is not None:
            x.append(self.word_embedding(word_ids[first]))
        if self.characters is not None:
            x.append(self.characters(char_ids[first]))
        x = torch.cat(x, 1)  # (U, E): the word embedding stands first, as in ELMoForManyLangs
        if self.projection is not None:
            x = self.projection(x)
        return F.embedding(kind, x)  # threads add up the gradients of x[kind] in any order, and no run equals another


@dataclass
class Packing:
    """Where the words of a padded batch go when they are read step by step, without padding.

    Step t of a direction holds the t-th word of each sentence that has one, the longest sentence first, so that a
    finished sentence is no longer there. N words take N rows.
    """

    places: torch.Tensor  # (N,) of each word in the flattened batch, B x T
    sentences: torch.Tensor  # (B,) from the longest to the shortest
    steps: list[int]  # words at each step
    orders: tuple[torch.Tensor, torch.Tensor]  # forward and backward: (N,) words in the order of reading
    returns: tuple[torch.Tensor, torch.Tensor]  # their inverses

    @classmethod
    @torch.compiler.disable  # sizes that depend on the lengths
    def of(cls, mask: torch.Tensor) -> "Packing":
        """mask (B, T): true where there is a word. Holes are skipped as padding on either side is."""
        lengths = mask.sum(1)  # (B,)
        places = mask.flatten().nonzero().squeeze(1)  # (N,)
        sentences = lengths.argsort(descending=True, stable=True)
        ranks = sentences.argsort()  # (B,)
        longest = int(lengths.max()) if len(lengths) else 0
        steps = (lengths[:, None] > torch.arange(longest, device=mask.device)).sum(0)  # (longest,)
        starts = steps.cumsum(0) - steps
        row = places // max(mask.shape[1], 1)  # (N,) sentence of each word
        index = mask.cumsum(1).flatten()[places] - 1  # (N,) word of its sentence
        forward = starts[index] + ranks[row]
        backward = starts[lengths[row] - 1 - index] + ranks[row]
        return cls(places, sentences, steps.tolist(), (forward.argsort(), backward.argsort()), (forward, backward))


def add_product(sums: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """sums (n, b) += x (n, a) weight (a, b), in place"""
    rows, size = x.shape
    if rows > FEW_ROWS or size % PARTS or x.device.type != "cpu":
        return sums.addmm_(x, weight)
    # A CPU multiplies few rows one after the other, in one long sum. Shorter sums run side by side and round less.
    parts = torch.bmm(x.view(rows, PARTS, -1).transpose(0, 1), weight.view(PARTS, size // PARTS, -1))  # (PARTS, n, b)
    return sums.add_(parts.sum(0))


# gradient (n, H), y -> gradient * y * (1 - y), gradient * (1 - y * y), and gradient where y is between two limits, not
# at them: in one pass and, with grad_input, in place
sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
clamp_backward = torch.ops.aten.hardtanh_backward


def tanh_(x: torch.Tensor) -> torch.Tensor:
    """tanh x = 2 sigmoid(2x) - 1, in place: on a CPU a third of the time of `torch.tanh_`, and off by 2e-7 at most."""
    return x.mul_(2).sigmoid_().mul_(2).sub_(1)


def halves(items: tuple) -> tuple[tuple, tuple]:
    return items[: len(items) // 2], items[len(items) // 2 :]


def side_by_side(function, forward: tuple, backward: tuple, device: torch.device, rows: int) -> tuple:
    """What a function gives for the arguments of each direction, which reads so many sentences at once.

    On a CPU each has a thread of its own and half of the cores: a step is too little work for all of them. With few
    sentences it is not, as products are then computed in parts.
    """
    threads = torch.get_num_threads()
    if threads == 1 or device.type != "cpu" or rows <= FEW_ROWS:
        return function(*forward), function(*backward)
    inference = torch.is_inference_mode_enabled()

    def with_half(arguments):
        torch.set_num_threads(threads // 2)  # of the thread that calls it
        with torch.inference_mode(inference), torch.no_grad():
            return function(*arguments)

    other = direction_threads().submit(with_half, backward)
    try:
        return with_half(forward), other.result()
    finally:
        torch.set_num_threads(threads)


@cache
def direction_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="elmo")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=direction_threads.cache_clear)  # a forked process has none of the threads


def in_chunks(steps: list[int], rows: int) -> Iterator[list[int]]:
    """Steps one after the other, as many at a time as have at most so many rows together, or one"""
    first, left = 0, rows
    for number, step in enumerate(steps):
        if number > first and step > left:
            yield steps[first:number]
            first, left = number, rows
        left -= step
    if steps:
        yield steps[first:]


def read_words(x, input_weight, recurrent_weight, bias, projection, h0, c0, steps, cell_clip, output_clip, keep):
    """One direction: x (N, P), h0 (B, P), c0 (B, H) -> outputs (N, P), h, c; for a gradient gates (N, 4H), c (N, H)"""
    size = c0.shape[1]
    outputs = x.new_empty(len(x), h0.shape[1])  # (N, P)
    gates, cells = x.new_empty(0, 4 * size), x.new_empty(0, size)
    last_h, last_c = h0.clone(), c0.clone()  # (B, P), (B, H)
    start, later = 0, iter([*steps, 0])
    h, c = h0[: (rows := next(later))], c0[:rows]
    # The input's half of the gates is one product, over as many steps as memory allows.
    for some in in_chunks(steps, len(x) if keep else GATE_BYTES // (4 * size * x.element_size())):
        now = slice(start, start := start + sum(some))
        gates = torch.addmm(bias, x[now], input_weight)  # (n, 4H)
        cells = x.new_empty(len(gates), size)  # (n, H)
        # Whatever calls torch keeps the other direction waiting for the interpreter: all views are made at once.
        parts = gates, gates[:, : 3 * size], *gates.split(size, 1), cells, outputs[now]
        for gate, sigmoids, i, f, o, j, cell, output in zip(*[part.split(some) for part in parts]):
            add_product(gate, h, recurrent_weight)
            sigmoids.sigmoid_()
            tanh_(j)
            torch.mul(c, f, out=cell).addcmul_(i, j)
            if cell_clip is not None:
                cell.clamp_(-cell_clip, cell_clip)
            hidden = tanh_(cell.clone()).mul_(o)
            if projection is None:
                output.copy_(hidden)
            else:
                add_product(output.zero_(), hidden, projection)
                if output_clip is not None:
                    output.clamp_(-output_clip, output_clip)
            h, c = output, cell
            if (left := next(later)) < rows:  # the shortest sentences end here
                last_h[left:rows], last_c[left:rows] = h[left:], c[left:]
                h, c, rows = h[:left], c[:left], left
    return outputs, last_h, last_c, *((gates, cells) if keep else (None, None))


def gradients_of_reading(given, kept, wanted, needs, steps, cell_clip, output_clip):
    """One direction: the gradients of what `read_words` was given, by those of its outputs, h and c"""
    x, input_weight, recurrent_weight, _, projection, h0, c0 = given
    outputs, gates, cells = kept
    d_outputs, d_h, d_c = [gradient.clone() for gradient in wanted]  # (N, P), (B, P), (B, H)
    d_gates = torch.empty_like(gates)  # (N, 4H)
    hidden = torch.empty_like(cells)  # (N, H) o * tanh(c), before the projection
    # A clipped number is the limit in its own precision, but it is compared in single precision.
    cell_clip, output_clip = [
        clip if clip is None else torch.tensor(clip, dtype=x.dtype).item() for clip in (cell_clip, output_clip)
    ]
    size = c0.shape[1]
    parts = cells, outputs, d_outputs, hidden, *gates.split(size, 1), d_gates, *d_gates.split(size, 1)
    parts = [part.split(steps) for part in parts]
    h_before, c_before = [
        [first[:rows] for rows in steps[:1]] + [now[:rows] for now, rows in zip(after, steps[1:])]
        for first, after in ((h0, parts[1]), (c0, parts[0]))
    ]
    back_projection = None if projection is None else projection.t()
    back_recurrent_weight = recurrent_weight.t()
    for c, out, d_out, hid, i, f, o, j, d_gate, d_i, d_f, d_o, d_j, before in reversed([*zip(*parts, c_before)]):
        rows = len(c)
        d_h_now, d_cell = d_h[:rows], d_c[:rows]
        d_out.add_(d_h_now)
        tanh_c = tanh_(c.clone())
        torch.mul(o, tanh_c, out=hid)
        d_hidden = d_out
        if projection is not None:
            if output_clip is not None:
                clamp_backward(d_out, out, -output_clip, output_clip, grad_input=d_out)
            d_hidden = d_out @ back_projection
        sigmoid_backward(torch.mul(d_hidden, tanh_c, out=d_o), o, grad_input=d_o)
        d_cell.add_(tanh_backward(d_hidden * o, tanh_c))
        if cell_clip is not None:
            clamp_backward(d_cell, c, -cell_clip, cell_clip, grad_input=d_cell)
        sigmoid_backward(torch.mul(d_cell, j, out=d_i), i, grad_input=d_i)
        sigmoid_backward(torch.mul(d_cell, before, out=d_f), f, grad_input=d_f)
        tanh_backward(torch.mul(d_cell, i, out=d_j), j, grad_input=d_j)
        d_cell.mul_(f)
        torch.mm(d_gate, back_recurrent_weight, out=d_h_now)

    d_x = d_gates @ input_weight.t() if needs[0] else None
    d_input_weight = x.t() @ d_gates if needs[1] else None
    d_recurrent_weight = None
    if needs[2]:
        h_before = torch.cat(h_before) if h_before else x.new_empty(0, h0.shape[1])  # (N, P)
        d_recurrent_weight = h_before.t() @ d_gates
    d_bias = d_gates.sum(0) if needs[3] else None
    d_projection = hidden.t() @ d_outputs if needs[4] else None
    return d_x, d_input_weight, d_recurrent_weight, d_bias, d_projection, d_h, d_c


class ProjectedLSTMs(torch.autograd.Function):
    """The two directions of one layer, each over its packed words, with their gradient written out.

    i, f, o = sigmoid(x W + h R + b), j = tanh(x W + h R + b)
    c = clip(f * c + i * j)           the clipped cell is carried
    h = clip((o * tanh(c)) V)         the clipped output recurs

    Autograd over a loop of steps would add up one small weight gradient a step; here the gates' gradients are
    collected and each weight gradient is one product.
    """

    @staticmethod
    def forward(ctx, steps, cell_clip, output_clip, keep, *given):
        """Of each direction x, W, R, b, V, h0, c0 -> of each outputs, h, c"""
        options = steps, cell_clip, output_clip
        x, h0 = given[0], given[5]
        found = side_by_side(read_words, *[(*one, *options, keep) for one in halves(given)], x.device, len(h0))
        if keep:
            ctx.save_for_backward(*given, *[part for outputs, _, _, *kept in found for part in (outputs, *kept)])
            ctx.options = options
        return *found[0][:3], *found[1][:3]

    @staticmethod
    @once_differentiable
    def backward(ctx, *wanted):
        saved, needs = ctx.saved_tensors, ctx.needs_input_grad[4:]
        parts = zip(*map(halves, (saved[: len(needs)], saved[len(needs) :], wanted, needs)))
        x, h0 = saved[0], saved[5]
        found = side_by_side(gradients_of_reading, *[(*part, *ctx.options) for part in parts], x.device, len(h0))
        return None, None, None, None, *found[0], *found[1]


class ElmoLSTM(nn.Module):
    """One direction of one layer: an LSTM with clipped cells and a clipped projection of its output.

    Weights lie as TensorFlow's do, (in, out), which is also the faster way round for the products of a step; the
    gates stand in the order i, f, o, j (j is the new input), so that one sigmoid covers three of them.
    """

    def __init__(self, config: ElmoConfig):
        super().__init__()
        size, cells = config.output_dim, config.lstm_dim
        self.input_weight = nn.Parameter(torch.empty(size, 4 * cells))
        self.recurrent_weight = nn.Parameter(torch.empty(size, 4 * cells))
        self.bias = nn.Parameter(torch.empty(4 * cells))
        self.projection_weight = nn.Parameter(torch.empty(cells, size)) if config.projection_dim is not None else None
        self.forget_bias = config.forget_bias

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> list[torch.Tensor | None]:
        """What is computed with, in the precision it is computed in: x, W, R, b, V, h, c"""
        weights = [self.input_weight, self.recurrent_weight, self.bias, self.projection_weight]
        dtype = computing_dtype(self.bias)
        x, *weights, h, c = [None if w is None else w.to(dtype) for w in (x, *weights, h, c)]
        cells = c.shape[1]
        # TensorFlow adds the forget bias at run time, so that the weights do not hold it.
        weights[2] = weights[2] + self.forget_bias * (torch.arange(4 * cells, device=x.device) // cells == 1).to(dtype)
        return [x, *weights, h, c]


class ElmoLayer(GradientCheckpointingLayer):
    """Both directions of one layer. They never see each other."""

    def __init__(self, config: ElmoConfig, index: int):
        super().__init__()
        self.forward_lstm = ElmoLSTM(config)
        self.backward_lstm = ElmoLSTM(config)
        self.residual = config.use_skip_connections and index > 0
        self.dropout = config.dropout
        self.clips = config.cell_clip, config.projection_clip

    def forward(self, forward_x, backward_x, h, c, steps: list[int]):
        """forward_x, backward_x (N, P), each in its order of reading; h (2, B, P), c (2, B, H) -> the same four"""
        lstms = self.forward_lstm, self.backward_lstm
        # A frozen biLM gives the same vectors in training: dropout belongs to its own training.
        x = [
            F.dropout(each, self.dropout, self.training and lstm.bias.requires_grad)
            for lstm, each in zip(lstms, (forward_x, backward_x))
        ]
        given = [tensor for lstm, *each in zip(lstms, x, h, c) for tensor in lstm(*each)]
        outputs, last_h, last_c = self.read(given, steps)
        if self.residual:  # added to what the layer gives out, not to what recurs
            outputs = [output + each for output, each in zip(outputs, x)]
        return *outputs, torch.stack(last_h), torch.stack(last_c)

    @torch.compiler.disable  # a loop whose length changes with every batch
    def read(self, given: list[torch.Tensor | None], steps: list[int]):
        """Of both directions what its LSTM gives -> outputs (N, P), last h (B, P), last c (B, H), two of each"""
        with torch.autocast(given[0].device.type, enabled=False):
            forward, backward = halves(ProjectedLSTMs.apply(steps, *self.clips, wants_gradient(*given), *given))
        return zip(forward, backward)


class ElmoBiLM(nn.Module):
    """The two language models: L layers that read a sentence forward, and L that read it backward."""

    def __init__(self, config: ElmoConfig):
        super().__init__()
        self.layers = nn.ModuleList(ElmoLayer(config, index) for index in range(config.num_hidden_layers))
        self.sizes = config.output_dim, config.lstm_dim

    def forward(
        self, x: torch.Tensor, packing: Packing, state: BiLMState | None = None
    ) -> tuple[list[torch.Tensor], BiLMState]:
        """x (N, P), state before the first word of each sentence -> L + 1 layers (N, 2P), state after the last"""
        if state is None:
            state = self.fresh_state(x, len(packing.sentences))
        state = tuple(part[:, :, packing.sentences] for part in state)
        pairs, (h, c) = self.read(*[x[order] for order in packing.orders], packing.steps, state)
        layers = [torch.cat([x, x], 1)]
        layers += [torch.cat([y[back] for y, back in zip(pair, packing.returns)], 1) for pair in pairs]
        ranks = packing.sentences.argsort()
        return layers, (h[:, :, ranks], c[:, :, ranks])

    def fresh_state(self, like: torch.Tensor, batch: int) -> BiLMState:
        h, c = [like.new_zeros(len(self.layers), 2, batch, size) for size in self.sizes]
        return h, c

    def read(
        self, forward: torch.Tensor, backward: torch.Tensor, steps: list[int], state: BiLMState
    ) -> tuple[list[tuple[torch.Tensor, torch.Tensor]], BiLMState]:
        """What each direction reads (N, P), step by step -> for each layer what it gives out (N, P), last state"""
        pairs, last_h, last_c = [], [], []
        for layer, h_0, c_0 in zip(self.layers, *state):
            forward, backward, h_n, c_n = layer(forward, backward, h_0, c_0, steps)
            pairs.append((forward, backward))
            last_h.append(h_n)
            last_c.append(c_n)
        return pairs, (torch.stack(last_h), torch.stack(last_c))


class ElmoMix(nn.Module):
    """ELMo = gamma * sum_j s_j h_j, equation (1) of the paper."""

    def __init__(self, config: ElmoConfig):
        super().__init__()
        self.kind, self.layer_norm = config.mix, config.mix_layer_norm
        self.fixed_weights = config.mix_weights
        self.weights = nn.Parameter(torch.zeros(config.num_hidden_layers + 1)) if config.mix == "learned" else None
        self.gamma = nn.Parameter(torch.ones(1)) if config.mix != "fixed" else None

    def layer_weights(self) -> list[torch.Tensor | float]:
        """s_0 ... s_L"""
        return list(torch.softmax(self.weights, 0)) if self.kind == "learned" else self.fixed_weights

    def forward(self, layers: list[torch.Tensor], mask: torch.Tensor) -> torch.Tensor:
        """L + 1 layers (B, T, 2P), zero where mask (B, T) is false -> (B, T, 2P)"""
        if self.kind == "top":
            return self.gamma * layers[-1]
        if self.layer_norm:
            layers = [self.normalise(layer, mask[..., None]) for layer in layers]
        mixed = sum(weight * layer for weight, layer in zip(self.layer_weights(), layers))
        return mixed if self.gamma is None else self.gamma * mixed

    @staticmethod
    def normalise(layer: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        # One mean and variance for the whole batch, AllenNLP's tiny value under the root, no scale and no shift. Sums
        # over a batch overflow half precision.
        wide = layer.to(torch.promote_types(layer.dtype, torch.float32))
        number = (mask.sum() * layer.shape[-1]).clamp(min=1)
        centred = (wide - wide.sum() / number) * mask
        return (centred / torch.sqrt(centred.square().sum() / number + 1e-13)).to(layer.dtype)


class ElmoPreTrainedModel(PreTrainedModel):
    config: ElmoConfig
    base_model_prefix = "elmo"
    supports_gradient_checkpointing = True
    _no_split_modules = ["ElmoTokenEncoder", "ElmoLayer"]
    _keys_to_ignore_on_load_unexpected = [r"^lm_head\."]  # a language model's, where it is not asked for

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path, *args, output_loading_info=False, ignore_mismatched_sizes=False, **kwargs
    ):
        """As in transformers, except that weights which contradict the configuration are an error.

        transformers would load what fits and fill the rest with random numbers. That is right for a new head, the
        mix included, and wrong for the biLM.
        """
        try:
            model, info = super().from_pretrained(
                pretrained_model_name_or_path,
                *args,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **kwargs,
            )
        except SafetensorError as error:
            raise OSError(
                f"The weights of {pretrained_model_name_or_path} cannot be read ({error}): "
                "the file is cut off or is not a safetensors file. Download or save it again."
            ) from error
        wrong = []
        if not ignore_mismatched_sizes:
            wrong += [f"{name} has shape {tuple(a)}, not {tuple(b)}" for name, a, b in info["mismatched_keys"]]
            # Without any of them nothing is contradicted: that is a new model, and transformers says so.
            if any(OF_BILM.match(name) for name, _ in model.named_parameters() if name not in info["missing_keys"]):
                wrong += [f"{name} is missing" for name in info["missing_keys"] if OF_BILM.match(name)]
                wrong += [f"{name} has no place" for name in info["unexpected_keys"] if OF_BILM.match(name)]
        if wrong:
            shown = "; ".join(sorted(wrong)[:3]) + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else "")
            raise RuntimeError(f"The weights of {pretrained_model_name_or_path} contradict its configuration: {shown}.")
        model._freeze()
        for parameter in model.parameters():
            # Weights lie in the mapped file wherever they fell. A product rounds by the alignment of its operands, so
            # that only aligned weights compute, to the last bit, what the saved model did.
            if parameter.data_ptr() % 64:
                parameter.data = parameter.data.clone()
        return (model, info) if output_loading_info else model

    def _freeze(self):
        """Leave out of the training what does not belong to it: the biLM, unless the configuration says otherwise."""
        if self.base_model is not self:
            self.freeze_bilm(self.config.freeze_bilm)

    def freeze_bilm(self, frozen: bool = True):
        """Leave the biLM and the word vectors below it as they are in training, or train them too."""
        self.base_model.token_encoder.requires_grad_(not frozen)
        self.base_model.bilm.requires_grad_(not frozen)

    def resize_token_embeddings(self, new_num_tokens=None, pad_to_multiple_of=None, mean_resizing=True):
        """Make room for more words, or for fewer. A character model reads any word and has no table to resize."""
        if "words" in self.config.inputs:
            return super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        if new_num_tokens is not None:
            self.config.vocab_size = new_num_tokens
        return self.get_input_embeddings()

    @torch.no_grad()
    def _init_weights(self, module):
        """bilm-tf's initial values. Every parameter has one: what a checkpoint lacks would be garbage otherwise."""
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
            init.zeros_(module.bias)
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
        if isinstance(module, ElmoHighway):
            init.constant_(module.carry.bias, -2.0)  # at first a highway lets words pass


@dataclass
class ElmoModelOutput(ModelOutput):
    """
    Args:
        last_hidden_state (`torch.FloatTensor` of shape `(B, T, 2P)`): the ELMo vectors, aligned with the input, its
            boundaries included; exactly zero at padding.
        hidden_states (`tuple(torch.FloatTensor)`, *optional*): the L + 1 layers `(B, T, 2P)` that are mixed: the
            words without context (doubled), then each LSTM layer, forward half first.
        state (`tuple(torch.FloatTensor)`, *optional*): LSTM outputs `(L, 2, B, P)` and cells `(L, 2, B, H)` after the
            last word read in each direction.
    """

    last_hidden_state: torch.FloatTensor | None = None
    hidden_states: tuple[torch.FloatTensor | None, ...] | None = None
    state: BiLMState | None = None


class ElmoModel(ElmoPreTrainedModel):
    """Words in, vectors that depend on their sentence out.

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
        """The table that input is looked up in: words where they are read, characters otherwise."""
        encoder = self.token_encoder
        return encoder.word_embedding if encoder.word_embedding is not None else encoder.characters.embedding

    def set_input_embeddings(self, value: nn.Embedding):
        if self.token_encoder.word_embedding is not None:
            self.token_encoder.word_embedding = value
        else:
            self.token_encoder.characters.embedding = value

    @torch.no_grad()
    def layer_weights(self) -> dict[str, float]:
        """The mix by name: `words` (layer 0), `lstm_1` ... `lstm_L`, and `gamma`."""
        names = ["words"] + [f"lstm_{layer}" for layer in range(1, self.config.num_hidden_layers + 1)]
        weights = [0.0] * (len(names) - 1) + [1.0] if self.mix.kind == "top" else self.mix.layer_weights()
        gamma = 1.0 if self.mix.gamma is None else self.mix.gamma
        return {name: float(weight) for name, weight in zip([*names, "gamma"], [*weights, gamma])}

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        char_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        state: BiLMState | None = None,
        output_state: bool = False,
        output_hidden_states: bool | list[int] | None = None,
    ) -> ElmoModelOutput:
        r"""
        Args:
            input_ids (`(B, T)`): word ids. Read by models with word input, passed over by others.
            char_ids (`(B, T, W)`): characters of the same words, a row of zeros where there is no word.
            attention_mask (`(B, T)`): zero where there is no word. If not given, words are where ids are not zero.
            state: LSTM outputs and cells to start each sentence with, as a former call gave them; zeros by default.
            output_state: give the state after the last words back. Nothing is remembered otherwise.
            output_hidden_states: give all layers back, or only those whose indices are listed.
        """
        input_ids, char_ids, mask = self._check_inputs(input_ids, char_ids, attention_mask)
        packing = Packing.of(mask)
        words = [None if ids is None else ids.flatten(0, 1)[packing.places].long() for ids in (input_ids, char_ids)]
        self._check_range(*words)
        if state is not None:
            self._check_state(state, len(mask))
        layers, last_state = self.bilm(self.token_encoder(*words), packing, state)
        layers = [self._unpack(layer, packing, mask) for layer in layers]
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        hidden_states = None
        if isinstance(output_hidden_states, (list, tuple)):
            if not set(output_hidden_states) <= set(range(len(layers))):
                raise ValueError(f"Layers are numbered from 0 to {len(layers) - 1}, got {output_hidden_states}.")
            hidden_states = tuple(h if i in output_hidden_states else None for i, h in enumerate(layers))
        elif output_hidden_states:
            hidden_states = tuple(layers)
        return ElmoModelOutput(
            last_hidden_state=self.mix(layers, mask),
            hidden_states=hidden_states,
            state=last_state if output_state or state is not None else None,
        )

    @staticmethod
    def _unpack(layer: torch.Tensor, packing: Packing, mask: torch.Tensor) -> torch.Tensor:
        """(N, 2P) -> (B, T, 2P), zeros where there is no word"""
        padded = layer.new_zeros(mask.numel(), layer.shape[1]).index_copy(0, packing.places.to(layer.device), layer)
        return padded.view(*mask.shape, layer.shape[1])

    @torch.compiler.disable
    def _check_inputs(self, input_ids, char_ids, attention_mask):
        """The tensors that this model reads (None for the other) and the mask, or an error that says what is wrong."""
        config = self.config
        reads_words, reads_characters = "words" in config.inputs, "characters" in config.inputs
        for name, ids in (("input_ids", input_ids), ("char_ids", char_ids), ("attention_mask", attention_mask)):
            if ids is not None and not isinstance(ids, torch.Tensor):
                raise ValueError(f'{name} must be a tensor, got a {type(ids).__name__}: use return_tensors="pt".')
        if reads_words and input_ids is None:
            raise ValueError(f"A model with inputs={config.inputs!r} needs input_ids, got None: pass the tokenizer's.")
        if reads_characters and char_ids is None:
            raise ValueError(
                f"A model with inputs={config.inputs!r} needs char_ids of shape (sentences, words, "
                f"{config.max_characters_per_token}), got None: pass the tokenizer's char_ids."
            )
        if reads_words and input_ids.dim() != 2:
            raise ValueError(f"input_ids must have shape (sentences, words), got {tuple(input_ids.shape)}.")
        if reads_characters and (char_ids.dim() != 3 or char_ids.shape[2] != config.max_characters_per_token):
            raise ValueError(
                f"char_ids must have shape (sentences, words, {config.max_characters_per_token}), "
                f"got {tuple(char_ids.shape)}: use the tokenizer of this checkpoint."
            )
        input_ids, char_ids = input_ids if reads_words else None, char_ids if reads_characters else None
        if reads_words and reads_characters and input_ids.shape != char_ids.shape[:2]:
            raise ValueError(
                "input_ids and char_ids must describe the same words, "
                f"got shapes {tuple(input_ids.shape)} and {tuple(char_ids.shape)}."
            )
        for name, ids in (("input_ids", input_ids), ("char_ids", char_ids)):
            if ids is not None and (ids.is_floating_point() or ids.dtype == torch.bool):
                raise ValueError(f"{name} must be integers, got {ids.dtype}.")
        present = (char_ids != 0).any(-1) if reads_characters else input_ids != 0  # (B, T)
        if attention_mask is None:
            return input_ids, char_ids, present
        if attention_mask.shape != present.shape:
            raise ValueError(
                f"attention_mask must have the shape of the words, {tuple(present.shape)}, "
                f"got {tuple(attention_mask.shape)}."
            )
        return input_ids, char_ids, attention_mask.to(present.device) != 0

    @torch.compiler.disable
    def _check_range(self, word_ids, char_ids):
        encoder = self.token_encoder
        for name, ids, table in (
            ("input_ids", word_ids, encoder.word_embedding),
            ("char_ids", char_ids, encoder.characters and encoder.characters.embedding),
        ):
            if ids is not None and ids.numel() and not 0 <= ids.min() <= ids.max() < table.num_embeddings:
                raise ValueError(
                    f"{name} must be between 0 and {table.num_embeddings - 1}, got values from {int(ids.min())} to "
                    f"{int(ids.max())}: use the tokenizer of this checkpoint."
                )

    def _check_state(self, state: BiLMState, batch: int):
        expected = [(self.config.num_hidden_layers, 2, batch, size) for size in self.bilm.sizes]
        got = [tuple(part.shape) for part in state]
        if got != expected:
            raise ValueError(f"The state of {batch} sentences must have the shapes {expected}, got {got}.")


def log_uniform(words: torch.Tensor, number: int) -> torch.Tensor:
    """log(1 + 1 / (r + 1)) / log(R + 1): the probability of rank r among R words sorted by frequency (Zipf)."""
    return torch.log1p(1 / (words.double() + 1)) / math.log(number + 1)


def log_uniform_sample(samples: int, number: int, device: torch.device) -> tuple[torch.Tensor, int]:
    """So many distinct words (S,) of R, drawn one by one with `log_uniform`, and how many draws that took."""
    draws = torch.empty(0, dtype=torch.long, device=device)
    while True:
        uniform = torch.rand(max(2 * samples, len(draws)), dtype=torch.float64, device=device)
        more = (torch.exp(uniform * math.log(number + 1)) - 1).long().clamp_(0, number - 1)
        draws = torch.cat([draws, more])
        words, place = torch.unique(draws, return_inverse=True)
        if len(words) >= samples:
            break
    order = torch.arange(len(draws), device=device)
    first = torch.full((len(words),), len(draws), device=device).scatter_reduce_(0, place, order, "amin")
    first, by_draw = first.sort()
    return words[by_draw[:samples]], int(first[samples - 1]) + 1


class SoftmaxLoss(torch.autograd.Function):
    """-log p of the right words by their scores among all words, or among samples of them, summed.

    A chunk of scores is turned into its gradient where it lies, so that neither the scores nor the probabilities of
    all words are ever held for a backward pass.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, true_scores, targets, samples, keep):
        """hidden (N, P), weight (S, P), bias (S,), targets (N,); for samples (S,) of words also true_scores (N,)

        -> the sum, and the loss of each word (N,), through which no gradient flows
        """
        losses = hidden.new_empty(len(hidden), dtype=bias.dtype)
        d_hidden, d_true = torch.empty_like(hidden), torch.empty_like(losses)
        d_weight, d_bias = torch.zeros_like(weight, dtype=bias.dtype) if keep else None, torch.zeros_like(bias)
        size = min(max(SCORE_BYTES // (len(weight) * bias.element_size()), SCORE_ROWS), max(len(hidden), 1))
        products = hidden.new_empty(size, len(weight))
        if samples is not None:  # the right word may be among them by accident
            ordered, order = samples.sort()  # (S,)
            place = torch.searchsorted(ordered, targets).clamp_(max=len(samples) - 1)[:, None]  # (N, 1)
            place, accident = order[place], ordered[place] == targets[:, None]
        for start in range(0, len(hidden), size):
            now = slice(start, start + size)
            scores = torch.mm(hidden[now], weight.t(), out=products[: len(hidden[now])])  # (n, S)
            scores = scores.to(bias.dtype).add_(bias)
            if samples is None:
                true = scores.gather(1, targets[now, None]).squeeze(1)  # (n,)
                top = scores.amax(1)
            else:
                true = true_scores[now]
                others = scores.gather(1, place[now]).masked_fill_(accident[now], -torch.inf)
                scores.scatter_(1, place[now], others)
                top = torch.maximum(true, scores.amax(1))
            exponents = scores.sub_(top[:, None]).exp_()
            total = exponents.sum(1) if samples is None else exponents.sum(1) + torch.exp(true - top)
            losses[now] = total.log() + top - true
            if keep:
                probabilities = exponents.div_(total[:, None])
                if samples is None:
                    probabilities.scatter_add_(1, targets[now, None], probabilities.new_full((len(true), 1), -1.0))
                d_true[now] = torch.expm1(-losses[now])
                d_bias += probabilities.sum(0)
                probabilities = probabilities.to(hidden.dtype)
                d_hidden[now] = probabilities @ weight
                if weight.dtype == d_weight.dtype:
                    d_weight.addmm_(probabilities.t(), hidden[now])
                else:
                    d_weight += probabilities.t() @ hidden[now]
        if keep:
            ctx.save_for_backward(d_hidden, d_weight.to(weight.dtype), d_bias, None if samples is None else d_true)
        ctx.mark_non_differentiable(losses)
        return losses.sum(), losses

    @staticmethod
    @once_differentiable
    def backward(ctx, d_sum, _):
        grads = [None if grad is None else grad * d_sum.to(grad.dtype) for grad in ctx.saved_tensors]
        return *grads, None, None, None


@dataclass
class WordScores:
    """log p of each word of a sentence: by the words before it, by those after it, and by both (n,)"""

    words: list[str]
    forward: torch.Tensor
    backward: torch.Tensor
    combined: torch.Tensor


@dataclass
class Perplexity:
    """exp of the mean -log p of the words and of the end that each direction comes to; `both`: of both means' mean"""

    both: float
    forward: float
    backward: float
    words: int  # predicted in each direction


@dataclass
class ElmoForPreTrainingOutput(ModelOutput):
    """
    Args:
        loss (`torch.FloatTensor`, *optional*): mean of both directions' losses.
        forward_loss, backward_loss (`torch.FloatTensor`, *optional*): -log p of the next word, mean over the words.
        perplexity, forward_perplexity, backward_perplexity (`torch.FloatTensor`, *optional*): exp of these, where the
            loss is that of the full softmax; a sampled one has no perplexity.
        forward_logits (`torch.FloatTensor` of shape `(B, T, vocab_size)`, *optional*): scores of the word after each
            word, by its id; the lowest number there is for padding, which no word is. Not given with labels or targets.
        backward_logits (`torch.FloatTensor` of shape `(B, T, vocab_size)`, *optional*): scores of the word before.
        hidden_states, state: as in `ElmoModelOutput`; no hidden states of windows.
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


class ElmoForPreTraining(ElmoPreTrainedModel):
    """The two language models: what comes next in each direction, by one softmax that both share.

    Words are numbered by their frequency, the most frequent first: that is what the samples of the training are
    drawn by.
    """

    accepts_loss_kwargs = False  # every window has as many words as the next: a mean of means is the mean

    def __init__(self, config: ElmoConfig):
        super().__init__(config)
        self.elmo = ElmoModel(config)
        self.lm_head = nn.Linear(config.output_dim, config.vocab_size - 1)  # row r is the word with id r + 1
        self.post_init()
        self._freeze()

    def _freeze(self):
        self.elmo.mix.requires_grad_(False)  # of which a language model makes no use

    def resize_token_embeddings(self, new_num_tokens=None, pad_to_multiple_of=None, mean_resizing=True):
        """Make room for more words, or for fewer, in the softmax too; its new rows start as those of a new model."""
        table = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        old, rows = self.lm_head, self.config.vocab_size - 1
        if rows != old.out_features:
            self.lm_head = nn.Linear(old.in_features, rows, device=old.weight.device, dtype=old.weight.dtype)
            self._init_weights(self.lm_head)
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
        output_hidden_states: bool | None = None,
    ) -> ElmoForPreTrainingOutput:
        r"""
        Sentences, which both directions read, or with `targets` windows of text, one for each direction.

        Args: those of `ElmoModel`, and
            labels (`(B, T)`): the word ids of the sentences, usually `input_ids`: each direction's loss is that of
                the word it reads next. -100 where a word is not to be predicted.
            targets (`(2, B, T)`): the word that comes next in each direction, -100 for none. `input_ids` is then
                (2, B, T) and `char_ids` (2, B, T, W): rows of text without padding, the second of each pair in the
                order of reading backward. Give the `state` of the last window to go on where it ended.
        """
        if targets is not None:
            hidden, wanted, last_state = self._read_windows(input_ids, char_ids, targets, state)
            return self._output(self._losses(hidden, wanted), state=last_state)
        outputs = self.elmo(input_ids, char_ids, attention_mask, state, output_state, output_hidden_states=True)
        top = outputs.hidden_states[-1]
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        rest = {"hidden_states": outputs.hidden_states if output_hidden_states else None, "state": outputs.state}
        if labels is None:
            logits = [self.lm_head(half) for half in top.chunk(2, -1)]  # (B, T, V - 1)
            logits = [F.pad(each, (1, 0), value=torch.finfo(each.dtype).min) for each in logits]
            return ElmoForPreTrainingOutput(forward_logits=logits[0], backward_logits=logits[1], **rest)
        mask = self.elmo._check_inputs(input_ids, char_ids, attention_mask)[2]
        targets = words_read_next(labels, mask)  # (2, B, T)
        losses = self._losses([half.flatten(0, 1) for half in top.chunk(2, -1)], targets.flatten(1))
        return self._output(losses, **rest)

    def _read_windows(self, input_ids, char_ids, targets, state):
        """The top layer of each direction (T * B, P), the words it should predict (T * B,), and the state after them"""
        if targets.dim() != 3 or len(targets) != 2:
            raise ValueError(f"targets must have shape (2, rows, words), got {tuple(targets.shape)}.")
        _, batch, window = targets.shape
        flat = [None if ids is None else ids.flatten(0, 1) for ids in (input_ids, char_ids)]
        *flat, present = self.elmo._check_inputs(*flat, None)
        if present.shape != (2 * batch, window):
            raise ValueError(f"The words of windows must have the shape of their targets, {tuple(targets.shape)}.")
        # (2, B, T) -> (2 * T * B,): step by step
        words = [
            None if ids is None else ids.unflatten(0, (2, batch)).transpose(1, 2).flatten(0, 2).long() for ids in flat
        ]
        self.elmo._check_range(*words)
        x = self.elmo.token_encoder(*words)  # (2 * T * B, P)
        if state is None:
            state = self.elmo.bilm.fresh_state(x, batch)
        else:
            self.elmo._check_state(state, batch)
        pairs, last_state = self.elmo.bilm.read(*x.chunk(2), [batch] * window, state)
        # Gradients end where the window does.
        last_state = tuple(part.detach() for part in last_state)
        return pairs[-1], targets.transpose(1, 2).flatten(1), last_state

    def _losses(self, hidden: list[torch.Tensor], targets: list[torch.Tensor]) -> list[torch.Tensor]:
        """Mean -log p of the words that each direction reads next: hidden (N, P), targets (N,) by id, -100 for none"""
        known = [(words > 0).nonzero().squeeze(1).to(h.device) for h, words in zip(hidden, targets)]
        hidden = [F.dropout(h[places], self.config.dropout, self.training) for h, places in zip(hidden, known)]
        rows = [words.to(h.device)[places] - 1 for h, words, places in zip(hidden, targets, known)]
        for words in rows:
            if len(words) and int(words.max()) >= len(self.lm_head.bias):
                raise ValueError(
                    f"Words to predict must have ids up to {len(self.lm_head.bias)}, got {int(words.max()) + 1}: "
                    "use the tokenizer of this checkpoint."
                )
        if self.samples is None:
            sums = [self.word_losses(h, words)[0] for h, words in zip(hidden, rows)]
        else:
            sums = self._sampled_losses(hidden, rows)
        return [total / max(len(places), 1) for total, places in zip(sums, known)]

    @property
    def samples(self) -> int | None:
        """How many words the right one competes with, None for all"""
        number = self.config.num_negative_samples
        return number if self.training and number is not None and number < len(self.lm_head.bias) else None

    @torch.compiler.disable
    def word_losses(self, hidden: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """-log p of words among all, their sum and each (N,): hidden (N, P), targets (N,) rows of the softmax"""
        return self._softmax_loss(hidden, self.lm_head.weight, self.lm_head.bias, None, targets, None)

    @torch.compiler.disable
    def _sampled_losses(self, hidden: list[torch.Tensor], targets: list[torch.Tensor]) -> list[torch.Tensor]:
        """-log p of words among samples of all, summed for each direction

        The right word competes with words drawn by their frequency, each corrected by how often it is expected among
        them (Jean et al. 2015, as TensorFlow's sampled_softmax_loss).
        """
        weight, bias = self.lm_head.weight, self.lm_head.bias
        drawn = [log_uniform_sample(self.samples, len(bias), weight.device) for _ in hidden]
        # All rows of the softmax that are needed, taken at once: their gradient is as large as the softmax.
        needed = torch.cat([*targets, *(words for words, _ in drawn)])
        sizes = [*map(len, targets), *(len(words) for words, _ in drawn)]
        weights, biases = F.embedding(needed, weight).split(sizes), bias.index_select(0, needed).split(sizes)
        sums = []
        for d, (h, words, (samples, draws)) in enumerate(zip(hidden, targets, drawn)):

            def log_expected(words, draws=draws):
                return torch.log(-torch.expm1(draws * torch.log1p(-log_uniform(words, len(bias))))).to(bias.dtype)

            true_scores = (h * weights[d]).sum(1, dtype=bias.dtype) + biases[d] - log_expected(words)
            others = weights[len(hidden) + d], biases[len(hidden) + d] - log_expected(samples)
            sums.append(self._softmax_loss(h, *others, true_scores, words, samples)[0])
        return sums

    def _softmax_loss(self, hidden, weight, bias, true_scores, targets, samples):
        dtype = computing_dtype(weight)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
        keep = wants_gradient(hidden, weight, bias)
        with torch.autocast(hidden.device.type, enabled=False):
            return SoftmaxLoss.apply(hidden, weight, bias, true_scores, targets, samples, keep)

    @torch.no_grad()
    def score(self, sentences: list[str | list[str]], tokenizer, batch_size: int = 32) -> list[WordScores]:
        """How likely each word of each sentence is, as text or as words: by its left, its right and its whole context.

        Words that the vocabulary lacks are scored as `<UNK>`, and read as they are spelled.
        """
        scores = []
        for words, rows, left, right in self._read_sentences(sentences, tokenizer, batch_size):
            parts = [torch.empty(3, 0)]
            for place in range(0, len(rows), SCORE_ROWS):
                now = slice(place, place + SCORE_ROWS)
                by_context = self._log_probabilities(left[now], right[now])  # 3 of (n, V)
                parts.append(torch.stack([p.gather(1, rows[now, None]).squeeze(1).cpu() for p in by_context]))
            scores.append(WordScores(words, *torch.cat(parts, 1)))
        return scores

    @torch.no_grad()
    def perplexity(self, texts: list[str | list[str]], tokenizer, batch_size: int = 32) -> Perplexity:
        """Of texts, each read from a fresh state, by the full softmax of each direction."""
        sums, number = torch.zeros(2, dtype=torch.float64), 0
        for inputs, top in self._top_layers(texts, tokenizer, batch_size)[1]:
            targets = words_read_next(inputs["input_ids"], inputs["attention_mask"] != 0)  # (2, B, T)
            for d, (hidden, wanted) in enumerate(zip(top.chunk(2, -1), targets)):
                known = wanted > 0
                sums[d] += self.word_losses(hidden[known], wanted[known] - 1)[0].double().cpu()
            number += int(known.sum())
        if not number:
            raise ValueError("perplexity needs at least one text, got none.")
        forward, backward = (sums / number).tolist()
        return Perplexity(math.exp((forward + backward) / 2), math.exp(forward), math.exp(backward), number)

    @torch.no_grad()
    def substitutes(self, sentence: str | list[str], position: int, tokenizer, k: int = 10) -> list[tuple[str, float]]:
        """The likeliest words in a word's place, and their probabilities, from its whole context without the word."""
        ((words, _, left, right),) = self._read_sentences([sentence], tokenizer, 1)
        if not -len(words) <= position < len(words):
            raise ValueError(f"position must name one of the {len(words)} words of the sentence, got {position}.")
        combined = self._log_probabilities(left[position, None], right[position, None])[2][0]
        return self._most_likely(combined, tokenizer, k)

    @torch.no_grad()
    def next_words(
        self, text: str | list[str], tokenizer, k: int = 10, direction: str = "forward"
    ) -> list[tuple[str, float]]:
        """The likeliest words after a text, or with `direction="backward"` before it, and their probabilities."""
        if direction not in ("forward", "backward"):
            raise ValueError(f'direction must be "forward" or "backward", got {direction!r}.')
        ((_, top),) = self._top_layers([text], tokenizer, 1)[1]
        forward, backward = top[0].chunk(2, -1)  # (n + 2, P)
        # The forward direction has read the last word, and not the end that the tokenizer puts after it.
        hidden = forward[-2] if direction == "forward" else backward[1]
        return self._most_likely(torch.log_softmax(self.lm_head(hidden), -1), tokenizer, k)

    def _top_layers(self, texts, tokenizer, batch_size: int):
        """The words of texts, and an iterator over batches: the inputs of the model and its top layer (B, T, 2P)"""
        if isinstance(texts, str):
            raise ValueError("A list of sentences is expected, got one string: put it into a list.")
        words = [tokenizer.tokenize(text) if isinstance(text, str) else list(text) for text in texts]

        def batches():
            self.eval()
            for start in range(0, len(words), batch_size):
                inputs = tokenizer(
                    words[start : start + batch_size], is_split_into_words=True, padding=True, return_tensors="pt"
                ).to(self.device)
                yield inputs, self.elmo(**inputs, output_hidden_states=[len(self.elmo.bilm.layers)]).hidden_states[-1]

        return words, batches()

    def _read_sentences(self, sentences, tokenizer, batch_size: int):
        """For each sentence: its words, their rows in the softmax (n,), the left and right context of each (n, P)"""
        words, batches = self._top_layers(sentences, tokenizer, batch_size)
        words = iter(words)
        for inputs, top in batches:
            for ids, mask, layers in zip(inputs["input_ids"], inputs["attention_mask"], top):
                forward, backward = layers[mask != 0].chunk(2, -1)  # (n + 2, P)
                yield next(words), ids[mask != 0][1:-1] - 1, forward[:-2], backward[2:]

    def _log_probabilities(self, left: torch.Tensor, right: torch.Tensor) -> list[torch.Tensor]:
        """log p of all words by their left, their right and both contexts (n, P) -> 3 of (n, V)

        p(w | left, right) ~ p(w | left) p(w | right) / p(w) if the contexts are independent given the word; p(w) is
        Zipf's, as in the training.
        """
        forward, backward = [torch.log_softmax(self.lm_head(context).float(), -1) for context in (left, right)]
        number = forward.shape[-1]
        prior = torch.log(log_uniform(torch.arange(number, device=forward.device), number)).float()
        return [forward, backward, torch.log_softmax(forward + backward - prior, -1)]

    def _most_likely(self, log_probabilities: torch.Tensor, tokenizer, k: int) -> list[tuple[str, float]]:
        specials = [number - 1 for number in tokenizer.all_special_ids if 0 < number <= len(log_probabilities)]
        allowed = log_probabilities.clone()
        allowed[specials] = -torch.inf
        values, rows = allowed.topk(min(k, len(allowed) - len(specials)))
        words = tokenizer.convert_ids_to_tokens((rows + 1).tolist())
        return list(zip(words, values.exp().tolist()))

    def _output(self, losses: list[torch.Tensor], **rest) -> ElmoForPreTrainingOutput:
        loss = (losses[0] + losses[1]) / 2
        perplexities = [torch.exp(each.detach()) for each in (loss, *losses)] if self.samples is None else [None] * 3
        return ElmoForPreTrainingOutput(loss, *losses, *perplexities, **rest)


def words_read_next(labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The word after and the word before each, (2, B, T) of labels (B, T); -100 where there is none or no word"""
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
        labels: torch.LongTensor | None = None,
        output_hidden_states: bool | list[int] | None = None,
        **loss_kwargs,
    ) -> TokenClassifierOutput:
        r"""
        Args:
            labels (`(B, T)`): the label of each word, -100 where there is none: special tokens, padding.
            loss_kwargs: what Trainer passes on, `num_items_in_batch` above all: then the loss is the sum over the
                labelled words divided by it, so that accumulated gradients are those of one large batch.
        """
        outputs = self.elmo(input_ids, char_ids, attention_mask, output_hidden_states=output_hidden_states)
        logits = self.classifier(self.dropout(outputs.last_hidden_state))  # (B, T, labels)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config, **loss_kwargs)
        return TokenClassifierOutput(loss=loss, logits=logits, hidden_states=outputs.hidden_states)


ElmoModel.register_for_auto_class("AutoModel")
ElmoForPreTraining.register_for_auto_class("AutoModelForPreTraining")
ElmoForTokenClassification.register_for_auto_class("AutoModelForTokenClassification")

__all__ = ["ElmoForPreTraining", "ElmoForTokenClassification", "ElmoModel", "ElmoPreTrainedModel"]
