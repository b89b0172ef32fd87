"""TensorBundle on bundles of a naive writer, on one that TensorFlow wrote, and on damaged ones."""

import base64
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.tensor_bundles import (
    BFLOAT16,
    HEADER,
    SIGNATURE,
    STRING,
    TYPES,
    block,
    compress_snappy,
    entry,
    field,
    naive_crc32c,
    stored_crc32c,
    table,
    to_records,
    varint,
    write,
)
from transformers_elmo.convert.tensor_bundle import LANES, TensorBundle, crc32c, decompress_snappy

# TensorFlow 2.15, SaveV2 twice and MergeV2Checkpoints: lm/softmax/W in two slices, b_cnn_0 bfloat16, words strings.
TENSORFLOW = {
    "m.index": """AAAGCAIaAggBABUVAGxtL3NvZnRtYXgvVwABAQKAgoB/CAESCBICCAISAggCGAEoEDUdc9c9EQQXgoGAfwgBEggSAggBEgIIAhgB
        IBAoCDXf8EkTAAsPZ2xvYmFsX3N0ZXAICRIAGAEgGCgINQeVEZoADhNsbS9DTk4vV19jbm5fMAgBEggSAggBEgIIAygMNSKTG5AHBw1iX2Nubl8w
        CA4SACAMKAI1SbcDcAMJIHNvZnRtYXgvVwgBEggSAggDEgIIAhgBOgYKAhACCgA6CAoECAIQAQoAAAURd29yZHMIBxIEEgIIAiAOKA01uua6CgAA
        AAABAAAAAK6uIn0AAAAAAQAAAADA8qGwAAEDeAD5AQAAAAABAAAAACO+Zhn+AQiLAg8AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
        V/uAiyR1R9s=""",
    "m.data-00000-of-00002": "AADAPwAAAMAAAFBA4L8DBHRDo6o8Uz48L1M+",
    "m.data-00001-of-00002": "AAAAAAAAgD4AAAA/AABAPwAAgD8AAKA/6AMAAAAAAAA=",
}


def variables() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    shapes = {"global_step": (), "lm/CNN/W_cnn_0": (1, 2, 3, 4), "lm/CNN/W_cnn_0/Adagrad": (1, 2, 3, 4), "lm/b": (5,)}
    shapes |= {"lm/CNN/W_cnn_1": (1, 1), "nothing": (0, 3), "lm/Ж": (2, 2), "lm/softmax/W": (7, 3)}
    return {name: generator.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


@pytest.mark.parametrize(
    "data, checksum",
    [
        (b"", 0),
        (b"a", 0xC1D04330),
        (b"123456789", 0xE3069283),
        # RFC 3720, B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_crc32c_of_published_vectors(data, checksum):
    assert crc32c(data) == naive_crc32c(data) == checksum


@pytest.mark.parametrize("size", [*range(10), 63, 64, 65, 4 * LANES - 1, 4 * LANES, 4 * LANES + 1, 8 * LANES + 7])
def test_crc32c_of_every_remainder(size):
    data = np.random.default_rng(size).integers(0, 256, size + 1, np.uint8)
    assert crc32c(data[:size]) == naive_crc32c(data[:size].tobytes())
    assert crc32c(data[1:]) == naive_crc32c(data[1:].tobytes())  # unaligned words


@given(st.lists(st.sampled_from([b"a", b"ab", b"lm/CNN/", b"\0\1\2\3", bytes(range(100))]), max_size=40).map(b"".join))
@example(bytes(range(256)) * 2)
@example(bytes(np.random.default_rng(0).integers(0, 256, 3000, np.uint8)) * 2)
def test_snappy(data):
    assert decompress_snappy(compress_snappy(data)) == data


def test_snappy_repeats_a_copy_that_is_longer_than_its_offset():
    assert decompress_snappy(b"\x0b\x04ab\x15\x02") == b"ab" + b"ababababa"


@pytest.mark.parametrize("options", [{}, {"size": 1}, {"size": 100, "restart": 16}, {"snappy": True, "size": 8}])
def test_reads_what_was_written(tmp_path, options):
    expected = variables()
    bundle = TensorBundle(write(tmp_path / "model.ckpt-1", *to_records(expected), **options))
    assert list(bundle) == sorted(expected) and len(bundle) == len(expected)
    for name, array in expected.items():
        assert bundle.shape(name) == array.shape
        assert same(bundle[name], array)
    assert dict(bundle).keys() == expected.keys()
    with pytest.raises(KeyError):
        bundle["lm"]


@pytest.mark.parametrize("dtype", TYPES)
def test_reads_each_type(tmp_path, dtype):
    array = np.random.default_rng(0).integers(0, 2, (3, 2)).astype(f"<{dtype}")
    bundle = TensorBundle(write(tmp_path / "m", *to_records({"x": array})))
    assert same(bundle["x"], array)


@pytest.mark.parametrize("shape", [(), (4,), (2, 2)])
def test_reads_bfloat16_as_float32(tmp_path, shape):
    array = np.full(shape, -1.75, "<f4")
    data = (array.view("<u4") >> 16).astype("<u2").tobytes()
    records = {b"": HEADER, b"x": entry(BFLOAT16, shape, 0, 0, data)}
    assert same(TensorBundle(write(tmp_path / "m", records, [data]))["x"], array)


def test_reads_large_tensors_in_rows(tmp_path):
    array = np.random.default_rng(0).standard_normal((50, 1000), np.float32)
    bundle = TensorBundle(write(tmp_path / "m", *to_records({"x": array})))
    assert same(bundle["x"], array)


def test_reads_only_what_is_accessed(tmp_path):
    prefix = write(tmp_path / "m", *to_records(variables()))
    (tmp_path / "m.data-00001-of-00002").unlink()
    bundle = TensorBundle(str(prefix))
    assert bundle.shape("lm/CNN/W_cnn_0") == (1, 2, 3, 4)
    assert "lm/CNN/W_cnn_0" in bundle and "lm" not in bundle
    assert same(bundle["global_step"], variables()["global_step"])
    with pytest.raises(FileNotFoundError, match=r"lm/CNN/W_cnn_0 of .*m\.index: .*m\.data-00001-of-00002 is missing"):
        bundle["lm/CNN/W_cnn_0"]


def test_reads_what_tensorflow_wrote(tmp_path):
    for name, text in TENSORFLOW.items():
        (tmp_path / name).write_bytes(base64.b64decode(text))
    bundle = TensorBundle(tmp_path / "m")
    shapes = {"global_step": (), "lm/CNN/W_cnn_0": (1, 3), "lm/CNN/b_cnn_0": (), "lm/softmax/W": (3, 2), "words": (2,)}
    assert {name: bundle.shape(name) for name in bundle} == shapes
    assert same(bundle["global_step"], np.array(1000, "<i8"))
    assert same(bundle["lm/CNN/W_cnn_0"], np.array([[1.5, -2.0, 3.25]], "<f4"))
    assert same(bundle["lm/CNN/b_cnn_0"], np.array(-1.75, "<f4"))
    with pytest.raises(ValueError, match=r"lm/softmax/W of .*m\.data-00001-of-00002: it is partitioned; load it with"):
        bundle["lm/softmax/W"]
    with pytest.raises(ValueError, match=r"words of .*: it has TensorFlow's dtype 7 \(7: strings\)"):
        bundle["words"]


def test_missing_checkpoint(tmp_path):
    prefix = write(tmp_path / "m", *to_records(variables()))
    remedy = "pass a checkpoint's path without its suffix"
    with pytest.raises(FileNotFoundError, match=rf"there is no .*other\.index; {remedy}\.$"):
        TensorBundle(tmp_path / "other")
    with pytest.raises(FileNotFoundError, match=rf"there is no .*m\.index\.index; {remedy}"):
        TensorBundle(f"{prefix}.index")
    (tmp_path / "first").write_bytes(table({b"": field(1, b"")}))
    with pytest.raises(FileNotFoundError, match="load and save it with TensorFlow if it is of format V1"):
        TensorBundle(tmp_path / "first")


@pytest.mark.parametrize(
    "index, message",
    [
        (b"", "does not end like the index of a checkpoint: it is something else, or truncated"),
        (b"PK\3\4" * 100, "does not end like the index of a checkpoint"),
        (SIGNATURE, "does not end like the index of a checkpoint"),
        (table({b"": HEADER})[:-1], "does not end like the index of a checkpoint"),
        (table({b"": HEADER})[1:], "damaged"),
        (b"\xff" * 40 + SIGNATURE, "expected an integer of at most 10 bytes; it is damaged"),
        (bytes(40) + SIGNATURE, "fails its checksum; it is damaged, download it again"),
        (table({}), "has no header"),
        (table({b"x": entry(1, (), 0, 0, bytes(4))}), "has no header"),
        (table({b"": field(1, b"V1")}), "does not describe variables: field 1 has wire type 2"),
        (table({b"": b"\x0f"}), "does not describe variables: field 1 has wire type 7"),
        (table({b"": field(1, 1) + field(2, 1)}), "it is big-endian; load and save it with TensorFlow"),
        (table({b"": field(1, 1) + field(3, field(2, 2))}), "requires a reader of version 2; this one has version 1"),
        (table({b"": HEADER, b"x": b"\x0a"}), "bytes, 0 are left; it is damaged"),
        (table({b"": HEADER, b"x": field(2, field(2, field(1, 2**64 - 1)))}), "dimension of unknown size"),
        (table({b"": HEADER, b"\xff": b""}), "can't decode byte 0xff"),
        (table({b"": HEADER}, damage=lambda data: data[:3]), "too short; it is damaged"),
        (table({b"": HEADER}, damage=lambda data: b"\7" + data[1:]), "expected 7 bytes, 0 are left"),
        (table({b"": HEADER}, snappy=True, damage=lambda data: data + b"\0a"), "compressed block has"),
        (table({b"": HEADER}, snappy=True, damage=lambda data: b"\4\2\1\0"), "refers to bytes before its start"),
    ],
)
def test_damaged_index(tmp_path, index, message):
    (tmp_path / "m.index").write_bytes(index)
    with pytest.raises(ValueError, match=f"^Cannot read .*m.index: .*{message}"):
        TensorBundle(tmp_path / "m")


def test_unsorted_index(tmp_path):
    one = block([(b"", HEADER), (b"b", b""), (b"a", b"")], 1) + b"\0"
    two = block([(b"b", varint(0) + varint(len(one) - 1))], 1) + b"\0"
    body = one + stored_crc32c(one) + two + stored_crc32c(two)
    footer = bytes(2) + varint(len(one) + 4) + varint(len(two) - 1)
    (tmp_path / "m.index").write_bytes(body + footer.ljust(40, b"\0") + SIGNATURE)
    with pytest.raises(ValueError, match="keys are not sorted: b'a' follows b'b'"):
        TensorBundle(tmp_path / "m")


def test_unknown_compression(tmp_path):
    index = table({b"": HEADER})
    first = block([(b"", HEADER)], 1) + b"\2"
    (tmp_path / "m.index").write_bytes(first + stored_crc32c(first) + index[len(first) + 4 :])
    with pytest.raises(ValueError, match=r"block at byte 0 has compression 2, not 0 \(none\) or 1 \(Snappy\)"):
        TensorBundle(tmp_path / "m")


DATA = np.arange(6, dtype="<f4").tobytes()


@pytest.mark.parametrize(
    "record, message",
    [
        (entry(1, (6,), 0, 4, DATA), "it ends at byte 28, the file at 24: the file is truncated; download it again"),
        (entry(1, (6,), 0, 2**63, DATA), "the file is truncated"),
        (entry(1, (2**40,), 0, 0, DATA, size=2**42), "the file is truncated"),
        (entry(1, (5,), 0, 0, DATA), r"24 bytes are not the size of float32 with shape \(5,\)"),
        (entry(2, (6,), 0, 0, DATA), r"24 bytes are not the size of float64 with shape \(6,\)"),
        (entry(1, (), 0, 0, DATA), r"24 bytes are not the size of float32 with shape \(\)"),
        (entry(1, (6,), 0, 0, DATA[::-1]), "it fails its checksum, so the file is damaged; download it again"),
        (entry(STRING, (6,), 0, 0, DATA), r"it has TensorFlow's dtype 7 \(7: strings\), which numpy does not have"),
        (entry(0, (6,), 0, 0, DATA), "dtype 0"),
        (entry(1, (6,), 0, 0, DATA) + field(7, b""), "it is partitioned; load it with TensorFlow"),
        (entry(1, (0, 2**62, 2**62), 0, 0, b""), "array is too big|maximum|Maximum"),
    ],
)
def test_damaged_variable(tmp_path, record, message):
    records = {b"": HEADER, b"good": entry(1, (6,), 0, 0, DATA), b"lm/bad": record}
    bundle = TensorBundle(write(tmp_path / "m", records, [DATA]))
    assert bundle["good"].tobytes() == DATA
    with pytest.raises(ValueError, match=f"^Cannot read lm/bad of .*m.data-00000-of-00002: .*({message})"):
        bundle["lm/bad"]


def read_all(prefix: Path) -> dict[str, np.ndarray]:
    """Return the variables that can be read; errors of the others must name the file and the variable."""
    arrays = {}
    try:
        bundle = TensorBundle(prefix)
    except (ValueError, OSError) as error:
        assert str(prefix) in str(error)
        return arrays
    for name in bundle:
        try:
            arrays[name] = bundle[name]
        except (ValueError, OSError) as error:
            assert str(prefix) in str(error) and name in str(error)
    return arrays


@pytest.mark.parametrize("snappy", [False, True])
def test_damaged_files_give_the_right_arrays_or_raise(tmp_path, snappy):
    expected = variables()
    prefix = write(tmp_path / "m", *to_records(expected), snappy=snappy)
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    generator = np.random.default_rng(0)
    complete = 0
    for _ in range(150):
        path = list(files)[generator.integers(len(files))]
        damaged = bytearray(files[path])
        if generator.random() < 0.2:
            damaged = damaged[: generator.integers(len(damaged))]
        else:
            for at in generator.integers(0, len(damaged), generator.integers(1, 4)):
                damaged[at] ^= generator.integers(1, 256)
        path.write_bytes(damaged)
        found = read_all(prefix)
        path.write_bytes(files[path])
        assert all(same(array, expected[name]) for name, array in found.items())
        complete += len(found) == len(expected)
    assert complete < 30  # the zeros of a footer and a few bits next to them are not checked


@pytest.mark.parametrize("snappy", [False, True])
def test_wrong_content_with_valid_checksums_raises_at_worst(tmp_path, snappy):
    generator = np.random.default_rng(1)
    records, shards = to_records(variables())

    def damage(data: bytes) -> bytes:
        data = bytearray(data)
        for at in generator.integers(0, len(data), generator.integers(0, 3)):
            data[at] = generator.choice([0, 1, 127, 128, 255, data[at] ^ 1, generator.integers(256)])
        return bytes(data)

    for _ in range(150):
        read_all(write(tmp_path / "m", records, shards, snappy=snappy, damage=damage))
