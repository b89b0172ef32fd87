"""Models whose weights accelerate keeps in memory or on disk and loads when a module is called: the same outputs."""

import copy

import pytest
import torch

from helpers.models import random_batch, randomize, tiny_config
from transformers_elmo import (
    ElmoConfig,
    ElmoForPreTraining,
    ElmoForTokenClassification,
    ElmoLanguageModel,
    ElmoModel,
    ElmoTokenizer,
)
from transformers_elmo.embed.job import embed

accelerate = pytest.importorskip("accelerate")


def build(model_class, inputs="characters"):
    """Return a random model, whose odd sizes put weights at unaligned offsets in a file."""
    config = ElmoConfig(
        inputs=inputs,
        vocab_size=31,
        char_vocab_size=23,
        max_characters_per_token=12,
        char_embedding_dim=5,
        char_filters=[[1, 9], [2, 11], [3, 13]],
        lstm_dim=37,
        projection_dim=19,
        num_negative_samples=8,
        num_labels=3,
        dropout=0.0,
        classifier_dropout=0.0,
    )
    return randomize(model_class(config)).eval()


def run(model):
    """Return all outputs, with losses if the model has a head: of sentences and windows, full and sampled."""
    batch = random_batch(model.config, [5, 0, 3])
    outputs = [model(**batch, output_hidden_states=True)]
    if isinstance(model, ElmoForTokenClassification):
        outputs.append(model(**batch, labels=batch["input_ids"] % 3))
    if isinstance(model, ElmoForPreTraining):
        windows = random_batch(model.config, [6] * 4)
        windows = {name: windows[name].unflatten(0, (2, 2)) for name in ("input_ids", "char_ids")}
        windows["targets"] = windows["input_ids"]
        for training in (False, True):  # training mode samples; nothing is dropped
            model.train(training)
            for inputs in ({**batch, "labels": batch["input_ids"]}, windows):
                torch.manual_seed(0)
                outputs.append(model(**inputs))
        model.eval()
    values = [value for output in outputs for value in output.to_tuple()]
    values = [part for value in values for part in (value if isinstance(value, tuple) else [value])]
    return [part for part in values if part is not None]


def cpu_offload(model, folder):
    return accelerate.cpu_offload(model, execution_device=torch.device("cpu"))


def disk_offload(model, folder):
    return accelerate.disk_offload(model, folder / "offload", execution_device=torch.device("cpu"))


def dispatch(model, folder):
    """Put every second module on disk."""
    parts = [name for name, module in model.named_modules() if dict(module.named_parameters(recurse=False))]
    device_map = {name: ("cpu", "disk")[index % 2] for index, name in enumerate(parts)}
    return accelerate.dispatch_model(model, device_map, main_device="cpu", offload_dir=folder / "offload")


def load_with_disk_map(model, folder):
    model.save_pretrained(folder / "model")
    parts = [name for name, module in model.named_modules() if dict(module.named_parameters(recurse=False))]
    device_map = {name: ("disk", "cpu")[index % 2] for index, name in enumerate(parts)}
    return type(model).from_pretrained(folder / "model", device_map=device_map, offload_folder=folder / "offload")


@pytest.mark.parametrize("offload", [cpu_offload, disk_offload, dispatch, load_with_disk_map])
@pytest.mark.parametrize("model_class", [ElmoModel, ElmoForPreTraining, ElmoForTokenClassification])
@torch.no_grad()
def test_offloaded_models_have_the_same_outputs(model_class, offload, tmp_path):
    expected = run(build(model_class))
    offloaded = offload(build(model_class), tmp_path)
    assert any(weight.is_meta for weight in offloaded.parameters())
    got = run(offloaded)
    assert len(got) == len(expected) and all(map(torch.equal, got, expected))
    assert offloaded.base_model.layer_weights() == build(model_class).base_model.layer_weights()


@torch.no_grad()
def test_offloaded_models_embed_and_predict(tmp_path):
    tokenizer = ElmoTokenizer(vocab=["one", "two"])
    sizes = {"max_characters_per_token": 50, "char_vocab_size": 262, "vocab_size": len(tokenizer)}
    model = randomize(ElmoForPreTraining(tiny_config(**sizes))).eval()
    offloaded = cpu_offload(copy.deepcopy(model), tmp_path)
    for method in (lambda model: ElmoLanguageModel(model, tokenizer).next_words("one"), embed_one):
        assert method(offloaded) == method(model)


def embed_one(model):
    (_, vectors), *_ = embed(model.elmo, ElmoTokenizer(), ["one"])
    return vectors.tolist()


@pytest.mark.parametrize("inputs", ["words", "words+characters"])
@torch.no_grad()
def test_offloaded_models_of_other_inputs(inputs, tmp_path):
    expected = run(build(ElmoForPreTraining, inputs))
    got = run(cpu_offload(build(ElmoForPreTraining, inputs), tmp_path))
    assert len(got) == len(expected) and all(map(torch.equal, got, expected))
