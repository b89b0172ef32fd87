"""int8 weights: rounding against a loop in numpy, saving and loading by every class, wrong files, dtypes, training."""

import copy
import json
import pickle
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForPreTraining,
    AutoModelForTokenClassification,
    Trainer,
    TrainingArguments,
)

from helpers.environments import arrays_of, load_arrays, make_environment, run
from helpers.models import MODEL_OPTIONS, random_batch, randomize, tiny_config
from transformers_elmo import (
    ElmoForPreTraining,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoQuantizationConfig,
    ElmoTokenizer,
)
from transformers_elmo.checkpoints import load_config, load_model
from transformers_elmo.quantization_elmo import dequantize, quantize

CLASSES = {
    "AutoModel": AutoModel,
    "AutoModelForPreTraining": AutoModelForPreTraining,
    "AutoModelForTokenClassification": AutoModelForTokenClassification,
}


@pytest.fixture(autouse=True)
def plain_products():
    """Compute with the dequantized weights: int8 products, which round activations too, have tests of their own."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield


def rounded_by_hand(name: str, weight: torch.Tensor) -> tuple[str, torch.Tensor]:
    """Return the type that a weight is stored as, and its values, by the rules and a loop over its outputs."""
    is_linear = ("highways" in name and name.endswith("weight")) or name == "lm_head.weight"
    is_first_input = "layers.0." in name and name.endswith("input_weight")
    if is_linear or (name.endswith(("recurrent_weight", "input_weight")) and not is_first_input):
        rows = weight.numpy().copy() if is_linear else weight.numpy().T.copy()  # (out, in)
        for row in rows:
            scale = np.float32(max(abs(value) for value in row)) / np.float32(127)
            for index, value in enumerate(row):
                row[index] = np.float32(round(float(value / scale))) * scale
        return "int8", torch.from_numpy(rows if is_linear else rows.T.copy())
    if weight.dim() > 1 and "classifier" not in name:
        return "bfloat16", weight.bfloat16().float()
    return "float32", weight


def build(model_class=ElmoForPreTraining, **options):
    return randomize(model_class(tiny_config(**{"num_labels": 3, "dropout": 0.0, **options}))).eval()


def save(model, folder):
    model.save_pretrained(folder)
    return folder


def load_quantized(model, folder, **options):
    """Save a model, and load it with int8 weights."""
    return type(model).from_pretrained(save(model, folder), quantization_config=ElmoQuantizationConfig(), **options)


@torch.no_grad()
def outputs(model) -> list[torch.Tensor]:
    """Return all layers, the mix and the logits."""
    batch = random_batch(model.config, [5, 2, 7])
    base = model.base_model(**batch, output_hidden_states=True)
    head = [] if model.base_model is model else [model(**batch)[0]]
    return [*base.hidden_states, base.last_hidden_state, *head]


def assert_equal(some, others):
    assert len(some) == len(others) and all(map(torch.equal, some, others))


def assert_close(some, others, tolerance):
    for one, other in zip(some, others):
        torch.testing.assert_close(one.double(), other.double(), rtol=0, atol=tolerance)


@pytest.fixture(scope="module")
def quantized(tmp_path_factory):
    """The folder of a quantized language model."""
    folder = tmp_path_factory.mktemp("quantized")
    return save(load_quantized(build(), folder / "float"), folder / "int8")


# Rounding.


@pytest.mark.parametrize("output_dim", [0, 1])
def test_quantize_rounds_each_output_by_its_largest_weight(output_dim):
    weight = torch.randn(7, 9, generator=torch.Generator().manual_seed(0)) * torch.logspace(-9, 3, 9)
    weight[3], weight[:, 4] = 0, 0
    values, scale = quantize(weight, output_dim)
    assert values.dtype == torch.int8 and scale.dtype == torch.float32 and scale.shape == (weight.shape[output_dim],)
    for output in range(weight.shape[output_dim]):
        row, ints = (each.select(output_dim, output).numpy() for each in (weight, values))
        largest = np.abs(row).max()
        expected = np.float32(largest) / np.float32(127) if largest else np.float32(1)
        assert scale[output].item() == expected
        assert ints.tolist() == [round(float(value / expected)) for value in row]
        assert np.abs(ints).max() == (127 if largest else 0)
    error = (dequantize(values, scale, torch.float32, output_dim) - weight).abs()
    assert (error <= scale.unsqueeze(1 - output_dim) * 0.5001).all()


def test_dequantize_rounds_once():
    values, scale = torch.arange(-127, 128, dtype=torch.int8)[:, None], torch.tensor([0.0123])
    exact = values.double() * scale.double()
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        found = dequantize(values, scale, dtype)
        assert found.dtype == dtype
        assert (found.double() - exact).abs().max() <= exact.abs().max() * torch.finfo(dtype).eps * 0.51


@pytest.mark.parametrize("options", MODEL_OPTIONS.values(), ids=MODEL_OPTIONS)
def test_every_option_is_rounded_saved_and_loaded(tmp_path, options):
    model = build(**options)
    quantized = load_quantized(model, tmp_path / "float")
    kinds = {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            kinds[name], values = rounded_by_hand(name, parameter.detach())
            parameter.copy_(values)
    assert_close(outputs(quantized), outputs(model), 1e-6)
    save(quantized, tmp_path / "int8")
    weights = load_file(tmp_path / "int8" / "model.safetensors")
    stored = {name: str(weight.dtype).removeprefix("torch.") for name, weight in weights.items()}
    scales = {f"{name}_scale": "float32" for name, kind in kinds.items() if kind == "int8"}
    assert stored == kinds | scales
    assert all(weights[name].shape == (weights[name.removesuffix("_scale")].shape["lstm" in name],) for name in scales)
    assert quantized.num_parameters() == model.num_parameters()
    loaded = ElmoForPreTraining.from_pretrained(tmp_path / "int8")
    assert_equal(outputs(loaded), outputs(quantized))
    assert_equal(outputs(ElmoModel.from_pretrained(tmp_path / "int8")), outputs(quantized.elmo))
    assert not any(weight.data_ptr() % 64 for weight in loaded.parameters())


@pytest.mark.parametrize("model_class", [ElmoModel, ElmoForPreTraining, ElmoForTokenClassification])
def test_every_class_opens_every_checkpoint(tmp_path, model_class):
    quantized = load_quantized(build(model_class), tmp_path / "float")
    save(quantized, tmp_path / "int8")
    config = json.loads((tmp_path / "int8" / "config.json").read_text())
    assert config["quantization_config"] == {"bits": 8, "quant_method": "elmo_int8"}
    for auto_class in CLASSES.values():
        loaded = auto_class.from_pretrained(tmp_path / "int8")
        assert loaded.is_quantized
        assert_equal(outputs(loaded.base_model), outputs(quantized.base_model))
        if type(loaded) is model_class:
            assert_equal(outputs(loaded), outputs(quantized))
        again = auto_class.from_pretrained(save(loaded, tmp_path / auto_class.__name__))
        assert_equal(outputs(again), outputs(loaded))


def test_a_configuration_can_be_a_dictionary_and_used_again(tmp_path, quantized):
    expected = outputs(ElmoModel.from_pretrained(quantized))
    save(build(), tmp_path)
    model = AutoModel.from_pretrained(tmp_path, quantization_config={"quant_method": "elmo_int8"})
    assert_equal(outputs(model), expected)
    assert_equal(outputs(ElmoModel.from_pretrained(quantized, config=model.config)), expected)


def test_a_new_model_with_the_configuration_of_a_quantized_one_is_saved_as_float(tmp_path, quantized):
    model = randomize(AutoModel.from_config(ElmoModel.from_pretrained(quantized).config)).eval()
    loaded = AutoModel.from_pretrained(save(model, tmp_path))
    assert_equal(outputs(loaded), outputs(model))
    assert not hasattr(loaded, "is_quantized")


# Where the package is not installed.


def test_quantized_checkpoints_without_the_package(tmp_path):
    sizes = {"max_characters_per_token": 50, "char_vocab_size": 262}
    tokenizer = ElmoTokenizer(vocab=["one", "two"])
    model = build(vocab_size=len(tokenizer), **sizes)
    quantized = load_quantized(model, tmp_path / "float")
    for folder in (tmp_path / "float", save(quantized, tmp_path / "int8")):
        tokenizer.save_pretrained(folder)
    script = """
        for auto_class in args["classes"]:
            model, tokenizer = open_checkpoint(args["int8"], auto_class, trust_remote_code=True)
            np.savez(f"{auto_class}.npz", **arrays_of(model, tokenizer, args["texts"]))
        quantization = {"quantization_config": {"quant_method": "elmo_int8"}}
        model = type(model).from_pretrained(args["float"], **quantization)
        model.save_pretrained("again")
        tokenizer.save_pretrained("again")
        model, _ = open_checkpoint("again", "AutoModelForPreTraining", trust_remote_code=True)
        np.savez("again.npz", **arrays_of(model, tokenizer, args["texts"]))
        results["module"] = type(model.hf_quantizer).__module__
    """
    texts = ["one two three", "", "Two!"]
    classes = ["AutoModel", "AutoModelForTokenClassification", "AutoModelForPreTraining"]
    args = {"int8": str(tmp_path / "int8"), "float": str(tmp_path / "float"), "classes": classes, "texts": texts}
    results = run(make_environment(tmp_path / "environment"), script, tmp_path / "run", **args)
    assert results["module"].startswith("transformers_modules.")
    with torch.backends.mkldnn.flags(enabled=True):
        expected = arrays_of(quantized, tokenizer, texts)
    for name in [*classes, "again"]:
        found = load_arrays(tmp_path / "run" / f"{name}.npz")
        same = [each for each in expected if each in found and (each != "head" or name in (classes[2], "again"))]
        assert len(same) >= 7 and all(np.array_equal(found[each], expected[each]) for each in same)


# Wrong files.

LSTM = "elmo.bilm.layers.0.forward_lstm."


def drop(name):
    return lambda weights: weights.pop(name)


def change(name, function):
    return lambda weights: weights.update({name: function(weights[name]).contiguous()})


BAD_WEIGHTS = {
    "no scale": (drop(LSTM + "recurrent_weight_scale"), "recurrent_weight_scale is missing"),
    "no weight": (drop(LSTM + "recurrent_weight"), "forward_lstm.recurrent_weight is missing"),
    "short scale": (change(LSTM + "recurrent_weight_scale", lambda old: old[1:]), r"has shape \(27,\), not \(28,\)"),
    "narrow weight": (change(LSTM + "recurrent_weight", lambda old: old[1:]), r"has shape \(4, 28\), not \(5, 28\)"),
    "wrong bias": (change(LSTM + "bias", lambda bias: bias[:-1]), r"has shape \(27,\), not \(28,\)"),
    "wrong head": (change("lm_head.weight", lambda weight: weight[1:]), r"lm_head.weight has shape \(9, 5\)"),
    "float weight": (
        change(LSTM + "recurrent_weight", torch.Tensor.float),
        "must contain int8 weights; elmo.bilm.layers.0.forward_lstm.recurrent_weight has type F32",
    ),
    "int8 bias": (
        change(LSTM + "bias", torch.Tensor.char),
        "must contain floating-point weights; elmo.bilm.layers.0.forward_lstm.bias has type I8",
    ),
    "int16 weight": (change(LSTM + "recurrent_weight", torch.Tensor.short), "must contain int8 weights; .* type I16"),
    "int8 scale": (change(LSTM + "recurrent_weight_scale", torch.Tensor.char), "must contain floating-point weights"),
    "another scale": (
        lambda weights: weights.update({LSTM + "input_weight_scale": torch.ones(28)}),
        "input_weight_scale is unexpected",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage, message", BAD_WEIGHTS.values(), ids=BAD_WEIGHTS)
def test_weights_that_contradict_the_configuration(tmp_path, quantized, damage, message):
    shutil.copytree(quantized, tmp_path, dirs_exist_ok=True)
    weights = load_file(tmp_path / "model.safetensors")
    damage(weights)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises((OSError, RuntimeError), match=message) as caught:
        AutoModelForPreTraining.from_pretrained(tmp_path)
    assert "\n" not in str(caught.value)


def test_scales_that_are_not_finite(tmp_path, quantized):
    shutil.copytree(quantized, tmp_path, dirs_exist_ok=True)
    weights = load_file(tmp_path / "model.safetensors")
    weights[LSTM + "recurrent_weight_scale"][3] = torch.nan
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="recurrent_weight_scale contains NaN"):
        load_model(str(tmp_path), load_config(str(tmp_path)))


def test_int8_weights_need_a_quantization_config(tmp_path, quantized):
    shutil.copytree(quantized, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    for quantization, message in {
        None: "must contain floating-point weights",
        "int8": "quantization_config must be a dictionary",
        ("quant_method", "other"): "must contain floating-point weights",
        ("bits", 4): "quantized with bits=8",
        ("scale", "row"): "quantized with bits=8",
    }.items():
        if isinstance(quantization, tuple):
            quantization = config["quantization_config"] | dict([quantization])
        (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))
        with pytest.raises((OSError, ValueError), match=message):
            ElmoModel.from_pretrained(tmp_path)


def test_a_head_of_another_size_is_replaced(tmp_path):
    save(load_quantized(build(ElmoForTokenClassification), tmp_path / "float"), tmp_path / "int8")
    options = {"num_labels": 9, "ignore_mismatched_sizes": True}
    model = ElmoForTokenClassification.from_pretrained(tmp_path / "int8", **options)
    assert model.classifier.weight.shape[0] == 9 and outputs(model)[-1].isfinite().all()
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes=True for a new head"):
        ElmoForTokenClassification.from_pretrained(tmp_path / "int8", num_labels=9)


# Other dtypes and devices, copies, other sizes.


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_int8_stays_int8_in_every_dtype(quantized, dtype):
    model = ElmoForPreTraining.from_pretrained(quantized)
    expected = outputs(model)
    tolerance = 1e-5 if dtype == torch.float64 else 0.1
    converters = [lambda model: model.to(dtype), lambda model: model.to("cpu", dtype)]
    converters += {torch.float16: [lambda m: m.half()], torch.bfloat16: [lambda m: m.bfloat16()]}.get(dtype, [])
    models = [convert(copy.deepcopy(model)) for convert in converters]
    for converted in [*models, ElmoForPreTraining.from_pretrained(quantized, dtype=dtype)]:
        lstm = converted.elmo.bilm.layers[1].backward_lstm
        assert lstm.input_weight.dtype == lstm.recurrent_weight.dtype == converted.lm_head.weight.dtype == torch.int8
        assert lstm.input_weight_scale.dtype == torch.float32
        assert lstm.bias.dtype == converted.dtype == dtype
        found = outputs(converted)
        assert all(layer.dtype == dtype for layer in found)
        assert_close([layer[..., 1:] for layer in found], [layer[..., 1:] for layer in expected], tolerance)
        assert_equal(outputs(converted.to(torch.float32)), outputs(converted.float()))
    assert_close(outputs(models[0])[:4], expected[:4], tolerance)


def test_quantized_models_move_between_devices(quantized):
    model = ElmoForPreTraining.from_pretrained(quantized)
    empty = copy.deepcopy(model).to("meta").to_empty(device="cpu")
    empty.load_state_dict(model.state_dict())
    assert_equal(outputs(empty), outputs(model))


def test_copies(quantized):
    model = ElmoForPreTraining.from_pretrained(quantized)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert copied.is_quantized
        assert_equal(outputs(copied), outputs(model))


@pytest.mark.parametrize("inputs", ["characters", "words", "words+characters"])
def test_resize(tmp_path, inputs):
    model = load_quantized(build(inputs=inputs), tmp_path / "float")
    expected, rows, scales = outputs(model), model.lm_head.weight, model.lm_head.weight_scale
    with pytest.raises(ValueError, match="new_num_tokens must be an integer"):
        model.resize_token_embeddings(0)
    assert_equal(outputs(model), expected)
    for each in (copy.deepcopy(model).to(torch.bfloat16), model):
        each.resize_token_embeddings(15)
        assert each.lm_head.weight.shape == (14, 5) and each.lm_head.weight_scale.shape == (14,)
        assert torch.equal(each.lm_head.weight[:10], rows) and torch.equal(each.lm_head.weight_scale[:10], scales)
        assert not any(parameter.requires_grad for parameter in each.lm_head.parameters())
    model.config.vocab_size = 11  # the words of the batch
    assert_close([layer[..., :11] for layer in outputs(model)], [layer[..., :11] for layer in expected], 1e-6)
    model.config.vocab_size = 15
    assert_close(outputs(ElmoForPreTraining.from_pretrained(save(model, tmp_path / "int8"))), outputs(model), 0.02)


@pytest.mark.parametrize("model_class", [ElmoModel, ElmoForPreTraining, ElmoForTokenClassification])
def test_offload(tmp_path, model_class):
    pytest.importorskip("accelerate")
    model = load_quantized(build(model_class), tmp_path / "float")
    save(model, tmp_path / "int8")
    parts = [name for name, module in model.named_modules() if dict(module.named_parameters(recurse=False))]
    options = {"device_map": dict.fromkeys(parts, "disk") | {parts[-1]: "cpu"}, "offload_folder": tmp_path / "offload"}
    offloaded = model_class.from_pretrained(tmp_path / "int8", **options)
    assert any(weight.is_meta for weight in offloaded.parameters())
    assert_equal(outputs(offloaded), outputs(model))
    with pytest.raises(ValueError, match="save the quantized model first"):
        model_class.from_pretrained(tmp_path / "float", quantization_config=ElmoQuantizationConfig(), **options)


# Training.


def test_only_the_mix_and_the_head_are_trained(tmp_path, quantized):
    names = {ElmoModel: {"mix.weights", "mix.gamma"}, ElmoForPreTraining: set()}
    names[ElmoForTokenClassification] = {"elmo.mix.weights", "elmo.mix.gamma", "classifier.weight", "classifier.bias"}
    for model_class, expected in names.items():
        model = model_class.from_pretrained(quantized)
        assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == expected
        with pytest.raises(ValueError, match=r"A quantized biLM cannot be trained, got freeze_bilm=False"):
            model.freeze_bilm(False)
    with pytest.raises(ValueError, match=r"A quantized biLM cannot be trained"):
        ElmoForTokenClassification.from_pretrained(quantized, freeze_bilm=False)


def test_trainer_trains_a_head(tmp_path, quantized):
    """With the stock Trainer, which saves int8 weights and resumes from them."""
    model = ElmoForTokenClassification.from_pretrained(quantized, num_labels=3)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    batch = random_batch(model.config, [4] * 6)
    rows = [{name: tensor[row] for name, tensor in batch.items()} for row in range(6)]
    rows = [row | {"labels": row["input_ids"] % 3} for row in rows]
    options = {"max_steps": 2, "save_steps": 1, "per_device_train_batch_size": 2}
    arguments = TrainingArguments(tmp_path / "run", use_cpu=True, report_to=[], disable_tqdm=True, **options)
    Trainer(model, arguments, train_dataset=rows).train()
    changed = {name for name, weight in model.state_dict().items() if not torch.equal(weight, before[name])}
    assert changed == {"elmo.mix.weights", "elmo.mix.gamma", "classifier.weight", "classifier.bias"}
    saved = ElmoForTokenClassification.from_pretrained(tmp_path / "run" / "checkpoint-2")
    assert_equal(outputs(saved), outputs(model.eval()))
    again = ElmoForTokenClassification.from_pretrained(quantized, num_labels=3)
    Trainer(again, arguments, train_dataset=rows).train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert_equal(outputs(again.eval()), outputs(model))
    language_model = ElmoForPreTraining.from_pretrained(quantized)
    assert not language_model.hf_quantizer.is_trainable
    with pytest.raises(ValueError, match="You cannot perform fine-tuning on purely quantized models"):
        Trainer(language_model, arguments, train_dataset=rows)


@pytest.mark.parametrize("model_class", [ElmoModel, ElmoForPreTraining, ElmoForTokenClassification])
def test_dequantized_models_are_like_any_other(tmp_path, quantized, model_class):
    model = model_class.from_pretrained(quantized)
    expected = outputs(model)
    model = model.dequantize()
    reference = build(model_class)
    assert {name: (weight.dtype, weight.shape) for name, weight in model.state_dict().items()} == {
        name: (weight.dtype, weight.shape) for name, weight in reference.state_dict().items()
    }
    frozen = [[weight.requires_grad for weight in each.parameters()] for each in (model, reference)]
    assert frozen[0] == frozen[1] and not hasattr(model.config, "quantization_config") and not model.is_quantized
    assert_equal(outputs(model), expected)
    model.freeze_bilm(False)
    model.base_model(**random_batch(model.config, [3])).last_hidden_state.sum().backward()
    assert model.base_model.bilm.layers[1].forward_lstm.recurrent_weight.grad.abs().sum() > 0
    loaded = model_class.from_pretrained(save(model, tmp_path))
    assert_equal(outputs(loaded), expected)
    assert {weight.dtype for weight in load_file(tmp_path / "model.safetensors").values()} == {torch.float32}
    assert model_class.from_pretrained(quantized).dequantize(torch.bfloat16).dtype == torch.bfloat16
