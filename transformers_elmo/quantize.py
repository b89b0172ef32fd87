# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Quantize a checkpoint: load it, quantize, save, reload, compare with the original, and rename."""

import re
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch
from transformers.utils import cached_file

from .checkpoints import check_tokenizer, is_quantized, load_as, load_config, load_tokenizer, resolve
from .configuration_elmo import ElmoConfig
from .files import check_new_folder, new_folder, read_text
from .model_card import fill_template, model_card, public_name, rename_usage, table
from .modeling_elmo import ElmoForPreTraining, ElmoForTokenClassification, ElmoModel, ElmoPreTrainedModel
from .quantization_elmo import ElmoQuantizationConfig
from .text import printable
from .tokenization_elmo import ElmoTokenizer

MODEL_CLASSES = {each.__name__: each for each in (ElmoModel, ElmoForPreTraining, ElmoForTokenClassification)}
WEIGHT_FILES = ("model*.safetensors", "pytorch_model*.bin")
LOCAL_PICTURE = re.compile(r"^!\[[^]]*\]\((?!https?:)[^)]*\)\n?", re.MULTILINE)  # only the card's text is copied
MIN_COSINE = 0.9  # mean of a layer; trained models have .999
SENTENCES = [
    "The bank of the river was steep, and nobody had crossed it since spring.",
    "She put her money into the bank on Monday.",
    "Don't you think it's rather late for a walk?",
    "In 1905, Einstein published four papers; each of them changed physics.",
    "Zürich, Kraków and São Paulo are cities.",
    "The quick brown fox jumps over the lazy dog!",
    "He rose early, picked a rose, and gave it to the woman he loved.",
    "“Nonsense,” said the judge, “the court has heard enough.”",
]


@dataclass(frozen=True)
class Agreement:
    """The cosine between the vectors of two models for the same words, mean and lowest, of one layer."""

    layer: str
    mean: float
    lowest: float


def quantize_checkpoint(checkpoint: str, output: Path):
    """Write a quantized copy of a checkpoint to the new folder `output`, and print its size and accuracy."""
    check_new_folder(output)
    config = load_config(checkpoint)
    if is_quantized(config):
        raise ValueError(f"{checkpoint} must be a checkpoint with floating-point weights; it is quantized already.")
    model_class = find_class(checkpoint, config)
    tokenizer = load_tokenizer(checkpoint)
    check_tokenizer(checkpoint, config, tokenizer)
    expected = layers_of(load_as(model_class, checkpoint, config), tokenizer)
    before = weight_bytes(Path(cached_file(resolve(checkpoint), "config.json")).parent)
    with new_folder(output) as staging:
        # A configuration is changed when a model is quantized while it is loaded.
        model = load_as(model_class, checkpoint, load_config(checkpoint), quantization_config=ElmoQuantizationConfig())
        model.save_pretrained(staging)
        tokenizer.save_pretrained(staging)
        saved = load_as(model_class, str(staging), load_config(str(staging)))
        agreements = compare(expected, layers_of(saved, tokenizer))
        check_agreement(checkpoint, agreements)
        after = weight_bytes(staging)
        print(f"weights      {before / 1e6:.1f} MB -> {after / 1e6:.1f} MB")
        print(f"cosine       of {len(expected[0])} words in {len(SENTENCES)} sentences with those of the original:")
        for each in agreements:
            print(f"             {each.layer:<9} mean {each.mean:.6f}, lowest {each.lowest:.5f}")
        section = fill_template(
            "quantization",
            version=version("transformers-elmo"),
            before=f"{before / 1e6:.1f}",
            after=f"{after / 1e6:.1f}",
            words=len(expected[0]),
            sentences=len(SENTENCES),
            cosines=table((each.layer, f"{each.mean:.6f}", f"{each.lowest:.5f}") for each in agreements),
        )
        card = card_of(checkpoint, output, model) + "\n" + section
        (staging / "README.md").write_text(card, encoding="utf-8")
    print(f"saved        {printable(str(output))}")


def find_class(checkpoint: str, config: ElmoConfig) -> type[ElmoPreTrainedModel]:
    name = (config.architectures or ["ElmoModel"])[0]
    if name not in MODEL_CLASSES:
        known = ", ".join(MODEL_CLASSES)
        raise ValueError(f"{checkpoint} must be a checkpoint of one of {known}; its architecture is {printable(name)}.")
    return MODEL_CLASSES[name]


@torch.no_grad()
def layers_of(model: ElmoPreTrainedModel, tokenizer: ElmoTokenizer) -> list[torch.Tensor]:
    """Return the L + 1 layers (N, 2P) of the words of SENTENCES, without sentence boundaries."""
    inputs = tokenizer(SENTENCES, add_special_tokens=True, padding=True, return_tensors="pt")
    hidden = model.base_model(**inputs, output_hidden_states=True).hidden_states  # L + 1 of (B, T, 2P)
    mask = inputs["attention_mask"] != 0  # (B, T)
    number = mask.cumsum(1)
    inner = mask & (number > 1) & (number < mask.sum(1, keepdim=True))
    return [layer[inner].double() for layer in hidden]


def compare(expected: list[torch.Tensor], found: list[torch.Tensor]) -> list[Agreement]:
    agreements = []
    for index, layers in enumerate(zip(expected, found)):
        cosines = torch.cosine_similarity(*layers, dim=1)
        agreements.append(Agreement(f"lstm_{index}" if index else "words", float(cosines.mean()), float(cosines.min())))
    return agreements


def check_agreement(checkpoint: str, agreements: list[Agreement]):
    for each in agreements:
        if not each.mean >= MIN_COSINE:  # NaN too
            raise ValueError(
                f"The quantized vectors must resemble those of {checkpoint}; the mean cosine of layer {each.layer} is "
                f"{each.mean:.3f}, below {MIN_COSINE}: its weights cannot be quantized, so use the checkpoint as it is."
            )


def weight_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for pattern in WEIGHT_FILES for path in folder.glob(pattern))


def card_of(checkpoint: str, output: Path, model: ElmoPreTrainedModel) -> str:
    """Return the original's model card without its pictures, or a new one, with a usage that loads `output`."""
    readme = cached_file(resolve(checkpoint), "README.md", _raise_exceptions_for_missing_entries=False)
    if readme is None:
        return model_card(model.config, output.as_posix(), model.num_parameters())
    card = LOCAL_PICTURE.sub("", read_text(Path(readme)))
    return rename_usage(card, public_name(output.as_posix())).rstrip("\n") + "\n"
