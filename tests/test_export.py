"""Test the padded path, and the programs that torch.export makes of it, against the packed path of the model."""

import pytest
import torch

from helpers.errors import assert_value_error
from helpers.models import MODEL_OPTIONS, WORDS_AND_CHARACTERS, random_batch, randomize, tiny_config
from transformers_elmo import padded_elmo
from transformers_elmo.modeling_elmo import ElmoForPreTraining, ElmoForTokenClassification, ElmoModel

every_option = pytest.mark.parametrize("options", MODEL_OPTIONS.values(), ids=MODEL_OPTIONS.keys())
# Sentences of unequal lengths; padding on the left, inside and on both sides; no word at all; one word.
MASKS = [
    [[1, 1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1], [1, 0, 1, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0]],
    [[1, 1, 1], [0, 1, 0]],
    [[0, 1, 1, 0]],
    [[1]],
    [[0], [1]],
]


def build(model_class=ElmoModel, dtype=torch.float32, **options):
    return randomize(model_class(tiny_config(num_labels=3, **options))).to(dtype).eval()


def batches(config):
    """Yield batches with these masks. Ids at padding are arbitrary, even out of range."""
    for seed, rows in enumerate(MASKS):
        mask = torch.tensor(rows)
        batch = random_batch(config, [mask.shape[1]] * len(mask), seed, repeats=False)
        for name in ("input_ids", "char_ids"):
            batch[name][mask == 0] = 999
        yield {**batch, "attention_mask": mask}


def export(model, example, strict=False, **options):
    """Export with a dynamic batch and length, which the example does not fix."""
    dynamic = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    shapes = {**dict.fromkeys(example, dynamic), **dict.fromkeys(options)}
    with torch.no_grad():
        return torch.export.export(model, (), {**example, **options}, dynamic_shapes=shapes, strict=strict).module()


def assert_near(got, expected, tolerance):
    assert len(got) == len(expected) > 0
    for index, (one, other) in enumerate(zip(got, expected)):
        assert one.shape == other.shape
        error = (one - other).abs().max().item()
        assert error <= tolerance, f"output {index}: error {error:.2e}"


def assert_same_outputs(exported, model, batch, tolerance=2e-6, **options):
    """Compare all outputs, the tensors of `to_tuple` and of the tuples in it."""
    with torch.no_grad():
        results = [each(**batch, **options).to_tuple() for each in (exported, model)]
    tensors = [
        [tensor for part in result for tensor in (part if isinstance(part, tuple) else [part])] for result in results
    ]
    assert_near(*tensors, tolerance)


@every_option
@torch.no_grad()
def test_padded_layers_equal_packed_ones(options):
    model = build(dtype=torch.float64, **options)
    for batch in batches(model.config):
        ids = batch["input_ids"], batch["char_ids"]
        layers = padded_elmo.padded_layers(model.token_encoder, model.bilm, batch["attention_mask"] != 0, *ids, None)
        assert_near(layers, model(**batch, output_hidden_states=True).hidden_states, tolerance=1e-12)


@torch.no_grad()
def test_padded_layers_of_embeddings_ignore_padding():
    model = build(dtype=torch.float64)
    mask = torch.tensor(MASKS[0])
    x = torch.randn(*mask.shape, model.config.output_dim, dtype=torch.float64, generator=torch.manual_seed(0))
    x[mask == 0] = torch.nan
    layers = padded_elmo.padded_layers(model.token_encoder, model.bilm, mask != 0, None, None, x)
    expected = model(inputs_embeds=x, attention_mask=mask, output_hidden_states=True).hidden_states
    assert_near(layers, expected, tolerance=1e-12)


@pytest.mark.parametrize("strict", [False, True])
def test_exported_model(strict):
    model = build(**WORDS_AND_CHARACTERS, num_hidden_layers=1, mix_layer_norm=True)
    example = random_batch(model.config, [2, 3])
    exported = export(model, example, strict, output_hidden_states=True)
    for batch in batches(model.config):
        assert_same_outputs(exported, model, batch, output_hidden_states=True)


def test_exported_tagger_is_saved_and_loaded(tmp_path):
    model = build(ElmoForTokenClassification, freeze_bilm=False, num_hidden_layers=1)
    example = {"char_ids": random_batch(model.config, [2, 3])["char_ids"]}  # padding is where characters are zero
    shapes = {"char_ids": {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}}
    torch.export.save(torch.export.export(model, (), example, dynamic_shapes=shapes), tmp_path / "tagger.pt2")
    exported = torch.export.load(tmp_path / "tagger.pt2").module()
    for lengths in ([5, 0, 2], [1], [4, 11]):
        assert_same_outputs(exported, model, {"char_ids": random_batch(model.config, lengths)["char_ids"]})


def test_exported_language_model():
    model = build(ElmoForPreTraining, inputs="words", num_hidden_layers=1)
    example = random_batch(model.config, [7, 7, 7, 7, 7])  # the sizes of the LSTM, which are constants
    with torch.no_grad():
        torch.export.export(model, (), example)  # for this size only, which the next export must not inherit
    exported = export(model, example)
    for batch in batches(model.config):
        assert_same_outputs(exported, model, batch)


def test_exported_model_reads_embeddings():
    model = build(num_hidden_layers=1)
    embeddings = torch.randn(5, 7, model.config.output_dim, generator=torch.manual_seed(0))
    exported = export(model, {"inputs_embeds": embeddings[:2, :3].contiguous()})
    for part in (embeddings, embeddings[:1, :1], embeddings[2:, 4:]):
        assert_same_outputs(exported, model, {"inputs_embeds": part})


def test_inputs_that_cannot_be_exported():
    model = build()
    ids = random_batch(model.config, [2, 3])
    for inputs, message in (
        ({**ids, "output_state": True}, "A model is exported without state and output_state"),
        ({"input_ids": ids["input_ids"]}, "needs char_ids"),
        ({"char_ids": ids["char_ids"][..., :5]}, "char_ids must have shape (sentences, words, 12)"),
        ({**ids, "attention_mask": ids["attention_mask"][:1]}, "attention_mask must have the shape of the words"),
    ):
        assert_value_error(lambda inputs=inputs: torch.export.export(model, (), inputs), message)


@pytest.mark.slow
@every_option
@pytest.mark.parametrize("model_class", [ElmoModel, ElmoForPreTraining, ElmoForTokenClassification])
def test_every_option_is_exported(model_class, options):
    model = build(model_class, **options)
    exported = export(model, random_batch(model.config, [2, 3]), output_hidden_states=True)
    tolerance = 1e-5 if model.config.mix_layer_norm else 2e-6  # a layer norm enlarges differences
    for batch in batches(model.config):
        assert_same_outputs(exported, model, batch, tolerance, output_hidden_states=True)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("model_class", [ElmoModel, ElmoForPreTraining, ElmoForTokenClassification])
def test_exporters_of_transformers(model_class, dynamic):
    dynamo = pytest.importorskip("transformers.exporters.exporter_dynamo")
    onnx = pytest.importorskip("transformers.exporters.exporter_onnx")
    model = build(model_class, **WORDS_AND_CHARACTERS)
    example, *others = batches(model.config)
    exported = dynamo.DynamoExporter().export(model, example, dynamo.DynamoConfig(dynamic=dynamic)).module()
    program = onnx.OnnxExporter().export(model, example, onnx.OnnxConfig(dynamic=dynamic))
    for batch in [example, *others] if dynamic else [example]:
        assert_same_outputs(exported, model, batch)
        assert_near(program(**batch), model(**batch).to_tuple(), tolerance=2e-6)
