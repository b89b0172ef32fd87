"""Damaged copies of every file that `elmo convert` reads: each gives one sentence, or a checkpoint that is verified.

A released file has no checksum of its weights, so a damaged one may be convertible; the verification then proves that
the checkpoint has the numbers of the file.
"""

import contextlib
import gzip
import io
import os
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

import h5py
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers import tensor_bundles
from helpers.command import assert_one_sentence
from helpers.fuzz import damage, fuzz
from helpers.released import read_hdf5
from transformers_elmo.command import main
from transformers_elmo.convert.tensor_bundle import TensorBundle, crc32c


def in_file(*names):
    """Damage one of these files."""

    def damage_file(random, folder):
        path = folder / random.choice(names)
        path.write_bytes(damage(path.read_bytes(), random))

    return damage_file


def in_compressed_hdf5(random, folder):
    """Damage weights that are stored in compressed chunks; the HDF5 library crashes on some of these files."""
    arrays, path = read_hdf5(folder / "weights.hdf5"), folder / "weights.hdf5"
    with h5py.File(path, "w", libver="latest") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, compression="gzip")
    path.write_bytes(damage(path.read_bytes(), random))


def in_zip(random, folder):
    path = folder.with_name("source.zip")
    with zipfile.ZipFile(path, "w", random.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, f"folder/{file.name}")
    path.write_bytes(damage(path.read_bytes(), random))
    return [path]


def in_tar(random, folder):
    """Damage a tar archive, before or after it is compressed."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=random.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])) as tar:
        tar.add(folder, "long/" * 40)
    path, tar_bytes = folder.with_name("model.tar.gz"), content.getvalue()
    if random.random() < 0.5:
        path.write_bytes(gzip.compress(damage(tar_bytes, random), 1))
    else:
        path.write_bytes(damage(gzip.compress(tar_bytes, 1), random))
    return [path]


def in_index(random, folder):
    """Damage the blocks of a TensorFlow checkpoint's index, and give them valid checksums."""
    records, shards = BUNDLE
    tensor_bundles.write(
        folder / "model.ckpt-7",
        records,
        shards,
        size=50,
        snappy=random.random() < 0.5,
        damage=lambda block: damage(block, random) if random.random() < 0.4 else block,
    )


def in_record(random, folder):
    """Damage a record of a TensorFlow checkpoint's index: a dtype, a shape, an offset."""
    records, shards = BUNDLE
    name = random.choice(sorted(records))
    tensor_bundles.write(folder / "model.ckpt-7", {**records, name: damage(records[name], random)}, shards, size=50)


BUNDLE: tuple = ()
TARGETS = {
    "hdf5": ("bilm", in_file("weights.hdf5", "softmax.hdf5")),
    "compressed_hdf5": ("bilm", in_compressed_hdf5),
    "options": ("bilm", in_file("options.json", "vocab.txt")),
    "bundle": ("checkpoint", in_file("model.ckpt-7.index", "model.ckpt-7.data-00000-of-00002")),
    "index": ("checkpoint", in_index),
    "record": ("checkpoint", in_record),
    "tf_hub": ("tf_hub", in_file("variables/variables.index")),
    "pickle": ("many_langs", in_file("encoder.pkl", "token_embedder.pkl", "classifier.pkl")),
    "dictionary": ("many_langs", in_file("word.dic", "char.dic", "config.json", "cnn_4_3_5_7_sample.json")),
    "allennlp": ("allennlp", in_file("weights.th", "config.json", "fta/model.elmo.options_file")),
    "zip": ("bilm", in_zip),
    "tar": ("bilm", in_tar),
}


@pytest.fixture
def check(pristine, verify_in_process, monkeypatch):
    """Return a function that damages a source at random, converts it and checks the result."""
    global BUNDLE
    BUNDLE = tensor_bundles.to_records(dict(TensorBundle(pristine / "checkpoint" / "model.ckpt-7")))
    monkeypatch.setattr(tensor_bundles, "naive_crc32c", crc32c)  # hundreds of times faster

    def check(name, random):
        kind, damage_source = TARGETS[name]
        with tempfile.TemporaryDirectory() as scratch:
            source, output = Path(scratch) / "source", Path(scratch) / "out" / "x"
            shutil.copytree(pristine / kind, source)
            output.parent.mkdir()
            arguments = damage_source(random, source) or [source]
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
                code = main(["convert", *map(str, arguments), "-o", str(output)])
            if code == 0:
                assert err.getvalue() == "" and os.listdir(output.parent) == ["x"]
            else:
                assert_one_sentence((code, "", err.getvalue()))
                assert os.listdir(output.parent) == []

    return check


@pytest.mark.parametrize("name", [name for name in TARGETS if "hdf5" not in name])
def test_damaged_files(check, name):
    @settings(max_examples=15, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=False))
    def check_damaged(random):
        check(name, random)

    check_damaged()


@pytest.mark.parametrize("name", ["hdf5", "compressed_hdf5"])
def test_damaged_hdf5(check, name):
    """In a process of its own, as the HDF5 library may crash."""
    assert fuzz(lambda random: check(name, random), 15, start=0) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", TARGETS)
def test_many_damaged_files(check, name):
    count = int(os.environ.get("ELMO_FUZZ", 2000))
    failures = fuzz(lambda random: check(name, random), count)
    assert not failures, "\n".join([f"{len(failures)} of {count}", *failures[:5]])
