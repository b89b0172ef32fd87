"""The two directions in threads of their own: the same numbers and gradients as one after the other."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from helpers.models import random_batch, randomise, tiny_config
from transformers_elmo import ElmoModel
from transformers_elmo.lstm_elmo import FEW_ROWS, direction_threads, run_directions

MANY = torch.device("cpu"), FEW_ROWS + 1
LENGTHS = [7, 1, 5] * FEW_ROWS  # more sentences than are read one direction after the other


@pytest.fixture(autouse=True)
def restored_threads():
    yield
    torch.set_num_threads(1)


def made(**options) -> ElmoModel:
    torch.manual_seed(0)
    model = ElmoModel(tiny_config(**options)).double().eval()
    randomise(model)
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
def test_same_as_one_after_the_other(options, threads):
    model = made(**options)
    found, expected = [outputs_and_gradients(model, number) for number in (threads, 1)]
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_one_direction_frozen():
    """Gradients where they are asked for, and nowhere else."""
    model = made()
    for layer in model.bilm.layers:
        layer.backward_lstm.requires_grad_(False)
    model.token_encoder.requires_grad_(False)
    found, expected = [outputs_and_gradients(model, number) for number in (2, 1)]
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    assert all(layer.backward_lstm.bias.grad is None for layer in model.bilm.layers)


def test_gradients_are_the_same_bits_every_time():
    """Those of all the places where a word stands are added up, by several threads and always in the same order."""
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
    model, batch = made(), random_batch(tiny_config(), LENGTHS)
    with mode():
        torch.set_num_threads(1)
        expected = model(**batch).last_hidden_state
        torch.set_num_threads(2)
        found = model(**batch).last_hidden_state
        assert found.is_inference() == (mode is torch.inference_mode) and not found.requires_grad
        found.add_(0)  # still to be changed in place
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_many_callers_at_once():
    model, batches = made(), [random_batch(tiny_config(), LENGTHS, seed=seed) for seed in range(40)]
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
def test_an_error_is_that_of_the_caller(wrong):
    def break_one(direction):
        if direction == wrong:
            raise MemoryError(f"no memory for {direction}")
        return direction

    torch.set_num_threads(4)
    with pytest.raises(MemoryError, match=wrong):
        run_directions(break_one, ("forward",), ("backward",), *MANY)
    assert torch.get_num_threads() == 4
    assert run_directions(str.upper, ("forward",), ("backward",), *MANY) == ("FORWARD", "BACKWARD")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_process_has_threads_of_its_own():
    torch.set_num_threads(2)
    run_directions(str.upper, ("a",), ("b",), *MANY)
    assert direction_threads.cache_info().currsize == 1
    child = os.fork()
    if not child:
        signal.alarm(20)  # ends it, should it wait for a thread that is not there
        os._exit(0 if run_directions(str.upper, ("a",), ("b",), *MANY) == ("A", "B") else 1)
    assert os.waitpid(child, 0)[1] == 0
