"""Inference with packed and int8 weights: the vectors of plain weights, in any batch, after any other use."""

import copy
import io
import os
import pickle
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from helpers.models import MODEL_OPTIONS, random_batch, randomize, tiny_config
from transformers_elmo import (
    ElmoForPreTraining,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoQuantizationConfig,
    modeling_elmo,
)
from transformers_elmo.lstm_elmo import Packing
from transformers_elmo.modeling_elmo import STACKED_SENTENCES, ElmoTokenEncoder
from transformers_elmo.products_elmo import PreparedWeights, can_compute_int8, can_pack

CPU = torch.device("cpu")
PRECISIONS = ["float32", "bfloat16", "int8", "int8 and bfloat16"]
# Multiples of 64: torch computes the sigmoids of the last few numbers of a tensor one by one and rounds them otherwise.
FILTERS = {"char_filters": [[1, 16], [2, 16], [3, 32]], "num_highway_layers": 1}
SIZES = {"lstm_dim": 64, "projection_dim": 16}
WIDE = {"lstm_dim": 2048, "char_filters": [[1, 1024], [2, 1024]], "projection_dim": 8, "num_highway_layers": 0}

pytestmark = pytest.mark.skipif(not can_pack(torch.float32, CPU), reason="this processor has no packed products")


@pytest.fixture(autouse=True)
def restored_threads():
    yield
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="module")
def packed_weights():
    """Pack all weights, also where plain products are chosen for small ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling_elmo, "plain_is_faster", lambda weight: False)
        yield


def in_precision(model, precision: str):
    """Return a copy of a model with the weights of a precision."""
    if "int8" in precision:
        with TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            model = type(model).from_pretrained(folder, quantization_config=ElmoQuantizationConfig())
    else:
        model = copy.deepcopy(model)
    return model.bfloat16() if "bfloat16" in precision else model


@cache
def built(precision: str, model_class=ElmoModel, wide: bool = False):
    options = {"num_labels": 3, "dropout": 0.0, "classifier_dropout": 0.0, **(WIDE if wide else {**SIZES, **FILTERS})}
    return in_precision(randomize(model_class(tiny_config(**options))).eval(), precision)


def build(precision: str = "float32", model_class=ElmoModel):
    """Return a model of which nothing has been prepared."""
    if "bfloat16" in precision and not can_pack(torch.bfloat16, CPU):
        pytest.skip("this processor has no packed products of bfloat16")
    if "int8" in precision and not can_compute_int8(CPU):
        pytest.skip("this processor has no int8 products")
    return copy.deepcopy(built(precision, model_class))


def batches(config) -> list[dict]:
    """Return batches whose directions are computed together and one after the other, and one without equal words."""
    assert STACKED_SENTENCES < 7
    return [
        random_batch(config, [3, 5, 1]),
        random_batch(config, [4, 1, 6, 2, 2, 3, 1], seed=1),
        random_batch(config, [2, 3, 1, 1, 4, 4], seed=2, repeats=False),
    ]


@torch.no_grad()
def outputs(model) -> list[torch.Tensor]:
    """Return the layers, the mix and the states of some batches."""
    found = []
    for batch in batches(model.config):
        output = model.base_model(**batch, output_hidden_states=True, output_state=True)
        found += [*output.hidden_states, output.last_hidden_state, *output.state]
    return found


def assert_equal(some, others, name=""):
    assert len(some) == len(others), name
    for number, (one, other) in enumerate(zip(some, others)):
        assert one.dtype == other.dtype and torch.equal(one, other), (name, number)


def assert_near(some, others, tolerance, name=""):
    """Assert that tensors differ by at most the tolerance, relative to the largest number of each."""
    assert len(some) == len(others), name
    for number, (one, other) in enumerate(zip(some, others)):
        scale = max(other.abs().max().item(), 1e-3) if other.numel() else 1
        error = (one.double() - other.double()).abs().max().item() if other.numel() else 0
        assert one.shape == other.shape and error <= tolerance * scale, (name, number, error, scale)


def assert_like_new(model, name=""):
    """Assert that a model computes what a copy of it does, which has nothing but the weights."""
    assert_equal(outputs(model), outputs(copy.deepcopy(model)), name)


def prepared_parts(model) -> list[PreparedWeights]:
    return [module.prepared for module in model.modules() if hasattr(module, "prepared")]


def plainly(function, *arguments):
    with torch.backends.mkldnn.flags(enabled=False):
        return function(*arguments)


# Against plain products.


@pytest.mark.parametrize("options", MODEL_OPTIONS.values(), ids=MODEL_OPTIONS)
def test_packed_weights_give_the_vectors_of_plain_ones(options):
    model = randomize(ElmoModel(tiny_config(**{**SIZES, **options}))).eval()
    expected = plainly(outputs, model)
    assert not any(part.copies for part in prepared_parts(model))
    assert_near(outputs(model), expected, 1e-5)
    assert any(part.copies for part in prepared_parts(model))
    assert_equal(plainly(outputs, model), expected)
    double = [each.float() for each in outputs(copy.deepcopy(model).double())]
    assert_near(outputs(model), double, 1e-5)


@pytest.mark.parametrize("options", MODEL_OPTIONS.values(), ids=MODEL_OPTIONS)
def test_small_weights_can_stay_as_they_are(options, monkeypatch):
    """Where plain products are faster, the vectors are those of packed weights."""
    model = randomize(ElmoModel(tiny_config(**{**SIZES, **options}))).eval()
    expected = outputs(model)
    kinds = [set(layer.prepared.copies) for layer in model.bilm.layers]
    assert all(each == {"stacked", torch.float32} for each in kinds)
    for layer in model.bilm.layers:
        layer.prepared.drop()
    monkeypatch.setattr(modeling_elmo, "plain_is_faster", lambda weight: True)
    assert_near(outputs(model), expected, 1e-6)
    assert [set(layer.prepared.copies) for layer in model.bilm.layers] == [{"stacked"}] * len(model.bilm.layers)


def test_wide_models():
    """A single row is summed in another order where sums have 2048 terms or more."""
    model = copy.deepcopy(built("float32", wide=True))
    assert_near(outputs(model), plainly(outputs, model), 1e-4)


@pytest.mark.parametrize("precision, tolerance", [("bfloat16", 0.03), ("int8", 0.05), ("int8 and bfloat16", 0.06)])
def test_precisions_are_close_to_float32(precision, tolerance):
    model, exact = build(precision), outputs(build("float32"))
    found = outputs(model)
    mean_errors = [(a.double() - b.double()).abs().mean() / b.abs().mean() for a, b in zip(found, exact)]
    assert max(mean_errors) < tolerance
    assert {each.dtype for each in found[:4]} == {torch.bfloat16 if "bfloat16" in precision else torch.float32}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_the_token_encoder_of_half_precision_stays_float32(dtype, tmp_path):
    model = build()
    model.save_pretrained(tmp_path / "float32")
    converted = copy.deepcopy(model).to(dtype)
    converted.save_pretrained(tmp_path / "half")
    for half in (
        converted,
        ElmoModel.from_pretrained(tmp_path / "float32", dtype=dtype),
        ElmoModel.from_pretrained(tmp_path / "half").eval(),
        {torch.float16: copy.deepcopy(model).half, torch.bfloat16: copy.deepcopy(model).bfloat16}[dtype](),
    ):
        assert half.dtype == dtype and {parameter.dtype for parameter in half.bilm.parameters()} == {dtype}
        assert_equal([*half.token_encoder.parameters()], [*model.token_encoder.parameters()])
        words, expected = outputs(half)[0], outputs(model)[0]
        assert torch.equal(words, expected.to(dtype))
        assert_equal(outputs(half), outputs(converted))
    assert {parameter.dtype for parameter in model.double().parameters()} == {torch.float64}


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 0.03)])
def test_language_models_read_windows(dtype, tolerance):
    model = build("float32", ElmoForPreTraining).to(dtype)
    width = model.config.max_characters_per_token
    for batch_size in (0, 1, 3, 7):
        batch = random_batch(model.config, [6] * 2 * batch_size)
        ids, chars = batch["input_ids"].view(2, batch_size, 6), batch["char_ids"].view(2, batch_size, 6, width)
        with torch.no_grad():
            arguments = ids, chars, None, None, ids
            found, expected = model(*arguments), plainly(model, *arguments)
        assert_near([found.loss[None], *found.state], [expected.loss[None], *expected.state], tolerance)


@pytest.mark.parametrize("sentences", [2, 7])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_states_and_embeddings_of_another_dtype(sentences, dtype):
    model = build()
    batch = random_batch(model.config, [3] * sentences)
    state = model(**batch, output_state=True).state
    inputs_embeds = torch.randn(sentences, 3, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    state = [part.detach().to(dtype) for part in state]
    with torch.no_grad():
        for arguments in ({**batch, "state": state}, {"inputs_embeds": inputs_embeds}):
            found, expected = [
                function(lambda a=arguments: model(**a, output_hidden_states=True).hidden_states)
                for function in (lambda call: call(), plainly)
            ]
            assert [each.dtype for each in found] == [each.dtype for each in expected]
            assert_near(found, expected, 1e-5)


# A sentence alone and in a batch.


@cache
def sentences(boundaries: bool) -> list[torch.Tensor]:
    """Return the characters of 64 sentences of a few words; with boundaries, they start and end with the same words."""
    config = built("float32").config
    words = random_batch(config, [30], repeats=False)["char_ids"][0]  # (30, W)
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 9, (64,), generator=generator).tolist()
    chosen = [torch.randint(2, 30, (length,), generator=generator) for length in lengths]
    first, last = torch.tensor([0]), torch.tensor([1])
    return [words[torch.cat([first, each, last]) if boundaries else each] for each in chosen]


@torch.no_grad()
def vectors(model, chars: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return all layers of each sentence: (L + 1, T, 2P)"""
    padded = torch.nn.utils.rnn.pad_sequence(chars, batch_first=True)
    layers = torch.stack(model(char_ids=padded, output_hidden_states=True).hidden_states, 1)
    return [each[:, : len(sentence)] for each, sentence in zip(layers, chars)]


@cache
def vectors_of_sentences_alone(precision: str, boundaries: bool) -> list[torch.Tensor]:
    model = build(precision)
    return [vectors(model, [sentence])[0] for sentence in sentences(boundaries)]


@cache
def vectors_of_a_batch(boundaries: bool) -> list[torch.Tensor]:
    return vectors(build("float32"), sentences(boundaries))


@cache
def used(precision: str) -> ElmoModel:
    """Return a model that has read other batches before."""
    return build(precision)


@pytest.mark.parametrize("precision", PRECISIONS)
@settings(max_examples=10)
@given(
    seed=st.integers(0, 99), number=st.sampled_from([1, 2, 4, 5, 8, 33, 64]),
    threads=st.sampled_from([1, 2]), boundaries=st.booleans(), is_new=st.booleans(),
)  # fmt: skip
def test_a_sentence_has_the_same_vectors_in_any_batch(precision, seed, number, threads, boundaries, is_new):
    model = build(precision) if is_new else used(precision)
    expected = vectors_of_sentences_alone(precision, boundaries)
    chosen = torch.randperm(64, generator=torch.Generator().manual_seed(seed))[:number].tolist()
    torch.set_num_threads(threads)
    try:
        found = vectors(model, [sentences(boundaries)[index] for index in chosen])
    finally:
        torch.set_num_threads(1)
    if precision != "float32":
        assert_equal(found, [expected[index] for index in chosen])
    else:
        # Few sentences are read in both directions at once, which rounds otherwise.
        assert_near(found, [expected[index] for index in chosen], 1e-6)
        if number > STACKED_SENTENCES:
            assert_equal(found, [vectors_of_a_batch(boundaries)[index] for index in chosen])


@settings(max_examples=10)
@given(st.integers(0, 99), st.sampled_from([5, 8, 33, 64]), st.sampled_from([1, 2]), st.booleans())
def test_a_sentence_has_the_same_vectors_in_any_batch_of_plain_products(seed, number, threads, boundaries):
    expected = vectors_of_sentences_alone("float32", boundaries)
    chosen = torch.randperm(64, generator=torch.Generator().manual_seed(seed))[:number].tolist()
    torch.set_num_threads(threads)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(modeling_elmo, "plain_is_faster", lambda weight: True)
            model = build("float32")
            found = vectors(model, [sentences(boundaries)[index] for index in chosen])
    finally:
        torch.set_num_threads(1)
    assert not any(layer.prepared.copies for layer in model.bilm.layers)
    assert_near(found, [expected[index] for index in chosen], 1e-6)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_sentence_has_the_same_vectors_in_any_batch_of_a_wide_model(precision, monkeypatch):
    build(precision)  # skips
    monkeypatch.setattr(modeling_elmo, "STACKED_SENTENCES", 0)
    model, chars = built(precision, wide=True), sentences(True)[:6]
    alone = [vectors(model, [sentence])[0] for sentence in chars]
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for part in (slice(2), slice(6)):
            for module in prepared_parts(model):
                module.drop()
            assert_equal(vectors(model, chars[part]), alone[part], threads)


# The same first words.


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "lengths", [[4], [1], [3, 2], [1, 1], [5, 1, 3, 3, 2, 1], [4, 0, 2, 0, 1, 3, 2], [3, 1, 0] * 23], ids=str
)
@pytest.mark.parametrize("kind", ["equal", "first equal", "last equal", "different"])
def test_sentences_that_start_alike(precision, lengths, kind):
    """From a zero state, given or not: the first step is computed once only if it is not given."""
    model = build(precision)
    batch = random_batch(model.config, lengths, repeats=False)
    chars = batch["char_ids"]
    for row, length in enumerate(lengths):
        if length and kind in ("equal", "first equal"):
            chars[row, 0] = chars[0, 0]
        if length and kind in ("equal", "last equal"):
            chars[row, length - 1] = chars[0, 0]
    zeros = model.bilm.initial_state(torch.zeros(0, dtype=model.dtype), len(lengths))
    options = {"output_hidden_states": True, "output_state": True}
    with torch.no_grad():
        found, expected = model(**batch, **options), model(**batch, state=zeros, **options)
        other = [part + 0.25 for part in zeros]
        continued, plain = model(**batch, state=other), plainly(lambda: model(**batch, state=other))
    results = [[*output.hidden_states, *output.state] for output in (found, expected)]
    if precision == "float32" and len(lengths) <= STACKED_SENTENCES:  # rounded by the number of rows
        assert_near(*results, 1e-6)
    else:
        assert_equal(*results)
    if precision == "float32":
        assert_near([continued.last_hidden_state], [plain.last_hidden_state], 1e-5)
    assert not torch.equal(continued.last_hidden_state, found.last_hidden_state)


# The cache of word vectors.


def words_of(model, number: int, seed: int = 0) -> torch.Tensor:
    return random_batch(model.config, [number], seed=seed, repeats=False)["char_ids"][0]  # (number, W)


def cached_words(model) -> dict:
    (known,) = [copies for kind, copies in model.token_encoder.prepared.copies.items() if kind[0] == "words"]
    return known


@pytest.mark.parametrize("precision", PRECISIONS)
def test_recalled_words_have_the_bits_of_new_ones(precision, monkeypatch):
    encoder, encoded = (model := build(precision)).token_encoder, []
    encode = ElmoTokenEncoder.encode
    monkeypatch.setattr(
        ElmoTokenEncoder, "encode", lambda self, ids, chars: encoded.append(len(chars)) or encode(self, ids, chars)
    )
    words = words_of(model, 60).unique(dim=0)[:40]
    with torch.no_grad():
        for part, new in ((words[:10], 10), (words[5:20], 10), (words[:20], 0), (words, 20), (words.flip(0), 0)):
            encoded.clear()
            vectors, inverse = encoder(None, part)
            assert sum(encoded) == new
            assert torch.equal(vectors[inverse], encode(encoder, None, part))
            for number in (0, len(part) - 1):
                assert torch.equal(vectors[inverse][number], encode(encoder, None, part[number : number + 1])[0])
        assert encoder(None, words[:0])[0].shape == (0, 16)
    assert len(cached_words(model)) == 40


@pytest.mark.parametrize("bound", [0, 1, 7, 40])
def test_the_cache_of_words_is_bounded(monkeypatch, bound):
    monkeypatch.setattr(modeling_elmo, "MAX_CACHED_WORDS", bound)
    model = build()
    with torch.no_grad():
        for number, seed in ((5, 0), (5, 1), (30, 2), (5, 0), (60, 3), (8, 2)):
            words = words_of(model, number, seed)
            vectors, inverse = model.token_encoder(None, words)
            assert torch.equal(vectors[inverse], model.token_encoder.encode(None, words))
            assert len(cached_words(model)) <= bound


def test_a_change_of_the_token_encoder_empties_the_cache():
    model = build()
    encoder, words = model.token_encoder, words_of(model, 9)
    for name, parameter in encoder.named_parameters():
        for change in (lambda p: p.detach().mul_(1.25), lambda p: p.data.mul_(0.8)):
            with torch.no_grad():
                encoder(None, words)
                change(parameter)
                vectors, inverse = encoder(None, words[:3])
                assert len(cached_words(model)) == len(vectors) <= 3, name
                assert torch.equal(vectors[inverse], encoder.encode(None, words[:3])), name


def test_word_embeddings_are_not_recalled():
    """One row can change without a notice."""
    for inputs in ("words", "words+characters"):
        model = randomize(ElmoModel(tiny_config(**SIZES, inputs=inputs, word_embedding_dim=3))).eval()
        outputs(model)
        model.token_encoder.word_embedding.weight.data[1:].mul_(2)
        assert_like_new(model)
        assert not model.token_encoder.prepared.copies


def test_vectors_can_be_changed_in_place():
    """What a caller does with the vectors does not reach those that are kept."""
    model = build()
    expected = [each.clone() for each in outputs(model)]
    for each in outputs(model):
        each.fill_(torch.nan)
    assert_equal(outputs(model), expected)


# After the model was used.


@pytest.mark.parametrize("precision, sentences", [("float32", 2), ("float32", 6), ("bfloat16", 6), ("int8", 6)])
def test_a_change_of_any_weight_is_noticed(precision, sentences):
    model = build(precision)
    batch = random_batch(model.config, [3] * sentences)

    @torch.no_grad()
    def outputs(model):
        return [model(**batch).last_hidden_state]

    before = outputs(model)
    ways = ["copy_", "data", "data in place"]
    for number, (name, tensor) in enumerate([*model.named_parameters(), *model.named_buffers()]):
        for way in ways if precision == "float32" else [ways[number % 3]]:
            values = -tensor.detach() if way == "data" else tensor.detach().flip(0)
            values = values if tensor.dtype == torch.int8 else values * 1.25
            if way == "copy_":
                with torch.no_grad():
                    tensor.copy_(values)
            elif way == "data":
                tensor.data = values
            else:
                tensor.data.copy_(values)
            found = outputs(model)
            for part in prepared_parts(model):
                part.drop()
            assert_equal(found, outputs(model), (name, way))
            assert not torch.equal(found[0], before[0]), (name, way)
            before = found


def step(model):
    """Train all weights for a step."""
    model.train().requires_grad_(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model(**batches(model.config)[1]).last_hidden_state.square().mean().backward()
    optimizer.step()
    model.eval().zero_grad()


def autocast(model):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_equal(outputs(model), outputs(copy.deepcopy(model)))


def without_oncednn(model):
    assert_equal(plainly(outputs, model), plainly(outputs, copy.deepcopy(model)))


def in_inference_mode(model):
    with torch.inference_mode():
        assert_like_new(model)


def other_weights(model):
    model.load_state_dict(randomize(ElmoModel(model.config), seed=1).state_dict())


def assigned_weights(model):
    model.load_state_dict(randomize(ElmoModel(model.config), seed=1).state_dict(), assign=True)


USES = {
    "float64 and back": lambda model: (assert_like_new(model.double()), model.float()),
    "float16 and back": lambda model: (assert_like_new(model.half()), model.float()),
    "bfloat16 and back": lambda model: (assert_like_new(model.bfloat16()), model.float()),
    "bfloat16": lambda model: model.bfloat16(),
    "training mode and back": lambda model: (assert_like_new(model.train()), model.eval()),
    "training": step,
    "autocast": autocast,
    "plain products": without_oncednn,
    "inference mode": in_inference_mode,
    "other weights": other_weights,
    "assigned weights": assigned_weights,
}


@pytest.mark.parametrize("is_used", [True, False])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_used_model_is_like_a_new_one(use, is_used):
    model = build()
    if is_used:
        outputs(model)
    use(model)
    assert_like_new(model)
    assert_near(outputs(model), plainly(outputs, model), 1e-5 if model.dtype == torch.float32 else 0.05)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_modes_can_follow_each_other(precision):
    """What is prepared in inference mode is used below a head that is trained, and the other way round."""
    expected = build(precision, ElmoForTokenClassification)
    batch = batches(expected.config)[1]
    labels = batch["input_ids"] % 3

    def train(model):
        model.zero_grad()
        model(**batch, labels=labels).loss.backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        assert sorted(gradients) == ["classifier.bias", "classifier.weight", "elmo.mix.gamma", "elmo.mix.weights"]
        return list(gradients.values())

    def infer(mode):
        def call(model):
            with mode():
                return [model(**batch).logits.clone()]

        return call

    calls = {"inference": infer(torch.inference_mode), "no_grad": infer(torch.no_grad), "train": train}
    wanted = {name: call(copy.deepcopy(expected)) for name, call in calls.items()}
    for order in (
        ("inference", "no_grad", "train"),
        ("train", "inference", "train"),
        ("no_grad", "inference", "train"),
    ):
        model = copy.deepcopy(expected)
        for name in order:
            assert_equal(calls[name](model), wanted[name], (order, name))
    assert any(part.copies for part in prepared_parts(model))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_copies_have_weights_only(precision, tmp_path):
    model = build(precision)
    names, size = set(model.state_dict()), len(pickle.dumps(model))
    build(precision).save_pretrained(tmp_path / "new")
    expected = outputs(model)
    assert any(part.copies for part in prepared_parts(model))
    assert set(model.state_dict()) == names and len(pickle.dumps(model)) == size
    model.save_pretrained(tmp_path / "used")
    saved = [load_file(tmp_path / folder / "model.safetensors") for folder in ("new", "used")]
    assert saved[0].keys() == saved[1].keys() and all(torch.equal(saved[0][name], saved[1][name]) for name in saved[0])
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    for copied in (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        torch.load(buffer, weights_only=False),
        ElmoModel.from_pretrained(tmp_path / "used", dtype=model.dtype),
    ):
        assert not any(part.copies or part.weights or part.sample is not None for part in prepared_parts(copied))
        assert_equal(outputs(copied), expected)
    assert_equal(outputs(model), expected)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_threads_share_a_model(precision):
    model = build(precision)
    expected = outputs(copy.deepcopy(model))
    with ThreadPoolExecutor(6) as threads:
        for found in [future.result() for future in [threads.submit(outputs, model) for _ in range(12)]]:
            assert_equal(found, expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_forked_process_computes_the_same(precision):
    model = build(precision)
    expected = outputs(model)
    child = os.fork()
    if not child:
        signal.alarm(60)
        try:
            os._exit(0 if all(map(torch.equal, outputs(model), expected)) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert_equal(outputs(model), expected)


def test_training_prepares_nothing():
    model = build()
    outputs(model)
    assert all(part.copies for part in prepared_parts(model))
    model.train()
    for batch in batches(model.config):
        model(**batch).last_hidden_state.sum().backward()
        assert not any(part.copies for part in prepared_parts(model))


# Processors without the features.


def without(monkeypatch, *names):
    answers = {"bfloat16": ["_is_avx512_bf16_supported", "_is_amx_tile_supported"], "int8": ["_is_vnni_supported"]}
    for feature in names:
        for name in answers.get(feature, []):
            monkeypatch.setattr(torch.cpu, name, lambda: False)
    if "float32" in names:
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_without_its_instructions(monkeypatch, dtype):
    """Products are computed in float32, and h is rounded."""
    model = build().to(dtype)
    without(monkeypatch, "bfloat16")
    found = outputs(model)
    kinds = {kind for part in prepared_parts(model) for kind in part.copies}
    assert kinds == {dtype, torch.float32, ("words", torch.float32)} and {each.dtype for each in found[:4]} == {dtype}
    alone = vectors(model, sentences(True)[:1])
    assert_equal(vectors(model, sentences(True)[:9])[:1], alone)
    exact = outputs(model.float())
    assert max((a.double() - b.double()).abs().mean() / b.abs().mean() for a, b in zip(found, exact)) < 0.02


def test_autocast_without_bfloat16_instructions(monkeypatch):
    """Packed float32 copies of bfloat16 weights are not those of the float32 weights."""
    model = build()
    without(monkeypatch, "bfloat16")
    outputs(model)
    autocast(model)
    assert_like_new(model)


def test_int8_without_its_instructions(monkeypatch):
    """The weights are dequantized: packed as bfloat16 where the processor has it, else as float32."""
    model = copy.deepcopy(built("int8"))
    exact = plainly(outputs, copy.deepcopy(model).dequantize())
    without(monkeypatch, "int8")
    found = outputs(model)
    assert not any("int8" in str(kind) for part in prepared_parts(model) for kind in part.copies)
    assert max((a - b).abs().mean() / b.abs().mean() for a, b in zip(found, exact)) < 0.02
    without(monkeypatch, "bfloat16")
    model = copy.deepcopy(model)
    assert_near(outputs(model), exact, 1e-5)
    assert {kind for layer in model.bilm.layers for kind in layer.prepared.copies} == {torch.float32, "stacked"}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_nothing_is_packed_without_any_instructions(monkeypatch, precision):
    model = copy.deepcopy(built(precision))
    expected = plainly(outputs, model)
    without(monkeypatch, "bfloat16", "int8", "float32")
    assert_equal(outputs(model), expected)
    assert not any(part.copies for part in prepared_parts(model))


def test_int8_needs_a_bound(tmp_path):
    """Without a clip, h has no limit: the recurrent weights are dequantized."""
    model = randomize(ElmoModel(tiny_config(**SIZES, projection_clip=None))).eval()
    model = in_precision(model, "int8")
    exact = plainly(outputs, copy.deepcopy(model).dequantize())
    assert max((a - b).abs().mean() / b.abs().mean() for a, b in zip(outputs(model), exact)) < 0.02
    assert not any("int8" in str(kind) for part in prepared_parts(model) for kind in part.copies)


def test_int8_inputs_of_upper_layers_are_sums():
    """Residual layers add their h, so the input of layer 4 is three times as large as the clip."""
    for options in ({}, {"use_skip_connections": False}, {"projection_dim": None, "lstm_dim": 16}):
        config = tiny_config(**{**SIZES, "num_hidden_layers": 4, "projection_clip": 0.3, **options})
        model = in_precision(randomize(ElmoModel(config)).eval(), "int8")
        exact = plainly(outputs, copy.deepcopy(model).dequantize())
        assert max((a - b).abs().mean() / b.abs().mean() for a, b in zip(outputs(model), exact)) < 0.08


def test_packing_of_no_sentence():
    model = build()
    with torch.no_grad():
        assert model(**random_batch(model.config, [])).last_hidden_state.shape == (0, 0, 32)
        assert model(**random_batch(model.config, [0] * 7)).last_hidden_state.shape == (7, 0, 32)
    assert Packing.from_mask(torch.zeros(7, 0, dtype=torch.bool)).batch_sizes == []
