"""A naive writer of TensorFlow checkpoints (tensor bundles)."""

from pathlib import Path

import numpy as np

SIGNATURE = bytes.fromhex("57fb808b247547db")
HEADER = b"\x08\x02\x1a\x02\x08\x01"  # 2 shards, little-endian, version 1
TYPES = {"f4": 1, "f8": 2, "i4": 3, "u1": 4, "i2": 5, "i1": 6, "c8": 8, "i8": 9, "b1": 10, "u2": 17, "c16": 18}
TYPES |= {"f2": 19, "u4": 22, "u8": 23}
BFLOAT16, STRING = 14, 7


def naive_crc32c(data: bytes) -> int:
    """Compute the CRC-32C bit by bit, by definition."""
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


def compress_snappy(data: bytes) -> bytes:
    """Compress naively: the longest copy of at least 4 bytes wherever there is one, in all three encodings."""
    out, at, literal = varint(len(data)), 0, b""
    while at < len(data):
        sizes = range(min(64, len(data) - at), 3, -1)
        size = next((size for size in sizes if data.find(data[at : at + size], 0, at + size - 1) >= 0), 0)
        if not size:
            literal += data[at : at + 1]
            at += 1
            continue
        out, literal = out + encode_literal(literal), b""
        back = at - data.rfind(data[at : at + size], 0, at + size - 1)
        if size < 12 and back < 2048:
            out += bytes([back >> 8 << 5 | size - 4 << 2 | 1, back % 256])
        elif at % 2 and back < 1 << 16:
            out += bytes([size - 1 << 2 | 2]) + back.to_bytes(2, "little")
        else:
            out += bytes([size - 1 << 2 | 3]) + back.to_bytes(4, "little")
        at += size
    return out + encode_literal(literal)


def encode_literal(data: bytes) -> bytes:
    last = len(data) - 1
    if last < 60:
        return bytes([last << 2]) + data if data else b""
    width = (last.bit_length() + 7) // 8
    return bytes([59 + width << 2]) + last.to_bytes(width, "little") + data


def table(records: dict[bytes, bytes], size=3, restart=2, snappy=False, damage=lambda data: data) -> bytes:
    """Return a sorted table with `size` records per block; `damage` is applied before the checksum."""
    out, places, records = b"", [], sorted(records.items())

    def add(content: bytes) -> bytes:
        nonlocal out
        content = damage(compress_snappy(content) if snappy else content)
        place = varint(len(out)) + varint(len(content))
        out += content + bytes([snappy]) + stored_crc32c(content + bytes([snappy]))
        return place

    for start in range(0, len(records), size):
        chunk = records[start : start + size]
        places.append((chunk[-1][0], add(block(chunk, restart))))
    footer = add(block([], 1)) + add(block(places, 1))
    return out + footer.ljust(40, b"\0") + SIGNATURE


def to_records(variables: dict[str, np.ndarray]) -> tuple[dict[bytes, bytes], list[bytes]]:
    """Return the records of a table and the data of two shards, between which the variables alternate."""
    records, shards = {b"": HEADER}, [b"", b""]
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
