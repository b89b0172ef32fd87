"""Test ElmoModel and its heads against the naive model of helpers/reference.py and against activations of bilm-tf."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from helpers.errors import assert_value_error
from helpers.models import MODEL_OPTIONS, random_batch, randomize, tiny_config
from helpers.reference import elmo
from transformers_elmo import lstm_elmo, modeling_elmo
from transformers_elmo.configuration_elmo import ElmoConfig
from transformers_elmo.modeling_elmo import ElmoForPreTraining, ElmoForTokenClassification, ElmoModel

INPUTS = ("characters", "words", "words+characters")
every_option = pytest.mark.parametrize("options", MODEL_OPTIONS.values(), ids=MODEL_OPTIONS.keys())
every_input = pytest.mark.parametrize("inputs", INPUTS)


def build(dtype=torch.float32, seed=0, **options) -> ElmoModel:
    return randomize(ElmoModel(tiny_config(**options)), seed).to(dtype).eval()


def build_tagger(dtype=torch.float32, **options) -> ElmoForTokenClassification:
    return randomize(ElmoForTokenClassification(tiny_config(num_labels=3, **options))).to(dtype)


def random_state(config, batch, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    sizes = config.output_dim, config.lstm_dim
    shapes = [(config.num_hidden_layers, 2, batch, size) for size in sizes]
    return tuple(0.4 * torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes)


def sentences_of(batch):
    """Return the (word id, character ids) of each sentence, as the reference expects them."""
    rows = zip(batch["input_ids"].tolist(), batch["char_ids"].tolist(), batch["attention_mask"].tolist())
    return [[(word, chars) for word, chars, is_word in zip(*row) if is_word] for row in rows]


def weights_of(model):
    return {name: weight.numpy() for name, weight in model.state_dict().items()}


def all_outputs(model, batch, state=None):
    """Return the mix, the layers and the state of a batch as one list of tensors."""
    outputs = model(**batch, state=state, output_state=True, output_hidden_states=True)
    return [outputs.last_hidden_state, *outputs.hidden_states, *outputs.state]


def assert_near(got, expected, tolerance, name=""):
    got, expected = [torch.as_tensor(x).detach() for x in (got, expected)]
    assert got.shape == expected.shape, f"{name}: shape {tuple(got.shape)}, not {tuple(expected.shape)}"
    error = (got.double() - expected.double()).abs().max().item() if got.numel() else 0.0
    assert error <= tolerance, f"{name}: error {error:.2e}, above {tolerance:.0e}"


def assert_all_near(got, expected, tolerance, name=""):
    assert len(got) == len(expected)
    for index, pair in enumerate(zip(got, expected)):
        assert_near(*pair, tolerance, f"{name} {index}")


def assert_matches_reference(model, batch, state=None, tolerance=1e-10):
    """Compare all outputs of a right-padded batch with the reference, and return the last state."""
    outputs = model(**batch, state=state, output_state=True, output_hidden_states=True)
    before = None if state is None else [part.numpy() for part in state]
    layers, mixed, after = elmo(model.config, weights_of(model), sentences_of(batch), before)
    assert_all_near(outputs.state, after, tolerance, "state")
    for row, (sentence, mix) in enumerate(zip(layers, mixed)):
        length = len(mix)
        assert_near(outputs.last_hidden_state[row, :length], mix, tolerance, f"mix of sentence {row}")
        assert_all_near([h[row, :length] for h in outputs.hidden_states], sentence, tolerance, f"sentence {row}, layer")
        for padded in (outputs.last_hidden_state, *outputs.hidden_states):
            assert not padded[row, length:].any(), f"sentence {row}: padding is not zero"
    return outputs.state


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}


def linear_loss(tensors, seed=0):
    """Return the sum of all values, each multiplied by a random coefficient."""
    rng = np.random.default_rng(seed)
    return sum((torch.tensor(rng.normal(size=tensor.shape)).to(tensor) * tensor).sum() for tensor in tensors)


def assert_same_gradients(got, expected, tolerance):
    assert got.keys() == expected.keys()
    for name in expected:
        assert_near(got[name], expected[name], tolerance * max(1, expected[name].abs().max().item()), name)


def assert_similar_gradients(got, expected, tolerance):
    """Assert that the norm of the difference of all gradients is small relative to their norm."""
    difference, norm = [
        torch.cat([(g - e).double().flatten() for g, e in pairs]).norm()
        for pairs in ([(got[n], expected[n]) for n in expected], [(0, e) for e in expected.values()])
    ]
    assert difference <= tolerance * norm, f"relative difference of the gradients: {difference / norm:.2e}"


# Outputs against the reference.


def test_random_weights_reach_clips_and_gates():
    model = build()
    hidden, cells = model(**random_batch(model.config, [40] * 7), output_state=True).state
    for name, values, bound in (("outputs", hidden, 0.5), ("cells", cells, 0.9)):
        clipped = (values.abs() >= bound).float().mean((1, 2, 3))  # (L,)
        assert (clipped > 0.02).all() and (clipped < 0.7).all(), f"clipped {name} of each layer: {clipped}"
    # Not chaotic: a small change has a small effect.
    before = all_outputs(model, random_batch(model.config, [40]))
    model.token_encoder.projection.bias.data += 1e-4
    assert_all_near(all_outputs(model, random_batch(model.config, [40])), before, 1e-2)


@every_option
def test_outputs_match_reference(options):
    model = build(torch.float64, **options)
    for seed, lengths in enumerate([[5, 0, 9, 1], [17]]):
        batch = random_batch(model.config, lengths, seed)
        assert_matches_reference(model, batch)
        assert_matches_reference(model, batch, random_state(model.config, len(lengths)))


@pytest.mark.parametrize("inputs", ["characters", "words+characters"])
@pytest.mark.parametrize("num_sentences", range(1, 8))
def test_outputs_of_batches_match_reference(inputs, num_sentences):
    model = build(torch.float64, inputs=inputs)
    lengths = [40, 0, 1, 23, 2, 40, 0][7 - num_sentences :]
    batch = random_batch(model.config, lengths, seed=num_sentences, repeats=num_sentences % 2 == 0)
    assert_matches_reference(model, batch)


@pytest.mark.parametrize("training", [False, True])
def test_outputs_do_not_depend_on_chunk_sizes(monkeypatch, training):
    # By default, both chunks are far larger than a tiny batch.
    model = build(torch.float64)
    monkeypatch.setattr(modeling_elmo, "CONVOLUTION_WORDS", 3)
    batch = random_batch(model.config, [9, 3, 0, 12], repeats=False)
    for gate_bytes in (0, 2000):
        monkeypatch.setattr(lstm_elmo, "MAX_GATE_BYTES", gate_bytes)
        with torch.set_grad_enabled(training):
            assert_matches_reference(model, batch)


def test_distinct_rows_with_hash_collision():
    factor = 6364136223846793005  # (factor, 0) and (0, 1) have the same hash
    for rows in ([[5, 1], [2, 2], [5, 1], [2, 3]], [[factor, 0], [0, 1], [factor, 0]], [[7]]):
        rows = torch.tensor(rows)
        index, inverse = modeling_elmo.distinct_rows(rows)
        assert torch.equal(rows[index][inverse], rows)
        assert len(index) == len(rows.unique(dim=0))


# Gradients against the reference.


@every_option
def test_gradients_match_reference(options):
    """Compare derivatives along one random direction per parameter and initial state with the complex step."""
    model = build(torch.float64, **options)
    batch = random_batch(model.config, [4, 0, 6, 1])
    state = [part.requires_grad_() for part in random_state(model.config, 4)]
    linear_loss(all_outputs(model, batch, state)).backward()

    weights, sentences = weights_of(model), sentences_of(batch)
    variables = {**dict(model.named_parameters()), "initial outputs": state[0], "initial cells": state[1]}
    point = {name: variable.detach().numpy() for name, variable in variables.items()}
    longest, rng, step = max(map(len, sentences)), np.random.default_rng(1), 1e-30

    def padded(sentence):
        return np.pad(sentence, ((0, longest - len(sentence)), (0, 0)))

    def loss(point):
        state = point["initial outputs"], point["initial cells"]
        layers, mixed, last = elmo(model.config, {name: point[name] for name in weights}, sentences, state)
        layers = [np.stack([padded(sentence[j]) for sentence in layers]) for j in range(len(layers[0]))]
        tensors = [np.stack([padded(sentence) for sentence in mixed]), *layers, *last]
        coefficients = np.random.default_rng(0)  # as in linear_loss
        return sum((coefficients.normal(size=tensor.shape) * tensor).sum() for tensor in tensors)

    for name, variable in variables.items():
        assert variable.grad is not None, f"{name} has no gradient"
        direction = rng.normal(size=variable.shape)
        expected = loss({**point, name: point[name] + 1j * step * direction}).imag / step
        got = (variable.grad.numpy() * direction).sum()
        assert expected != 0, f"the outputs do not depend on {name}"
        assert_near(got, expected, 1e-10 * max(1, abs(expected)), name)


@pytest.mark.parametrize("use_reentrant", [True, False])
@every_input
def test_gradient_checkpointing(inputs, use_reentrant):
    """Recomputed layers give the same gradients, with the same dropout."""
    model = build(torch.float64, inputs=inputs, dropout=0.3).train()
    batch = random_batch(model.config, [4, 0, 6, 1])

    def run():
        torch.manual_seed(0)
        return gradients(model, linear_loss(all_outputs(model, batch)))

    expected = run()
    model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    assert model.bilm.layers[0].gradient_checkpointing
    assert_same_gradients(run(), expected, 1e-12)


@every_input
def test_repeated_words_sum_their_gradients(monkeypatch, inputs):
    """Encoding each distinct word once gives the gradients of encoding every word, and of single sentences."""
    model = build(torch.float64, inputs=inputs)
    batch = random_batch(model.config, [6] * 4)
    together = gradients(model, linear_loss([model(**batch).last_hidden_state]))

    coefficients = torch.tensor(np.random.default_rng(0).normal(size=(4, 6, model.config.hidden_size)))
    rows = [model(**{k: v[r : r + 1] for k, v in batch.items()}).last_hidden_state for r in range(4)]
    assert_same_gradients(gradients(model, (coefficients * torch.cat(rows)).sum()), together, 1e-12)

    monkeypatch.setattr(modeling_elmo, "distinct_rows", lambda rows: (torch.arange(len(rows)),) * 2)
    every_word = gradients(model, linear_loss([model(**batch).last_hidden_state]))
    assert_same_gradients(every_word, together, 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bound", [0.3, 0.7])
def test_clipped_values_have_no_gradient(dtype, bound):
    """Neither bound is a binary fraction: rounding moves one up and the other down, in both dtypes."""
    model = build(dtype, cell_clip=bound, projection_clip=None, num_hidden_layers=1, forget_bias=9.0)
    state = [part.requires_grad_() for part in random_state(model.config, 2, dtype=dtype)]
    cells = model(**random_batch(model.config, [1, 1]), state=state).state[1]
    clipped = cells.abs() >= torch.tensor(bound, dtype=dtype)
    assert clipped.any() and not clipped.all()
    (gradient,) = torch.autograd.grad(cells.sum(), state[1])
    assert torch.equal(gradient == 0, clipped)


# Padding and batches.


@st.composite
def masks(draw):
    """Draw a mask (B, T) of up to 5 sentences, with words at the left, at the right, anywhere or nowhere."""
    width = draw(st.integers(1, 9))
    mask = torch.tensor(draw(st.lists(st.lists(st.booleans(), min_size=width, max_size=width), min_size=1, max_size=5)))
    side = draw(st.sampled_from(["left", "right", "anywhere"]))
    return mask if side == "anywhere" else mask.long().sort(1, descending=side == "left").values.bool()


@every_input
@given(mask=masks(), seed=st.integers(0, 1000))
def test_outputs_of_a_sentence_do_not_depend_on_its_batch(inputs, mask, seed):
    """Padding on either side, holes, the other sentences and their order, and words that are masked."""
    model = build(inputs=inputs)
    batch = random_batch(model.config, [mask.shape[1]] * len(mask), seed)
    with torch.no_grad():
        *layers, h, c = all_outputs(model, {**batch, "attention_mask": mask})
        for row, is_word in enumerate(mask):
            alone = {name: ids[row : row + 1, is_word] for name, ids in batch.items()}
            *expected, h_alone, c_alone = all_outputs(model, alone)
            assert_all_near([layer[row : row + 1, is_word] for layer in layers], expected, 1e-6, "layer")
            assert_all_near([part[:, :, row : row + 1] for part in (h, c)], [h_alone, c_alone], 1e-6, "state")
    for layer in layers:
        assert not layer[~mask].any(), "padding is not zero"


def test_hidden_states_have_gradients():
    """The mix is computed from the hidden states that are returned, so their gradients can be read."""
    model = randomize(ElmoModel(tiny_config()))
    outputs = model(**random_batch(model.config, [3, 5, 1]), output_hidden_states=True)
    for layer in outputs.hidden_states:
        layer.retain_grad()
    outputs.last_hidden_state.square().sum().backward()
    assert all(layer.grad.abs().sum() > 0 for layer in outputs.hidden_states)


@given(mask=masks(), seed=st.integers(0, 1000))
def test_layer_norm_ignores_padding(mask, seed):
    model = build(torch.float64, mix_layer_norm=True)
    batch = random_batch(model.config, [mask.shape[1]] * len(mask), seed)
    got = model(**{**batch, "attention_mask": mask}).last_hidden_state
    assert not got[~mask].any(), "padding is not zero"
    order = mask.long().sort(dim=1, descending=True, stable=True).indices  # (B, T), words first
    batch = {name: torch.stack([row[o] for row, o in zip(ids, order)]) for name, ids in batch.items()}
    batch["attention_mask"] = torch.stack([row[o] for row, o in zip(mask, order)])
    _, mixed, _ = elmo(model.config, weights_of(model), sentences_of(batch))
    assert_near(got[mask], np.concatenate(mixed), 1e-9)


@every_input
@pytest.mark.parametrize("dtype", [None, torch.bool, torch.int32, torch.float32])
def test_dtypes_of_masks(inputs, dtype):
    model = build(inputs=inputs)
    batch = random_batch(model.config, [3, 0, 5])
    expected = model(**batch).last_hidden_state
    mask = None if dtype is None else batch["attention_mask"].to(dtype)
    assert torch.equal(model(**{**batch, "attention_mask": mask}).last_hidden_state, expected)


@every_input
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0), (3, 4)])
@pytest.mark.parametrize("mix_layer_norm", [False, True])
def test_batches_without_words(inputs, shape, mix_layer_norm):
    """Without sentences, columns or words, outputs are zero, gradients are finite and the state is unchanged."""
    model = build(inputs=inputs, mix_layer_norm=mix_layer_norm)
    config = model.config
    ids = torch.zeros(shape, dtype=torch.long)
    chars = torch.zeros(*shape, config.max_characters_per_token, dtype=torch.long)
    state = random_state(config, shape[0], dtype=torch.float32)
    *layers, h, c = all_outputs(model, {"input_ids": ids, "char_ids": chars}, state)
    for layer in layers:
        assert_near(layer, torch.zeros(*shape, config.hidden_size), 0)
    assert_all_near((h, c), state, 0)
    sum(layer.sum() for layer in layers).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@torch.no_grad()
def test_sentence_of_ten_thousand_words():
    model = build(lstm_dim=4, projection_dim=3)
    outputs = model(**random_batch(model.config, [10_000, 2]), output_state=True)
    assert outputs.last_hidden_state.shape == (2, 10_000, 6)
    assert all(torch.isfinite(part).all() for part in (outputs.last_hidden_state, *outputs.state))


# State.


def test_state_is_carried_from_batch_to_batch():
    model = build(torch.float64)
    state = None
    for seed, lengths in enumerate([[3, 0, 5], [0, 4, 1], [2, 2, 2]]):
        state = assert_matches_reference(model, random_batch(model.config, lengths, seed), state)
        state = tuple(part.detach() for part in state)
    batch = random_batch(model.config, [2])
    assert model(**batch).state is None, "state returned without output_state"
    assert torch.equal(model(**batch).last_hidden_state, model(**batch).last_hidden_state)


def test_state_carries_a_sentence_over_two_calls():
    """The forward half of each layer is that of the whole sentence; the backward half is not."""
    model, cut = build(torch.float64, num_hidden_layers=3), 4
    batch = random_batch(model.config, [9])
    whole = model(**batch, output_hidden_states=True).hidden_states
    first = model(**{k: v[:, :cut] for k, v in batch.items()}, output_hidden_states=True, output_state=True)
    rest = model(**{k: v[:, cut:] for k, v in batch.items()}, output_hidden_states=True, state=first.state)
    size = model.config.output_dim
    halves = [torch.cat(pair, 1) for pair in zip(first.hidden_states, rest.hidden_states)]
    assert_all_near([h[..., :size] for h in halves], [h[..., :size] for h in whole], 1e-12)
    assert (halves[1][..., size:] - whole[1][..., size:]).abs().max() > 1e-3


@pytest.mark.parametrize(
    "shapes",
    [
        [(2, 2, 4, 5), (2, 2, 4, 7)],  # another batch size
        [(2, 2, 3, 7), (2, 2, 3, 5)],  # swapped
        [(1, 2, 3, 5), (1, 2, 3, 7)],  # fewer layers
        [(2, 2, 3, 5)],
        [(2, 2, 3, 5), (2, 2, 3, 7), (2, 2, 3, 7)],
    ],
)
def test_state_of_the_wrong_shape_raises_an_error(shapes):
    model = build()
    state = tuple(torch.zeros(shape) for shape in shapes)
    assert_value_error(
        lambda: model(**random_batch(model.config, [2, 1, 4]), state=state),
        "3 sentences",
        "(2, 2, 3, 5), (2, 2, 3, 7)",
        str(shapes)[1:-1],
    )


# Activations of bilm-tf.

GOLDEN_NAMES = {
    "token_encoder.characters.convolutions.{i}.weight": ("CNN/W_cnn_{i}", lambda w: w[0].transpose(2, 1, 0), 5),
    "token_encoder.characters.convolutions.{i}.bias": ("CNN/b_cnn_{i}", None, 5),
    "token_encoder.characters.highways.{i}.carry.weight": ("CNN_high_{i}/W_carry", np.transpose, 2),
    "token_encoder.characters.highways.{i}.carry.bias": ("CNN_high_{i}/b_carry", None, 2),
    "token_encoder.characters.highways.{i}.transform.weight": ("CNN_high_{i}/W_transform", np.transpose, 2),
    "token_encoder.characters.highways.{i}.transform.bias": ("CNN_high_{i}/b_transform", None, 2),
    "token_encoder.projection.weight": ("CNN_proj/W_proj", np.transpose, 1),
    "token_encoder.projection.bias": ("CNN_proj/b_proj", None, 1),
}


def golden_weights(file):
    """Return bilm-tf's weights by our names. Its gates are in the order i, j, f, o; its kernel multiplies [x; h]."""
    weights = {"mix.weights": np.zeros(3), "mix.gamma": np.ones(1)}
    weights["token_encoder.characters.embedding.weight"] = np.pad(file["char_embed"][...], ((1, 0), (0, 0)))
    for ours, (theirs, transform, count) in GOLDEN_NAMES.items():
        for i in range(count):
            value = file[theirs.format(i=i)][...]
            weights[ours.format(i=i)] = value if transform is None else transform(value)

    def reorder_gates(value):
        i, j, f, o = np.split(value, 4, -1)
        return np.concatenate([i, f, o, j], -1)

    for d, direction in enumerate(("forward", "backward")):
        for layer in range(2):
            theirs = file[f"RNN_{d}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"]
            ours = f"bilm.layers.{layer}.{direction}_lstm."
            kernel = reorder_gates(theirs["W_0"][...])  # (2P, 4H)
            weights[ours + "input_weight"], weights[ours + "recurrent_weight"] = np.split(kernel, 2)
            weights[ours + "bias"] = reorder_gates(theirs["B"][...])
            weights[ours + "projection_weight"] = theirs["W_P_0"][...]
    return {name: torch.tensor(np.ascontiguousarray(value), dtype=torch.float32) for name, value in weights.items()}


def characters(word, width=50):
    """Return the bytes of a word + 1 between begin-of-word 259 and end-of-word 260, padded with 261."""
    symbols = {"<S>": [257], "</S>": [258]}.get(word) or [byte + 1 for byte in word.encode()[: width - 2]]
    return [259, *symbols, 260] + [261] * (width - 2 - len(symbols))


@torch.no_grad()
def test_golden_activations(shared_folder):
    h5py = pytest.importorskip("h5py")
    folder = shared_folder / "golden" / "bilm-tf"
    model = ElmoModel(ElmoConfig.from_bilm_options(json.loads((folder / "options.json").read_text()))).eval()
    with h5py.File(folder / "lm_weights.hdf5") as file:
        model.load_state_dict(golden_weights(file))
    rows = json.loads((folder / "lm_embeddings_sentences.json").read_text())  # 3 rows of 10 sentences
    golden = [h5py.File(folder / f"lm_embeddings_{row}.hdf5") for row in range(3)]

    state = None
    for index in range(10):
        sentences = [["<S>", *row[index].split(), "</S>"] for row in rows]
        char_ids = torch.zeros(3, max(map(len, sentences)), 50, dtype=torch.long)
        for ids, sentence in zip(char_ids, sentences):
            ids[: len(sentence)] = torch.tensor([characters(word) for word in sentence])
        outputs = model(char_ids=char_ids, state=state, output_state=True, output_hidden_states=[2])
        if index == 0:
            stateless = model(char_ids=char_ids, output_hidden_states=True).hidden_states[2]
            assert torch.equal(outputs.hidden_states[2], stateless)
        state = outputs.state
        for row, sentence in enumerate(sentences):
            expected = np.concatenate(golden[row][str(index)][...], -1)  # (T, 2P)
            got = outputs.hidden_states[2][row, 1 : len(sentence) - 1]
            assert_near(got, expected, 2e-6, f"row {row}, sentence {index}")


# Data types and compilation.

# The clips of the released models. With narrower ones, rounding moves values across a clip, where gradients jump.
WIDE_CLIPS = {"cell_clip": 3.0, "projection_clip": 3.0}


@every_input
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-5), (torch.float16, 0.01), (torch.bfloat16, 0.08)])
def test_dtypes_are_close_to_float32(inputs, dtype, tolerance):
    batch = random_batch(tiny_config(), [7, 0, 3])
    results, grads = [], []
    for model in (build(inputs=inputs, **WIDE_CLIPS), build(dtype, inputs=inputs, **WIDE_CLIPS)):
        results.append(all_outputs(model, batch))
        if dtype != torch.float16:
            grads.append(gradients(model, linear_loss(results[-1])))
    assert all(tensor.dtype == dtype for tensor in results[1])
    assert_all_near(results[1], results[0], tolerance)
    if grads:
        assert_similar_gradients(grads[1], grads[0], tolerance)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float16, 0.005), (torch.bfloat16, 0.05)])
def test_layer_norm_in_half_precision(dtype, tolerance):
    """In float16, sums over a batch of this size would overflow and the epsilon would underflow."""
    mix = modeling_elmo.ElmoMix(tiny_config(mix="fixed", mix_weights=[1.0, 0.0, 0.0], mix_layer_norm=True))
    layer = torch.randn(4, 100, 512, generator=torch.Generator().manual_seed(0)) + 0.5
    mask = torch.ones(4, 100).bool()
    assert_near(mix([layer.to(dtype)] * 3, mask), mix([layer] * 3, mask), tolerance)
    assert_near(mix([torch.zeros_like(layer, dtype=dtype)] * 3, ~mask), torch.zeros_like(layer), 0)


@every_input
def test_autocast_is_close_to_float32(inputs):
    model = build(inputs=inputs, **WIDE_CLIPS)
    batch = random_batch(model.config, [7, 0, 3])
    expected = all_outputs(model, batch)
    expected_gradients = gradients(model, linear_loss(expected))
    with torch.autocast("cpu", torch.bfloat16):
        got = all_outputs(model, batch)
        loss = linear_loss([tensor.float() for tensor in got])
    assert got[-1].dtype == torch.bfloat16
    assert_all_near(got, expected, 0.05)
    assert_similar_gradients(gradients(model, loss), expected_gradients, 0.08)


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_model(backend):
    model = build()
    compiled = torch.compile(build(), backend=backend)
    for lengths in ([4, 0, 7], [2, 3]):
        batch = random_batch(model.config, lengths)
        results = [all_outputs(m, batch) for m in (compiled, model)]
        assert_all_near(*results, 1e-6)
        got, expected = [gradients(m, linear_loss(r)) for m, r in zip((compiled._orig_mod, model), results)]
        assert_same_gradients(got, expected, 1e-5)
    torch.compiler.reset()


# Inputs.

BAD_INPUTS = {
    "no characters": ("characters", {"char_ids": None}, ["char_ids", "12", "None"]),
    "narrow words": ("characters", {"char_ids": torch.ones(2, 3, 11).long()}, ["words, 12)", "(2, 3, 11)"]),
    "2-D characters": ("characters", {"char_ids": torch.ones(2, 12).long()}, ["words, 12)", "(2, 12)"]),
    "float characters": ("characters", {"char_ids": torch.ones(2, 3, 12)}, ["char_ids", "integers", "torch.float32"]),
    "bool characters": ("characters", {"char_ids": torch.ones(2, 3, 12).bool()}, ["integers", "torch.bool"]),
    "characters above": ("characters", {"char_ids": torch.full((2, 3, 12), 9)}, ["char_ids", "0 and 8", "to 9"]),
    "characters below": ("characters", {"char_ids": torch.full((2, 3, 12), -1)}, ["char_ids", "0 and 8", "from -1"]),
    "no words": ("words", {"input_ids": None}, ["input_ids", "'words'", "None"]),
    "no words, characters": ("words+characters", {"input_ids": None}, ["input_ids", "'words+characters'", "None"]),
    "words, no characters": ("words+characters", {"char_ids": None}, ["char_ids", "12", "None"]),
    "words above": ("words", {"input_ids": torch.full((2, 3), 11)}, ["input_ids", "0 and 10", "to 11"]),
    "words below": ("words", {"input_ids": torch.full((2, 3), -1)}, ["input_ids", "0 and 10", "from -1"]),
    "1-D words": ("words", {"input_ids": torch.ones(3).long()}, ["(sentences, words)", "(3,)"]),
    "float words": ("words", {"input_ids": torch.ones(2, 3)}, ["input_ids", "integers", "torch.float32"]),
    "unequal lengths": (
        "words+characters",
        {"input_ids": torch.ones(2, 4).long()},
        ["(2, 4)", "(2, 3, 12)"],
    ),
    "wide mask": ("characters", {"attention_mask": torch.ones(2, 4)}, ["attention_mask", "(2, 3)", "(2, 4)"]),
    "1-D mask": ("words", {"attention_mask": torch.ones(3)}, ["attention_mask", "(2, 3)", "(3,)"]),
    "characters as a list": ("characters", {"char_ids": [[[1] * 12] * 3] * 2}, ["char_ids", "tensor", "list"]),
    "layers above": ("words", {"output_hidden_states": [3]}, ["output_hidden_states", "0 to 2", "[3]"]),
    "layers below": ("words", {"output_hidden_states": [-1]}, ["output_hidden_states", "0 to 2", "[-1]"]),
    "complex words": ("words", {"input_ids": torch.ones(2, 3).cfloat()}, ["input_ids", "integers", "complex64"]),
    "mask with NaN": (
        "characters",
        {"attention_mask": torch.tensor([[1, 1, 1], [1, 1, torch.nan]])},
        ["attention_mask must be 1 at words and 0 at padding", "nan"],
    ),
    "mask to add to logits": (
        "words",
        {"attention_mask": torch.tensor([[0, 0, 0], [0, 0, -torch.inf]])},
        ["attention_mask must be 1 at words", "got -inf"],
    ),
    "mask of lengths": ("words", {"attention_mask": torch.tensor([[3, 3, 3], [2, 2, 0]])}, ["got 3"]),
    "mask as a list": ("words", {"attention_mask": [[1, 1, 1]] * 2}, ["attention_mask", "tensor", "list"]),
    "layers as a list in a list": ("words", {"output_hidden_states": [[0]]}, ["0 to 2", "[[0]]"]),
    "a number as state": ("words", {"state": 5}, ["state must be a pair of tensors", "a int"]),
    "None in a state": ("words", {"state": (None, None)}, ["shapes", "'a NoneType', 'a NoneType'"]),
    "integer state": (
        "words",
        {"state": (torch.ones(2, 2, 2, 5).long(), torch.ones(2, 2, 2, 7).long())},
        ["state must be floating-point numbers", "torch.int64"],
    ),
    "3-D mask": ("words", {"attention_mask": torch.ones(2, 3, 1)}, ["attention_mask", "(2, 3)", "(2, 3, 1)"]),
}


@pytest.mark.parametrize("inputs, change, parts", BAD_INPUTS.values(), ids=BAD_INPUTS.keys())
def test_bad_inputs_raise_an_error(inputs, change, parts):
    model = build(inputs=inputs)
    batch = random_batch(model.config, [3, 2])
    model(**batch)
    assert_value_error(lambda: model(**{**batch, **change}), *parts)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_small_integer_types(dtype):
    model = build(inputs="words+characters")
    batch = random_batch(model.config, [3, 2])
    small = {name: ids.to(dtype) for name, ids in batch.items()}
    assert torch.equal(model(**small).last_hidden_state, model(**batch).last_hidden_state)


def test_output_hidden_states_and_return_dict():
    model = build()
    batch = random_batch(model.config, [3, 2])
    layers = model(**batch, output_hidden_states=True).hidden_states
    assert model(**batch).hidden_states is None
    some = model(**batch, output_hidden_states=[0, 2]).hidden_states
    assert some[1] is None and torch.equal(some[0], layers[0]) and torch.equal(some[2], layers[2])
    model.config.output_hidden_states = True
    assert len(model(**batch).hidden_states) == 3
    assert torch.equal(model(**batch, return_dict=False)[0], model(**batch)[0])


# Context-free word vectors as inputs.


def embed(model: ElmoModel, batch: dict) -> torch.Tensor:
    """Return the context-free vectors (B, T, P) of a batch; random values at padding, which must be ignored."""
    mask = batch["attention_mask"] != 0
    distinct, words = model.encode_words(batch["input_ids"], batch["char_ids"], mask.flatten().nonzero().squeeze(1))
    vectors = distinct[words]
    embeds = torch.randn(*mask.shape, model.config.output_dim, generator=torch.Generator().manual_seed(0))
    return embeds.to(vectors.dtype).masked_scatter(mask[..., None], vectors)


@every_input
@given(mask=masks(), seed=st.integers(0, 1000))
def test_inputs_embeds_equal_ids(inputs, mask, seed):
    """With padding on either side and holes, with and without an initial state."""
    model = build(inputs=inputs)
    batch = {**random_batch(model.config, [mask.shape[1]] * len(mask), seed), "attention_mask": mask}
    with torch.no_grad():
        embeds = {"inputs_embeds": embed(model, batch), "attention_mask": mask}
        for state in (None, random_state(model.config, len(mask), dtype=torch.float32)):
            for got, expected in zip(all_outputs(model, embeds, state), all_outputs(model, batch, state), strict=True):
                torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


@every_input
def test_inputs_embeds_of_the_tagger_equal_ids(inputs):
    model = build_tagger(inputs=inputs).eval()
    batch = random_batch(model.config, [4, 0, 6])
    embeds = {"inputs_embeds": embed(model.elmo, batch), "attention_mask": batch["attention_mask"]}
    labels = torch.where(batch["attention_mask"] == 1, batch["input_ids"] % 3, -100)
    got, expected = [model(**inputs, labels=labels) for inputs in (embeds, batch)]
    assert torch.equal(got.logits, expected.logits) and torch.equal(got.loss, expected.loss)


def test_inputs_embeds_without_mask_are_all_words():
    """Even zero vectors."""
    model = build(torch.float64)
    embeds = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    embeds[0, 1] = 0
    mask = torch.ones(2, 3, dtype=torch.long)
    got = model(inputs_embeds=embeds, output_hidden_states=True)
    assert torch.equal(got.hidden_states[0], torch.cat([embeds, embeds], -1))
    assert torch.equal(got.last_hidden_state, model(inputs_embeds=embeds, attention_mask=mask).last_hidden_state)


def test_gradient_of_inputs_embeds():
    """It is zero at padding, and its sums over the words give the gradients of the projection's bias."""
    model = build(torch.float64)
    batch = random_batch(model.config, [4, 0, 6])
    mask = batch["attention_mask"] != 0
    embeds = embed(model, batch).detach().requires_grad_()
    linear_loss([model(inputs_embeds=embeds, attention_mask=mask).last_hidden_state]).backward()
    assert embeds.grad[mask].abs().sum(-1).all() and not embeds.grad[~mask].any()
    assert all(parameter.grad is None for parameter in model.token_encoder.parameters())
    expected = gradients(model, linear_loss([model(**batch).last_hidden_state]))
    assert_near(embeds.grad.sum((0, 1)), expected["token_encoder.projection.bias"], 1e-10)


def test_gradcheck_of_inputs_embeds():
    model = build(torch.float64, cell_clip=None, projection_clip=None)
    mask = torch.tensor([[0, 1, 1], [1, 0, 1]])
    embeds = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def mix(embeds):
        return model(inputs_embeds=embeds, attention_mask=mask).last_hidden_state

    assert torch.autograd.gradcheck(mix, (embeds,))


EMBEDS = torch.zeros(2, 3, 5)
BAD_EMBEDS = {
    "characters too": ("characters", {"char_ids": torch.ones(2, 3, 12).long()}, ["inputs_embeds", "char_ids"]),
    "words too": ("words", {"input_ids": torch.ones(2, 3).long()}, ["inputs_embeds", "input_ids"]),
    "words of two inputs": (
        "words+characters",
        {"input_ids": torch.ones(2, 3).long()},
        ["replaces input_ids and char_ids", "got input_ids too"],
    ),
    "wrong size": ("characters", {"inputs_embeds": torch.zeros(2, 3, 10)}, ["(sentences, words, 5)", "(2, 3, 10)"]),
    "2-D": ("characters", {"inputs_embeds": torch.zeros(3, 5)}, ["(sentences, words, 5)", "(3, 5)"]),
    "a list": ("characters", {"inputs_embeds": [[[0.0] * 5]]}, ["inputs_embeds", "tensor", "list"]),
    "integers": ("characters", {"inputs_embeds": torch.ones(2, 3, 5).long()}, ["floating-point", "torch.int64"]),
    "wide mask": ("characters", {"attention_mask": torch.ones(2, 4)}, ["attention_mask", "(2, 3)", "(2, 4)"]),
}


@pytest.mark.parametrize("inputs, change, parts", BAD_EMBEDS.values(), ids=BAD_EMBEDS.keys())
def test_bad_inputs_embeds_raise_an_error(inputs, change, parts):
    for model in (build(inputs=inputs), build_tagger(inputs=inputs)):
        model(inputs_embeds=EMBEDS)
        assert_value_error(lambda model=model: model(**{"inputs_embeds": EMBEDS, **change}), *parts)


def test_inputs_embeds_with_ids_that_the_model_ignores():
    """A character model ignores input_ids, so they may accompany inputs_embeds."""
    model = build()
    outputs = model(inputs_embeds=EMBEDS, input_ids=torch.ones(2, 3).long())
    assert torch.equal(outputs.last_hidden_state, model(inputs_embeds=EMBEDS).last_hidden_state)


# The mix and the heads.


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, {"words": 0.2, "lstm_1": 0.2, "lstm_2": 0.6, "gamma": 1.5}),
        ({"mix": "top"}, {"words": 0, "lstm_1": 0, "lstm_2": 1, "gamma": 1.5}),
        ({"mix": "fixed", "mix_weights": [2, -1.0, 0.5]}, {"words": 2, "lstm_1": -1, "lstm_2": 0.5, "gamma": 1}),
    ],
)
def test_layer_weights_by_name(options, expected):
    model = ElmoModel(tiny_config(**options))
    if model.mix.weights is not None:
        initial = list(model.layer_weights().values())
        assert initial == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1])
        model.mix.weights.data = torch.tensor([0.2, 0.2, 0.6]).log() + 5
    if model.mix.gamma is not None:
        model.mix.gamma.data.fill_(1.5)
    assert model.layer_weights() == pytest.approx(expected)
    assert list(model.layer_weights()) == list(expected)


def trainable(model):
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


MIX_AND_HEAD = {"elmo.mix.weights", "elmo.mix.gamma", "classifier.weight", "classifier.bias"}


@every_input
def test_bilm_is_frozen_by_default(inputs):
    model = build_tagger(inputs=inputs)
    assert trainable(model) == MIX_AND_HEAD
    unfrozen = build_tagger(inputs=inputs, freeze_bilm=False)
    assert trainable(unfrozen) == {name for name, _ in unfrozen.named_parameters()}


@every_input
def test_bilm_is_frozen_after_loading(inputs, tmp_path):
    model = build_tagger(inputs=inputs)
    model.save_pretrained(tmp_path)
    unfrozen = ElmoForTokenClassification.from_pretrained(tmp_path, freeze_bilm=False)
    assert trainable(unfrozen) == {name for name, _ in model.named_parameters()}
    assert trainable(ElmoForTokenClassification.from_pretrained(tmp_path)) == MIX_AND_HEAD
    model.elmo.save_pretrained(tmp_path)
    assert trainable(ElmoForTokenClassification.from_pretrained(tmp_path)) == MIX_AND_HEAD


def build_language_model(dtype=torch.float64, **options) -> ElmoForPreTraining:
    return randomize(ElmoForPreTraining(tiny_config(**options))).to(dtype).eval()


@every_input
def test_language_models_return_logits_of_the_next_word(inputs):
    """Both directions share one output layer, which has no row for padding."""
    model = build_language_model(inputs=inputs)
    batch = random_batch(model.config, [4, 0, 6])
    state = random_state(model.config, 3)
    outputs = model(**batch, state=state, output_hidden_states=True)
    weights = weights_of(model.elmo)
    layers, _, last_state = elmo(model.config, weights, sentences_of(batch), [part.numpy() for part in state])
    weight, bias = weights_of(model)["lm_head.weight"], weights_of(model)["lm_head.bias"]
    size = model.config.output_dim
    for row, sentence in enumerate(layers):
        for logits, half in ((outputs.forward_logits, slice(size)), (outputs.backward_logits, slice(size, None))):
            assert logits.shape == (3, 6, model.config.vocab_size)
            assert (logits[row, :, 0] == torch.finfo(logits.dtype).min).all()
            assert_near(logits[row, : sentence.shape[1], 1:], sentence[-1][:, half] @ weight.T + bias, 1e-10)
    assert len(outputs.hidden_states) == 3
    assert_all_near(outputs.state, last_state, 1e-10)
    assert model(**batch).hidden_states is None and model(**batch).state is None


def test_language_models_train_the_bilm_but_not_the_mix(tmp_path):
    """Distributed training would wait for the gradient of a mix that is not used."""
    model = build_language_model(torch.float32)
    expected = {name for name, _ in model.named_parameters()} - {"elmo.mix.gamma", "elmo.mix.weights"}
    assert trainable(model) == expected
    model.save_pretrained(tmp_path)
    loaded = ElmoForPreTraining.from_pretrained(tmp_path)
    assert trainable(loaded) == expected
    batch = random_batch(model.config, [3])
    assert torch.equal(loaded(**batch).forward_logits, model(**batch).forward_logits)


def test_only_language_models_have_output_embeddings():
    model = build_language_model()
    assert model.get_output_embeddings() is model.lm_head
    assert build().get_output_embeddings() is None and build_tagger().get_output_embeddings() is None
    model.set_output_embeddings(new := torch.nn.Linear(5, 10))
    assert model.lm_head is new


@every_input
@pytest.mark.parametrize("vocab_size", [9, 11, 20])
def test_resize_token_embeddings(inputs, vocab_size):
    """The tables of words change size, where the model has one, and keep their rows; characters stay as they are."""
    for model in (build(inputs=inputs), build_tagger(inputs=inputs), build_language_model(inputs=inputs)):
        before = {name: weight.clone() for name, weight in model.state_dict().items()}
        model.resize_token_embeddings(vocab_size)
        assert model.config.vocab_size == vocab_size
        tables = {"token_encoder.word_embedding.weight": vocab_size, "lm_head.weight": vocab_size - 1}
        tables["lm_head.bias"] = vocab_size - 1
        for name, weight in model.state_dict().items():
            assert len(weight) == tables.get(name.removeprefix("elmo."), len(before[name])), name
            rows = min(len(weight), len(before[name]))
            assert torch.equal(weight[:rows], before[name][:rows]), name
        if inputs == "characters":
            assert model.get_input_embeddings() is model.base_model.token_encoder.characters.embedding
        else:
            assert model.get_input_embeddings() is model.base_model.token_encoder.word_embedding


@every_input
def test_resize_token_embeddings_to_a_multiple(inputs):
    model = build_language_model(inputs=inputs)
    model.resize_token_embeddings(12, pad_to_multiple_of=8)
    assert model.config.vocab_size == 16 and model.lm_head.out_features == 15


@every_input
def test_resized_lm_head_stays_initialized_and_frozen(inputs):
    model = build_language_model(inputs=inputs)
    model.lm_head.requires_grad_(False)
    model.resize_token_embeddings(20)
    assert not any(parameter.requires_grad for parameter in model.lm_head.parameters())
    before = model.lm_head.weight.clone()
    model.post_init()
    assert torch.equal(model.lm_head.weight, before)


@pytest.mark.parametrize("model_class", [ElmoModel, ElmoForTokenClassification])
def test_other_classes_ignore_the_lm_head(model_class, tmp_path, caplog):
    model = build_language_model(torch.float32)
    model.save_pretrained(tmp_path)
    loaded, report = model_class.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["unexpected_keys"] and "lm_head." not in caplog.text
    batch = random_batch(model.config, [3])
    with torch.no_grad():
        assert torch.equal(loaded.base_model(**batch).last_hidden_state, model.elmo(**batch).last_hidden_state)


def test_dropout_is_off_in_a_frozen_bilm():
    for freeze_bilm in (True, False):
        model = build_tagger(freeze_bilm=freeze_bilm, dropout=0.5)
        batch = random_batch(model.config, [4, 6])
        evaluated, trained = [model.train(mode).elmo(**batch).last_hidden_state for mode in (False, True)]
        assert torch.equal(evaluated, trained) == freeze_bilm


def test_dropout_on_the_vectors_of_the_tagger():
    tagger = build_tagger(classifier_dropout=0.9).train()
    batch = random_batch(tagger.config, [4, 6])
    vectors = tagger.elmo(**batch).last_hidden_state
    torch.manual_seed(0)
    logits = tagger(**batch).logits
    torch.manual_seed(0)
    assert torch.equal(logits, tagger.classifier(F.dropout(vectors, 0.9)))
    assert torch.equal(tagger.eval()(**batch).logits, tagger.classifier(vectors))


def test_loss_ignores_words_without_a_label():
    model = build_tagger(torch.float64).eval()
    batch = random_batch(model.config, [5, 2])
    labels = torch.tensor([[-100, 0, 2, -100, 1], [2, -100, -100, -100, -100]])
    outputs = model(**batch, labels=labels)
    assert outputs.logits.shape == (2, 5, 3)
    is_labelled = labels != -100
    assert_near(outputs.loss, F.cross_entropy(outputs.logits[is_labelled], labels[is_labelled]), 1e-6)


BAD_LABELS = {
    "floats": (torch.ones(2, 3), "labels must be integers, got torch.float32"),
    "one-hot": (torch.ones(2, 3, 3).long(), "labels must be a tensor of shape (2, 3), got (2, 3, 3)"),
    "a list": ([[1, 2, 0]] * 2, "labels must be a tensor of shape (2, 3), got a list"),
    "one of each sentence": (torch.ones(2).long(), "labels must be a tensor of shape (2, 3), got (2,)"),
    "flat": (torch.ones(6).long(), "labels must be a tensor of shape (2, 3), got (6,)"),
    "transposed": (torch.ones(3, 2).long(), "labels must be a tensor of shape (2, 3), got (3, 2)"),
    "above": (torch.full((2, 3), 3), "labels must be between 0 and 2, or -100 for none, got values from 3 to 3"),
    "below": (torch.full((2, 3), -1), "labels must be between 0 and 2, or -100 for none, got values from -1 to -1"),
}


@pytest.mark.parametrize("labels, message", BAD_LABELS.values(), ids=BAD_LABELS.keys())
def test_bad_labels_raise_an_error(labels, message):
    model = build_tagger()
    assert_value_error(lambda: model(**random_batch(model.config, [3, 2]), labels=labels), message)


def test_labels_of_small_integer_types():
    model = build_tagger().eval()
    batch, labels = random_batch(model.config, [3, 2]), torch.tensor([[0, 1, 2], [2, -100, 1]])
    assert torch.equal(model(**batch, labels=labels.int()).loss, model(**batch, labels=labels).loss)


@pytest.mark.parametrize("freeze_bilm", [True, False])
def test_accumulated_gradients(freeze_bilm):
    """The gradients of 4 batches of 4 sentences, with few and many labels, sum to those of one batch of 16."""
    model = build_tagger(torch.float64, freeze_bilm=freeze_bilm, classifier_dropout=0.0, dropout=0.0).train()
    batch = random_batch(model.config, [1, 1, 1, 1, 9, 9, 9, 9, 0, 2, 0, 2, 5, 6, 7, 8])
    labels = torch.where(batch["attention_mask"] == 1, batch["input_ids"] % 3, -100)
    batch, num_labels = {**batch, "labels": labels}, int((labels != -100).sum())
    parts = [{name: ids[start : start + 4] for name, ids in batch.items()} for start in range(0, 16, 4)]
    accumulated = gradients(model, sum(model(**part, num_items_in_batch=num_labels).loss for part in parts))
    assert_same_gradients(accumulated, gradients(model, model(**batch).loss), 1e-7)  # the loss is computed in float32


def test_gradient_checkpointing_with_a_frozen_bilm():
    model = build_tagger(torch.float64, classifier_dropout=0.0).train()
    batch = {**random_batch(model.config, [3, 5]), "labels": torch.ones(2, 5).long()}
    expected = gradients(model, model(**batch).loss)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    assert_same_gradients(gradients(model, model(**batch).loss), expected, 1e-12)


# Saving and loading.


@every_input
def test_saved_and_loaded_model_is_the_same(inputs, tmp_path):
    model = build(inputs=inputs, seed=3)
    batch = random_batch(model.config, [4, 6])
    model.save_pretrained(tmp_path)
    loaded = ElmoModel.from_pretrained(tmp_path).eval()
    assert loaded.config.to_dict().keys() == model.config.to_dict().keys()
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for name, weight in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight), name
    for got, expected in zip(all_outputs(loaded, batch), all_outputs(model, batch)):
        assert torch.equal(got, expected)


def test_parts_missing_from_a_checkpoint_are_initialized(tmp_path):
    """A checkpoint of a biLM alone is loaded with a newly initialized mix and head."""
    model = build(seed=3)
    weights = {name: weight for name, weight in model.state_dict().items() if not name.startswith("mix.")}
    model.save_pretrained(tmp_path, state_dict=weights)
    tagger = ElmoForTokenClassification.from_pretrained(tmp_path)
    assert list(tagger.elmo.layer_weights().values()) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1])
    assert not tagger.classifier.bias.any()
    for name, weight in weights.items():
        assert torch.equal(tagger.elmo.state_dict()[name], weight), name


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_new_weights_are_those_of_bilm_tf(activation):
    torch.manual_seed(0)
    model = ElmoModel(tiny_config(inputs="words+characters", char_activation=activation, char_filters=[[2, 400]]))
    encoder, lstm = model.token_encoder, model.bilm.layers[1].backward_lstm
    for embedding in (encoder.word_embedding, encoder.characters.embedding):
        assert not embedding.weight[0].any()
        assert 0.8 < embedding.weight.abs().max() <= 1
    (convolution,), highway = encoder.characters.convolutions, encoder.characters.highways[0]
    if activation == "relu":
        assert 0.049 < convolution.weight.abs().max() <= 0.05
    else:
        assert_near(convolution.weight.std(), 8**-0.5, 0.02)  # of 4 numbers for each of 2 characters
    assert_near(highway.transform.weight.std(), 400**-0.5, 0.002)
    for bias in (convolution.bias, highway.transform.bias, encoder.projection.bias, lstm.bias):
        assert not bias.any()
    for weight in (lstm.input_weight, lstm.recurrent_weight, lstm.projection_weight):
        assert_near(weight.abs().max(), (6 / sum(weight.shape)) ** 0.5, 0.1)


def test_a_new_highway_mostly_passes_its_input_through():
    for highway in ElmoModel(tiny_config()).token_encoder.characters.highways:
        assert (highway.carry.bias == -2).all()
