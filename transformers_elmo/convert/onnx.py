# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Export a checkpoint to ONNX, and compare the file with the checkpoint before it is saved."""

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ..configuration_elmo import ElmoConfig
from ..files import check_new_folder, check_space, new_folder
from ..modeling_elmo import ElmoForTokenClassification, ElmoPreTrainedModel
from ..tokenization_elmo import ElmoTokenizer

TOLERANCE = 1e-4  # relative to the largest value if that is above 1: trained vectors of <S> and </S> can be above 100
BYTES_PER_WEIGHT = 4  # float32


def export_onnx(model: ElmoPreTrainedModel, tokenizer: ElmoTokenizer, output: Path):
    """Write model.onnx, the configuration and the tokenizer to a new folder. The model is converted to float32.

    The inputs are the ids that the model reads and the attention_mask, of any number of sentences and words. The output
    of a tagger is `logits`. Those of other models, language models included, are `last_hidden_state` and the layers
    `hidden_states.0` ... `hidden_states.L`.
    """
    import_onnxruntime()
    check_new_folder(output)
    if not isinstance(model, ElmoForTokenClassification):
        model = model.base_model
    model = model.float().eval()
    check_space("The output", BYTES_PER_WEIGHT * model.num_parameters(), output.parent)
    config = copy.deepcopy(model.config)
    config.architectures, config.dtype = [type(model).__name__], torch.float32
    with new_folder(output) as staging:
        inputs, names = write_onnx(model, staging / "model.onnx")
        largest, difference = compare(model, staging / "model.onnx")
        size = sum(path.stat().st_size for path in staging.iterdir())  # weights above 2 GB have a file of their own
        config.save_pretrained(staging)
        tokenizer.save_pretrained(staging)
        files = sorted(path.name for path in staging.iterdir())
    print(f"inputs       {', '.join(inputs)}")
    print(f"outputs      {', '.join(names)}")
    print(f"parity       onnxruntime and the checkpoint: max |value| {largest:.3f}, max difference {difference:.1e}")
    print(f"size         {size:,} bytes")
    print(f"saved        {output}: {', '.join(files)}")


def import_onnxruntime():
    try:
        import onnx  # noqa: F401  # by torch.onnx
        import onnxruntime
        import onnxscript  # noqa: F401  # by torch.onnx
    except ImportError as error:
        raise OSError(
            "Exporting to ONNX requires onnx, onnxscript and onnxruntime: pip install 'transformers-elmo[onnx]'."
        ) from error
    return onnxruntime


def write_onnx(model: ElmoPreTrainedModel, path: Path) -> tuple[list[str], list[str]]:
    """Write a graph for any number of sentences and words; return the names of its inputs and outputs."""
    inputs = random_inputs(model.config, torch.ones(2, 3, dtype=torch.long))
    names = [*named_outputs(model, inputs)]
    with torch.no_grad(), no_messages():
        program = torch.onnx.export(
            NamedOutputs(model),
            kwargs={"inputs": inputs},
            dynamo=True,
            dynamic_shapes={"inputs": {name: {0: "batch", 1: "length"} for name in inputs}},
            input_names=[*inputs],
            output_names=names,
            verbose=False,
        )
        program.save(path)
    return [*inputs], names


class NamedOutputs(nn.Module):
    """The outputs of a model as a list: with an argument that is no tensor, torch.onnx would not name the sizes."""

    def __init__(self, model: ElmoPreTrainedModel):
        super().__init__()
        self.model = model

    def forward(self, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        return [*named_outputs(self.model, inputs).values()]


def random_inputs(config: ElmoConfig, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the inputs of a model by name: ids of random words and characters, attention_mask (B, T)."""
    generator = torch.Generator().manual_seed(0)
    inputs = {}
    if "words" in config.inputs:
        inputs["input_ids"] = torch.randint(config.vocab_size, mask.shape, generator=generator)
    if "characters" in config.inputs:
        shape = *mask.shape, config.max_characters_per_token
        inputs["char_ids"] = torch.randint(config.char_vocab_size, shape, generator=generator)
    return {**inputs, "attention_mask": mask}


def named_outputs(model: ElmoPreTrainedModel, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Run the model and return its outputs by the names that they have in the file."""
    with torch.no_grad():
        if isinstance(model, ElmoForTokenClassification):
            return {"logits": model(**inputs, return_dict=True).logits}
        outputs = model(**inputs, output_hidden_states=True, return_dict=True)
    layers = {f"hidden_states.{index}": layer for index, layer in enumerate(outputs.hidden_states)}
    return {"last_hidden_state": outputs.last_hidden_state, **layers}


@contextmanager
def no_messages() -> Iterator[None]:
    """Silence the exporter, which logs the operators of absent libraries and warns of its own code."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@np.errstate(invalid="ignore")  # the difference of infinite values is NaN, which fails
def compare(model: ElmoPreTrainedModel, path: Path) -> tuple[float, float]:
    """Return the model's largest output and the largest difference of the file's; raise if the difference is large."""
    runtime = import_onnxruntime()
    settings = runtime.SessionOptions()
    settings.log_severity_level = 3  # errors
    session = runtime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    mask = torch.ones(5, 17, dtype=torch.long)
    mask[1, 4:] = mask[2, :9] = mask[3, 2:15:3] = mask[4] = 0  # padding on either side, holes, an empty sentence
    inputs = random_inputs(model.config, mask)
    expected = named_outputs(model, inputs)
    actual = session.run([*expected], {name: tensor.numpy() for name, tensor in inputs.items()})
    largest = max(tensor.abs().max().item() for tensor in expected.values())
    differences = [np.abs(tensor.numpy() - array).max() for tensor, array in zip(expected.values(), actual)]
    difference = float(np.max(differences))
    if not difference <= TOLERANCE * max(1.0, largest):
        raise RuntimeError(
            f"model.onnx must compute what the checkpoint does, to {TOLERANCE:.0e}; the largest difference is "
            f"{difference:.1e}, of values up to {largest:.3g}, so nothing was saved: update torch, onnxscript and "
            "onnxruntime."
        )
    return largest, difference
