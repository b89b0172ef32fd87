# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""The LSTM of ELMo: clipped cells, a clipped projection of the output, packed sentences.

    i, f, o = sigmoid(x W + h R + b), j = tanh(x W + h R + b)
    c = clip(f * c + i * j)           the clipped cell is carried
    h = clip((o * tanh(c)) V)         the clipped output recurs

`plain_lstm` is these equations step by step. Two faster versions compute the same: `ProjectedLSTMs`, in training, has
its gradient written out; `lstm_inference` keeps nothing for a gradient and takes its matrix products, packed or in 8
bits, from `products_elmo.py`.

Weights are stored as in TensorFlow, (in, out), which is also faster for the products of a step. The gates are in the
order i, f, o, j (j is the new input), so one sigmoid covers three of them.

Shapes: B sentences, N words in all; H LSTM cells and P outputs of one direction.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import torch
from torch.autograd.function import once_differentiable

from .products_elmo import (
    Int8Linear,
    PackedLinear,
    PlainLinear,
    StackedLinear,
    first_rows,
    packed_dtype,
    pad_rows,
)

# Gates computed ahead of the time loop in inference: limits memory use and does not change the result. The allocator
# keeps blocks of this size; larger ones are requested from the system each time.
MAX_GATE_BYTES = 1 << 24
# In inference, x W of at most this many words is computed directly: leaving out repeated words would save no time.
FEW_WORDS = 64
# In training on a CPU, products of at most this many rows are computed in parts.
FEW_ROWS = 16
PRODUCT_PARTS = 8


@dataclass
class Packing:
    """The order in which the words of a padded batch are read, step by step and without padding.

    As in torch's PackedSequence, step t of a direction holds the t-th word of each sentence that has one, the longest
    sentence first, so N words take N rows.
    """

    positions: torch.Tensor  # (N,) of each word in the flattened batch, B x T
    sentences: torch.Tensor  # (B,) from the longest to the shortest
    batch_sizes: list[int]  # number of words at each step
    orders: tuple[torch.Tensor, torch.Tensor]  # forward and backward: (N,) words in reading order
    inverse_orders: tuple[torch.Tensor, torch.Tensor]

    @classmethod
    @torch.compiler.disable  # data-dependent shapes
    def from_mask(cls, mask: torch.Tensor) -> "Packing":
        """Pack the words of a batch: mask (B, T), true at words. Holes are skipped like padding on either side."""
        lengths = mask.sum(1)  # (B,)
        positions = mask.flatten().nonzero().squeeze(1)  # (N,)
        sentences = lengths.argsort(descending=True, stable=True)
        ranks = sentences.argsort()  # (B,)
        longest = int(lengths.max()) if len(lengths) else 0
        batch_sizes = (lengths[:, None] > torch.arange(longest, device=mask.device)).sum(0)  # (longest,)
        starts = batch_sizes.cumsum(0) - batch_sizes
        sentence = positions // max(mask.shape[1], 1)  # (N,) of each word
        index = mask.cumsum(1).flatten()[positions] - 1  # (N,) of each word in its sentence
        forward = starts[index] + ranks[sentence]
        backward = starts[lengths[sentence] - 1 - index] + ranks[sentence]
        return cls(
            positions=positions,
            sentences=sentences,
            batch_sizes=batch_sizes.tolist(),
            orders=(forward.argsort(), backward.argsort()),
            inverse_orders=(forward, backward),
        )


def plain_lstm(
    x: torch.Tensor,
    input_weight: torch.Tensor,
    recurrent_weight: torch.Tensor,
    bias: torch.Tensor,
    projection: torch.Tensor | None,
    h: torch.Tensor,
    c: torch.Tensor,
    batch_sizes: list[int],
    cell_clip: float | None,
    output_clip: float | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Run one direction step by step: x (N, P), h (B, P), c (B, H) -> outputs (N, P), last h (B, P), last c (B, H)"""
    outputs = []
    for x_t in x.split(batch_sizes):
        n = len(x_t)  # the longest n sentences go on
        gates = x_t @ input_weight + h[:n] @ recurrent_weight + bias  # (n, 4H)
        i, f, o, j = gates.chunk(4, 1)
        c_t = torch.sigmoid(f) * c[:n] + torch.sigmoid(i) * torch.tanh(j)  # (n, H)
        if cell_clip is not None:
            c_t = c_t.clamp(-cell_clip, cell_clip)
        h_t = torch.sigmoid(o) * torch.tanh(c_t)
        if projection is not None:
            h_t = h_t @ projection  # (n, P)
            if output_clip is not None:
                h_t = h_t.clamp(-output_clip, output_clip)
        outputs.append(h_t)
        h, c = torch.cat([h_t, h[n:]]), torch.cat([c_t, c[n:]])
    return torch.cat(outputs), h, c


@torch.compiler.disable  # a loop whose length changes with every batch
def bidirectional_lstm(
    inputs: list, batch_sizes: list[int], cell_clip: float | None, output_clip: float | None
) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """Run both directions of a layer, each over its own words.

    The inputs are x (N, P), W (P, 4H), R (P, 4H), b (4H,), V (H, P) or None, h (B, P), c (B, H), first those of the
    forward direction, then those of the backward one, all of one dtype. Returns outputs (N, P), last h (B, P) and
    last c (B, H) of each direction.
    """
    with torch.autocast(inputs[0].device.type, enabled=False):
        return halves(ProjectedLSTMs.apply(batch_sizes, cell_clip, output_clip, *inputs))


def requires_grad(*tensors: torch.Tensor | None) -> bool:
    """Return whether autograd will ask for the gradient of one of the tensors."""
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def halves(items: tuple) -> tuple[tuple, tuple]:
    return items[: len(items) // 2], items[len(items) // 2 :]


class ProjectedLSTMs(torch.autograd.Function):
    """The two directions of one layer, each over its packed words, with their gradient written out.

    Autograd over a loop of steps would add up one small weight gradient per step; here the gates' gradients are
    collected and each weight gradient is one product.
    """

    @staticmethod
    def forward(ctx, batch_sizes, cell_clip, output_clip, *inputs):
        """x, W, R, b, V, h, c of each direction -> outputs, last h, last c of each"""
        ctx.options = batch_sizes, cell_clip, output_clip
        x, h = inputs[0], inputs[5]
        forward, backward = [(*direction, *ctx.options) for direction in halves(inputs)]
        results = run_directions(lstm_forward, forward, backward, device=x.device, batch_size=len(h))
        saved = [tensor for outputs, _, _, gates, cells in results for tensor in (outputs, gates, cells)]
        ctx.save_for_backward(*inputs, *saved)
        return *results[0][:3], *results[1][:3]

    @staticmethod
    @once_differentiable
    def backward(ctx, *grad_outputs):
        # `saved_tensors` is accessed only once, as gradient checkpointing requires.
        needs_grad, tensors = ctx.needs_input_grad[3:], ctx.saved_tensors
        inputs, saved = tensors[: len(needs_grad)], tensors[len(needs_grad) :]
        x, h = inputs[0], inputs[5]
        directions = zip(halves(inputs), halves(saved), halves(grad_outputs), halves(needs_grad))
        forward, backward = [(*direction, *ctx.options) for direction in directions]
        results = run_directions(lstm_backward, forward, backward, device=x.device, batch_size=len(h))
        return None, None, None, *results[0], *results[1]


def run_directions(function: Callable, forward: tuple, backward: tuple, device: torch.device, batch_size: int) -> tuple:
    """Call a function with the arguments of each direction and return both results.

    On a CPU each direction has a thread of its own and half of the cores, as one step is too little work for all of
    them. Small batches run one direction after the other: their products are computed in parts, which keeps all cores
    busy.
    """
    threads = torch.get_num_threads()
    if threads == 1 or device.type != "cpu" or batch_size <= FEW_ROWS:
        return function(*forward), function(*backward)
    inference = torch.is_inference_mode_enabled()

    def run_on_half_of_the_cores(arguments):
        if torch.get_num_threads() != threads // 2:
            # Of this thread, and the default of threads that have not called torch yet, which is restored below.
            torch.set_num_threads(threads // 2)
        with torch.inference_mode(inference), torch.no_grad():
            return function(*arguments)

    results = [direction_threads().submit(run_on_half_of_the_cores, each) for each in (forward, backward)]
    try:
        return results[0].result(), results[1].result()
    finally:
        torch.set_num_threads(threads)


@cache
def direction_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=2, thread_name_prefix="elmo")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=direction_threads.cache_clear)  # threads do not survive a fork


def lstm_forward(x, input_weight, recurrent_weight, bias, projection, h0, c0, batch_sizes, cell_clip, output_clip):
    """Run one direction: x (N, P), h0 (B, P), c0 (B, H) -> outputs (N, P), last h, last c, gates (N, 4H), cells (N, H)

    Gates and cells are saved for the backward pass: i, f, o and sigmoid(2j), and -2c; see `gates_to_hidden`.
    """
    size = c0.shape[1]
    outputs = x.new_empty(len(x), h0.shape[1])  # (N, P)
    gates = torch.addmm(bias, x, input_weight)  # (N, 4H)
    cells = x.new_empty(len(x), size)  # (N, H)
    last_h, last_cell = h0.clone(), c0 * -2  # (B, P), (B, H)
    # Every call into torch makes the other direction wait for the interpreter, so all views are made at once.
    views = gates, *gates.split(size, 1), cells, outputs
    steps = zip(*[view.split(batch_sizes) for view in views], [*batch_sizes[1:], 0])
    h, before = [state[: batch_sizes[0] if batch_sizes else 0] for state in (h0, last_cell)]
    for gate, i, f, o, j, cell, output, remaining in steps:
        add_product_(gate, h, recurrent_weight)
        j.mul_(2)
        gate.sigmoid_()
        torch.mul(before, f, out=cell).add_(torch.addcmul(i, i, j, value=-2), alpha=2)
        if cell_clip is not None:
            cell.clamp_(-2 * cell_clip, 2 * cell_clip)
        hidden = torch.addcmul(o, o, torch.sigmoid(cell), value=-2)
        if projection is None:
            output.copy_(hidden)
        else:
            add_product_(output.zero_(), hidden, projection)
            if output_clip is not None:
                output.clamp_(-output_clip, output_clip)
        h, before = output[:remaining], cell[:remaining]
        if remaining < (n := len(cell)):  # the shortest sentences end here
            last_h[remaining:n], last_cell[remaining:n] = output[remaining:], cell[remaining:]
    return outputs, last_h, last_cell * -0.5, gates, cells


@dataclass
class LSTMProducts:
    """The weights of one direction, or of both in `StackedLinear`, ready for products."""

    input: PlainLinear | PackedLinear | Int8Linear | StackedLinear  # x W + b
    recurrent: PlainLinear | PackedLinear | Int8Linear | StackedLinear  # h R
    projection: PlainLinear | PackedLinear | StackedLinear | None  # V
    num_cells: int  # H
    j_is_doubled: bool = True  # in W, R and b

    def hidden_buffer(self, cells: torch.Tensor) -> torch.Tensor:
        """Return zeros in the dtype and the rows of the projection, for o * tanh(c): cells (B, H) -> (B or more, H)"""
        if self.projection is None:
            return torch.zeros_like(cells)
        *directions, n, size = cells.shape
        return cells.new_zeros(*directions, self.projection.rows(n), size, dtype=self.projection.dtype)

    @property
    def nbytes(self) -> int:
        """Memory of the copies of the weights."""
        return sum(linear.nbytes for linear in (self.input, self.recurrent, self.projection) if linear is not None)


def plain_products(input_weight, recurrent_weight, bias, projection) -> LSTMProducts:
    """Use the weights of one direction as they are: W, R, b, V"""
    return LSTMProducts(
        input=PlainLinear(input_weight, bias),
        recurrent=PlainLinear(recurrent_weight),
        projection=None if projection is None else PlainLinear(projection),
        num_cells=len(bias) // 4,
        j_is_doubled=False,
    )


def packed_products(weights: list, dtype: torch.dtype) -> LSTMProducts:
    """Pack copies of the weights of one direction: W, R, b, V"""
    input_weight, recurrent_weight, bias = [weight.to(dtype) for weight in weights[:3]]
    projection = weights[3]
    return LSTMProducts(
        input=PackedLinear(double_j(input_weight), double_j(bias)),
        recurrent=PackedLinear(double_j(recurrent_weight)),
        projection=None if projection is None else PackedLinear(projection.to(dtype)),
        num_cells=len(bias) // 4,
    )


def int8_products(weights: list, input_bound: float, output_bound: float) -> LSTMProducts:
    """Pack copies of the weights of one direction: W, R, b, V. R and, from the second layer on, W are int8 with their
    scales, and are multiplied by numbers of at most the bounds."""
    input_weight, recurrent_weight, bias, projection = weights

    def pack(weight: torch.Tensor, bias: torch.Tensor | None = None) -> PackedLinear:
        dtype = packed_dtype(torch.bfloat16, weight.device)
        return PackedLinear(weight.to(dtype), None if bias is None else bias.to(dtype))

    input_linear: Int8Linear | PackedLinear
    if isinstance(input_weight, tuple):
        weight, scale = input_weight
        input_linear = Int8Linear(weight, double_j(scale), input_bound, double_j(bias.float()))
    else:
        input_linear = pack(double_j(input_weight), double_j(bias))
    weight, scale = recurrent_weight
    return LSTMProducts(
        input=input_linear,
        recurrent=Int8Linear(weight, double_j(scale), output_bound),
        projection=None if projection is None else pack(projection),
        num_cells=len(bias) // 4,
    )


def stacked_products(input_weights, recurrent_weights, biases, projections) -> LSTMProducts:
    """Stack copies of the weights of both directions: two of each of W, R, b, V"""
    return LSTMProducts(
        input=StackedLinear([*map(double_j, input_weights)], [*map(double_j, biases)]),
        recurrent=StackedLinear([*map(double_j, recurrent_weights)]),
        projection=None if projections[0] is None else StackedLinear(projections),
        num_cells=len(biases[0]) // 4,
    )


def double_j(weight: torch.Tensor) -> torch.Tensor:
    """Double the new input's quarter of W, R or b: tanh j = 2 sigmoid(2j) - 1, so one sigmoid covers all four gates."""
    weight = weight.clone()
    weight[..., weight.shape[-1] // 4 * 3 :] *= 2
    return weight


@torch.compiler.disable  # a loop whose length changes with every batch
def lstm_inference(
    products: LSTMProducts,
    x: torch.Tensor,
    words: torch.Tensor | None,
    h: torch.Tensor,
    c: torch.Tensor,
    batch_sizes: list[int],
    cell_clip: float | None,
    output_clip: float | None,
    same_start: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Run one direction without a gradient: x (N, P), h (B, P), c (B, H) -> outputs (N, P), last h, last c

    With `words` (N,), x (U, P) are distinct words and `words` the row of x that each step reads: x W + b is then
    computed once for each distinct word. With `same_start`, all sentences start with the same word from a zero state,
    and the first step is computed once for all of them. With `StackedLinear`, x, h, c and the results have a first
    dimension for the two directions.

    Each step has the number of rows in which the recurrent product computes its words. The added rows are dropped at
    the end.
    """
    # -2c instead of c takes fewer passes over the gates.
    minus_2c = c.to(torch.promote_types(c.dtype, torch.float32)) * -2  # (B, H)
    last_h, last_minus_2c = h.clone(), minus_2c.clone()  # of the last word of each sentence
    rows = [*map(products.recurrent.rows, batch_sizes)]
    if is_padded := rows != batch_sizes:
        read_words, word_rows = pad_steps(batch_sizes, rows)
        x, words = (x[read_words], None) if words is None else (x, words[read_words])
        h, minus_2c = [pad_rows(state, max(len(state), rows[0])) for state in (h, minus_2c)]
    outputs = h.new_empty(*h.shape[:-2], sum(rows), h.shape[-1])  # (N and added rows, P)
    hidden_buffer = products.hidden_buffer(minus_2c)  # (B or more, H), used by every step
    steps = zip(input_halves(products, x, words, rows), outputs.split(rows, -2), batch_sizes, [*batch_sizes[1:], 0])
    for step, (gates, output, n, remaining) in enumerate(steps):
        if is_shared := same_start and step == 0:
            gates = first_rows(gates, 1)
        else:
            gates = products.recurrent.add(gates, first_rows(h, gates.shape[-2]))
        num_rows = gates.shape[-2]
        cells, hidden = first_rows(minus_2c, num_rows), first_rows(hidden_buffer, num_rows)  # (n, H)
        gates_to_hidden(gates.to(cells.dtype), cells, cell_clip, products.j_is_doubled, out=hidden)
        h = hidden
        if products.projection is not None:
            h = products.projection(first_rows(hidden_buffer, products.projection.rows(num_rows)))
            h = first_rows(h, num_rows)  # (n, P)
            if output_clip is not None:
                h = h.clamp_(-output_clip, output_clip)
        h = output.copy_(h)  # to all rows if the start is shared
        if is_shared and n > 1:
            minus_2c[..., 1:, :] = cells  # to all sentences too
        if remaining < n:  # the shortest sentences end here
            last_h[..., remaining:n, :] = h[..., remaining:n, :]
            last_minus_2c[..., remaining:n, :] = minus_2c[..., remaining:n, :]
    return outputs[word_rows] if is_padded else outputs, last_h, last_minus_2c * -0.5


def pad_steps(batch_sizes: list[int], rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad each step from its number of words to a number of rows.

    Returns the word that each row reads, and the row of each of the N words. Added rows repeat the step's last word.
    """
    step = torch.repeat_interleave(torch.tensor(rows))  # of each row
    starts = torch.tensor([0, *rows]).cumsum(0)
    is_word = torch.arange(len(step)) - starts[step] < torch.tensor(batch_sizes)[step]
    return is_word.cumsum(0) - 1, is_word.nonzero().squeeze(1)


def input_halves(
    products: LSTMProducts, x: torch.Tensor, words: torch.Tensor | None, batch_sizes: list[int]
) -> Iterator[torch.Tensor]:
    """Yield x W + b for the words of each step: (n, 4H)"""
    if words is not None and len(words) <= FEW_WORDS:
        x, words = x[words], None
    if words is not None:
        gates = products.input(x)  # (U, 4H)
        yield from (gates.index_select(0, index) for index in words.split(batch_sizes))
        return
    # Computed for as many steps at once as memory allows.
    start, row_bytes = 0, 4 * products.num_cells * x.element_size()
    for chunk in chunk_steps(batch_sizes, MAX_GATE_BYTES // row_bytes):
        rows = slice(start, start := start + sum(chunk))
        yield from products.input(x[..., rows, :]).split(chunk, -2)


def gates_to_hidden(
    gates: torch.Tensor, minus_2c: torch.Tensor, cell_clip: float | None, j_is_doubled: bool, out: torch.Tensor
):
    """Write o * tanh(c) to `out` (n, H) and update -2c (n, H) in place: gates (n, 4H) before their activations

    The LSTM's equations in seven passes, with tanh z = 2 sigmoid(2z) - 1 = 1 - 2 sigmoid(-2z).
    """
    i, f, o, j = gates.chunk(4, -1)
    if not j_is_doubled:
        j.mul_(2)
    gates.sigmoid_()
    i.addcmul_(i, j, value=-2)  # i - 2 i sigmoid(2j) = -i tanh(j)
    minus_2c.mul_(f).add_(i, alpha=2)  # -2 (f c + i tanh(j))
    if cell_clip is not None:
        minus_2c.clamp_(-2 * cell_clip, 2 * cell_clip)
    torch.sigmoid(minus_2c, out=f)
    torch.addcmul(o, o, f, value=-2, out=out)  # o - 2 o sigmoid(-2c) = o tanh(c)


def chunk_steps(batch_sizes: list[int], max_rows: int) -> Iterator[list[int]]:
    """Split the steps into chunks of at most `max_rows` rows, and at least one step."""
    first, free = 0, max_rows
    for step, size in enumerate(batch_sizes):
        if step > first and size > free:
            yield batch_sizes[first:step]
            first, free = step, max_rows
        free -= size
    if batch_sizes:
        yield batch_sizes[first:]


def add_product_(sums: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """sums (n, b) += x (n, a) weight (a, b), in place"""
    rows, size = x.shape
    if rows > FEW_ROWS or size % PRODUCT_PARTS or x.device.type != "cpu":
        return sums.addmm_(x, weight)
    # A CPU multiplies few rows one after the other, each in one long sum. Shorter sums run in parallel and round less.
    x, weight = x.view(rows, PRODUCT_PARTS, -1), weight.view(PRODUCT_PARTS, size // PRODUCT_PARTS, -1)
    return sums.add_(torch.bmm(x.transpose(0, 1), weight).sum(0))  # bmm: (PRODUCT_PARTS, n, b)


# grad * y * (1 - y), grad * (1 - y * y), and grad where y is strictly between two limits, else 0: each in one pass.
sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
clamp_backward = torch.ops.aten.hardtanh_backward


def lstm_backward(inputs, saved, grad_outputs, needs_grad, batch_sizes, cell_clip, output_clip):
    """Return the gradients of the inputs of `lstm_forward`, given those of its outputs, last h and last c."""
    x, input_weight, recurrent_weight, _, projection, h0, c0 = inputs
    outputs, gates, cells = saved
    d_outputs, d_h, d_c = [grad.clone() for grad in grad_outputs]  # (N, P), (B, P), (B, H)
    # clamp rounds its limits to the dtype of x, hardtanh_backward compares in float32.
    cell_clip, output_clip = [
        clip if clip is None else torch.tensor(clip, dtype=x.dtype).item()
        for clip in (None if cell_clip is None else 2 * cell_clip, output_clip)
    ]
    size = c0.shape[1]

    def before(first: torch.Tensor, later: torch.Tensor) -> torch.Tensor:
        """The state before each step: the initial one, then that of the previous step."""
        steps = zip((first, *later.split(batch_sizes)), batch_sizes)
        return torch.cat([state[:n] for state, n in steps]) if batch_sizes else later

    # What does not depend on other gradients is computed for all steps at once: d hidden / d c, and the derivatives of
    # c by i, f, j and of hidden by o, before the activations.
    i, f, o, j = gates.split(size, 1)  # (N, H)
    j = 2 * j - 1  # tanh(j)
    tanh_c = torch.sigmoid(cells).mul_(-2).add_(1)  # (N, H)
    hidden = o * tanh_c  # (N, H), before the projection
    d_hidden_d_c = tanh_backward(o, tanh_c)  # (N, H)
    d_gates = torch.empty_like(gates)  # (N, 4H)
    d_i, d_f, d_o, d_j = d_gates.split(size, 1)
    d_i.copy_(sigmoid_backward(j, i))
    d_f.copy_(sigmoid_backward(before(c0, cells * -0.5), f))
    d_o.copy_(sigmoid_backward(tanh_c, o))
    d_j.copy_(tanh_backward(i, j))

    tensors = cells, outputs, d_outputs, d_hidden_d_c, f, d_gates, d_gates.view(-1, 4, size)[:, :2], d_o, d_j
    projection_t = None if projection is None else projection.t()
    recurrent_weight_t = recurrent_weight.t()
    for cell, out, d_out, d_hid_d_c, f, d_gate, d_if, d_o, d_j in reversed(
        [*zip(*[tensor.split(batch_sizes) for tensor in tensors])]
    ):
        n = len(cell)
        d_h_now, d_cell = d_h[:n], d_c[:n]
        d_out.add_(d_h_now)
        d_hidden = d_out
        if projection is not None:
            if output_clip is not None:
                clamp_backward(d_out, out, -output_clip, output_clip, grad_input=d_out)
            d_hidden = d_out @ projection_t
        d_cell.addcmul_(d_hidden, d_hid_d_c)
        if cell_clip is not None:
            clamp_backward(d_cell, cell, -cell_clip, cell_clip, grad_input=d_cell)
        d_if.mul_(d_cell[:, None])
        d_o.mul_(d_hidden)
        d_j.mul_(d_cell)
        d_cell.mul_(f)
        torch.mm(d_gate, recurrent_weight_t, out=d_h_now)

    d_x = d_gates @ input_weight.t() if needs_grad[0] else None
    d_input_weight = x.t() @ d_gates if needs_grad[1] else None
    d_recurrent_weight = before(h0, outputs).t() @ d_gates if needs_grad[2] else None
    d_bias = d_gates.sum(0) if needs_grad[3] else None
    d_projection = hidden.t() @ d_outputs if needs_grad[4] else None
    return d_x, d_input_weight, d_recurrent_weight, d_bias, d_projection, d_h, d_c
