"""Matrix products of inference against float64 and integers in numpy, their rows one by one, and prepared weights."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from transformers_elmo import products_elmo
from transformers_elmo.products_elmo import (
    SAMPLES,
    Int8Linear,
    PackedLinear,
    PlainLinear,
    PreparedWeights,
    StackedLinear,
    can_compute_int8,
    can_pack,
    mkl_is_fast,
    packed_dtype,
    pad_rows,
    plain_is_faster,
    round_rows,
)

CPU = torch.device("cpu")
ROWS = [0, 1, 2, 3, 17, 64, 67]
needs_int8 = pytest.mark.skipif(not can_compute_int8(CPU), reason="this processor has no int8 products")


@pytest.fixture(autouse=True)
def restored_threads():
    yield
    torch.set_num_threads(1)


def skip_unless_packed(dtype: torch.dtype):
    if not can_pack(dtype, CPU):
        pytest.skip(f"this processor has no packed products of {dtype}")


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_product(found: torch.Tensor, x, weight, added=None):
    """Assert that found is x W + added, up to the rounding of its dtype and of float32 sums."""
    x, weight = x.double().numpy(), weight.double().numpy()
    added = np.zeros(weight.shape[1]) if added is None else added.double().numpy()
    expected, size = x @ weight + added, np.abs(x) @ np.abs(weight) + np.abs(added)
    assert found.shape == expected.shape
    assert (np.abs(found.double().numpy() - expected) <= 2 * torch.finfo(found.dtype).eps * size + 1e-30).all()


def assert_rows_alone(product, rows: int):
    """Assert that a product has the same bits for any number of rows, any other rows and any number of threads."""
    expected = product(slice(rows))
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(1))
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for number in (1, 2, 3, 5, 8, 17, 33, 64, rows):
            part = order[:number]
            assert torch.equal(product(part), expected[part]), (threads, number)


# Floats.


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("linear", [PlainLinear, PackedLinear])
@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (33, 17), (300, 129), (64, 1)], ids=str)
def test_products_match_numpy(linear, shape, dtype):
    if linear is PackedLinear:
        skip_unless_packed(dtype)
    weight, bias = random(*shape, dtype=dtype), random(shape[1], seed=1, dtype=dtype)
    before = weight.clone(), bias.clone()
    for rows in ROWS:
        x, sums = random(rows, shape[0], seed=2, dtype=dtype), random(rows, shape[1], seed=3, dtype=dtype)
        for found, added in (
            (linear(weight)(x), None),
            (linear(weight, bias)(x), bias),
            (linear(weight).add(sums.clone(), x), sums),
        ):
            assert found.dtype == dtype
            assert_product(found, x, weight, added)
        assert_product(linear(weight)(x.float()).to(dtype), x, weight)  # x of another dtype
    assert torch.equal(weight, before[0]) and torch.equal(bias, before[1])


@pytest.mark.parametrize("rows", ROWS)
def test_stacked_products_match_numpy(rows):
    weights, biases = random(2, 33, 17), random(2, 17, seed=1)
    x, sums = random(2, rows, 33, seed=2), random(2, rows, 17, seed=3)
    for found, added in (
        (StackedLinear(weights)(x), (None, None)),
        (StackedLinear(weights, biases)(x), biases),
        (StackedLinear(weights).add(sums.clone(), x), sums),
    ):
        assert found.shape == (2, rows, 17)
        for direction in range(2):
            assert_product(found[direction], x[direction], weights[direction], added[direction])


@pytest.mark.parametrize("transposed", [False, True])
def test_weights_of_any_layout(transposed):
    skip_unless_packed(torch.float32)
    weight = random(9, 7).t() if transposed else random(14, 18)[::2, ::2]
    x = random(5, 7, seed=1)
    assert_product(PackedLinear(weight)(x), x, weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(16, 64), (37, 29), (300, 512), (2048, 37), (4096, 128)], ids=str)
def test_a_row_of_a_packed_product_does_not_depend_on_the_others(shape, dtype):
    skip_unless_packed(dtype)
    weight, rows = random(*shape, dtype=dtype) / 8, 100
    x, sums = random(rows, shape[0], seed=1, dtype=dtype), random(rows, shape[1], seed=2, dtype=dtype)
    linear, with_bias = PackedLinear(weight), PackedLinear(weight, sums[0])
    assert_rows_alone(lambda part: linear(x[part]), rows)
    assert_rows_alone(lambda part: with_bias(x[part]), rows)
    assert_rows_alone(lambda part: linear.add(sums[part].clone(), x[part]), rows)


@pytest.mark.parametrize("name, is_fast", [("Intel Xeon 2.50GHz", True), ("AMD EPYC 9R14", False), (None, False)])
def test_plain_products_are_chosen_for_small_weights_where_mkl_is_fast(monkeypatch, name, is_fast):
    capabilities = {} if name is None else {"cpu_name": name}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    mkl_is_fast.cache_clear()
    try:
        assert plain_is_faster(torch.empty(128, 4096)) is is_fast
        assert not plain_is_faster(torch.empty(256, 8192))
        assert not plain_is_faster(torch.empty(128, 4096, dtype=torch.bfloat16))
        assert not plain_is_faster(torch.empty(128, 4096, dtype=torch.int8))
        mkl_is_fast.cache_clear()
        monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
        assert not plain_is_faster(torch.empty(128, 4096))
        mkl_is_fast.cache_clear()
        monkeypatch.delattr(torch.cpu, "get_capabilities")
        assert not plain_is_faster(torch.empty(128, 4096))
    finally:
        mkl_is_fast.cache_clear()


# Numbers of rows.


@given(st.integers(0, 1 << 20))
def test_rows_are_rounded_up(number):
    rounded = round_rows(number)
    assert round_rows(rounded) == rounded
    assert number <= rounded <= number * 17 / 16 if number > 32 else rounded == number
    assert round_rows(number + 1) >= rounded


def test_few_numbers_of_rows_are_used(monkeypatch):
    skip_unless_packed(torch.float32)
    used = set()
    monkeypatch.setattr(products_elmo, "pad_rows", lambda x, number: used.add(number) or pad_rows(x, number))
    linear = PackedLinear(random(3, 4))
    for number in range(1, 1025):
        assert len(linear(random(number, 3))) == number
        assert len(linear.add(random(number, 4), random(number, 3))) == number
    assert len(used) == 32 + 5 * 16


# 8 bits.


def random_int8(*shape, seed=0) -> torch.Tensor:
    return torch.randint(-127, 128, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int8)


def rounded(x: np.ndarray, step: float) -> np.ndarray:
    """Round x / step to integers, halves up."""
    return np.floor(x.astype(np.float64) / step + 0.5).astype(np.int64)


@needs_int8
@given(
    rows=st.sampled_from(ROWS), size=st.integers(1, 130), outputs=st.integers(1, 70),
    power=st.integers(-12, 2), with_bias=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_int8_products_are_exact(rows, size, outputs, power, with_bias, seed):
    """Steps and scales are powers of two, so no float is rounded. Numbers of x are multiples of step / 2."""
    step = 2.0**power
    generator = torch.Generator().manual_seed(seed)
    weight = random_int8(size, outputs, seed=seed)
    scale = 2.0 ** torch.randint(-3, 4, (outputs,), generator=generator)
    x = torch.randint(-254, 255, (rows, size), generator=generator) * (step / 2)
    x.view(-1)[:3] = torch.tensor([-127.0, 127.0, 0.0])[: x.numel()] * step
    bias = torch.randint(-99, 100, (outputs,), generator=generator) * step if with_bias else None
    sums = torch.randint(-99, 100, (rows, outputs), generator=generator) * step
    linear = Int8Linear(weight, scale, 127 * step, bias)
    product = (rounded(x.numpy(), step) @ weight.long().numpy()) * (step * scale.double().numpy())  # (rows, outputs)
    expected = product if bias is None else product + bias.double().numpy()
    found = linear(x)
    assert found.dtype == torch.float32 and np.array_equal(found.double().numpy(), expected)
    if not with_bias:
        assert np.array_equal(linear.add(sums.clone(), x).double().numpy(), product + sums.double().numpy())


@needs_int8
@pytest.mark.parametrize("bound", [0.37, 1.0, 3.0, 9.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_int8_products_of_any_scale(bound, dtype):
    weight, scale, bias = random_int8(301, 67), random(67).abs() / 50, random(67, seed=1)
    x = (random(40, 301, seed=2) * bound).clamp(-bound, bound).to(dtype)
    # In float32, where sums with 128.5 round numbers next to a half.
    integers = np.floor(x.float().numpy() / np.float32(bound / 127) + np.float32(128.5)).clip(1, 255).astype(int) - 128
    product = (integers @ weight.long().numpy()) * (scale.double().numpy() * bound / 127)
    sums = random(40, 67, seed=3, dtype=dtype)
    for found, added in (
        (Int8Linear(weight, scale, bound, bias)(x), bias),
        (Int8Linear(weight, scale, bound).add(sums.clone(), x), sums),
    ):
        expected = torch.from_numpy(product + added.double().numpy()).float()
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=2e-6)


@needs_int8
def test_int8_numbers_beyond_the_bound_are_clipped():
    """A clip, or a sum of clipped numbers, rounded to bfloat16 is up to a percent larger than the bound."""
    linear = Int8Linear(torch.eye(2, dtype=torch.int8), torch.ones(2), bound=1.27)
    found = linear(torch.tensor([[1.28, -1.28], [9.0, -9.0]]))
    torch.testing.assert_close(found, torch.tensor([[1.27, -1.27]] * 2))


@needs_int8
def test_int8_weights_of_any_layout():
    weight, x = random_int8(7, 9), torch.eye(7)
    for each in (weight, weight.t().contiguous().t(), weight.repeat_interleave(2, 1)[:, ::2]):
        found = Int8Linear(each, torch.ones(9), bound=127.0)(x)
        assert torch.equal(found, weight.float())


@needs_int8
@pytest.mark.parametrize("shape", [(16, 64), (37, 29), (300, 512), (2048, 37), (4096, 128)], ids=str)
def test_a_row_of_an_int8_product_does_not_depend_on_the_others(shape):
    """Nor on how large the others are: the scale is fixed."""
    rows, scale = 100, random(shape[1]).abs() / 9
    x = (random(rows, shape[0], seed=1) * torch.logspace(-3, 0, rows)[:, None]).clamp(-1, 1)
    sums = random(rows, shape[1], seed=2)
    weight = random_int8(*shape)
    linear, with_bias = Int8Linear(weight, scale, 1.0), Int8Linear(weight, scale, 1.0, sums[0])
    assert_rows_alone(lambda part: linear(x[part]), rows)
    assert_rows_alone(lambda part: with_bias(x[part]), rows)
    assert_rows_alone(lambda part: linear.add(sums[part].clone(), x[part]), rows)


# Which processors.


def test_features_decide(monkeypatch):
    answers = {"_is_avx512_bf16_supported": False, "_is_amx_tile_supported": False, "_is_vnni_supported": True}
    for name in answers:
        monkeypatch.setattr(torch.cpu, name, lambda name=name: answers[name])
    capability = "AVX512"
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    assert can_pack(torch.float32, CPU) and can_compute_int8(CPU)
    assert not can_pack(torch.bfloat16, CPU)
    halves = torch.bfloat16, torch.float16
    assert [packed_dtype(dtype, CPU) for dtype in (torch.float32, *halves)] == [torch.float32] * 3
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        answers[name] = True
        assert can_pack(torch.bfloat16, CPU)
        assert [packed_dtype(dtype, CPU) for dtype in halves] == [torch.bfloat16, torch.float32]
        answers[name] = False
    for dtype in (torch.float16, torch.float64, torch.int8):
        assert not can_pack(dtype, CPU)
    assert packed_dtype(torch.float64, CPU) is None and packed_dtype(torch.bfloat16, torch.device("meta")) is None
    assert not can_pack(torch.float32, torch.device("meta")) and not can_compute_int8(torch.device("meta"))
    answers["_is_vnni_supported"] = False
    assert not can_compute_int8(CPU) and can_pack(torch.float32, CPU)
    answers["_is_vnni_supported"], capability = True, "DEFAULT"
    assert not can_compute_int8(CPU) and not can_pack(torch.float32, CPU)
    assert not any(packed_dtype(dtype, CPU) for dtype in (torch.float32, *halves))
    capability = "AVX2"
    with torch.backends.mkldnn.flags(enabled=False):
        assert not can_pack(torch.float32, CPU) and not can_compute_int8(CPU)


# Prepared weights.


class Preparation:
    """Prepared weights of a module, and how often they were made."""

    def __init__(self, module: nn.Module):
        self.module, self.prepared, self.number = module, PreparedWeights(), 0

    def make(self):
        self.number += 1
        return [weight.detach().clone() for weight in self.module.parameters()]

    def is_made_anew(self, kind="kind") -> bool:
        before = self.number
        weights = self.prepared.get(kind, [self.module], self.make)
        assert all(map(torch.equal, weights, self.module.parameters())) or any(w.isnan().any() for w in weights)
        return self.number > before


def build(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(60, 50), nn.Linear(50, 60, bias=False))  # more weights than are compared


def step(module):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module(torch.ones(2, 60)).sum().backward()
    optimizer.step()


@torch.no_grad()
def change_one_number(module):
    module[1].weight[3, 4] += 1


def change_storage(module):
    # Of the same values, which may then change without a version.
    module[0].weight.data = module[0].weight.data.clone()


CHANGES = {
    "in place": torch.no_grad()(lambda module: module[0].bias.mul_(2)),
    "copy": torch.no_grad()(lambda module: module[1].weight.copy_(module[1].weight * 2)),
    "one number": change_one_number,
    "data": lambda module: setattr(module[1].weight, "data", module[1].weight.data * 2),
    "storage": change_storage,
    "data in place": lambda module: module[1].weight.data.mul_(2),
    "data of another layout": lambda module: setattr(module[1].weight, "data", build(1)[1].weight.data.t().clone().t()),
    "bias's data in place": lambda module: module[0].bias.data.add_(1),
    "row of data": lambda module: module[1].weight.data[7].add_(1),
    "column of data": lambda module: module[1].weight.data[:, 7].add_(1),
    "optimizer": step,
    "load_state_dict": lambda module: module.load_state_dict(build(1).state_dict()),
    "assigned state_dict": lambda module: module.load_state_dict(build(1).state_dict(), assign=True),
    "float64": lambda module: module.to(torch.float64),
    "float16": lambda module: module.half(),
    "float16 and back": lambda module: module.half().float(),
    "bfloat16": lambda module: module.bfloat16(),
    "new parameter": lambda module: setattr(module[0], "bias", nn.Parameter(torch.zeros(50))),
    "new module": lambda module: module.__setitem__(1, nn.Linear(50, 60, bias=False)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_prepared_weights_are_dropped_when_a_weight_changes(change):
    module = build()
    preparation = Preparation(module)
    assert preparation.is_made_anew() and not preparation.is_made_anew()
    assert preparation.is_made_anew("other") and not preparation.is_made_anew("other")
    change(module)
    assert preparation.is_made_anew() and not preparation.is_made_anew()
    assert preparation.is_made_anew("other")


def test_small_weights_are_compared_whole():
    for shape in ((0, 3), (5,), (128, 64)):
        weight = torch.arange(math.prod(shape)).view(shape)
        assert torch.equal(PreparedWeights.some_elements(weight), weight.flatten())


def test_the_sample_of_large_weights_reaches_many_rows_and_columns():
    for shape in ((128, 4096), (4096, 128), (129, 64), (512, 16384)):
        sample = PreparedWeights.some_elements(torch.arange(math.prod(shape)).view(shape))
        assert SAMPLES / 2 <= len(sample) <= SAMPLES + 1
        assert min(len((sample // shape[1]).unique()), len((sample % shape[1]).unique())) >= 60


def test_nan_is_never_taken_for_unchanged():
    module = build()
    preparation = Preparation(module)
    assert preparation.is_made_anew()
    module[0].weight.data.fill_(torch.nan)
    assert preparation.is_made_anew() and preparation.is_made_anew()
    module[0].weight.data.fill_(1)
    assert preparation.is_made_anew() and not preparation.is_made_anew()


def test_buffers_are_compared_too():
    module = build()
    module.register_buffer("scale", torch.ones(9))
    preparation = Preparation(module)
    assert preparation.is_made_anew() and not preparation.is_made_anew()
    module.scale.mul_(2)
    assert preparation.is_made_anew()


def test_parameters_of_inference_mode():
    """They have no versions."""
    with torch.inference_mode():
        module = build()
        preparation = Preparation(module)
        assert preparation.is_made_anew() and not preparation.is_made_anew()
        module[0].weight.mul_(2)
        assert preparation.is_made_anew()
    assert not preparation.is_made_anew()


def test_offloaded_weights_are_never_kept():
    module = build()
    preparation = Preparation(module)
    module[1]._hf_hook = object()
    assert preparation.is_made_anew() and preparation.is_made_anew() and not preparation.prepared.copies
    del module[1]._hf_hook
    assert preparation.is_made_anew() and not preparation.is_made_anew()
    module[1]._hf_hook = object()
    assert preparation.is_made_anew() and preparation.is_made_anew()


def test_copies_and_pickles_are_empty():
    preparation = Preparation(build())
    assert preparation.is_made_anew()
    for copied in (copy.deepcopy(preparation.prepared), pickle.loads(pickle.dumps(preparation.prepared))):
        assert vars(copied) == {"copies": {}, "weights": None, "sample": None}
    assert not preparation.is_made_anew()
    preparation.prepared.drop()
    assert vars(preparation.prepared) == {"copies": {}, "weights": None, "sample": None}
    assert preparation.is_made_anew()
