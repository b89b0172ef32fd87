"""Test plain_lstm against torch.nn.LSTM, the fast LSTM and its gradients against plain_lstm, and its threads."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_sequence

from helpers.models import random_batch, randomize, tiny_config
from transformers_elmo import ElmoModel, lstm_elmo
from transformers_elmo.lstm_elmo import (
    FEW_ROWS,
    Packing,
    bidirectional_lstm,
    chunk_steps,
    direction_threads,
    int8_products,
    lstm_inference,
    packed_products,
    plain_lstm,
    plain_products,
    run_directions,
    stacked_products,
)
from transformers_elmo.products_elmo import can_compute_int8, can_pack
from transformers_elmo.quantization_elmo import quantize

MANY_ROWS = {"device": torch.device("cpu"), "batch_size": FEW_ROWS + 1}
LENGTHS = [7, 1, 5] * FEW_ROWS  # too many sentences to run one direction after the other


@pytest.fixture(autouse=True)
def restored_threads():
    yield
    torch.set_num_threads(1)


def random_inputs(lengths: list[int], size: int = 5, cells: int = 8, projected: bool = True, seed: int = 0):
    """Return x, W, R, b, V, h, c of one direction, each requiring a gradient, and the batch sizes of its steps."""
    generator = torch.Generator().manual_seed(seed)
    size = size if projected else cells
    batch_sizes = [sum(length > step for length in lengths) for step in range(max(lengths, default=0))]
    shapes = {
        "x": (sum(lengths), size),
        "input_weight": (size, 4 * cells),
        "recurrent_weight": (size, 4 * cells),
        "bias": (4 * cells,),
        "projection": (cells, size),
        "h": (len(lengths), size),
        "c": (len(lengths), cells),
    }
    inputs = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes.values()]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    if not projected:
        inputs[4] = None
    return inputs, batch_sizes


def assert_same_gradients(got, expected, inputs):
    """Assert that a random weighted sum of the outputs has the same gradients."""
    generator = torch.Generator().manual_seed(9)
    weights = [torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype) for tensor in expected]
    wanted = [tensor for tensor in inputs if tensor is not None]  # None: no projection
    gradients = [
        torch.autograd.grad(sum((t * w).sum() for t, w in zip(tensors, weights)), wanted, retain_graph=True)
        for tensors in (got, expected)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("projected", [True, False])
def test_plain_lstm_without_clips_matches_torch(projected):
    lengths = [6, 4, 4, 1]
    (x, input_weight, recurrent_weight, bias, projection, h, c), batch_sizes = random_inputs(
        lengths, projected=projected
    )
    lstm = torch.nn.LSTM(x.shape[1], c.shape[1], proj_size=x.shape[1] if projected else 0).double()

    def in_torch_order(weight):  # i, f, o, j -> i, f, j, o
        i, f, o, j = weight.chunk(4, -1)
        return torch.cat([i, f, j, o], -1)

    with torch.no_grad():
        lstm.weight_ih_l0.copy_(in_torch_order(input_weight).t())
        lstm.weight_hh_l0.copy_(in_torch_order(recurrent_weight).t())
        lstm.bias_ih_l0.copy_(in_torch_order(bias))
        lstm.bias_hh_l0.zero_()
        if projected:
            lstm.weight_hr_l0.copy_(projection.t())
    steps = x.detach().split(batch_sizes)
    sentences = [torch.stack([step[row] for step in steps[:length]]) for row, length in enumerate(lengths)]
    expected, (last_h, last_c) = lstm(pack_sequence(sentences), (h[None], c[None]))
    got = plain_lstm(x, input_weight, recurrent_weight, bias, projection, h, c, batch_sizes, None, None)
    torch.testing.assert_close(got, (expected.data, last_h[0], last_c[0]), rtol=0, atol=1e-12)


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=20).map(lambda lengths: sorted(lengths, reverse=True)),
    cells=st.sampled_from([3, 8, 16]),  # divisible by the parts of a product, or not
    projected=st.booleans(),
    clips=st.sampled_from([(None, None), (0.4, None), (None, 0.3), (0.4, 0.3)]),
    seed=st.integers(0, 99),
)
def test_fast_lstm_matches_plain_lstm(lengths, cells, projected, clips, seed):
    directions = [random_inputs(lengths, cells=cells, projected=projected, seed=seed + d) for d in range(2)]
    inputs = [tensor for direction, _ in directions for tensor in direction]
    batch_sizes = directions[0][1]
    got = bidirectional_lstm(inputs, batch_sizes, *clips)
    for direction, outputs in zip((inputs[:7], inputs[7:]), got):
        expected = plain_lstm(*direction, batch_sizes, *clips)
        torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-12)
        assert_same_gradients(outputs, expected, direction)
    with torch.no_grad():
        torch.testing.assert_close(bidirectional_lstm(inputs, batch_sizes, *clips), got, rtol=0, atol=1e-12)


@pytest.mark.parametrize("lengths", [[400, 3], [2] * 50, [1]])
def test_long_and_wide_batches(lengths, monkeypatch):
    (inputs, batch_sizes), clips = random_inputs(lengths), (0.4, 0.3)
    expected = plain_lstm(*inputs, batch_sizes, *clips)
    got = bidirectional_lstm(inputs + inputs, batch_sizes, *clips)
    for outputs in got:
        torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-12)
    assert_same_gradients(got[1], expected, inputs)
    monkeypatch.setattr(lstm_elmo, "MAX_GATE_BYTES", 1)  # one step at a time
    with torch.no_grad():
        for outputs in bidirectional_lstm(inputs + inputs, batch_sizes, *clips):
            torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-12)


def test_batch_without_words():
    inputs, batch_sizes = random_inputs([])
    for outputs, last_h, last_c in bidirectional_lstm(inputs + inputs, batch_sizes, 0.4, 0.3):
        assert outputs.shape == (0, 5) and last_h.shape == (0, 5) and last_c.shape == (0, 8)


def test_chunks_of_steps():
    batch_sizes = [5, 4, 4, 2, 1, 1]
    for max_rows in range(1, 20):
        chunks = list(chunk_steps(batch_sizes, max_rows))
        assert list(chain(*chunks)) == batch_sizes
        assert all(sum(chunk) <= max_rows or len(chunk) == 1 for chunk in chunks)
        # No chunk could have taken the next step too.
        assert all(sum(a) + b[0] > max_rows for a, b in pairwise(chunks))
    assert list(chunk_steps([], 3)) == []


def test_packing():
    mask = torch.tensor([[0, 1, 1, 0], [1, 1, 0, 1], [0, 0, 0, 0], [0, 0, 0, 1]], dtype=torch.bool)
    packing = Packing.from_mask(mask)
    words = torch.arange(16)[packing.positions]
    assert words.tolist() == [1, 2, 4, 5, 7, 15]
    assert packing.sentences.tolist() == [1, 0, 3, 2] and packing.batch_sizes == [3, 2, 1]
    forward, backward = [words[order].tolist() for order in packing.orders]
    assert forward == [4, 1, 15, 5, 2, 7] and backward == [7, 2, 15, 5, 1, 4]
    for order, inverse in zip(packing.orders, packing.inverse_orders):
        assert words[order][inverse].tolist() == words.tolist()


# Inference.

CPU = torch.device("cpu")
needs_packing = pytest.mark.skipif(not can_pack(torch.float32, CPU), reason="this processor has no packed products")


def inference_inputs(lengths, cells, projected, start, distinct, seed):
    """Return the inputs of one direction, its batch sizes, distinct words and the row of them that each step reads."""
    inputs, batch_sizes = random_inputs(lengths, cells=cells, projected=projected, seed=seed)
    x, *weights, h, c = [None if tensor is None else tensor.detach() for tensor in inputs]
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0, distinct, (len(x),), generator=generator) if distinct else torch.arange(len(x))
    if start == "same":
        words[: batch_sizes[0]] = words[0]
    if start != "state":
        h, c = torch.zeros_like(h), torch.zeros_like(c)
    weights = [None if weight is None else weight / 2 for weight in weights]
    return (x[words], *weights, h, c), batch_sizes, x, words


def pack(*weights):
    return packed_products(list(weights), weights[0].dtype)


def assert_inference(kind, dtype, directions, clips, start, use_words):
    """Assert that inference with a kind of products gives the outputs and states of `plain_lstm` in float64."""
    expected = [plain_lstm(*inputs, batch_sizes, *clips) for inputs, batch_sizes, _, _ in directions]
    batch_sizes, same_start = directions[0][1], start == "same"
    converted = [[None if t is None else t.to(dtype) for t in inputs] for inputs, _, _, _ in directions]
    if kind == "stacked":
        x, *weights, h, c = zip(*converted)
        stacked = [torch.stack(each) for each in (x, h, c)]
        results = lstm_inference(
            stacked_products(*weights), stacked[0], None, *stacked[1:], batch_sizes, *clips, same_start
        )
        found = list(zip(*results))
    else:
        make = {"plain": plain_products, "packed": pack}[kind]
        found = []
        for (x, *weights, h, c), (_, _, distinct, words) in zip(converted, directions):
            x, words = (distinct.to(dtype), words) if use_words else (x, None)
            found.append(lstm_inference(make(*weights), x, words, h, c, batch_sizes, *clips, same_start))
    for outputs, wanted in zip(found, expected):
        for some, others in zip(outputs, wanted):
            assert some.dtype == dtype and some.shape == others.shape
            torch.testing.assert_close(some.double(), others, rtol=0, atol=1e-12 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize(
    "kind, dtype",
    [
        ("plain", torch.float64),
        ("plain", torch.float32),
        pytest.param("packed", torch.float32, marks=needs_packing),
        ("stacked", torch.float32),
        ("stacked", torch.float64),
    ],
)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=20).map(lambda lengths: sorted(lengths, reverse=True)),
    cells=st.sampled_from([1, 3, 8, 16]),
    projected=st.booleans(),
    clips=st.sampled_from([(None, None), (0.4, None), (None, 0.3), (0.4, 0.3)]),
    start=st.sampled_from(["state", "zero", "same"]),
    distinct=st.sampled_from([0, 1, 4]),  # words, 0 for all
    seed=st.integers(0, 99),
)
def test_inference_matches_plain_lstm(kind, dtype, lengths, cells, projected, clips, start, distinct, seed):
    directions = [
        inference_inputs(lengths, cells, projected, start, min(distinct, sum(lengths)), seed + direction)
        for direction in range(2)
    ]
    assert_inference(kind, dtype, directions, clips, start, use_words=distinct > 0 or start == "same")


@pytest.mark.parametrize("kind", ["plain", pytest.param("packed", marks=needs_packing), "stacked"])
@pytest.mark.parametrize("start", ["state", "zero", "same"])
@pytest.mark.parametrize("distinct", [0, 4])
def test_inference_of_many_sentences(kind, start, distinct):
    """Packed products have no kernel for these numbers of words at a step, from 75 to 35."""
    lengths = sorted([1 + number % 9 for number in range(75)], reverse=True)
    directions = [inference_inputs(lengths, 8, True, start, distinct, seed) for seed in range(2)]
    assert_inference(kind, torch.float32, directions, (0.4, 0.3), start, use_words=distinct > 0 or start == "same")


@pytest.mark.parametrize("kind", ["plain", pytest.param("packed", marks=needs_packing), "stacked"])
@pytest.mark.parametrize("start", ["state", "zero"])
@pytest.mark.parametrize("max_bytes", [1, 1000, 1 << 24])
def test_inference_does_not_depend_on_the_gates_computed_ahead(monkeypatch, kind, start, max_bytes):
    monkeypatch.setattr(lstm_elmo, "MAX_GATE_BYTES", max_bytes)
    directions = [inference_inputs([9, 7, 7, 3, 1], 8, True, start, 0, seed) for seed in range(2)]
    assert_inference(kind, torch.float32, directions, (0.4, 0.3), start, use_words=False)


def test_inference_does_not_change_its_inputs():
    (inputs, batch_sizes, _, _), clips = inference_inputs([5, 3], 8, True, "state", 0, seed=0), (0.4, 0.3)
    before = [tensor.clone() for tensor in inputs]
    x, *weights, h, c = inputs
    for _ in range(2):
        lstm_inference(plain_products(*weights), x, None, h, c, batch_sizes, *clips)
        assert all(map(torch.equal, inputs, before))


@pytest.mark.parametrize("kind", ["plain", pytest.param("packed", marks=needs_packing), "stacked"])
def test_inference_without_words(kind):
    directions = [inference_inputs([], 8, True, "state", 0, seed) for seed in range(2)]
    x, *weights, h, c = [torch.stack(each).float() for each in zip(*[inputs for inputs, *_ in directions])]
    make = {"plain": plain_products, "packed": pack}.get(kind)
    if make:
        x, h, c, weights = x[0], h[0], c[0], [weight[0] for weight in weights]
    products = make(*weights) if make else stacked_products(*weights)
    for batch_sizes in ([], [0, 0]):  # steps without words: windows of no text
        outputs, last_h, last_c = lstm_inference(products, x, None, h, c, batch_sizes, 0.4, 0.3)
        assert outputs.shape[-2:] == (0, 5) and last_h.shape[-2:] == (0, 5) and last_c.shape[-2:] == (0, 8)


def numpy_int8_lstm(x, weights, scales, bias, projection, batch_sizes, cell_clip, bounds, rounded):
    """Run one direction from a zero state, one sentence and step after the other, in float64: x (N, P) -> (N, P)

    W and R are integers with scales. Before their products x and h are rounded to multiples of bound / 127, halves up.
    """

    def product(vector, weight, scale, bound):
        if weight.dtype.kind != "i":
            return vector @ weight
        step = bound / 127
        return (np.floor(vector / step + 0.5) * step if rounded else vector) @ (weight * scale)

    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    outputs, starts = np.zeros((len(x), projection.shape[1])), np.cumsum([0, *batch_sizes])
    for sentence in range(batch_sizes[0]):
        h, c = np.zeros(projection.shape[1]), np.zeros(projection.shape[0])
        for step in range(sum(size > sentence for size in batch_sizes)):
            row = starts[step] + sentence
            gates = product(x[row], weights[0], scales[0], bounds[0]) + product(h, weights[1], scales[1], bounds[1])
            i, f, o, j = np.split(gates + bias, 4)
            c = np.clip(sigmoid(f) * c + sigmoid(i) * np.tanh(j), -cell_clip, cell_clip)
            h = outputs[row] = np.clip(sigmoid(o) * np.tanh(c) @ projection, -bounds[1], bounds[1])
    return outputs


@pytest.mark.skipif(not can_compute_int8(CPU), reason="this processor has no int8 products")
@pytest.mark.parametrize("is_first", [True, False])
def test_int8_inference_matches_numpy(monkeypatch, is_first):
    """W of the first layer is a float. Here V, and this W, are float32, where they usually are bfloat16."""
    monkeypatch.setattr(lstm_elmo, "packed_dtype", lambda dtype, device: torch.float32)
    inputs, batch_sizes, _, _ = inference_inputs([7, 5, 5, 2, 1] * 11, 16, True, "zero", 0, seed=3)
    x, input_weight, recurrent_weight, bias, projection, h, c = [tensor.float() for tensor in inputs]
    bounds = (0.9, 0.3)
    x = x.clamp(-bounds[0], bounds[0])
    ints = [(input_weight, None) if is_first else quantize(input_weight), quantize(recurrent_weight)]
    products = int8_products([input_weight if is_first else ints[0], ints[1], bias, projection], *bounds)
    found, last_h, _ = lstm_inference(products, x, None, h, c, batch_sizes, 0.8, bounds[1])
    weights, scales = zip(*ints)
    arrays = [weight.numpy() if weight.is_floating_point() else weight.long().numpy() for weight in weights]
    scales = [None if scale is None else scale.double().numpy() for scale in scales]
    rest = bias.double().numpy(), projection.double().numpy(), batch_sizes, 0.8, bounds
    expected, unrounded = [
        numpy_int8_lstm(x.double().numpy(), arrays, scales, *rest, rounded=flag) for flag in (True, False)
    ]
    errors = np.abs(found.double().numpy() - expected)
    # A number next to a half can be rounded either way.
    assert np.median(errors) < 1e-6 and errors.max() < 2 * bounds[1] / 127
    assert np.mean(np.abs(unrounded - expected)) > 1e-4
    assert torch.equal(last_h[0], found[sum(batch_sizes[:6])])


# The two directions in threads of their own.


def build(**options) -> ElmoModel:
    torch.manual_seed(0)
    model = ElmoModel(tiny_config(**options)).double().eval()
    randomize(model)
    return model


def outputs_and_gradients(model: ElmoModel, threads: int) -> list[torch.Tensor]:
    torch.set_num_threads(threads)
    model.zero_grad()
    outputs = model(**random_batch(model.config, LENGTHS), output_state=True)
    (outputs.last_hidden_state.square().sum() + sum(part.sum() for part in outputs.state)).backward()
    assert torch.get_num_threads() == threads
    return [outputs.last_hidden_state.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("threads", [2, 3, 4])
@pytest.mark.parametrize("options", [{}, {"projection_dim": None}, {"num_hidden_layers": 3}], ids=str)
def test_threads_compute_the_same(options, threads):
    model = build(**options)
    found, expected = [outputs_and_gradients(model, number) for number in (threads, 1)]
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_frozen_direction_has_no_gradient():
    """Only the parameters that require a gradient get one."""
    model = build()
    for layer in model.bilm.layers:
        layer.backward_lstm.requires_grad_(False)
    model.token_encoder.requires_grad_(False)
    found, expected = [outputs_and_gradients(model, number) for number in (2, 1)]
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    assert all(layer.backward_lstm.bias.grad is None for layer in model.bilm.layers)


def test_gradients_are_the_same_bits_every_time():
    """Several threads sum the gradients of all occurrences of a word, always in the same order."""
    torch.manual_seed(0)
    model, batch = ElmoModel(tiny_config(projection_dim=32)).eval(), random_batch(tiny_config(), [40] * 64)
    torch.set_num_threads(4)
    found = []
    for _ in range(5):
        (gradient,) = torch.autograd.grad(
            model(**batch).last_hidden_state.square().sum(), model.token_encoder.projection.weight
        )
        found.append(gradient)
    assert all(torch.equal(found[0], each) for each in found[1:])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode):
    model, batch = build(), random_batch(tiny_config(), LENGTHS)
    with mode():
        torch.set_num_threads(1)
        expected = model(**batch).last_hidden_state
        torch.set_num_threads(2)
        found = model(**batch).last_hidden_state
        assert found.is_inference() == (mode is torch.inference_mode) and not found.requires_grad
        found.add_(0)  # may be changed in place
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_many_callers_at_once():
    model, batches = build(), [random_batch(tiny_config(), LENGTHS, seed=seed) for seed in range(40)]
    with torch.no_grad():
        expected = [model(**batch).last_hidden_state for batch in batches]

    def call(batch):
        torch.set_num_threads(2)
        with torch.no_grad():
            return model(**batch).last_hidden_state

    with ThreadPoolExecutor(8) as threads:
        for found, wanted in zip(threads.map(call, batches), expected):
            torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("wrong", ["forward", "backward"])
def test_errors_of_a_thread_reach_the_caller(wrong):
    def break_one(direction):
        if direction == wrong:
            raise MemoryError(f"no memory for {direction}")
        return direction

    torch.set_num_threads(4)
    with pytest.raises(MemoryError, match=wrong):
        run_directions(break_one, ("forward",), ("backward",), **MANY_ROWS)
    assert torch.get_num_threads() == 4
    assert run_directions(str.upper, ("forward",), ("backward",), **MANY_ROWS) == ("FORWARD", "BACKWARD")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_process_has_threads_of_its_own():
    torch.set_num_threads(2)
    run_directions(str.upper, ("a",), ("b",), **MANY_ROWS)
    assert direction_threads.cache_info().currsize == 1
    child = os.fork()
    if not child:
        signal.alarm(20)  # ends it if it waits for a thread that did not survive the fork
        os._exit(0 if run_directions(str.upper, ("a",), ("b",), **MANY_ROWS) == ("A", "B") else 1)
    assert os.waitpid(child, 0)[1] == 0
