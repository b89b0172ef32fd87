"""ElmoModel and its configuration against the naive model of reference.py and against bilm-tf's own activations."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from helpers.models import random_batch, randomise, tiny_config
from helpers.reference import elmo
from transformers_elmo import lstm_elmo, modeling_elmo
from transformers_elmo.configuration_elmo import AUTO_MAP, ElmoConfig
from transformers_elmo.modeling_elmo import ElmoForPreTraining, ElmoForTokenClassification, ElmoModel

INPUTS = ("characters", "words", "words+characters")
CHARACTERS_AND_WORDS = {"inputs": "words+characters", "word_embedding_dim": 3}

# Every option of the model, alone and where two of them meet.
OPTIONS = {
    "defaults": {},
    "tanh": {"char_activation": "tanh"},
    "other sizes": {"vocab_size": 4, "char_vocab_size": 5, "max_characters_per_token": 6, "char_embedding_dim": 1},
    "one filter as wide as a word": {"char_filters": [[12, 4]]},
    "no highway": {"num_highway_layers": 0},
    "three highways": {"num_highway_layers": 3},
    "no token projection": {"projection_dim": 12, "lstm_dim": 15},
    "no lstm projection": {"projection_dim": None},
    "no projection at all": {"projection_dim": None, "lstm_dim": 12},
    "more outputs than cells": {"projection_dim": 9},
    "sizes whose products are computed in parts": {"lstm_dim": 16, "projection_dim": 8},
    "one layer": {"num_hidden_layers": 1},
    "three layers": {"num_hidden_layers": 3},
    "no cell clip": {"cell_clip": None},
    "no output clip": {"projection_clip": None},
    "no clips": {"cell_clip": None, "projection_clip": None},
    "whole-numbered clips": {"cell_clip": 1, "projection_clip": 1},
    "no residual": {"use_skip_connections": False, "num_hidden_layers": 3},
    "no forget bias": {"forget_bias": 0},
    "large forget bias": {"forget_bias": 2.5},
    "options of training": {
        "dropout": 0.9,
        "freeze_bilm": False,
        "classifier_dropout": 0.9,
        "num_negative_samples": 3,
    },
    "top": {"mix": "top"},
    "top with layer norm": {"mix": "top", "mix_layer_norm": True},
    "fixed": {"mix": "fixed", "mix_weights": [0.5, -2.0, 3]},
    "layer norm": {"mix_layer_norm": True},
    "fixed with layer norm": {"mix": "fixed", "mix_weights": [0.5, -2.0, 3], "mix_layer_norm": True},
    "words": {"inputs": "words"},
    "words of another size": {"inputs": "words", "word_embedding_dim": 3},
    "words, no lstm projection, one layer": {"inputs": "words", "projection_dim": None, "num_hidden_layers": 1},
    "words and characters": CHARACTERS_AND_WORDS,
    "words and characters as wide as the output": {**CHARACTERS_AND_WORDS, "projection_dim": 15},
    "words and characters, no lstm projection": {
        **CHARACTERS_AND_WORDS,
        "projection_dim": None,
        "num_highway_layers": 1,
        "forget_bias": 0,
        "cell_clip": None,
    },
}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
every_input = pytest.mark.parametrize("inputs", INPUTS)


def build(dtype=torch.float32, seed=0, **options) -> ElmoModel:
    return randomise(ElmoModel(tiny_config(**options)), seed).to(dtype).eval()


def build_tagger(dtype=torch.float32, **options) -> ElmoForTokenClassification:
    return randomise(ElmoForTokenClassification(tiny_config(num_labels=3, **options))).to(dtype)


def random_state(config, batch, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    sizes = config.output_dim, config.lstm_dim
    shapes = [(config.num_hidden_layers, 2, batch, size) for size in sizes]
    return tuple(0.4 * torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes)


def sentences_of(batch):
    """The words of each row as the reference takes them."""
    rows = zip(batch["input_ids"].tolist(), batch["char_ids"].tolist(), batch["attention_mask"].tolist())
    return [[(word, chars) for word, chars, there in zip(*row) if there] for row in rows]


def weights_of(model):
    return {name: weight.numpy() for name, weight in model.state_dict().items()}


def everything(model, batch, state=None):
    """Mix, layers and state of a batch as one list of tensors."""
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


def assert_follows_reference(model, batch, state=None, tolerance=1e-10):
    """Right-padded batch in; the state after it out."""
    outputs = model(**batch, state=state, output_state=True, output_hidden_states=True)
    before = None if state is None else [part.numpy() for part in state]
    layers, mixed, after = elmo(model.config, weights_of(model), sentences_of(batch), before)
    assert_all_near(outputs.state, after, tolerance, "state")
    for row, (sentence, mix) in enumerate(zip(layers, mixed)):
        length = len(mix)
        assert_near(outputs.last_hidden_state[row, :length], mix, tolerance, f"mix of sentence {row}")
        assert_all_near([h[row, :length] for h in outputs.hidden_states], sentence, tolerance, f"sentence {row}, layer")
        for padded in (outputs.last_hidden_state, *outputs.hidden_states):
            assert not padded[row, length:].any(), f"sentence {row}: its padding is not zero"
    return outputs.state


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}


def linear_loss(tensors, seed=0):
    """A sum of all numbers, each with a random coefficient; zeros of padding count for nothing."""
    rng = np.random.default_rng(seed)
    return sum((torch.tensor(rng.normal(size=tensor.shape)).to(tensor) * tensor).sum() for tensor in tensors)


def assert_same_gradients(got, expected, tolerance):
    assert got.keys() == expected.keys()
    for name in expected:
        assert_near(got[name], expected[name], tolerance * max(1, expected[name].abs().max().item()), name)


def assert_like_gradients(got, expected, share):
    """The difference of all gradients together is a small share of their length."""
    difference, length = [
        torch.cat([(g - e).double().flatten() for g, e in pairs]).norm()
        for pairs in ([(got[n], expected[n]) for n in expected], [(0, e) for e in expected.values()])
    ]
    assert difference <= share * length, f"gradients differ by {difference / length:.2e} of their length"


def assert_refused(what, *pieces):
    """A ValueError whose message holds every piece: what was expected and what came."""
    with pytest.raises(ValueError) as caught:
        what()
    missing = [piece for piece in pieces if piece not in str(caught.value)]
    assert not missing, f"the message lacks {missing}: {caught.value}"


# The reference: values.


def test_the_table_has_every_option():
    ids = {"pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings"}
    assert {name for options in OPTIONS.values() for name in options} == set(ElmoConfig.__annotations__) - ids


def test_random_weights_reach_clips_and_gates():
    model = build()
    hidden, cells = model(**random_batch(model.config, [40] * 7), output_state=True).state
    for name, values, bound in (("outputs", hidden, 0.5), ("cells", cells, 0.9)):
        clipped = (values.abs() >= bound).float().mean((1, 2, 3))  # (L,)
        assert (clipped > 0.02).all() and (clipped < 0.7).all(), f"clipped {name} of each layer: {clipped}"
    # Not chaotic: a small change stays small.
    before = everything(model, random_batch(model.config, [40]))
    model.token_encoder.projection.bias.data += 1e-4
    assert_all_near(everything(model, random_batch(model.config, [40])), before, 1e-2)


@every_option
def test_values(options):
    model = build(torch.float64, **options)
    for seed, lengths in enumerate([[5, 0, 9, 1], [17]]):
        batch = random_batch(model.config, lengths, seed)
        assert_follows_reference(model, batch)
        assert_follows_reference(model, batch, random_state(model.config, len(lengths)))


@pytest.mark.parametrize("inputs", ["characters", "words+characters"])
@pytest.mark.parametrize("sentences", range(1, 8))
def test_values_of_batches(inputs, sentences):
    model = build(torch.float64, inputs=inputs)
    lengths = [40, 0, 1, 23, 2, 40, 0][7 - sentences :]
    assert_follows_reference(model, random_batch(model.config, lengths, sentences, repeats=sentences % 2 == 0))


@pytest.mark.parametrize("training", [False, True])
def test_values_do_not_depend_on_blocks(monkeypatch, training):
    # Both blocks are far larger than a tiny batch.
    model = build(torch.float64)
    monkeypatch.setattr(modeling_elmo, "CONVOLUTION_WORDS", 3)
    batch = random_batch(model.config, [9, 3, 0, 12], repeats=False)
    for gate_bytes in (0, 2000):
        monkeypatch.setattr(lstm_elmo, "MAX_GATE_BYTES", gate_bytes)
        with torch.set_grad_enabled(training):
            assert_follows_reference(model, batch)


def test_distinct_rows():
    factor = 6364136223846793005  # (factor, 0) and (0, 1) have the same hash
    for rows in ([[5, 1], [2, 2], [5, 1], [2, 3]], [[factor, 0], [0, 1], [factor, 0]], [[7]]):
        rows = torch.tensor(rows)
        first, kind = modeling_elmo.distinct_rows(rows)
        assert torch.equal(rows[first][kind], rows)
        assert len(first) == len(rows.unique(dim=0))


# The reference: gradients.


@every_option
def test_gradients(options):
    """Along one random direction for each parameter and each part of the first state, by the complex step."""
    model = build(torch.float64, **options)
    batch = random_batch(model.config, [4, 0, 6, 1])
    state = [part.requires_grad_() for part in random_state(model.config, 4)]
    linear_loss(everything(model, batch, state)).backward()

    weights, sentences = weights_of(model), sentences_of(batch)
    variables = {**dict(model.named_parameters()), "first outputs": state[0], "first cells": state[1]}
    point = {name: variable.detach().numpy() for name, variable in variables.items()}
    longest, rng, step = max(map(len, sentences)), np.random.default_rng(1), 1e-30

    def padded(sentence):
        return np.pad(sentence, ((0, longest - len(sentence)), (0, 0)))

    def loss(point):
        first = point["first outputs"], point["first cells"]
        layers, mixed, last = elmo(model.config, {name: point[name] for name in weights}, sentences, first)
        layers = [np.stack([padded(sentence[j]) for sentence in layers]) for j in range(len(layers[0]))]
        tensors = [np.stack([padded(sentence) for sentence in mixed]), *layers, *last]
        coefficients = np.random.default_rng(0)  # those of linear_loss
        return sum((coefficients.normal(size=tensor.shape) * tensor).sum() for tensor in tensors)

    for name, variable in variables.items():
        assert variable.grad is not None, f"{name} has no gradient"
        direction = rng.normal(size=variable.shape)
        expected = loss({**point, name: point[name] + 1j * step * direction}).imag / step
        got = (variable.grad.numpy() * direction).sum()
        assert expected != 0, f"{name} does not matter"
        assert_near(got, expected, 1e-10 * max(1, abs(expected)), name)


@pytest.mark.parametrize("use_reentrant", [True, False])
@every_input
def test_gradient_checkpointing(inputs, use_reentrant):
    """Same gradients, with dropout too: what was dropped is dropped again."""
    model = build(torch.float64, inputs=inputs, dropout=0.3).train()
    batch = random_batch(model.config, [4, 0, 6, 1])

    def run():
        torch.manual_seed(0)
        return gradients(model, linear_loss(everything(model, batch)))

    expected = run()
    model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    assert model.bilm.layers[0].gradient_checkpointing
    assert_same_gradients(run(), expected, 1e-12)


@every_input
def test_gradients_of_repeated_words(monkeypatch, inputs):
    """Distinct words are encoded once; their gradients are those of encoding every word, and of single sentences."""
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
def test_clipped_numbers_have_no_gradient(dtype, bound):
    """Neither bound is a binary fraction: the clipped value is above the one, below the other, in both precisions."""
    model = build(dtype, cell_clip=bound, projection_clip=None, num_hidden_layers=1, forget_bias=9.0)
    state = [part.requires_grad_() for part in random_state(model.config, 2, dtype=dtype)]
    cells = model(**random_batch(model.config, [1, 1]), state=state).state[1]
    clipped = cells.abs() >= torch.tensor(bound, dtype=dtype)
    assert clipped.any() and not clipped.all()
    (gradient,) = torch.autograd.grad(cells.sum(), state[1])
    assert torch.equal(gradient == 0, clipped)


# Padding and batch.


@st.composite
def masks(draw):
    """(B, T) of up to 5 sentences; words to the left, to the right or anywhere, down to none."""
    width = draw(st.integers(1, 9))
    mask = torch.tensor(draw(st.lists(st.lists(st.booleans(), min_size=width, max_size=width), min_size=1, max_size=5)))
    side = draw(st.sampled_from(["left", "right", "anywhere"]))
    return mask if side == "anywhere" else mask.long().sort(1, descending=side == "left").values.bool()


@every_input
@given(mask=masks(), seed=st.integers(0, 1000))
def test_a_sentence_is_itself_in_any_batch(inputs, mask, seed):
    """Left, right and wide padding, holes, order and batch mates, and words where the mask says there are none."""
    model = build(inputs=inputs)
    batch = random_batch(model.config, [mask.shape[1]] * len(mask), seed)
    with torch.no_grad():
        *layers, h, c = everything(model, {**batch, "attention_mask": mask})
        for row, there in enumerate(mask):
            alone = {name: ids[row : row + 1, there] for name, ids in batch.items()}
            *expected, h_alone, c_alone = everything(model, alone)
            assert_all_near([layer[row : row + 1, there] for layer in layers], expected, 1e-6, "layer")
            assert_all_near([part[:, :, row : row + 1] for part in (h, c)], [h_alone, c_alone], 1e-6, "state")
    for layer in layers:
        assert not layer[~mask].any(), "padding is not zero"


@given(mask=masks(), seed=st.integers(0, 1000))
def test_layer_norm_does_not_see_padding(mask, seed):
    model = build(torch.float64, mix_layer_norm=True)
    batch = random_batch(model.config, [mask.shape[1]] * len(mask), seed)
    got = model(**{**batch, "attention_mask": mask}).last_hidden_state
    assert not got[~mask].any(), "padding is not zero"
    order = mask.long().sort(dim=1, descending=True, stable=True).indices  # (B, T) words first
    batch = {name: torch.stack([row[o] for row, o in zip(ids, order)]) for name, ids in batch.items()}
    batch["attention_mask"] = torch.stack([row[o] for row, o in zip(mask, order)])
    _, mixed, _ = elmo(model.config, weights_of(model), sentences_of(batch))
    assert_near(got[mask], np.concatenate(mixed), 1e-9)


@every_input
@pytest.mark.parametrize("kind", [None, torch.bool, torch.int32, torch.float32])
def test_kinds_of_masks(inputs, kind):
    model = build(inputs=inputs)
    batch = random_batch(model.config, [3, 0, 5])
    expected = model(**batch).last_hidden_state
    mask = None if kind is None else batch["attention_mask"].to(kind)
    assert torch.equal(model(**{**batch, "attention_mask": mask}).last_hidden_state, expected)


@every_input
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0), (3, 4)])
@pytest.mark.parametrize("mix_layer_norm", [False, True])
def test_no_words(inputs, shape, mix_layer_norm):
    """No sentence, sentences of no width, nothing but padding: forward, backward, and the state goes through."""
    model = build(inputs=inputs, mix_layer_norm=mix_layer_norm)
    config = model.config
    ids = torch.zeros(shape, dtype=torch.long)
    chars = torch.zeros(*shape, config.max_characters_per_token, dtype=torch.long)
    state = random_state(config, shape[0], dtype=torch.float32)
    *layers, h, c = everything(model, {"input_ids": ids, "char_ids": chars}, state)
    for layer in layers:
        assert_near(layer, torch.zeros(*shape, config.hidden_size), 0)
    assert_all_near((h, c), state, 0)
    sum(layer.sum() for layer in layers).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@torch.no_grad()
def test_ten_thousand_words():
    model = build(lstm_dim=4, projection_dim=3)
    outputs = model(**random_batch(model.config, [10_000, 2]), output_state=True)
    assert outputs.last_hidden_state.shape == (2, 10_000, 6)
    assert all(torch.isfinite(part).all() for part in (outputs.last_hidden_state, *outputs.state))


# State.


def test_state_goes_from_batch_to_batch():
    model = build(torch.float64)
    state = None
    for seed, lengths in enumerate([[3, 0, 5], [0, 4, 1], [2, 2, 2]]):
        state = assert_follows_reference(model, random_batch(model.config, lengths, seed), state)
        state = tuple(part.detach() for part in state)
    batch = random_batch(model.config, [2])
    assert model(**batch).state is None, "a state that nobody asked for"
    assert torch.equal(model(**batch).last_hidden_state, model(**batch).last_hidden_state)


def test_a_sentence_cut_in_two():
    """The forward half of each layer does not notice; the backward half does."""
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
        [(2, 2, 4, 5), (2, 2, 4, 7)],  # another batch
        [(2, 2, 3, 7), (2, 2, 3, 5)],  # the wrong way round
        [(1, 2, 3, 5), (1, 2, 3, 7)],  # fewer layers
        [(2, 2, 3, 5)],
        [(2, 2, 3, 5), (2, 2, 3, 7), (2, 2, 3, 7)],
    ],
)
def test_states_of_the_wrong_shape(shapes):
    model = build()
    state = tuple(torch.zeros(shape) for shape in shapes)
    assert_refused(
        lambda: model(**random_batch(model.config, [2, 1, 4]), state=state),
        "3 sentences",
        "(2, 2, 3, 5), (2, 2, 3, 7)",
        str(shapes)[1:-1],
    )


# bilm-tf's own activations.

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
    """bilm-tf's fixture by our names. Its gates stand as i, j, f, o, its kernel acts on [x; h]."""
    weights = {"mix.weights": np.zeros(3), "mix.gamma": np.ones(1)}
    weights["token_encoder.characters.embedding.weight"] = np.pad(file["char_embed"][...], ((1, 0), (0, 0)))
    for ours, (theirs, change, number) in GOLDEN_NAMES.items():
        for i in range(number):
            value = file[theirs.format(i=i)][...]
            weights[ours.format(i=i)] = value if change is None else change(value)

    def ordered(value):
        i, j, f, o = np.split(value, 4, -1)
        return np.concatenate([i, f, o, j], -1)

    for d, direction in enumerate(("forward", "backward")):
        for layer in range(2):
            theirs = file[f"RNN_{d}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"]
            ours = f"bilm.layers.{layer}.{direction}_lstm."
            kernel = ordered(theirs["W_0"][...])  # (2P, 4H)
            weights[ours + "input_weight"], weights[ours + "recurrent_weight"] = np.split(kernel, 2)
            weights[ours + "bias"] = ordered(theirs["B"][...])
            weights[ours + "projection_weight"] = theirs["W_P_0"][...]
    return {name: torch.tensor(np.ascontiguousarray(value), dtype=torch.float32) for name, value in weights.items()}


def characters(word, width=50):
    """Bytes + 1 between begin-of-word 259 and end-of-word 260, filled up with 261."""
    inner = {"<S>": [257], "</S>": [258]}.get(word) or [byte + 1 for byte in word.encode()[: width - 2]]
    return [259, *inner, 260] + [261] * (width - 2 - len(inner))


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
    for number in range(10):
        sentences = [["<S>", *row[number].split(), "</S>"] for row in rows]
        char_ids = torch.zeros(3, max(map(len, sentences)), 50, dtype=torch.long)
        for ids, sentence in zip(char_ids, sentences):
            ids[: len(sentence)] = torch.tensor([characters(word) for word in sentence])
        outputs = model(char_ids=char_ids, state=state, output_state=True, output_hidden_states=[2])
        if number == 0:
            stateless = model(char_ids=char_ids, output_hidden_states=True).hidden_states[2]
            assert torch.equal(outputs.hidden_states[2], stateless)
        state = outputs.state
        for row, sentence in enumerate(sentences):
            expected = np.concatenate(golden[row][str(number)][...], -1)  # (T, 2P)
            got = outputs.hidden_states[2][row, 1 : len(sentence) - 1]
            assert_near(got, expected, 2e-6, f"row {row}, sentence {number}")


# Precisions and compilation.

# With narrow clips a gradient jumps where rounding moves a number across a clip; these are the released models'.
WIDE_CLIPS = {"cell_clip": 3.0, "projection_clip": 3.0}


@every_input
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-5), (torch.float16, 0.01), (torch.bfloat16, 0.08)])
def test_precisions(inputs, dtype, tolerance):
    batch = random_batch(tiny_config(), [7, 0, 3])
    results, grads = [], []
    for model in (build(inputs=inputs, **WIDE_CLIPS), build(dtype, inputs=inputs, **WIDE_CLIPS)):
        results.append(everything(model, batch))
        if dtype != torch.float16:
            grads.append(gradients(model, linear_loss(results[-1])))
    assert all(tensor.dtype == dtype for tensor in results[1])
    assert_all_near(results[1], results[0], tolerance)
    if grads:
        assert_like_gradients(grads[1], grads[0], tolerance)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float16, 0.005), (torch.bfloat16, 0.05)])
def test_layer_norm_in_low_precision(dtype, tolerance):
    """Sums over a batch of usual size are beyond float16, the tiny value under the root is below it."""
    mix = modeling_elmo.ElmoMix(tiny_config(mix="fixed", mix_weights=[1.0, 0.0, 0.0], mix_layer_norm=True))
    layer = torch.randn(4, 100, 512, generator=torch.Generator().manual_seed(0)) + 0.5
    mask = torch.ones(4, 100).bool()
    assert_near(mix([layer.to(dtype)] * 3, mask), mix([layer] * 3, mask), tolerance)
    assert_near(mix([torch.zeros_like(layer, dtype=dtype)] * 3, ~mask), torch.zeros_like(layer), 0)


@every_input
def test_autocast(inputs):
    model = build(inputs=inputs, **WIDE_CLIPS)
    batch = random_batch(model.config, [7, 0, 3])
    expected = everything(model, batch)
    expected_gradients = gradients(model, linear_loss(expected))
    with torch.autocast("cpu", torch.bfloat16):
        got = everything(model, batch)
        loss = linear_loss([tensor.float() for tensor in got])
    assert got[-1].dtype == torch.bfloat16
    assert_all_near(got, expected, 0.05)
    assert_like_gradients(gradients(model, loss), expected_gradients, 0.08)


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled(backend):
    model = build()
    compiled = torch.compile(build(), backend=backend)
    for lengths in ([4, 0, 7], [2, 3]):
        batch = random_batch(model.config, lengths)
        results = [everything(m, batch) for m in (compiled, model)]
        assert_all_near(*results, 1e-6)
        got, expected = [gradients(m, linear_loss(r)) for m, r in zip((compiled._orig_mod, model), results)]
        assert_same_gradients(got, expected, 1e-5)
    torch.compiler.reset()


# What users may pass.

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
    "other words": ("words+characters", {"input_ids": torch.ones(2, 4).long()}, ["(2, 4)", "(2, 3, 12)"]),
    "wide mask": ("characters", {"attention_mask": torch.ones(2, 4)}, ["attention_mask", "(2, 3)", "(2, 4)"]),
    "1-D mask": ("words", {"attention_mask": torch.ones(3)}, ["attention_mask", "(2, 3)", "(3,)"]),
    "characters as a list": ("characters", {"char_ids": [[[1] * 12] * 3] * 2}, ["char_ids", "tensor", "list"]),
    "layers above": ("words", {"output_hidden_states": [3]}, ["0 to 2", "[3]"]),
    "layers below": ("words", {"output_hidden_states": [-1]}, ["0 to 2", "[-1]"]),
    "3-D mask": ("words", {"attention_mask": torch.ones(2, 3, 1)}, ["attention_mask", "(2, 3)", "(2, 3, 1)"]),
}


@pytest.mark.parametrize("inputs, change, pieces", BAD_INPUTS.values(), ids=BAD_INPUTS.keys())
def test_bad_input(inputs, change, pieces):
    model = build(inputs=inputs)
    batch = random_batch(model.config, [3, 2])
    model(**batch)
    assert_refused(lambda: model(**{**batch, **change}), *pieces)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_small_integers(dtype):
    model = build(inputs="words+characters")
    batch = random_batch(model.config, [3, 2])
    small = {name: ids.to(dtype) for name, ids in batch.items()}
    assert torch.equal(model(**small).last_hidden_state, model(**batch).last_hidden_state)


def test_ways_to_ask_for_layers():
    model = build()
    batch = random_batch(model.config, [3, 2])
    layers = model(**batch, output_hidden_states=True).hidden_states
    assert model(**batch).hidden_states is None
    some = model(**batch, output_hidden_states=[0, 2]).hidden_states
    assert some[1] is None and torch.equal(some[0], layers[0]) and torch.equal(some[2], layers[2])
    model.config.output_hidden_states = True
    assert len(model(**batch).hidden_states) == 3
    assert torch.equal(model(**batch, return_dict=False)[0], model(**batch)[0])


# The mix and the head.


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, {"words": 0.2, "lstm_1": 0.2, "lstm_2": 0.6, "gamma": 1.5}),
        ({"mix": "top"}, {"words": 0, "lstm_1": 0, "lstm_2": 1, "gamma": 1.5}),
        ({"mix": "fixed", "mix_weights": [2, -1.0, 0.5]}, {"words": 2, "lstm_1": -1, "lstm_2": 0.5, "gamma": 1}),
    ],
)
def test_layer_weights(options, expected):
    model = ElmoModel(tiny_config(**options))
    if model.mix.weights is not None:
        fresh = list(model.layer_weights().values())
        assert fresh == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1])
        model.mix.weights.data = torch.tensor([0.2, 0.2, 0.6]).log() + 5
    if model.mix.gamma is not None:
        model.mix.gamma.data.fill_(1.5)
    assert model.layer_weights() == pytest.approx(expected)
    assert list(model.layer_weights()) == list(expected)


def trainable(model):
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


MIX_AND_HEAD = {"elmo.mix.weights", "elmo.mix.gamma", "classifier.weight", "classifier.bias"}


@every_input
def test_frozen_by_default(inputs):
    model = build_tagger(inputs=inputs)
    assert trainable(model) == MIX_AND_HEAD
    unfrozen = build_tagger(inputs=inputs, freeze_bilm=False)
    assert trainable(unfrozen) == {name for name, _ in unfrozen.named_parameters()}


@every_input
def test_frozen_after_loading(inputs, tmp_path):
    model = build_tagger(inputs=inputs)
    model.save_pretrained(tmp_path)
    unfrozen = ElmoForTokenClassification.from_pretrained(tmp_path, freeze_bilm=False)
    assert trainable(unfrozen) == {name for name, _ in model.named_parameters()}
    assert trainable(ElmoForTokenClassification.from_pretrained(tmp_path)) == MIX_AND_HEAD
    model.elmo.save_pretrained(tmp_path)
    assert trainable(ElmoForTokenClassification.from_pretrained(tmp_path)) == MIX_AND_HEAD


def build_language_model(dtype=torch.float64, **options) -> ElmoForPreTraining:
    return randomise(ElmoForPreTraining(tiny_config(**options))).to(dtype).eval()


@every_input
def test_language_models_score_the_next_word(inputs):
    """Forward the word after each word, backward the one before it, by the rows of one softmax; padding is no word."""
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


def test_language_models_train_the_bilm(tmp_path):
    """And not the mix, for whose gradient several processes would wait."""
    model = build_language_model(torch.float32)
    expected = {name for name, _ in model.named_parameters()} - {"elmo.mix.gamma", "elmo.mix.weights"}
    assert trainable(model) == expected
    model.save_pretrained(tmp_path)
    again = ElmoForPreTraining.from_pretrained(tmp_path)
    assert trainable(again) == expected
    batch = random_batch(model.config, [3])
    assert torch.equal(again(**batch).forward_logits, model(**batch).forward_logits)


@pytest.mark.parametrize("model_class", [ElmoModel, ElmoForTokenClassification])
def test_a_softmax_is_passed_over_where_it_is_not_asked_for(model_class, tmp_path, caplog):
    model = build_language_model(torch.float32)
    model.save_pretrained(tmp_path)
    loaded, report = model_class.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["unexpected_keys"] and "lm_head." not in caplog.text
    batch = random_batch(model.config, [3])
    assert torch.equal(loaded.base_model(**batch).last_hidden_state, model.elmo(**batch).last_hidden_state)


def test_dropout_only_where_the_bilm_is_trained():
    for freeze_bilm in (True, False):
        model = build_tagger(freeze_bilm=freeze_bilm, dropout=0.5)
        batch = random_batch(model.config, [4, 6])
        evaluated, trained = [model.train(mode).elmo(**batch).last_hidden_state for mode in (False, True)]
        assert torch.equal(evaluated, trained) == freeze_bilm


def test_loss_passes_over_words_without_label():
    model = build_tagger(torch.float64).eval()
    batch = random_batch(model.config, [5, 2])
    labels = torch.tensor([[-100, 0, 2, -100, 1], [2, -100, -100, -100, -100]])
    outputs = model(**batch, labels=labels)
    assert outputs.logits.shape == (2, 5, 3)
    chosen = labels != -100
    assert_near(outputs.loss, F.cross_entropy(outputs.logits[chosen], labels[chosen]), 1e-6)


@pytest.mark.parametrize("freeze_bilm", [True, False])
def test_accumulated_gradients(freeze_bilm):
    """4 batches of 4 sentences with few and many labels are one batch of 16."""
    model = build_tagger(torch.float64, freeze_bilm=freeze_bilm, classifier_dropout=0.0, dropout=0.0).train()
    batch = random_batch(model.config, [1, 1, 1, 1, 9, 9, 9, 9, 0, 2, 0, 2, 5, 6, 7, 8])
    labels = torch.where(batch["attention_mask"] == 1, batch["input_ids"] % 3, -100)
    batch, number = {**batch, "labels": labels}, int((labels != -100).sum())
    parts = [{name: ids[start : start + 4] for name, ids in batch.items()} for start in range(0, 16, 4)]
    accumulated = gradients(model, sum(model(**part, num_items_in_batch=number).loss for part in parts))
    assert_same_gradients(accumulated, gradients(model, model(**batch).loss), 1e-7)  # the loss itself is in fp32


def test_frozen_head_with_gradient_checkpointing():
    model = build_tagger(torch.float64, classifier_dropout=0.0).train()
    batch = {**random_batch(model.config, [3, 5]), "labels": torch.ones(2, 5).long()}
    expected = gradients(model, model(**batch).loss)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    assert_same_gradients(gradients(model, model(**batch).loss), expected, 1e-12)


# Files and configuration.


@every_input
def test_round_trip(inputs, tmp_path):
    model = build(inputs=inputs, seed=3)
    batch = random_batch(model.config, [4, 6])
    model.save_pretrained(tmp_path)
    loaded = ElmoModel.from_pretrained(tmp_path).eval()
    assert loaded.config.to_dict().keys() == model.config.to_dict().keys()
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for name, weight in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight), name
    for got, expected in zip(everything(loaded, batch), everything(model, batch)):
        assert torch.equal(got, expected)


def test_parts_missing_from_a_checkpoint_start_fresh(tmp_path):
    """A mix and a head are not garbage where a biLM alone was saved; the biLM is what was saved."""
    model = build(seed=3)
    weights = {name: weight for name, weight in model.state_dict().items() if not name.startswith("mix.")}
    model.save_pretrained(tmp_path, state_dict=weights)
    tagger = ElmoForTokenClassification.from_pretrained(tmp_path)
    assert list(tagger.elmo.layer_weights().values()) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1])
    assert not tagger.classifier.bias.any()
    for name, weight in weights.items():
        assert torch.equal(tagger.elmo.state_dict()[name], weight), name


@every_option
def test_configuration_round_trip(options, tmp_path):
    config = tiny_config(**options)
    again = ElmoConfig(**json.loads(config.to_json_string(use_diff=False)))
    config.save_pretrained(tmp_path)
    for copy in (again, ElmoConfig.from_pretrained(tmp_path)):
        for name in ElmoConfig.__annotations__:
            assert getattr(copy, name) == getattr(config, name), name
        assert copy.auto_map == AUTO_MAP


def test_sizes():
    config = tiny_config(char_filters=[(1, 3), (2, 4)])
    assert config.char_filters == [[1, 3], [2, 4]]
    assert (config.num_filters, config.output_dim, config.hidden_size) == (7, 5, 10)
    assert tiny_config(projection_dim=None).hidden_size == 14
    # The released models, by the sizes in bilm-tf's README.
    with torch.device("meta"):
        for name, millions in (("mini", 4.2), ("small", 13.6), ("medium", 28.0), ("original", 93.6)):
            make = getattr(ElmoConfig, name)
            number = sum(parameter.numel() for parameter in ElmoModel(make()).parameters())
            assert number / 1e6 == pytest.approx(millions, abs=0.06)


BAD_OPTIONS = [
    ({"inputs": "bytes"}, "inputs must be one of characters, words, words+characters", "'bytes'"),
    ({"char_activation": "gelu"}, "char_activation must be one of relu, tanh", "'gelu'"),
    ({"mix": "mean"}, "mix must be one of learned, top, fixed", "'mean'"),
    ({"vocab_size": 0}, "at least 1", "vocab_size=0"),
    ({"lstm_dim": 0}, "at least 1", "lstm_dim=0"),
    ({"num_negative_samples": 0}, "at least 1", "num_negative_samples=0"),
    ({"projection_dim": 0}, "at least 1", "projection_dim=0"),
    ({"word_embedding_dim": -1}, "at least 1", "word_embedding_dim=-1"),
    ({"num_hidden_layers": 0}, "at least 1", "num_hidden_layers=0"),
    ({"num_highway_layers": -1}, "at least 0", "num_highway_layers=-1"),
    ({"char_vocab_size": 1}, "at least 2", "char_vocab_size=1"),
    ({"char_embedding_dim": 0}, "at least 1", "char_embedding_dim=0"),
    ({"max_characters_per_token": 2}, "at least 3", "max_characters_per_token=2"),
    ({"char_filters": []}, "[width, number] pairs", "char_filters=[]"),
    ({"char_filters": [[1, 2, 3]]}, "[width, number] pairs", "[[1, 2, 3]]"),
    ({"char_filters": [[0, 2]]}, "[width, number] pairs of positive integers", "[[0, 2]]"),
    ({"char_filters": [[13, 2]]}, "wider than max_characters_per_token=12", "[[13, 2]]"),
    ({"cell_clip": 0}, "cell_clip must be positive or None", "cell_clip=0"),
    ({"projection_clip": -1.0}, "projection_clip must be positive or None", "projection_clip=-1.0"),
    ({"dropout": 1.0}, "at least 0 and below 1", "dropout=1.0"),
    ({"classifier_dropout": -0.5}, "at least 0 and below 1", "classifier_dropout=-0.5"),
    ({"mix": "fixed"}, 'mix_weights are given with mix="fixed"', "mix_weights=None"),
    ({"mix_weights": [1.0, 0.0, 0.0]}, 'mix is "learned"', "mix_weights=[1.0, 0.0, 0.0]"),
    ({"mix": "fixed", "mix_weights": [1.0]}, "num_hidden_layers + 1 = 3 numbers", "mix_weights=[1.0]"),
]


@pytest.mark.parametrize("options, rule, value", BAD_OPTIONS, ids=lambda x: str(x) if isinstance(x, dict) else "")
def test_bad_options(options, rule, value):
    assert_refused(lambda: tiny_config(**options), rule, value)


BILM_OPTIONS = {
    "lstm": {
        "dim": 64,
        "projection_dim": 16,
        "n_layers": 2,
        "cell_clip": 3,
        "proj_clip": 3,
        "use_skip_connections": False,
    },
    "char_cnn": {
        "embedding": {"dim": 4},
        "filters": [[1, 4], [2, 8]],
        "n_highway": 2,
        "n_characters": 262,
        "max_characters_per_token": 50,
        "activation": "relu",
    },
}
GOLDEN_FIELDS = {
    "inputs": "characters",
    "lstm_dim": 64,
    "projection_dim": 16,
    "num_hidden_layers": 2,
    "cell_clip": 3,
    "projection_clip": 3,
    "use_skip_connections": False,
    "char_embedding_dim": 4,
    "char_vocab_size": 262,
    "num_highway_layers": 2,
    "max_characters_per_token": 50,
    "char_activation": "relu",
}


def bilm_options(lstm=None, char_cnn=None, **options):
    """The options above with changes; None takes an entry out."""
    changed = {
        name: {**BILM_OPTIONS[name], **(change or {})} for name, change in (("lstm", lstm), ("char_cnn", char_cnn))
    }
    changed = {name: {k: v for k, v in part.items() if v is not None} for name, part in changed.items()}
    return {k: v for k, v in {**changed, **options}.items() if v is not None}


def assert_fields(config, fields):
    assert {name: getattr(config, name) for name in fields} == fields


@pytest.mark.parametrize(
    "options, fields",
    [
        (bilm_options(), GOLDEN_FIELDS),
        (bilm_options(char_cnn={"n_characters": 261}), {"char_vocab_size": 262}),
        (bilm_options(char_cnn={"n_highway": None}), {"num_highway_layers": 0}),
        (bilm_options(char_cnn={"activation": "tanh"}), {"char_activation": "tanh"}),
        (
            bilm_options(lstm={"n_layers": None, "cell_clip": None, "proj_clip": None}),
            {"num_hidden_layers": 1, "cell_clip": None, "projection_clip": None},
        ),
        (bilm_options(lstm={"use_skip_connections": True}), {"use_skip_connections": True}),
        (bilm_options(lstm={"projection_dim": 64}), {"projection_dim": None, "hidden_size": 128}),
        (bilm_options(n_tokens_vocab=793471, dropout=0.2), {"vocab_size": 793472, "dropout": 0.2}),
        (bilm_options(n_negative_samples_batch=64), {"num_negative_samples": 64}),
        ({"lstm": BILM_OPTIONS["lstm"]}, {"inputs": "words", "lstm_dim": 64}),
    ],
)
def test_bilm_options(options, fields):
    assert_fields(ElmoConfig.from_bilm_options(options), fields)


def test_golden_bilm_options(shared_folder):
    options = json.loads((shared_folder / "golden" / "bilm-tf" / "options.json").read_text())
    config = ElmoConfig.from_bilm_options(options, mix="top")
    assert_fields(config, {**GOLDEN_FIELDS, "mix": "top", "num_filters": 124, "hidden_size": 32})


@pytest.mark.parametrize(
    "options, pieces",
    [
        ({"char_cnn": BILM_OPTIONS["char_cnn"]}, ["'lstm'"]),
        (bilm_options(lstm={"dim": None}), ["'dim'", "projection_dim"]),
        (bilm_options(char_cnn={"filters": None}), ["'filters'", "n_highway"]),
        (bilm_options(lstm={"projection_dim": 65}), ["at most dim=64", "projection_dim=65"]),
        (bilm_options(bidirectional=False), ["two directions", "bidirectional=False"]),
    ],
)
def test_bad_bilm_options(options, pieces):
    assert_refused(lambda: ElmoConfig.from_bilm_options(options), *pieces)
