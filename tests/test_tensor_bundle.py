"""TensorBundle against bundles of a naive writer, against one that TensorFlow wrote, and against damage."""

import base64
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transformers_elmo.convert_scripts.tensor_bundle import LANES, TensorBundle, crc32c, unsnap

SIGNATURE = bytes.fromhex("57fb808b247547db")
LITTLE_ENDIAN = b"\x08\x02\x1a\x02\x08\x01"  # header: 2 shards, version 1
TYPES = {"f4": 1, "f8": 2, "i4": 3, "u1": 4, "i2": 5, "i1": 6, "c8": 8, "i8": 9, "b1": 10, "u2": 17, "c16": 18}
TYPES |= {"f2": 19, "u4": 22, "u8": 23}
BFLOAT16, STRING = 14, 7

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


def naive_crc32c(data: bytes) -> int:
    """Bit by bit, from the definition."""
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (0x82F63B78 if checksum & 1 else 0)
    return checksum ^ 0xFFFFFFFF


def stored_crc32c(data: bytes) -> bytes:
    checksum = naive_crc32c(data)
    return ((((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) % (1 << 32)).to_bytes(4, "little")


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value % 128 + 128]) + varint(value // 128)


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return varint(8 * number + 2) + varint(len(value)) + value
    return varint(8 * number) + varint(value)


def entry(dtype: int, shape: tuple[int, ...], shard: int, offset: int, data: bytes, size=None) -> bytes:
    dims = b"".join(field(2, field(1, dim)) for dim in shape)
    place = field(3, shard) + field(4, offset) + field(5, len(data) if size is None else size)
    return field(1, dtype) + field(2, dims) + place + b"\x35" + stored_crc32c(data)


def block(records: list[tuple[bytes, bytes]], restart: int) -> bytes:
    out, starts, last = b"", [], b""
    for number, (key, value) in enumerate(records):
        shared = 0
        if number % restart == 0:
            starts.append(len(out))
        else:
            while key[: shared + 1] == last[: shared + 1] and shared < len(key):
                shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    return out + b"".join(start.to_bytes(4, "little") for start in [*starts, len(starts)])


def snap(data: bytes) -> bytes:
    """Snappy, naively: the longest copy of at least 4 bytes wherever there is one, in all three forms of copies."""
    out, at, literal = varint(len(data)), 0, b""
    while at < len(data):
        sizes = range(min(64, len(data) - at), 3, -1)
        size = next((size for size in sizes if data.find(data[at : at + size], 0, at + size - 1) >= 0), 0)
        if not size:
            literal += data[at : at + 1]
            at += 1
            continue
        out, literal = out + literally(literal), b""
        back = at - data.rfind(data[at : at + size], 0, at + size - 1)
        if size < 12 and back < 2048:
            out += bytes([back >> 8 << 5 | size - 4 << 2 | 1, back % 256])
        elif at % 2 and back < 1 << 16:
            out += bytes([size - 1 << 2 | 2]) + back.to_bytes(2, "little")
        else:
            out += bytes([size - 1 << 2 | 3]) + back.to_bytes(4, "little")
        at += size
    return out + literally(literal)


def literally(data: bytes) -> bytes:
    last = len(data) - 1
    if last < 60:
        return bytes([last << 2]) + data if data else b""
    width = (last.bit_length() + 7) // 8
    return bytes([59 + width << 2]) + last.to_bytes(width, "little") + data


def table(records: dict[bytes, bytes], size=3, restart=2, snappy=False, damage=lambda data: data) -> bytes:
    """A sorted table with `size` records in each block; `damage` comes before the checksum."""
    out, places, records = b"", [], sorted(records.items())

    def add(content: bytes) -> bytes:
        nonlocal out
        content = damage(snap(content) if snappy else content)
        place = varint(len(out)) + varint(len(content))
        out += content + bytes([snappy]) + stored_crc32c(content + bytes([snappy]))
        return place

    for start in range(0, len(records), size):
        chunk = records[start : start + size]
        places.append((chunk[-1][0], add(block(chunk, restart))))
    footer = add(block([], 1)) + add(block(places, 1))
    return out + footer.ljust(40, b"\0") + SIGNATURE


def records_of(variables: dict[str, np.ndarray]) -> tuple[dict[bytes, bytes], list[bytes]]:
    """The records of a table and the data of two shards, which take turns."""
    records, shards = {b"": LITTLE_ENDIAN}, [b"", b""]
    for number, (name, array) in enumerate(variables.items()):
        data, shard = array.tobytes(), number % 2
        dtype = TYPES[array.dtype.str[1:]]
        records[name.encode()] = entry(dtype, array.shape, shard, len(shards[shard]), data)
        shards[shard] += data
    return records, shards


def write(prefix: Path, records: dict[bytes, bytes], shards: list[bytes], **options) -> Path:
    Path(f"{prefix}.index").write_bytes(table(records, **options))
    for number, data in enumerate(shards):
        Path(f"{prefix}.data-{number:05d}-of-00002").write_bytes(data)
    return prefix


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
    assert crc32c(data[1:]) == naive_crc32c(data[1:].tobytes())  # words that are not aligned


@given(st.lists(st.sampled_from([b"a", b"ab", b"lm/CNN/", b"\0\1\2\3", bytes(range(100))]), max_size=40).map(b"".join))
@example(bytes(range(256)) * 2)
@example(bytes(np.random.default_rng(0).integers(0, 256, 3000, np.uint8)) * 2)
def test_snappy(data):
    assert unsnap(snap(data)) == data


def test_snappy_repeats_a_copy_that_is_longer_than_its_way_back():
    assert unsnap(b"\x0b\x04ab\x15\x02") == b"ab" + b"ababababa"


@pytest.mark.parametrize("options", [{}, {"size": 1}, {"size": 100, "restart": 16}, {"snappy": True, "size": 8}])
def test_reads_what_was_written(tmp_path, options):
    expected = variables()
    bundle = TensorBundle(write(tmp_path / "model.ckpt-1", *records_of(expected), **options))
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
    bundle = TensorBundle(write(tmp_path / "m", *records_of({"x": array})))
    assert same(bundle["x"], array)


@pytest.mark.parametrize("shape", [(), (4,), (2, 2)])
def test_reads_bfloat16_as_float32(tmp_path, shape):
    array = np.full(shape, -1.75, "<f4")
    data = (array.view("<u4") >> 16).astype("<u2").tobytes()
    records = {b"": LITTLE_ENDIAN, b"x": entry(BFLOAT16, shape, 0, 0, data)}
    assert same(TensorBundle(write(tmp_path / "m", records, [data]))["x"], array)


def test_reads_large_tensors_in_rows(tmp_path):
    array = np.random.default_rng(0).standard_normal((50, 1000), np.float32)
    bundle = TensorBundle(write(tmp_path / "m", *records_of({"x": array})))
    assert same(bundle["x"], array)


def test_reads_only_what_is_asked_for(tmp_path):
    prefix = write(tmp_path / "m", *records_of(variables()))
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
    with pytest.raises(ValueError, match=r"words of .*: it is of TensorFlow's type 7 \(7: strings\)"):
        bundle["words"]


def test_says_that_there_is_no_checkpoint(tmp_path):
    prefix = write(tmp_path / "m", *records_of(variables()))
    with pytest.raises(FileNotFoundError, match=r"there is no .*other\.index; name a checkpoint without its endings$"):
        TensorBundle(tmp_path / "other")
    with pytest.raises(
        FileNotFoundError, match=r"there is no .*m\.index\.index; name a checkpoint without its endings"
    ):
        TensorBundle(f"{prefix}.index")
    (tmp_path / "first").write_bytes(table({b"": field(1, b"")}))
    with pytest.raises(FileNotFoundError, match="load and save it with TensorFlow if it is of the first format"):
        TensorBundle(tmp_path / "first")


@pytest.mark.parametrize(
    "index, message",
    [
        (b"", "does not end as the index of a checkpoint does: it is something else, or cut short"),
        (b"PK\3\4" * 100, "does not end as the index of a checkpoint does"),
        (SIGNATURE, "does not end as the index of a checkpoint does"),
        (table({b"": LITTLE_ENDIAN})[:-1], "does not end as the index of a checkpoint does"),
        (table({b"": LITTLE_ENDIAN})[1:], "damaged"),
        (b"\xff" * 40 + SIGNATURE, "a number of at most 10 bytes was expected and does not end; it is damaged"),
        (bytes(40) + SIGNATURE, "fails its checksum; it is damaged, fetch it again"),
        (table({}), "has no header"),
        (table({b"x": entry(1, (), 0, 0, bytes(4))}), "has no header"),
        (table({b"": field(1, b"V1")}), "describes something else than variables: field 1 is of kind 2"),
        (table({b"": b"\x0f"}), "describes something else than variables: field 1 is of kind 7"),
        (table({b"": field(1, 1) + field(2, 1)}), "its numbers are big-endian; load and save it with TensorFlow"),
        (table({b"": field(1, 1) + field(3, field(2, 2))}), "wants a reader of version 2, this one is of version 1"),
        (table({b"": LITTLE_ENDIAN, b"x": b"\x0a"}), "bytes were expected where 0 are left; it is damaged"),
        (table({b"": LITTLE_ENDIAN, b"x": field(2, field(2, field(1, 2**64 - 1)))}), "dimension of unknown size"),
        (table({b"": LITTLE_ENDIAN, b"\xff": b""}), "can't decode byte 0xff"),
        (table({b"": LITTLE_ENDIAN}, damage=lambda data: data[:3]), "too short; it is damaged"),
        (table({b"": LITTLE_ENDIAN}, damage=lambda data: b"\7" + data[1:]), "7 bytes were expected where 0 are left"),
        (table({b"": LITTLE_ENDIAN}, snappy=True, damage=lambda data: data + b"\0a"), "compressed block holds"),
        (table({b"": LITTLE_ENDIAN}, snappy=True, damage=lambda data: b"\4\2\1\0"), "copies from before its beginning"),
    ],
)
def test_says_what_is_wrong_with_an_index(tmp_path, index, message):
    (tmp_path / "m.index").write_bytes(index)
    with pytest.raises(ValueError, match=f"^Cannot read .*m.index: .*{message}"):
        TensorBundle(tmp_path / "m")


def test_says_that_an_index_is_not_sorted(tmp_path):
    one = block([(b"", LITTLE_ENDIAN), (b"b", b""), (b"a", b"")], 1) + b"\0"
    two = block([(b"b", varint(0) + varint(len(one) - 1))], 1) + b"\0"
    body = one + stored_crc32c(one) + two + stored_crc32c(two)
    footer = bytes(2) + varint(len(one) + 4) + varint(len(two) - 1)
    (tmp_path / "m.index").write_bytes(body + footer.ljust(40, b"\0") + SIGNATURE)
    with pytest.raises(ValueError, match="keys are not sorted: b'a' follows b'b'"):
        TensorBundle(tmp_path / "m")


def test_refuses_other_compressions(tmp_path):
    index = table({b"": LITTLE_ENDIAN})
    first = block([(b"", LITTLE_ENDIAN)], 1) + b"\2"
    (tmp_path / "m.index").write_bytes(first + stored_crc32c(first) + index[len(first) + 4 :])
    with pytest.raises(ValueError, match=r"block at byte 0 is compressed in way 2, not 0 or 1 \(Snappy\)"):
        TensorBundle(tmp_path / "m")


DATA = np.arange(6, dtype="<f4").tobytes()


@pytest.mark.parametrize(
    "record, message",
    [
        (entry(1, (6,), 0, 4, DATA), "it ends at byte 28, the file at 24: it is cut short; fetch it again"),
        (entry(1, (6,), 0, 2**63, DATA), "it is cut short"),
        (entry(1, (2**40,), 0, 0, DATA, size=2**42), "it is cut short"),
        (entry(1, (5,), 0, 0, DATA), r"24 bytes do not hold float32 of shape \(5,\)"),
        (entry(2, (6,), 0, 0, DATA), r"24 bytes do not hold float64 of shape \(6,\)"),
        (entry(1, (), 0, 0, DATA), r"24 bytes do not hold float32 of shape \(\)"),
        (entry(1, (6,), 0, 0, DATA[::-1]), "it fails its checksum, the file is damaged; fetch it again"),
        (entry(STRING, (6,), 0, 0, DATA), r"it is of TensorFlow's type 7 \(7: strings\), for which numpy has no array"),
        (entry(0, (6,), 0, 0, DATA), "type 0"),
        (entry(1, (6,), 0, 0, DATA) + field(7, b""), "it is partitioned; load it with TensorFlow"),
        (entry(1, (0, 2**62, 2**62), 0, 0, b""), "array is too big|maximum|Maximum"),
    ],
)
def test_says_what_is_wrong_with_a_variable(tmp_path, record, message):
    records = {b"": LITTLE_ENDIAN, b"good": entry(1, (6,), 0, 0, DATA), b"lm/bad": record}
    bundle = TensorBundle(write(tmp_path / "m", records, [DATA]))
    assert bundle["good"].tobytes() == DATA
    with pytest.raises(ValueError, match=f"^Cannot read lm/bad of .*m.data-00000-of-00002: .*({message})"):
        bundle["lm/bad"]


def read_all(prefix: Path) -> dict[str, np.ndarray]:
    """The variables that can be read; whatever is wrong with the rest is said as it should be."""
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
def test_damaged_files_give_the_right_arrays_or_an_error(tmp_path, snappy):
    expected = variables()
    prefix = write(tmp_path / "m", *records_of(expected), snappy=snappy)
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
    assert complete < 30  # the zeros of a footer and a few bits beside them may be anything


@pytest.mark.parametrize("snappy", [False, True])
def test_wrong_content_with_right_checksums_gives_an_error_at_most(tmp_path, snappy):
    generator = np.random.default_rng(1)
    records, shards = records_of(variables())

    def damage(data: bytes) -> bytes:
        data = bytearray(data)
        for at in generator.integers(0, len(data), generator.integers(0, 3)):
            data[at] = generator.choice([0, 1, 127, 128, 255, data[at] ^ 1, generator.integers(256)])
        return bytes(data)

    for _ in range(150):
        read_all(write(tmp_path / "m", records, shards, snappy=snappy, damage=damage))
