"""Sources made to harm: they refer to other files, claim sizes that they do not store, or expand without bounds.

Each is refused in one sentence, before anything is read or allocated; `limited_memory` makes an allocation fail.
"""

import gzip
import io
import json
import os
import resource
import struct
import tarfile
import zipfile

import h5py
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from helpers import tensor_bundles
from helpers.conversion import assert_error, elmo
from helpers.damage import (
    EMBEDDER,
    ENCODER,
    OPTIONS,
    WEIGHTS,
    all_of,
    change_dataset,
    change_lines,
    change_tensor,
    path_of,
    replace_file,
    with_many_langs_options,
    with_options,
)
from helpers.released import bilm_arrays, bilm_options, write_bilm, write_hdf5, write_json, write_zip
from helpers.released_cases import allennlp

SECRET = b"the contents of a local file"
NAME = "CNN/b_cnn_0"
TABLE = "word_emb_layer.embedding.weight"
INPUT = "forward_layer_0.input_linearity.weight"


@pytest.fixture(autouse=True)
def limited_memory():
    """Let allocations above 1 GB fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as sizes:
        used = int(sizes.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def in_hdf5(make, name=NAME):
    """Replace a dataset by what `make(file, name)` creates."""

    def damage(folder):
        (folder / "secret").write_bytes(SECRET)
        with h5py.File(folder / "other.bin", "w") as other:
            other["x"] = np.zeros(3, np.float32)
        with h5py.File(folder / WEIGHTS, "a") as file:
            del file[name]
            make(file, name)

    return damage


def dataset(shape=(3,), dtype="f4", **options):
    return in_hdf5(lambda file, name: file.create_dataset(name, shape, dtype, **options))


def link(target):
    return in_hdf5(lambda file, name: file.__setitem__(name, target))


def external(file, name):
    path = os.path.join(os.path.dirname(file.filename), "secret")
    file.create_dataset(name, (3,), "f4", external=[(path, 0, 12)])


def virtual(file, name):
    layout = h5py.VirtualLayout((3,), "f4")
    layout[:] = h5py.VirtualSource(os.path.join(os.path.dirname(file.filename), "other.bin"), "x", (3,))
    file.create_virtual_dataset(name, layout)


def with_filter(file, name):
    """A filter that HDF5 looks for among its plugins."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((3,))
    properties.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, ())
    space = h5py.h5s.create_simple((3,))
    h5py.h5d.create(file.id, name.encode(), h5py.h5t.IEEE_F32LE, space, properties)


def zeros(**options):
    """A few kilobytes of compressed zeros, which are 40 MB."""
    return in_hdf5(lambda file, name: file.create_dataset(name, data=np.zeros(10**7, "f4"), compression=9, **options))


def one_chunk(file, name):
    """Write one chunk of three; HDF5 would return the fill value for the others."""
    file.create_dataset(name, (3,), "f4", chunks=(1,), compression=9, fillvalue=0.5)[0] = 1


# The message must contain the file's name and these parts.
BAD_HDF5 = {
    "external-storage": (in_hdf5(external), ["stored in another file"]),
    "virtual": (in_hdf5(virtual), ["stored in another file"]),
    "external-link": (link(h5py.ExternalLink("other.bin", "x")), ["is a link"]),
    "external-link-to-a-group": (
        in_hdf5(lambda f, n: f.__setitem__("X", h5py.ExternalLink("o", "/"))),
        ["X is a link"],
    ),
    "soft-link": (link(h5py.SoftLink("/CNN/b_cnn_1")), ["is a link"]),
    "reference": (dataset(dtype=h5py.ref_dtype), [NAME, "numbers"]),
    "region-reference": (dataset(dtype=h5py.regionref_dtype), [NAME, "numbers"]),
    "lists": (dataset(dtype=h5py.vlen_dtype("f4")), [NAME, "numbers"]),
    "plugin": (in_hdf5(with_filter), [NAME, "filter 32015"]),
    "huge": (dataset((3 << 30,)), [NAME, "12,884,901,888 bytes and stores 0"]),
    "huge-chunked": (dataset((3 << 30,), chunks=(3,)), [NAME, "12,884,901,888 bytes and stores 0"]),
    "huge-compressed": (dataset((3 << 30,), chunks=(1 << 20,), compression=9), [NAME, "stores 0"]),
    "huge-chunk": (dataset(chunks=(1 << 29,), maxshape=(None,)), [NAME, "2,147,483,648"]),
    "never-written": (dataset(), [NAME, "12 bytes and stores 0"]),
    "name-not-utf-8": (in_hdf5(lambda f, n: f.__setitem__(b"RNN_\xff", np.zeros(3))), ["damaged"]),
    "bomb": (zeros(chunks=(10**7,)), [NAME, "40,000,000"]),
    "missing-chunks": (in_hdf5(one_chunk), [NAME, "2 of 3 chunks are missing"]),
}


@pytest.mark.parametrize("damage, parts", BAD_HDF5.values(), ids=BAD_HDF5)
def test_hdf5_files_store_what_they_claim_themselves(convert_damaged, damage, parts):
    assert_error(convert_damaged("bilm", damage), WEIGHTS, *parts)


def test_compressed_hdf5_is_accepted(convert_damaged):
    def compress(folder):
        with h5py.File(folder / WEIGHTS, "a") as file:
            for name in ("CNN/W_cnn_0", "CNN_proj/W_proj"):
                data = file.pop(name)[...]
                file.create_dataset(name, data=data, compression="gzip", shuffle=True, fletcher32=True)

    assert convert_damaged("bilm", compress)[0] == 0


def raw_options(**changes):
    """Options with values that Python's json does not write, as text."""

    def damage(folder):
        text = json.dumps(bilm_options(**dict.fromkeys(changes, "HERE")))
        for value in changes.values():
            text = text.replace('"HERE"', value, 1)
        (folder / OPTIONS).write_text(text)

    return damage


BAD_OPTIONS = {
    "nan-clip": (raw_options(lstm_cell_clip="NaN"), ["lstm.cell_clip", "finite", "nan"]),
    "infinite-clip": (raw_options(lstm_proj_clip="Infinity"), ["lstm.proj_clip", "finite", "inf"]),
    "overflowing-clip": (raw_options(lstm_proj_clip="1e400"), ["lstm.proj_clip", "finite"]),
    "long-clip": (raw_options(lstm_proj_clip="1" + "0" * 400), ["lstm.proj_clip", "finite"]),
    "nan-dropout": (raw_options(dropout="NaN"), ["dropout", "finite"]),
    "digits": (raw_options(lstm_dim="9" * 5000), ["JSON"]),
    "large-dim": (with_options(lstm_dim=10**30), ["lstm.dim", "below 2^63"]),
    "float-dim": (with_options(lstm_dim=1e300), ["lstm.dim", "integer"]),
    "negative-dim": (with_options(lstm_dim=-7, lstm_projection_dim=-8), ["lstm_dim", "-7"]),
    "nested-filters": (with_options(char_cnn_filters=[[[1, 3]]]), ["char_filters"]),
    "nan-filters": (raw_options(char_cnn_filters="[[NaN, 3]]"), ["char_filters"]),
    "wide": (
        with_options(char_cnn_max_characters_per_token=30_000, char_cnn_filters=[[1, 40]]),
        ["at most 25000 for 40 filters", "30000"],
    ),
    "deep": (replace_file(OPTIONS, b'{"a":' * 100_000), ["JSON"]),
    "deep-but-valid": (replace_file(OPTIONS, b'{"lstm":' * 500 + b"1" + b"}" * 500), ["lstm.dim"]),
}


@pytest.mark.parametrize("damage, parts", BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_options_are_sizes_of_an_elmo(convert_damaged, damage, parts):
    assert_error(convert_damaged("bilm", damage), OPTIONS, *parts)


def expanded(*shape):
    """Return a tensor that repeats one number without storing it repeatedly."""
    return lambda tensor: torch.zeros(1).expand(*shape)


BAD_MANY_LANGS = {
    "expanded": (change_tensor(ENCODER, "x", expanded(1 << 40)), [ENCODER, "x", "stores 4"]),
    "expanded-embedding": (change_tensor(EMBEDDER, TABLE, expanded(1 << 40, 3)), [EMBEDDER, TABLE, "stores 4"]),
    "rows-without-columns": (change_tensor(EMBEDDER, TABLE, lambda t: torch.zeros(1 << 40, 0)), [TABLE, "3 columns"]),
    "sparse": (change_tensor(ENCODER, "x", lambda t: torch.eye(3).to_sparse()), [ENCODER, "x", "dense"]),
    "meta": (change_tensor(ENCODER, "x", lambda t: torch.zeros(9, device="meta")), [ENCODER, "x", "dense"]),
    "complex": (change_tensor(ENCODER, "x", lambda t: torch.zeros(9) * 1j), [ENCODER, "x", "complex"]),
    "booleans": (change_tensor(ENCODER, "x", lambda t: torch.zeros(9) > 0), [ENCODER, "x", "bool"]),
    "digits": (change_lines("word.dic", lambda lines: [*lines, "x\t" + "9" * 5000]), ["word.dic"]),
    "wide": (with_many_langs_options(token_embedder_max_characters_per_token=10**9), ["max_characters_per_token"]),
}


@pytest.mark.parametrize("damage, parts", BAD_MANY_LANGS.values(), ids=BAD_MANY_LANGS)
def test_pickles_store_what_they_claim(convert_damaged, damage, parts):
    assert_error(convert_damaged("many_langs", damage), *parts)


def in_bundle(change, damage=lambda data: data):
    """Write a checkpoint's index with changed records or blocks, and valid checksums."""

    def write(folder):
        records, shards = tensor_bundles.to_records({"lm/a": np.zeros(3, np.float32)})
        tensor_bundles.write(folder / "model.ckpt-7", change(records), shards, damage=damage)

    return write


def shared_prefixes(folder):
    """Let each key of the first block be the previous one and another byte."""
    keys = b"".join(tensor_bundles.varint(length) + b"\1\0k" for length in range(20_000))
    blocks = iter([keys + bytes(4) + b"\1\0\0\0"])
    in_bundle(lambda records: records, lambda block: next(blocks, block))(folder)


BAD_BUNDLES = {
    "huge-tensor": (
        in_bundle(lambda r: {**r, b"lm/a": tensor_bundles.entry(1, (1 << 40,), 0, 0, b"", size=1 << 42)}),
        ["model.ckpt-7", "according to the options"],
    ),
    "many-dimensions": (
        in_bundle(lambda r: {**r, b"lm/a": tensor_bundles.entry(1, ((1 << 62),) * 300, 0, 0, b"")}),
        ["300 dimensions"],
    ),
    "shared-prefixes": (shared_prefixes, ["more than 1000"]),
}


@pytest.mark.parametrize("damage, parts", BAD_BUNDLES.values(), ids=BAD_BUNDLES)
def test_tensorflow_checkpoints_store_what_they_claim(convert_damaged, damage, parts):
    assert_error(convert_damaged("checkpoint", damage), *parts)


def in_tar(*members):
    """Write a tar.gz of members: a name, a size, the first bytes; the rest is zeros."""

    def damage(folder):
        path = folder.with_name("model.tar.gz")
        with gzip.open(path, "wb", 1) as file:
            for name, kind, size, content in members:
                info = tarfile.TarInfo(name)
                info.size, info.type = size, kind
                file.write(info.tobuf(tarfile.GNU_FORMAT) + content)
        return [path]

    return damage


def zip_bomb(folder):
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("weights.hdf5", bytes(20_000_000))
    return [path]


def in_zip_directory(mark, offset, number):
    """Write a zip whose directory has a wrong number at this offset from a mark."""

    def damage(folder):
        path = write_zip(folder.with_suffix(".zip"), {"weights.hdf5": b""})
        content = bytearray(path.read_bytes())
        struct.pack_into("<I", content, content.index(mark) + offset, number)
        path.write_bytes(content)
        return [path]

    return damage


def zip_of_damaged_data(folder):
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("weights.hdf5", b"ab" * 1000)
    content = path.read_bytes()
    path.write_bytes(content.replace(content[42:50], b"\xff" * 8))
    return [path]


def tar_in_tar(folder):
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as archive:
        archive.add(folder / OPTIONS, OPTIONS)
    info, path = tarfile.TarInfo("model.tar.gz"), folder.with_name("model.tar.gz")
    info.size = len(inner.getvalue())
    with tarfile.open(path, "w:gz") as archive:
        inner.seek(0)
        archive.addfile(info, inner)
    return [path]


def in_zip(name):
    return lambda folder: [write_zip(folder.with_suffix(".zip"), {name: b""})]


FILE = tarfile.REGTYPE
BAD_ARCHIVES = {
    "tar-bomb": (in_tar(("x", FILE, 50_000_000, b"")), ["50,000,000"]),
    "tar-claim": (in_tar(("x", FILE, 1 << 40, b"")), ["1,099,511,627,776"]),
    "tar-long-name": (in_tar(("x", tarfile.GNUTYPE_LONGNAME, 1 << 40, b"")), ["a header of 1,099,511,627,776"]),
    "tar-pax-header": (in_tar(("x", tarfile.XHDTYPE, 1 << 32, b"")), ["a header of 4,294,967,296"]),
    "tar-many-members": (in_tar(*[("x", FILE, 0, b"")] * 10_001), ["10,001"]),
    "tar-within-tar": (tar_in_tar, ["archive within an archive"]),
    "zip-bomb": (zip_bomb, ["20,000,000"]),
    "zip-claim": (in_zip_directory(b"PK\1\2", 24, 0xFFFFFFF0), ["4,294,967,280"]),
    "zip-offset": (in_zip_directory(b"PK\5\6", 16, 1000), ["cannot be unpacked"]),
    "zip-damaged-data": (zip_of_damaged_data, ["cannot be unpacked"]),
    "zip-deep": (in_zip("a/" * 1500 + "x"), ["50 folders"]),
    "zip-long-name": (in_zip("a" * 5000), ["too long"]),
}


@pytest.mark.parametrize("damage, parts", BAD_ARCHIVES.values(), ids=BAD_ARCHIVES)
def test_archives_are_of_a_released_elmo(convert_damaged, damage, parts):
    assert_error(convert_damaged("bilm", damage), *parts)


def linked(name, within=False):
    """Replace a file by a link to a copy of it, elsewhere or in the same folder."""

    def damage(folder):
        target = (folder if within else folder.parent) / "secret"
        os.rename(folder / name, target)
        os.symlink(target, folder / name)

    return damage


LINKS = [("bilm", OPTIONS), ("bilm", "vocab.txt"), ("bilm", WEIGHTS), ("many_langs", "word.dic")]


@pytest.mark.parametrize("kind, name", [*LINKS, ("allennlp", "fta"), ("tf_hub", "variables")])
def test_links_out_of_the_source_are_refused(convert_damaged, kind, name):
    assert_error(convert_damaged(kind, linked(name)), name, "is a link to", "secret")


@pytest.mark.parametrize("kind, name", LINKS)
def test_links_within_the_source_are_followed(convert_damaged, kind, name):
    assert convert_damaged(kind, linked(name, within=True))[0] == 0


def test_a_link_that_the_user_names_is_followed(convert_damaged):
    damage = all_of(linked("vocab.txt"), lambda folder: [folder, "--vocab", folder / "vocab.txt"])
    assert convert_damaged("bilm", damage)[0] == 0


def test_links_of_the_hubs_cache_are_followed(convert_damaged):
    def cache(folder):
        snapshot, blobs = folder / "snapshots" / "main", folder / "blobs"
        snapshot.mkdir(parents=True)
        blobs.mkdir()
        for path in [path for path in folder.iterdir() if path.is_file()]:
            path.rename(blobs / path.name)
            (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
        return [snapshot]

    assert convert_damaged("bilm", cache)[0] == 0


def test_archive_and_output_below_a_link(convert_damaged):
    """Unpacked files are no links, wherever they are unpacked."""

    def damage(folder):
        output = folder.parent / "out"
        output.rename(folder.parent / "real")
        output.symlink_to("real")
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        (folder / "archive").mkdir()
        return [write_zip(folder / "archive" / "x.zip", files)]

    assert convert_damaged("bilm", damage)[0] == 0


# A file that opens, and cannot be read.
UNREADABLE = [
    *(("bilm", name) for name in (WEIGHTS, OPTIONS, "vocab.txt", "softmax.hdf5")),
    *(("many_langs", name) for name in (ENCODER, "word.dic", "config.json")),
    *(("allennlp", "weights.th"), ("tf_hub", "variables/variables.index")),
]


def unreadable(name):
    def damage(folder):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to("/proc/self/mem")

    return damage


@pytest.mark.parametrize("kind, name", UNREADABLE)
def test_files_on_a_damaged_disk_are_named(convert_damaged, kind, name):
    assert_error(convert_damaged(kind, unreadable(name)), f"{name} cannot be read: Input/output error.")


@pytest.mark.parametrize("name", ["x.hdf5", "x.zip", "x.tar.gz", "x.index"])
def test_sources_on_a_damaged_disk_are_named(convert_damaged, name):
    damage = all_of(unreadable(name), path_of(name))
    assert_error(convert_damaged("bilm", damage), f"{name} cannot be read: Input/output error.")


def another_model(folder):
    """Put a whole model next to the weights, with a softmax, and convert only the weights."""
    options = bilm_options()
    arrays = bilm_arrays(options, seed=9, softmax=True)
    write_hdf5(folder / "another.hdf5", arrays)
    return [folder / WEIGHTS]


def test_the_weights_of_another_model_are_not_mixed_in(convert_damaged, pristine, tmp_path):
    assert convert_damaged("bilm", another_model)[0] == 0
    with h5py.File(pristine / "bilm" / WEIGHTS) as file:
        expected = file[NAME][...]
    name = "elmo.token_encoder.characters.convolutions.0.bias"
    assert np.array_equal(load_file(tmp_path / "out" / "x" / "model.safetensors")[name], expected)


def byte_order_mark(*names):
    def damage(folder):
        for name in names:
            (folder / name).write_bytes(b"\xef\xbb\xbf" + (folder / name).read_bytes())

    return damage


@pytest.mark.parametrize("kind, names", [("bilm", [OPTIONS, "vocab.txt"]), ("many_langs", ["word.dic", "char.dic"])])
def test_byte_order_marks_are_dropped(convert_damaged, tmp_path, kind, names):
    assert convert_damaged(kind, byte_order_mark(*names))[0] == 0
    assert "\ufeff" not in (tmp_path / "out" / "x" / "tokenizer.json").read_text(encoding="utf-8")


# What may be wrong, but need not be: the report and the card say it.
NOTED = {
    "float64": ("bilm", change_dataset(NAME, np.float64), "weights of type float64"),
    "float16": ("many_langs", change_tensor(ENCODER, INPUT, torch.Tensor.half), "weights of type float16"),
    "integers": ("bilm", change_dataset(NAME, lambda a: np.zeros(3, "i1")), "weights of type int8"),
    "misspelled": ("bilm", with_options(lstm_projclip=3), "ignored: lstm.projclip."),
    "misspelled-many-langs": ("many_langs", with_many_langs_options(encoder_clip=3), "ignored: encoder.clip."),
    "characters": ("bilm", with_options(char_cnn_n_characters=99), "n_characters in options.json is 99 instead of 261"),
    "other-vocabulary": (
        "bilm",
        all_of(lambda folder: (folder / "softmax.hdf5").unlink(), change_lines("vocab.txt", lambda words: words[:5])),
        "n_tokens_vocab is 11 and vocab.txt has 5 words",
    ),
    "clips": ("bilm", with_options(lstm_cell_clip=None), "cells not clipped, outputs clipped to 0.5"),
    "no-skip": ("bilm", with_options(lstm_use_skip_connections=False), "relu, no skip connections"),
}


@pytest.mark.parametrize("kind, damage, part", NOTED.values(), ids=NOTED)
def test_what_may_be_wrong_is_stated(convert_damaged, tmp_path, kind, damage, part):
    code, out, err = convert_damaged(kind, damage)
    assert (code, err) == (0, "") and part in out
    assert part in (tmp_path / "out" / "x" / "README.md").read_text(encoding="utf-8")


def test_a_strangers_names_are_no_markup(convert_damaged, tmp_path):
    damage = change_tensor("weights.th", "<img src=x>[](y).z", lambda tensor: torch.ones(2))
    assert convert_damaged("allennlp", damage)[0] == 0
    assert "?img src=x???(y)" in (tmp_path / "out" / "x" / "README.md").read_text(encoding="utf-8")


def test_paths_in_an_archive_are_not_read(capfd, tmp_path, skip_verification):
    case = allennlp(tmp_path / "source", where="path")
    result = elmo(capfd, "convert", *case.arguments, "-o", tmp_path / "x")
    assert_error(result, "elmo.json is not in the archive", "--options")


def test_names_do_not_garble_the_terminal_and_the_card(convert_damaged, tmp_path):
    name = b"options\x1b[31m\n|`\xe4.json"  # not UTF-8

    def rename(folder):
        os.rename(folder / OPTIONS, os.fsencode(folder) + b"/" + name)

    code, out, _ = convert_damaged("bilm", rename)
    card = (tmp_path / "out" / "x" / "README.md").read_text(encoding="utf-8")
    assert code == 0 and r"options\x1b[31m\n|`\udce4.json" in out and r"`options\x1b[31m\n??\udce4.json`" in card


def fifo(name):
    def damage(folder):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return damage


ODD_PATHS = {
    "fifo": ("bilm", all_of(fifo(WEIGHTS), path_of(WEIGHTS)), [WEIGHTS, "pipe"]),
    "fifo-in-a-folder": ("bilm", fifo(WEIGHTS), ["source", "must contain a released ELMo"]),
    "fifo-as-options": ("bilm", fifo(OPTIONS), [OPTIONS]),
    "fifo-as-index": ("tf_hub", fifo("variables/variables.index"), ["variables.index"]),
    "fifo-as-shard": ("tf_hub", fifo("variables/variables.data-00000-of-00002"), ["variables.data-00000"]),
    "fifo-as-config": ("many_langs", fifo("config.json"), ["config.json"]),
    "torch-file": ("allennlp", path_of("weights.th"), ["weights.th must be a released ELMo"]),
    "no-config-path": ("many_langs", replace_file("config.json", b'{"config_path": ""}'), ["must contain ''"]),
    "long-config-path": (
        "many_langs",
        replace_file("config.json", b'{"config_path": "%s"}' % (b"a" * 5000)),
        ["must contain 'aaa", "the config_path of config.json"],
    ),
    "no-repository": ("bilm", lambda folder: [folder, "--push-to-hub", ""], ["--push-to-hub", "empty"]),
    "device": ("bilm", lambda folder: ["/dev/zero"], ["/dev/zero", "device"]),
    "null": ("bilm", lambda folder: ["/dev/null"], ["/dev/null", "device"]),
    "deep-config": (
        "allennlp",
        lambda folder: write_json(folder / "config.json", json.loads('{"a":' * 400 + "1" + "}" * 400)) and None,
        ["succeeds"],
    ),
}


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "\udce4", 'a"b'])
def test_outputs_with_odd_names(capfd, tmp_path, skip_verification, name):
    options = bilm_options()
    write_bilm(tmp_path / "source", options, bilm_arrays(options))
    code, out, err = elmo(capfd, "convert", tmp_path / "source", "-o", tmp_path / name)
    assert (code, err) == (0, "") and (tmp_path / name / "model.safetensors").is_file()
    assert all(line.isprintable() for line in out.splitlines())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind, damage, parts", ODD_PATHS.values(), ids=ODD_PATHS)
def test_odd_paths(convert_damaged, kind, damage, parts):
    result = convert_damaged(kind, damage)
    if parts == ["succeeds"]:
        assert result[0] == 0
    else:
        assert_error(result, *parts)
