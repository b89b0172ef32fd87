# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Matrix products with weights that are used again and again in inference: y = x W + b.

`PlainLinear` is this equation. The other classes compute the same faster on a CPU, from copies of the weights in a
layout of their own: `PackedLinear` in float32 or bfloat16, `Int8Linear` in 8 bits, `StackedLinear` for few rows.
`PreparedWeights` keeps such copies until a weight changes.

A row of a product does not depend on the other rows: `PackedLinear` and `Int8Linear` give the same bits for any number
of rows on the processors that we know, `PlainLinear` and `StackedLinear` the same numbers up to rounding.

Weights are stored (in, out), as in TensorFlow.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import torch
from torch import nn

# Elements that are compared to notice a change of a weight: all of a small one, a sample of a large one. Most of the
# sample has to be read from memory each time.
SMALL_WEIGHT = 8192
SAMPLES = 256
# MKL rearranges a weight for each product, which is fast for one that stays in the cache of a core.
PLAIN_BYTES = 1 << 21


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether this processor computes products of packed weights, and fast.

    Only features count: a measurement could choose another way, which rounds otherwise, each time a model is loaded.
    """
    if device.type != "cpu" or not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:
        return False
    if dtype == torch.bfloat16:
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return dtype == torch.float32 and torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


def packed_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype | None:
    """Return the dtype in which weights of a dtype are packed; None where plain products are better.

    That is float32 for half precision without its instructions, where torch's products take up to 80 times as long.
    """
    if can_pack(dtype, device):
        return dtype
    is_half = dtype in (torch.bfloat16, torch.float16)
    return torch.float32 if is_half and can_pack(torch.float32, device) else None


def plain_is_faster(weight: torch.Tensor) -> bool:
    """Return whether plain products are faster than packed ones: those of MKL on Intel, for small float32 weights."""
    return weight.dtype == torch.float32 and weight.nbytes <= PLAIN_BYTES and mkl_is_fast()


@cache
def mkl_is_fast() -> bool:
    """Return whether torch computes plain products by MKL, on a processor for which its fastest kernels are."""
    capabilities: dict = getattr(torch.cpu, "get_capabilities", dict)()  # which older versions of torch lack
    return torch.backends.mkl.is_available() and capabilities.get("cpu_name", "").startswith("Intel")


def can_compute_int8(device: torch.device) -> bool:
    """Return whether this processor multiplies 8-bit integers faster than it multiplies floats."""
    return can_pack(torch.float32, device) and torch.cpu._is_vnni_supported()


def round_rows(number: int) -> int:
    """Round a product's number of rows up: up to 32 it stays, above that there are 16 numbers for each power of two.

    oneDNN keeps a compiled kernel for each number of rows, of about 400 kB. The kernels of all numbers that occur in a
    long text would take hundreds of megabytes, scattered over the heap.
    """
    if number <= 32:
        return number
    step = 1 << (number - 1).bit_length() - 5
    return -(-number // step) * step


def pad_rows(x: torch.Tensor, number: int) -> torch.Tensor:
    """Repeat rows of x, up to twice as many: (n, size) -> (number, size)"""
    n = x.shape[0]
    return x if n == number else torch.cat([x, x[: number - n]])


def first_rows(x: torch.Tensor, number: int) -> torch.Tensor:
    return x if x.shape[-2] == number else x[..., :number, :]


class PlainLinear:
    """x W + b by torch: weight (in, out), bias (out,) or None"""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        self.weight, self.bias, self.dtype = weight, bias, weight.dtype

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x (n, in) -> (n, out)"""
        x = x.to(self.weight.dtype)
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)

    def add(self, sums: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return sums + x W: sums (n, out), which may be overwritten, x (n, in)"""
        return sums.addmm_(x, self.weight)

    def rows(self, n: int) -> int:
        """Return the number of rows in which n are computed; if x has fewer, some are computed twice."""
        return n

    nbytes = 0  # of copies of the weights


class PackedLinear:
    """x W + b by oneDNN, with the weight in the blocked layout in which its kernel reads it."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        typical_rows = 64
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.t().contiguous(), typical_rows)
        self.bias, self.dtype, self.out_features = bias, weight.dtype, weight.shape[1]
        # oneDNN computes the long sum of a single row in parts. Two rows take the same time.
        self.min_rows = 2 if weight.shape[0] > 1024 else 1
        self.nbytes = weight.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x (n, in) -> (n, out)"""
        x, n = x.to(self.dtype), x.shape[0]
        if not n:
            return x.new_empty(0, self.out_features)
        x = pad_rows(x, self.rows(n))
        return first_rows(torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], ""), n)

    def add(self, sums: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return sums + x W: sums (n, out), x (n, in)"""
        x, n = x.to(self.dtype), x.shape[0]
        if not n:
            return sums
        x, sums = pad_rows(x, self.rows(n)), pad_rows(sums, self.rows(n))
        return first_rows(torch.ops.mkldnn._linear_pointwise.binary(x, sums, self.weight, None, "add"), n)

    def rows(self, n: int) -> int:
        return max(round_rows(n), self.min_rows) if n else 0


class Int8Linear:
    """x W + b in 8 bits by oneDNN: weight (in, out) int8 and its scale (out,); numbers of x from -bound to bound.

    The bound, and so the rounding of x, is fixed. A scale taken from x itself would make a row depend on the others.
    """

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor, bound: float, bias: torch.Tensor | None = None):
        # Contiguous: oneDNN reads a transposed view as if it were.
        self.weight = torch.ops.onednn.qlinear_prepack(weight.t().contiguous(), None)
        self.scale, self.bias = scale, bias
        self.zero_points = torch.zeros(len(scale), dtype=torch.int64)
        self.step, self.zero = bound / 127, torch.tensor([128.5])
        self.nbytes = weight.nbytes

    def quantize(self, x: torch.Tensor) -> torch.Tensor:
        """Round x to multiples of `step`: 128 + x / step, from 1 to 255"""
        # States of another origin, and numbers rounded to bfloat16, can be outside the bounds.
        return torch.add(self.zero, x, alpha=1 / self.step).clamp_(1, 255).to(torch.uint8)  # which rounds down

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x (n, in) -> (n, out)"""
        if not (n := x.shape[0]):
            return x.new_empty(0, len(self.scale))
        x, weight = self.quantize(pad_rows(x, self.rows(n))), (self.weight, self.scale, self.zero_points)
        y = torch.ops.onednn.qlinear_pointwise(
            x, self.step, 128, *weight, self.bias, 1.0, 0, torch.float32, "none", [], ""
        )
        return first_rows(y, n)

    def add(self, sums: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return sums + x W: sums (n, out), which are overwritten if they are float32, x (n, in)"""
        n, weight = x.shape[0], (self.weight, self.scale, self.zero_points)
        x, sums = pad_rows(x, self.rows(n)), pad_rows(sums, self.rows(n))
        y = torch.ops.onednn.qlinear_pointwise.binary(
            *(self.quantize(x), self.step, 128, *weight, sums.float(), None, 1.0, 0, torch.float32, 1.0, 0),
            *("sum", 1.0, "none", [], ""),
        )
        return first_rows(y, n)

    def rows(self, n: int) -> int:
        return round_rows(n)


class StackedLinear:
    """The products of both directions in one call: weights (2, in, out), biases (2, out)"""

    def __init__(self, weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor] | None = None):
        self.weight, self.dtype = torch.stack([*weights]), weights[0].dtype
        self.bias = None if biases is None else torch.stack([*biases])[:, None]
        self.nbytes = self.weight.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x (2, n, in) -> (2, n, out)"""
        return torch.bmm(x, self.weight) if self.bias is None else torch.baddbmm(self.bias, x, self.weight)

    def add(self, sums: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return sums + x W: sums (2, n, out), x (2, n, in)"""
        return torch.baddbmm(sums, x, self.weight)

    def rows(self, n: int) -> int:
        return n


class PreparedWeights:
    """Copies of weights in the layout of a product: made when first needed, dropped when a weight changes.

    A change is noticed by a weight's address and version, which optimizers and most other code change, and by some of
    its elements, since an assignment to `weight.data` changes neither. The copies are never saved, pickled or copied
    with the model.
    """

    def __init__(self):
        self.copies: dict[Any, Any] = {}
        self.weights: list[tuple[int, int]] | None = None
        self.sample: torch.Tensor | None = None

    def get(self, kind: Any, modules: Iterable[nn.Module], make: Callable[[], Any]) -> Any:
        """Return what `make` has returned for this kind of product since weights of the modules last changed."""
        parts = [part for module in modules for part in module.modules()]
        if any("_hf_hook" in vars(part) for part in parts):
            return make()  # accelerate offloads the weights, which exist only while a module is called
        weights = [
            weight
            for part in parts
            for weight in (*part._parameters.values(), *part._buffers.values())
            if weight is not None
        ]
        state = [(weight.data_ptr(), 0 if weight.is_inference() else weight._version) for weight in weights]
        sample = torch.cat([self.some_elements(weight) for weight in weights])
        if state != self.weights or self.sample is None or not torch.equal(sample, self.sample):
            self.copies, self.weights, self.sample = {}, state, sample
        if (copy := self.copies.get(kind)) is None:
            copy = self.copies[kind] = make()
        return copy

    @staticmethod
    def some_elements(weight: torch.Tensor) -> torch.Tensor:
        elements = weight.detach().reshape(-1)
        if len(elements) <= SMALL_WEIGHT:
            return elements
        return elements[:: len(elements) // SAMPLES | 1]  # an odd distance reaches different rows and columns

    @property
    def nbytes(self) -> int:
        """Memory of the copies."""

        def size(copy: Any) -> int:
            parts = copy.values() if isinstance(copy, dict) else copy
            return copy.nbytes if hasattr(copy, "nbytes") else sum(map(size, parts))

        return size(self.copies)

    def drop(self):
        self.copies, self.weights, self.sample = {}, None, None

    def __reduce__(self):
        return type(self), ()
