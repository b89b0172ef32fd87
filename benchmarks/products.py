"""Time the matrix products of ELMo alone, the limit of its speed.

The products have the sizes of a pass over given batches and run one after the other, each with the fastest of several
kernels at its number of rows. Each distinct word goes once through the character encoder and, in each batch, once
through the input half of the first layer. Nothing else is timed: no gates, no copies, no rounding to int8. Running both
directions in parallel can exceed this limit.

Shapes: D character embedding; F filters; H cells and P outputs of one direction.
"""

import time
from collections.abc import Callable, Iterator
from itertools import chain

import torch
from watch import Watch

from transformers_elmo import ElmoConfig

MAX_OUTPUTS = 1 << 22  # numbers that one product computes at once; more would be mapped anew by each call
ROWS_HINT = 64  # number of rows that oneDNN packs a weight for; any other works too
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.bfloat16}


def plain(weight: torch.Tensor, x: torch.Tensor) -> Callable[[int], torch.Tensor]:
    weight, out = weight.t().contiguous(), x.new_empty(len(x), len(weight))
    return lambda rows: torch.mm(x[:rows], weight, out=out[:rows])


def packed(weight: torch.Tensor, x: torch.Tensor) -> Callable[[int], torch.Tensor]:
    weight = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS_HINT)
    return lambda rows: torch.ops.mkldnn._linear_pointwise(x[:rows], weight, None, "none", [], "")


def quantized(weight: torch.Tensor, x: torch.Tensor) -> Callable[[int], torch.Tensor]:
    scales, zeros = torch.ones(len(weight)), torch.zeros(len(weight), dtype=torch.long)
    weight = torch.ops.onednn.qlinear_prepack((100 * weight).to(torch.int8), None)
    x = (200 * x).to(torch.uint8)
    options = scales, zeros, None, 1.0, 0, torch.bfloat16, "none", [], ""
    return lambda rows: torch.ops.onednn.qlinear_pointwise(x[:rows], 1.0, 128, weight, *options)


class Product:
    """x W for one weight W (in, out), with the fastest kernel of a precision at each number of rows."""

    def __init__(self, num_in: int, num_out: int, precision: str):
        self.max_rows = max(1, MAX_OUTPUTS // num_out)
        dtype = DTYPES[precision]
        weight, x = torch.rand(num_out, num_in, dtype=dtype), torch.rand(self.max_rows, num_in, dtype=dtype)
        self.kernels = [plain(weight, x), packed(weight, x)]
        if precision == "int8":
            self.kernels.append(quantized(weight, x))
        if dtype == torch.bfloat16:  # without its instructions, float32 is faster
            self.kernels += [plain(weight.float(), x.float()), packed(weight.float(), x.float())]
        self.fastest: dict[int, Callable] = {}  # by the number of binary digits of the number of rows

    def __call__(self, rows: int):
        self.fastest[rows.bit_length()](rows)

    def choose_kernel(self, rows: int):
        if rows.bit_length() not in self.fastest:
            self.fastest[rows.bit_length()] = min(self.kernels, key=lambda kernel: seconds(kernel, rows))

    def parts(self, rows: int) -> Iterator[tuple["Product", int]]:
        """Yield this product and its numbers of rows: as many as fit at once, then the rest."""
        yield from [(self, self.max_rows)] * (rows // self.max_rows)
        if rows % self.max_rows:
            yield self, rows % self.max_rows


def seconds(kernel: Callable, rows: int, runs: int = 5) -> float:
    """Return the time of the fastest run."""
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        kernel(rows)
        found.append(time.perf_counter() - start)
    return min(found)


def lstm_products(config: ElmoConfig, batches: list[tuple[list[int], int]], precision: str) -> list[list]:
    """Return products and rows of each batch, given as the number of words at each step and of distinct words."""
    size, cells = config.output_dim, config.lstm_dim
    inputs, recurrent = Product(size, 4 * cells, precision), Product(size, 4 * cells, precision)
    projection = Product(cells, size, precision)
    passes = []
    for batch_sizes, num_distinct in batches:
        steps = [part for rows in batch_sizes for each in (recurrent, projection) for part in each.parts(rows)]
        products = []
        for layer in range(config.num_hidden_layers):
            for _ in range(2):
                products += [*inputs.parts(sum(batch_sizes) if layer else num_distinct), *steps]
        passes.append(products)
    return passes


def character_products(config: ElmoConfig, words: set[str], precision: str) -> list:
    """Return products and rows of the character encoder for distinct words."""
    filters, products = config.num_filters, []
    for width, number in config.char_filters:
        # Each window of a word and its two marks that has a response of its own: one in the padding is enough.
        positions = [min(len(word.encode()) + 3, config.max_characters_per_token - width + 1) for word in words]
        products += Product(config.char_embedding_dim * width, number, precision).parts(sum(positions))
    highway = Product(filters, 2 * filters, precision)
    for _ in range(config.num_highway_layers):
        products += highway.parts(len(words))
    return [*products, *Product(filters, config.output_dim, precision).parts(len(words))]


@torch.inference_mode()
def time_products(config: ElmoConfig, batches: list[tuple[list[int], int]], words: set[str], precision: str) -> dict:
    """Return the measurement of a pass over these batches, which contain these distinct words."""
    passes = [character_products(config, words, precision), *lstm_products(config, batches, precision)]
    for product, rows in chain(*passes):
        product.choose_kernel(rows)
    watch = Watch(passes, rounds=1)
    for products in watch:
        for product, rows in products:
            product(rows)
    return watch.result()
