"""`elmo export --format onnx`: what onnxruntime computes from the file, and calls that must write nothing."""

import json
import os
import sys

import onnxruntime
import pytest
import torch

from helpers.conversion import assert_error, elmo
from helpers.models import MODEL_OPTIONS, WORDS_AND_CHARACTERS, random_batch, randomize, tiny_config
from transformers_elmo import ElmoForPreTraining, ElmoForTokenClassification, ElmoModel, ElmoTokenizer
from transformers_elmo.convert import onnx
from transformers_elmo.convert.onnx import export_onnx

SENTENCES = ["One two three, four.", "", "Five!"]


def build(model_class, **options):
    sizes = {"max_characters_per_token": 50, "char_vocab_size": 262, "num_hidden_layers": 1, "num_labels": 3}
    return randomize(model_class(tiny_config(**{**sizes, **options}))).eval()


def run(folder, batch):
    """Return the outputs by name for the inputs of a batch that the file has."""
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    inputs = {each.name: batch[each.name].numpy() for each in session.get_inputs()}
    assert all(each.shape[:2] == ["batch", "length"] for each in [*session.get_inputs(), *session.get_outputs()])
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, map(torch.from_numpy, session.run(names, inputs))))


def assert_near(got, expected):
    assert got.shape == expected.shape
    assert (got - expected).abs().max() <= 2e-6


def test_a_language_model_gives_vectors_and_layers(capfd, tmp_path):
    words = ElmoTokenizer().train_new_from_iterator(SENTENCES, vocab_size=20)
    model = build(ElmoForPreTraining, **WORDS_AND_CHARACTERS, vocab_size=len(words), num_hidden_layers=2)
    model.save_pretrained(tmp_path / "checkpoint")
    words.save_pretrained(tmp_path / "checkpoint")
    capfd.readouterr()
    code, out, err = elmo(capfd, "export", tmp_path / "checkpoint", "--format", "onnx", "-o", tmp_path / "onnx")
    assert (code, err) == (0, "")
    size = (tmp_path / "onnx" / "model.onnx").stat().st_size
    for line in ("inputs       input_ids, char_ids, attention_mask\n", f"size         {size:,} bytes\n"):
        assert line in out
    assert "max difference" in out and "config.json" in out
    assert json.loads((tmp_path / "onnx" / "config.json").read_text())["architectures"] == ["ElmoModel"]
    batch = ElmoTokenizer.from_pretrained(tmp_path / "onnx")(SENTENCES, padding=True, return_tensors="pt")
    batch["attention_mask"][0, 2] = 0
    outputs = run(tmp_path / "onnx", batch)
    assert [*outputs] == ["last_hidden_state", "hidden_states.0", "hidden_states.1", "hidden_states.2"]
    with torch.no_grad():
        expected = model.elmo(**batch, output_hidden_states=True)
    for got, tensor in zip(outputs.values(), (expected.last_hidden_state, *expected.hidden_states)):
        assert_near(got, tensor)


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    """Export a tagger with weights in half precision."""
    folder, model = tmp_path_factory.mktemp("tagger"), build(ElmoForTokenClassification).bfloat16()
    export_onnx(model, ElmoTokenizer(), folder / "onnx")
    return model, folder / "onnx"


def test_a_tagger_gives_logits_in_single_precision(tagger):
    model, folder = tagger
    for lengths in ([1], [7, 3, 0]):
        batch = random_batch(model.config, lengths)
        outputs = run(folder, batch)
        assert [*outputs] == ["logits"]
        assert_near(outputs["logits"], model(**batch).logits.detach())
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"


def test_a_file_that_computes_something_else(tagger):
    model, folder = tagger
    assert onnx.compare(model, folder / "model.onnx")[1] < 1e-5
    other = build(ElmoForTokenClassification)
    other.classifier.bias.data[2] += 0.01
    with pytest.raises(RuntimeError, match=r"to 1e-04; the largest difference is .*, so nothing was saved"):
        onnx.compare(other, folder / "model.onnx")
    torch.nn.init.constant_(other.elmo.mix.gamma, 3e38)  # infinite logits
    with pytest.raises(RuntimeError, match="the largest difference is nan"):
        onnx.compare(other, folder / "model.onnx")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_without_the_extra(capfd, monkeypatch, tmp_path, package):
    monkeypatch.setitem(sys.modules, package, None)
    result = elmo(capfd, "export", "nowhere", "--format", "onnx", "-o", tmp_path / "out")
    assert_error(result, "Exporting to ONNX requires", "pip install 'transformers-elmo[onnx]'")
    assert os.listdir(tmp_path) == []


def test_a_failed_comparison_leaves_nothing(monkeypatch, tmp_path):
    def write_onnx(model, path):
        path.write_bytes(b"x" * 100)
        return [], []

    def compare(model, path):
        raise RuntimeError("they differ")

    monkeypatch.setattr(onnx, "write_onnx", write_onnx)
    monkeypatch.setattr(onnx, "compare", compare)
    with pytest.raises(RuntimeError, match="they differ"):
        export_onnx(build(ElmoModel), ElmoTokenizer(), tmp_path / "out")
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", MODEL_OPTIONS.values(), ids=MODEL_OPTIONS.keys())
def test_every_option_is_exported(tmp_path, options):
    model = randomize(ElmoModel(tiny_config(**options))).eval()
    export_onnx(model, ElmoTokenizer(), tmp_path / "onnx")
    batch = random_batch(model.config, [9, 4, 0])
    assert_near(run(tmp_path / "onnx", batch)["last_hidden_state"], model(**batch).last_hidden_state.detach())
