# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""A released ELMo becomes a checkpoint: read, renamed, saved, compared with its source, and then put in its place."""

import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from ..files import check_new_folder, check_space, new_folder, scratch_folder
from ..model_card import model_card
from ..modeling_elmo import ElmoForPreTraining, ElmoModel, ElmoPreTrainedModel
from .card import Provenance
from .reading import one_line, sha256_of
from .sources import Given, Source, open_source
from .verification import verify

OF_MIX = "mix."  # a source may have none; it is then the average, as in every new model


def convert(
    source: Path,
    output: Path,
    given: Given | None = None,
    language: str | None = None,
    license: str | None = None,
    title: str | None = None,
):
    """Convert what is at `source` into the checkpoint folder `output`, which must not exist yet.

    What is found and measured is printed.
    """
    check_output(output)
    with new_folder(output) as staging, unpacking_below(output.parent) as scratch:
        opened = open_source(source, given or Given(), scratch)
        print(f"source       {opened.format}: {', '.join(path.name for path in opened.files)}")
        for note in opened.notes:
            print(f"note         {note}")
        model = empty_model(opened)
        plan = renaming(opened, model)
        size = 4 * sum(math.prod(stored.shape) for stored in opened.arrays.values())
        check_space("The output", size, output.parent)
        save(opened, model, plan, staging)
        print(f"model        {model.num_parameters():,} parameters")
        print("parity       the source in plain numpy beside the checkpoint in a fresh process:")
        verified = verify(opened, staging)
        for row in verified.rows:
            print(f"             {row.name:<9} largest {row.largest:7.3f}, largest difference {row.difference:.1e}")
        provenance = Provenance(
            opened.format,
            [(path.name, path.stat().st_size, sha256_of(path)) for path in opened.files],
            verified,
            opened.notes,
        )
        card = model_card(
            opened.config, output.as_posix(), model.num_parameters(), language, license, title, [provenance.section()]
        )
        (staging / "README.md").write_text(card, encoding="utf-8")
    print(f"written      {output}")


def check_output(output: Path):
    check_new_folder(output)
    if '"' in str(output):
        raise ValueError(f"The output must have a name without quotation marks, which code could quote; got {output}.")


@contextmanager
def unpacking_below(folder: Path) -> Iterator[Path]:
    """A folder for what archives hold; errors name it by the archive, since the folder will be gone."""
    with scratch_folder(folder) as scratch:
        try:
            yield scratch
        except (OSError, ValueError, RuntimeError) as error:
            if f"{scratch}{os.sep}" not in str(error):
                raise
            raise ValueError(str(error).replace(f"{scratch}{os.sep}", "")) from error


def empty_model(source: Source) -> ElmoPreTrainedModel:
    """The model that the source's weights fill, without memory for them."""
    has_softmax = any("lm_head.weight" in (source.table.to_ours(name) or [()])[0] for name in source.arrays)
    config, held = source.config, sum(math.prod(stored.shape) for stored in source.arrays.values())
    try:
        # Before it is made, since options may ask for anything.
        if config.num_hidden_layers + config.num_highway_layers > len(source.arrays):
            raise ValueError(f"{config.num_hidden_layers} LSTM and {config.num_highway_layers} highway layers")
        with torch.device("meta"):
            model = (ElmoForPreTraining if has_softmax else ElmoModel)(config)
        if model.num_parameters() > 2 * held + 10**6:
            raise ValueError(f"{model.num_parameters():,} numbers")
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        size = one_line(error) if isinstance(error, ValueError) else "more numbers than can be counted"
        raise ValueError(
            f"{weight_files(source)} must hold {size}, as the options say; it holds {held:,} numbers."
        ) from error
    return model


def weight_files(source: Source) -> str:
    return " and ".join(dict.fromkeys(str(stored.file) for stored in source.arrays.values()))


def renaming(source: Source, model: ElmoPreTrainedModel) -> dict[str, str]:
    """Their name for each parameter of ours: every array has a place, every parameter an array, and all shapes fit."""
    shapes = {name.removeprefix("elmo."): tuple(parameter.shape) for name, parameter in model.named_parameters()}
    plan, homeless = {}, []
    for theirs, stored in source.arrays.items():
        names, change = source.table.to_ours(theirs) or ((None,), None)
        if not set(names) <= shapes.keys():
            homeless.append(stored)
            continue
        if names[0] in plan:
            raise ValueError(f"{stored.file}: {stored.name} and {plan[names[0]]} must not both be there.")
        expected = tuple(change.to_theirs(*(torch.empty(shapes[name], device="meta") for name in names)).shape)
        if stored.shape != expected:
            raise ValueError(
                f"{stored.file}: {stored.name} must have the shape {expected} by the options of the model; "
                f"it has {stored.shape}."
            )
        plan |= dict.fromkeys(names, theirs)
    if homeless:
        more = f" and {len(homeless) - 1} more have" if len(homeless) > 1 else " has"
        raise ValueError(
            f"{homeless[0].file}: {homeless[0].name}{more} no place in the model that the options describe: "
            "do the weights and the options belong together?"
        )
    missing = [name for name in shapes if name not in plan and not name.startswith(OF_MIX)]
    if missing:
        theirs, more = source.table.to_theirs(missing[0])[0], f" and {len(missing) - 1} more" * (len(missing) > 1)
        raise ValueError(f"{weight_files(source)} must hold {theirs}{more}, as the options say; it does not.")
    return plan


def save(source: Source, model: ElmoPreTrainedModel, plan: dict[str, str], folder: Path):
    """Write the checkpoint, one array of the source after the other."""
    model.save_pretrained(folder, state_dict={})  # everything but the weights, which have no memory
    source.tokenizer.save_pretrained(folder)
    full_names = {name.removeprefix("elmo."): name for name, _ in model.named_parameters()}
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    bar = tqdm(source.arrays.items(), "converting", unit=" weights", disable=not sys.stderr.isatty(), leave=False)
    with SafetensorsFile(folder / "model.safetensors", shapes) as file:
        for theirs, stored in bar:
            names, change = source.table.to_ours(theirs)
            for name, tensor in zip(names, change.to_ours(torch.from_numpy(stored.read()))):
                file.write(full_names[name], tensor.numpy())
        for name, value in (("mix.weights", 0.0), ("mix.gamma", 1.0)):
            if name not in plan:
                file.write(full_names[name], np.full(shapes[full_names[name]], value, np.float32))


class SafetensorsFile:
    """A safetensors file of float32 arrays that are written one at a time, in any order.

    The safetensors library wants all of them in memory. Here the first also lies at a multiple of 64 bytes and the
    largest come first, so that a model of usual sizes uses them where they are mapped.
    """

    def __init__(self, path: Path, shapes: dict[str, tuple[int, ...]]):
        self.path, self.shapes, self.missing = path, shapes, set(shapes)
        self.offsets, end = {}, 0
        for name in sorted(shapes, key=lambda name: (-math.prod(shapes[name]), name)):
            self.offsets[name], end = (end, end + 4 * math.prod(shapes[name])), end + 4 * math.prod(shapes[name])
        entries = {
            name: {"dtype": "F32", "shape": list(shapes[name]), "data_offsets": list(offsets)}
            for name, offsets in self.offsets.items()
        }
        header = json.dumps({"__metadata__": {"format": "pt"}, **entries}, separators=(",", ":")).encode()
        self.header = header + b" " * (-(8 + len(header)) % 64)

    def __enter__(self):
        self.file = open(self.path, "wb")
        self.file.write(len(self.header).to_bytes(8, "little") + self.header)
        return self

    def write(self, name: str, array: np.ndarray):
        if array.shape != self.shapes[name]:
            raise ValueError(f"{name} must have the shape {self.shapes[name]}, got {array.shape}.")
        self.file.seek(8 + len(self.header) + self.offsets[name][0])
        self.file.write(np.ascontiguousarray(array, dtype="<f4"))
        self.missing.remove(name)

    def __exit__(self, kind, error, traceback):
        self.file.close()
        if error is None and self.missing:
            raise ValueError(f"{self.path.name} lacks {min(self.missing)}.")
