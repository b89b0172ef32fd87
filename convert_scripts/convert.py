# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""A released ELMo becomes a checkpoint: read, renamed, saved, compared with its source, and then put in its place."""

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from tqdm import tqdm

from ..modeling_elmo import ElmoForPreTraining, ElmoModel, ElmoPreTrainedModel
from .model_card import Provenance, model_card
from .sources import Given, Source, open_source
from .verification import checkpoint_parity, expected_activations

OF_MIX = "mix."  # a source may have none; it is then the average, as in every new model


def convert(
    source: Path,
    output: Path,
    given: Given | None = None,
    language: str | None = None,
    license: str | None = None,
    title: str | None = None,
    say: Callable[[str], None] = print,
) -> Path:
    """Convert what is at `source` into the checkpoint folder `output`, which must not exist yet.

    `say` is told what is found and measured, a line at a time.
    """
    with staged(output) as staging, tempfile.TemporaryDirectory(dir=output.parent, prefix=".elmo-") as scratch:
        opened = open_source(source, given or Given(), Path(scratch))
        say(f"source       {opened.format}: {', '.join(path.name for path in opened.files)}")
        for note in opened.notes:
            say(f"note         {note}")
        plan = renaming(opened)
        check_space(output.parent, 4 * sum(int(np.prod(stored.shape)) for stored in opened.arrays.values()))
        expected = expected_activations(opened)
        parameters = save(opened, plan, staging)
        say(f"model        {parameters:,} parameters")
        rows = checkpoint_parity(staging, expected)
        say(f"parity       {expected.words} words: numpy from the source against the checkpoint in a fresh process")
        for row in rows:
            say(f"             {row.name:<9} largest {row.largest:7.3f}, largest difference {row.difference:.1e}")
        provenance = Provenance(
            opened.format,
            [(path.name, path.stat().st_size, sha256(path)) for path in opened.files if path.is_file()],
            rows,
            len(expected.sentences),
            expected.words,
            opened.notes,
        )
        card = model_card(opened.config, str(output), parameters, language, license, title, provenance)
        (staging / "README.md").write_text(card, encoding="utf-8")
    say(f"written      {output}")
    return output


@contextmanager
def staged(output: Path) -> Iterator[Path]:
    """A folder beside `output` that takes its name when all has gone well, and is gone otherwise."""
    if output.exists() or output.is_symlink():
        raise FileExistsError(f"The output must be a new folder; {output} exists: remove it or choose another name.")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"The output must lie in a folder that is there; {output.parent} is not.")
    try:
        staging = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}-"))
    except OSError as error:
        raise OSError(
            f"The output must lie in a folder that can be written: {output.parent} ({error.strerror})."
        ) from error
    try:
        yield staging
        staging.chmod(0o755)  # mkdtemp's folders are for their owner alone
        staging.rename(output)
    except SafetensorError as error:
        raise OSError(f"{output} cannot be written ({error}).") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def check_space(folder: Path, needed: int):
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(f"The output needs {needed:,} bytes in {folder}; {free:,} are free.")


def model_of(source: Source) -> ElmoPreTrainedModel:
    """The model that the source's weights fill, without memory for them."""
    names = [name for theirs in source.arrays for name in (source.table.to_ours(theirs) or ((), None))[0]]
    with torch.device("meta"):
        return (ElmoForPreTraining if "softmax.weight" in names else ElmoModel)(source.config)


def renaming(source: Source) -> dict[str, tuple[str, ...]]:
    """Our names for each array of the source. Every array has a place, every parameter an array, and all shapes fit."""
    model = model_of(source)
    prefix = "" if isinstance(model, ElmoModel) else "elmo."
    shapes = {name.removeprefix(prefix): tuple(p.shape) for name, p in model.named_parameters()}
    plan, unknown = {}, []
    for theirs, stored in source.arrays.items():
        found = source.table.to_ours(theirs)
        if found is None or not set(found[0]) <= shapes.keys():
            unknown.append(stored)
            continue
        names, change = found
        for name in names:
            if name in plan:
                raise ValueError(f"{stored.file}: {stored.name} and {plan[name]} are one and the same weight.")
        expected = change.to_theirs(*(np.empty(shapes[name], np.uint8) for name in names)).shape
        if stored.shape != expected:
            raise ValueError(
                f"{stored.file}: {stored.name} must have the shape {expected} by the options of the model; "
                f"it has {stored.shape}."
            )
        plan |= dict.fromkeys(names, theirs)
    if unknown:
        more = f" and {len(unknown) - 1} more have" if len(unknown) > 1 else " has"
        raise ValueError(
            f"{unknown[0].file}: {unknown[0].name}{more} no place in the model that the options describe: "
            "are they of another model?"
        )
    missing = [name for name in shapes if name not in plan and not name.startswith(OF_MIX)]
    if missing:
        theirs = source.table.to_theirs(missing[0])
        name = theirs[0] if theirs else missing[0]
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ValueError(f"{source.files[0]} must hold {name}{more}, which the options describe; it does not.")
    return {theirs: source.table.to_ours(theirs)[0] for theirs in source.arrays}


def save(source: Source, plan: dict[str, tuple[str, ...]], folder: Path) -> int:
    """Write the checkpoint, array by array; the number of parameters."""
    model = model_of(source)
    prefix = "" if isinstance(model, ElmoModel) else "elmo."
    state = {
        f"{prefix}mix.weights": torch.zeros(source.config.num_hidden_layers + 1),
        f"{prefix}mix.gamma": torch.ones(1),
    }
    bar = tqdm(plan.items(), desc="converting", unit=" weights", disable=not sys.stderr.isatty(), leave=False)
    for theirs, names in bar:
        _, change = source.table.to_ours(theirs)
        for name, array in zip(names, change.to_ours(source.arrays[theirs].read())):
            name = name if name.startswith("softmax.") else prefix + name
            state[name] = torch.from_numpy(np.ascontiguousarray(array))
    model.load_state_dict(state, strict=True, assign=True)
    state.clear()
    model.save_pretrained(folder)
    source.tokenizer.save_pretrained(folder)
    return model.num_parameters()


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
