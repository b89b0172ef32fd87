"""`elmo quantize`, and the other verbs on its result."""

import json
import shutil

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file

from helpers.command import assert_one_sentence, run
from helpers.models import randomize, tiny_config
from transformers_elmo import (
    ElmoForPreTraining,
    ElmoForTokenClassification,
    ElmoLanguageModel,
    ElmoModel,
    ElmoTokenizer,
    quantize,
)
from transformers_elmo.configuration_elmo import HUB_FILES
from transformers_elmo.convert.push import check_checkpoint
from transformers_elmo.quantize import compare, layers_of

WORDS = ["the", "cat", "sat"]


def save_checkpoint(folder, model_class=ElmoForPreTraining, **options):
    tokenizer = ElmoTokenizer(vocab=WORDS)
    sizes = {"max_characters_per_token": 50, "char_vocab_size": 262, "vocab_size": len(tokenizer), "num_labels": 3}
    randomize(model_class(tiny_config(**sizes, **options))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return save_checkpoint(tmp_path_factory.mktemp("checkpoint") / "original")


@pytest.fixture(scope="module")
def quantized(original):
    folder = original.parent / "int8"
    quantize.quantize_checkpoint(str(original), folder)
    return folder


def test_default_checkpoint(capsys, tmp_path, monkeypatch):
    """A trained model: close vectors, the same perplexity, its own card with a section."""
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "quantize", "default", "-o", "small")
    assert (code, err) == (0, "")
    assert "weights      23.9 MB -> 13.6 MB" in out and "saved        small" in out
    assert [path.name for path in tmp_path.iterdir()] == ["small"]
    card = (tmp_path / "small" / "README.md").read_text()
    assert "## Quantization" in card and "## Perplexity on unseen novels" in card and "curves.png" not in card
    assert ModelCard(card).data.license == "apache-2.0"
    models = [ElmoLanguageModel.from_pretrained(name) for name in ("default", "small")]
    for each in compare(*[layers_of(model.model, model.tokenizer) for model in models]):
        assert f"{each.layer:<9} mean {each.mean:.6f}, lowest {each.lowest:.5f}" in out
        assert each.mean > 0.9995 and each.lowest > 0.998
    perplexities = [model.perplexity(quantize.SENTENCES).both for model in models]
    assert abs(perplexities[1] / perplexities[0] - 1) < 0.01  # of 82 words, so rounding counts


@pytest.mark.parametrize("model_class", [ElmoModel, ElmoForPreTraining, ElmoForTokenClassification])
def test_every_class(capsys, tmp_path, model_class):
    original = save_checkpoint(tmp_path / "original", model_class)
    if model_class is ElmoModel:
        (original / "README.md").unlink()
    assert run(capsys, "quantize", original, "-o", tmp_path / "int8")[0] == 0
    names = {path.name for path in (tmp_path / "int8").iterdir()} - {*HUB_FILES}
    assert names == {"README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    model = model_class.from_pretrained(tmp_path / "int8")
    assert model.is_quantized and model.config.architectures == [model_class.__name__]
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("original", "int8")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0] if "mix" in name)
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0] if "classifier" in name)
    card = (tmp_path / "int8" / "README.md").read_text()
    assert f"| {model.num_parameters():,} |" in card and str(tmp_path) not in card
    assert card.count("## Quantization") == 1
    assert '"int8", trust_remote_code=True' in card


def test_info(capsys, original, quantized):
    outs = [run(capsys, "info", folder)[1] for folder in (original, quantized)]
    assert "(float32)" in outs[0]
    assert outs[1].replace(str(quantized), str(original)) == outs[0].replace("(float32)", "(int8 and float32)")


def test_embed(capsys, quantized, tmp_path):
    (tmp_path / "text.txt").write_text("The cat sat.\nA dog.\n")
    assert run(capsys, "embed", quantized, tmp_path / "text.txt", "-o", tmp_path / "x.npz")[0] == 0
    model = ElmoModel.from_pretrained(quantized)
    inputs = ElmoTokenizer.from_pretrained(quantized)("A dog.", return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs).last_hidden_state[0, 1:-1]
    np.testing.assert_allclose(np.load(tmp_path / "x.npz")["1"], expected, rtol=0, atol=1e-6)


def test_push_accepts_it(original, quantized):
    assert check_checkpoint(quantized)[1] == check_checkpoint(original)[1]  # scales are no parameters


def test_export_writes_floats(capsys, quantized, tmp_path):
    h5py = pytest.importorskip("h5py")
    ElmoForPreTraining.from_pretrained(quantized).dequantize().save_pretrained(tmp_path / "float")
    ElmoTokenizer.from_pretrained(quantized).save_pretrained(tmp_path / "float")
    code, out, _ = run(capsys, "export", quantized, "-o", tmp_path / "some")
    assert code == 0 and "the int8 weights were converted to float32" in out
    assert run(capsys, "export", tmp_path / "float", "-o", tmp_path / "others")[0] == 0
    for name in ("weights.hdf5", "softmax.hdf5"):
        with h5py.File(tmp_path / "some" / name) as some, h5py.File(tmp_path / "others" / name) as others:
            paths: list[str] = []
            some.visititems(lambda path, item, paths=paths: paths.append(path) if hasattr(item, "shape") else None)
            assert paths and all(np.array_equal(some[path], others[path]) for path in paths)


def test_pretraining_continues_with_floats(capsys, quantized, tmp_path):
    (tmp_path / "text.txt").write_text("The cat sat. The cat sat on the cat.\n" * 40)
    options = "--rows 2 --window 4 --steps 1 --negative-samples 3 --cpu"
    arguments = [tmp_path / "text.txt", "--init", quantized, "-o", tmp_path / "run", "--cache", tmp_path / "cache"]
    code, _, err = run(capsys, "pretrain", *arguments, *options.split())
    assert code == 0, err
    model = ElmoForPreTraining.from_pretrained(tmp_path / "run")
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert "quantization_config" not in json.loads((tmp_path / "run" / "config.json").read_text())


def set_weight(folder, name, value):
    weights = load_file(folder / "model.safetensors")
    weights[name].flatten()[-1] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def truncate(folder):
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-100])


def rename_architecture(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["ElmoForChess"]}))


BAD_CHECKPOINTS = {
    "NaN": (lambda folder: set_weight(folder, "lm_head.weight", torch.nan), "lm_head.weight contains NaN or infinity"),
    "truncated": (truncate, "truncated"),
    "unknown class": (rename_architecture, "its architecture is ElmoForChess"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json"),
    "card of bytes": (lambda folder: (folder / "README.md").write_bytes(b"\xff"), "README.md must be UTF-8 text"),
}


@pytest.mark.parametrize("damage, part", BAD_CHECKPOINTS.values(), ids=BAD_CHECKPOINTS)
def test_bad_checkpoints(capsys, tmp_path, original, damage, part):
    folder = shutil.copytree(original, tmp_path / "bad")
    damage(folder)
    code, _, err = run(capsys, "quantize", folder, "-o", tmp_path / "int8")
    assert_one_sentence((code, "", err), part)
    assert [path.name for path in tmp_path.iterdir()] == ["bad"]


def test_quantized_already(capsys, tmp_path, quantized):
    assert_one_sentence(run(capsys, "quantize", quantized, "-o", tmp_path / "again"), "it is quantized already")
    assert list(tmp_path.iterdir()) == []


def test_vectors_that_differ_too_much_are_refused(capsys, tmp_path, original, monkeypatch):
    monkeypatch.setattr(quantize, "MIN_COSINE", 1.1)
    assert_one_sentence(run(capsys, "quantize", original, "-o", tmp_path / "int8"), "the mean cosine of layer words is")
    assert list(tmp_path.iterdir()) == []
