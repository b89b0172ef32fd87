"""Ways to damage a released ELMo: functions that take its folder and may return the arguments of `elmo convert`."""

import shutil

import h5py
import torch

from helpers.released import bilm_options, many_langs_options, write_json, write_lines

WEIGHTS, OPTIONS = "weights.hdf5", "options.json"
ENCODER, EMBEDDER, MANY_LANGS_OPTIONS = "encoder.pkl", "token_embedder.pkl", "cnn_4_3_5_7_sample.json"


def replace_file(name, content):
    return lambda folder: (folder / name).write_bytes(content) and None


def truncate(name, share=0.5):
    """Keep only the first `share` of a file."""

    def damage(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(share * len(content))])

    return damage


def remove_file(name):
    return lambda folder: (folder / name).unlink()


def rename_file(old, *new):
    """Rename a file, or copy it to several names."""

    def damage(folder):
        for name in new:
            shutil.copy(folder / old, folder / name)
        (folder / old).unlink()

    return damage


def with_options(**changes):
    return lambda folder: write_json(folder / OPTIONS, bilm_options(**changes))


def with_many_langs_options(**changes):
    return lambda folder: write_json(folder / MANY_LANGS_OPTIONS, many_langs_options(**changes))


def change_dataset(name, change, file=WEIGHTS):
    """Change a dataset, which may be missing; `change` returns None to remove it."""

    def damage(folder):
        with h5py.File(folder / file, "a") as opened:
            item = opened.pop(name, None)
            array = item[...] if isinstance(item, h5py.Dataset) else None
            if (array := change(array)) is not None:
                opened.create_dataset(name, data=array)

    return damage


def change_tensor(file, name, change):
    """Change a tensor of a torch file, which may be missing; `change` returns None to remove it."""

    def damage(folder):
        tensors = torch.load(folder / file)
        tensors[name] = change(tensors.get(name))
        torch.save({name: value for name, value in tensors.items() if value is not None}, folder / file)

    return damage


def change_lines(file, change):
    def damage(folder):
        content = (folder / file).read_text(encoding="utf-8").split("\n")[:-1]
        write_lines(folder / file, change(content))

    return damage


def all_of(*damages):
    """Apply several damages, and return what the last one returns."""
    return lambda folder: [damage(folder) for damage in damages][-1]


def remove(array):
    """Remove an array or tensor, as the `change` of the functions above."""
    return None


def set_first(value):
    """Return a `change` that sets the first number of an array."""

    def change(array):
        array[(0,) * array.ndim] = value
        return array

    return change


def path_of(name):
    """Damage nothing, but convert this file instead of the folder."""
    return lambda folder: [folder / name]


def with_flag(flag, name):
    """Damage nothing, but pass this file with a flag."""
    return lambda folder: [folder, flag, folder / name]
