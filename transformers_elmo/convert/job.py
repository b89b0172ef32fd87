# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Convert a released ELMo to a checkpoint: open it, match its weights with the model's, save, verify and rename."""

import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from ..files import check_new_folder, check_space, new_folder, one_line, scratch_folder, sha256_of
from ..model_card import behavior, model_card
from ..modeling_elmo import ElmoForPreTraining, ElmoModel, ElmoPreTrainedModel
from ..text import printable
from .card import Provenance
from .sources import ExtraFiles, Source, check_links, open_source
from .verification import verify
from .weight_names import Conversion

BYTES_PER_WEIGHT = 4  # float32


def convert(
    source: Path,
    output: Path,
    extra_files: ExtraFiles | None = None,
    *,
    language: str | None = None,
    license: str | None = None,
    title: str | None = None,
    notes: Sequence[str] = (),
):
    """Convert the released ELMo at `source` to a checkpoint in the new folder `output`, and print a report.

    Args:
        source: a file or folder in any of the formats in `sources/`, or the prefix of a TensorFlow checkpoint.
        extra_files: files that belong to the source but are not next to it.
        language, license, title: for the model card.
        notes: about the source, for the report and the model card.
    """
    check_new_folder(output)
    with new_folder(output) as staging, unpacking_folder(output.parent) as scratch:
        extra_files = extra_files or ExtraFiles()
        opened = open_source(source, extra_files, scratch)
        check_links(opened, source, extra_files, scratch)
        print(f"source       {opened.format}: {', '.join(printable(path.name) for path in opened.files)}")
        notes = [*notes, *map(printable, opened.notes), *dtype_notes(opened)]
        for note in notes:
            print(f"note         {note}")
        model = meta_model(opened)
        matches = match_weights(opened, model)
        check_space("The output", BYTES_PER_WEIGHT * num_weights(opened), output.parent)
        save(opened, model, matches, staging)
        print(f"model        {model.num_parameters():,} parameters")
        print(f"options      {behavior(opened.config)}")
        print("parity       the source in plain numpy against the checkpoint in a fresh process:")
        verification = verify(opened, staging)
        for row in verification.rows:
            print(f"             {row.name:<9} max |value| {row.largest:7.3f}, max difference {row.difference:.1e}")
        provenance = Provenance(
            format=opened.format,
            files=[(path.name, path.stat().st_size, sha256_of(path)) for path in opened.files],
            verification=verification,
            notes=notes,
        )
        card = model_card(
            opened.config,
            name=output.as_posix(),
            num_parameters=model.num_parameters(),
            language=language,
            license=license,
            title=title,
            sections=[provenance.section()],
        )
        (staging / "README.md").write_text(card, encoding="utf-8")
    print(f"saved        {printable(str(output))}")


@contextmanager
def unpacking_folder(parent: Path) -> Iterator[Path]:
    """Yield a folder to unpack archives into, and shorten its paths in errors to those in the archive."""
    with scratch_folder(parent) as scratch:
        try:
            yield scratch
        except (OSError, ValueError, RuntimeError) as error:
            if f"{scratch}{os.sep}" not in str(error):
                raise
            raise ValueError(str(error).replace(f"{scratch}{os.sep}", "")) from error


def meta_model(source: Source) -> ElmoPreTrainedModel:
    """Return the model for the source's weights on the meta device, where they take no memory."""
    config, available = source.config, num_weights(source)
    try:
        # Checked before the model is built, as a damaged options.json may ask for billions of layers.
        if config.num_hidden_layers + config.num_highway_layers > len(source.arrays):
            raise ValueError(f"{config.num_hidden_layers} LSTM and {config.num_highway_layers} highway layers")
        with torch.device("meta"):
            model = (ElmoForPreTraining if has_lm_head(source) else ElmoModel)(config)
        if model.num_parameters() > 2 * available + 10**6:
            raise ValueError(f"{model.num_parameters():,} weights")
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        size = one_line(error) if isinstance(error, ValueError) else "more weights than fit into memory"
        raise ValueError(
            f"{weight_files(source)} must contain {size} according to the options; it contains {available:,} weights."
        ) from error
    return model


def dtype_notes(source: Source) -> list[str]:
    """Say which weights are not stored as float32, as they may be rounded, or be integers that lack their scale."""
    dtypes = sorted({stored.dtype for stored in source.arrays.values()} - {"float32"})
    return [f"There are weights of type {', '.join(dtypes)}; they were converted to float32."] if dtypes else []


def has_lm_head(source: Source) -> bool:
    found = (source.name_table.to_hf(name) for name in source.arrays)
    return any(match is not None and "lm_head.weight" in match[0] for match in found)


def num_weights(source: Source) -> int:
    return sum(math.prod(stored.shape) for stored in source.arrays.values())


def weight_files(source: Source) -> str:
    return " and ".join(dict.fromkeys(str(stored.file) for stored in source.arrays.values()))


def match_weights(source: Source, model: ElmoPreTrainedModel) -> dict[str, tuple[tuple[str, ...], Conversion]]:
    """Return the parameters and the conversion for each array, or raise for the first weight that does not fit.

    Every array must have parameters, every parameter an array (except for a mix as a whole), and all shapes must agree.
    """
    shapes = {name.removeprefix("elmo."): tuple(parameter.shape) for name, parameter in model.named_parameters()}
    matches: dict[str, tuple[tuple[str, ...], Conversion]] = {}
    originals: dict[str, str] = {}  # by parameter
    unmatched = []
    for original, stored in source.arrays.items():
        match = source.name_table.to_hf(original)
        if match is None or not set(match[0]) <= shapes.keys():
            unmatched.append(stored)
            continue
        names, conversion = match
        if names[0] in originals:
            raise ValueError(f"{stored.file} must not contain both {stored.name} and {originals[names[0]]}.")
        expected = conversion.to_original(*(torch.empty(shapes[name], device="meta") for name in names)).shape
        if stored.shape != tuple(expected):
            raise ValueError(
                f"{stored.file}: {stored.name} must have shape {tuple(expected)} according to the options; "
                f"its shape is {stored.shape}."
            )
        matches[original] = match
        originals |= dict.fromkeys(names, original)
    if unmatched:
        others = f" and {len(unmatched) - 1} other weights are" if len(unmatched) > 1 else " is"
        raise ValueError(
            f"{unmatched[0].file}: {unmatched[0].name}{others} not in the model that the options describe: "
            "check that the weights and the options belong together."
        )
    has_mix = any(name.startswith("mix.") for name in originals)
    missing = [name for name in shapes if name not in originals and (has_mix or not name.startswith("mix."))]
    if missing:
        found = source.name_table.to_original(missing[0])
        name = missing[0] if found is None else found[0]
        others = f" and {len(missing) - 1} other weights" if len(missing) > 1 else ""
        raise ValueError(f"{weight_files(source)} must contain {name}{others} according to the options; it does not.")
    return matches


def save(
    source: Source,
    model: ElmoPreTrainedModel,
    matches: dict[str, tuple[tuple[str, ...], Conversion]],
    folder: Path,
):
    """Write the checkpoint, with one array of the source in memory at a time."""
    model.save_pretrained(folder, state_dict={})  # everything but the weights, which are on the meta device
    source.tokenizer.save_pretrained(folder)
    full_names = {name.removeprefix("elmo."): name for name, _ in model.named_parameters()}
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    bar = tqdm(matches.items(), "converting", unit=" weights", disable=not sys.stderr.isatty(), leave=False)
    with SafetensorsFile(folder / "model.safetensors", shapes) as file:
        for original, (names, conversion) in bar:
            tensors = conversion.to_hf(torch.from_numpy(source.arrays[original].read()))
            for name, tensor in zip(names, tensors):
                file.write(full_names[name], tensor.numpy())
        # Without a mix in the source, it is the mean of the layers, as in a new model.
        for name, value in (("mix.weights", 0.0), ("mix.gamma", 1.0)):
            if full_names[name] in file.missing:
                file.write(full_names[name], np.full(shapes[full_names[name]], value, np.float32))


class SafetensorsFile:
    """A safetensors file of float32 arrays that are written one at a time, in any order.

    The safetensors library needs all of them in memory at once. Here the data also starts at a multiple of 64 bytes and
    the largest arrays come first, so a model can use them memory-mapped, without a copy.
    """

    def __init__(self, path: Path, shapes: dict[str, tuple[int, ...]]):
        self.path, self.shapes, self.missing = path, shapes, set(shapes)
        self.offsets, end = {}, 0
        for name in sorted(shapes, key=lambda name: (-math.prod(shapes[name]), name)):
            start, end = end, end + BYTES_PER_WEIGHT * math.prod(shapes[name])
            self.offsets[name] = (start, end)
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
            raise ValueError(f"{name} must have shape {self.shapes[name]}, got {array.shape}.")
        self.file.seek(8 + len(self.header) + self.offsets[name][0])
        self.file.write(np.ascontiguousarray(array, dtype="<f4").data)
        self.missing.remove(name)

    def __exit__(self, kind, error, traceback):
        self.file.close()
        if error is None and self.missing:
            raise ValueError(f"{self.path.name} lacks {min(self.missing)}.")
