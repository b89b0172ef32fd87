# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Read the variables of a TensorFlow checkpoint without TensorFlow.

A checkpoint of format V2, a "tensor bundle", consists of PREFIX.index, a sorted table from names to locations, and
PREFIX.data-0000i-of-0000n, the bytes of the tensors. This follows TensorFlow's tensor_bundle.cc and
tensor_bundle.proto, LevelDB's table_format.md and Snappy's format_description.txt.

All data is verified: the blocks of the table and the tensors have CRC-32C checksums (RFC 3720, B.4).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

import numpy as np

from ..files import named_errors, one_line

POLYNOMIAL = 0x82F63B78  # of CRC-32C, bits reversed: bit 31 is x^0, bit 0 is x^31, x^32 is implicit
LANES = 1 << 14  # 32-bit words that are checksummed in parallel

FOOTER = 48  # bytes: the locations of two blocks, zeros, the signature
SIGNATURE = 0xDB4775248B80FB57.to_bytes(8, "little")
VERSION = 1  # of the bundle format
MAX_KEY = 1000  # bytes; keys that share prefixes could otherwise take far more memory than the table
MAX_DIMENSIONS = 254  # of a tensor, as in TensorFlow

BFLOAT16 = 14
# By the numbers in types.proto. Strings (7), quantized types and handles have no numpy dtype.
DTYPES = {
    1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 8: "<c8", 9: "<i8", 10: "?", BFLOAT16: "<u2",
    17: "<u2", 18: "<c16", 19: "<f2", 22: "<u4", 23: "<u8",
}  # fmt: skip


def multiply(a, b):
    """Multiply polynomials over GF(2), integers or uint32 arrays, modulo the polynomial of the checksum."""
    product = 0
    for bit in range(31, -1, -1):
        product = product ^ (a >> bit & 1) * b
        b = b >> 1 ^ (b & 1) * POLYNOMIAL  # times x
    return product


@cache
def shift_factor(size: int) -> int:
    """Return x^(8 size), the factor by which `size` trailing zero bytes change a checksum."""
    if size == 0:
        return 1 << 31
    half = shift_factor(size // 2)
    return multiply(multiply(half, half), 1 << 23 if size % 2 else 1 << 31)


@cache
def tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the products of `shift_factor(4 * LANES)` with each lower and each upper half of a word, (65536,) each,
    and the factor of each lane, (LANES,).
    """
    halves, weights = np.arange(1 << 16, dtype="<u4"), np.array([shift_factor(4)], "<u4")
    while len(weights) < LANES:
        weights = np.concatenate([multiply(shift_factor(4 * len(weights)), weights), weights])
    row = shift_factor(4 * LANES)
    return multiply(row, halves), multiply(row, halves << 16), weights


def crc32c(data: bytes | np.ndarray) -> int:
    """Return the CRC-32C of bytes, at about 1 GB/s by table lookups in numpy.

    The checksum is linear. Lane i sums the words i, i + LANES, i + 2 LANES, …: each row of words shifts the sums of the
    previous rows by the length of a row, and finally each lane is shifted to its position.
    """
    data = np.frombuffer(data, np.uint8)
    lower, upper, weights = tables()
    first = len(data) % (4 * LANES)  # bytes of the first row, the only one that may be shorter
    sums = np.zeros(4 * min(LANES, -(-len(data) // 4)), np.uint8)
    sums[len(sums) - first :] = data[:first]  # leading zeros do not change the sum
    sums = sums.view("<u4")  # one per lane
    for row in data[first:].view("<u4").reshape(-1, LANES):
        # No index is out of range; "clip" is just numpy's fastest mode.
        sums = lower.take(sums & 0xFFFF, mode="clip") ^ upper.take(sums >> 16, mode="clip") ^ row
    total = int(np.bitwise_xor.reduce(multiply(weights[LANES - len(sums) :], sums)))
    return total ^ multiply(shift_factor(len(data)), 0xFFFFFFFF) ^ 0xFFFFFFFF  # inverted before and after


def masked(checksum: int) -> int:
    """Return a checksum as it is stored: rotated and offset, so that data with checksums can be checksummed."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def little_endian(data: bytes) -> int:
    return int.from_bytes(data, "little")


class Cursor:
    """A reader of bytes; true while some are left."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def __bool__(self) -> bool:
        return self.at < len(self.data)

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise ValueError(f"expected {size} bytes, {len(self.data) - self.at} are left; it is damaged")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self) -> int:
        """Read an integer of 7 bits per byte, the lowest first; the eighth bit is set if more follow."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("expected an integer of at most 10 bytes; it is damaged")


def decompress_snappy(data: bytes) -> bytes:
    """Decompress Snappy: literal bytes, and copies of earlier ones."""
    packed, out = Cursor(data), bytearray()
    length = packed.varint()
    while packed:
        tag = packed.take(1)[0]
        kind, size = tag & 3, (tag >> 2) + 1
        if kind == 0:
            out += packed.take(size if size <= 60 else little_endian(packed.take(size - 60)) + 1)
            continue
        back = little_endian(packed.take((1, 2, 4)[kind - 1]))
        if kind == 1:
            back, size = back | tag >> 5 << 8, (tag >> 2 & 7) + 4
        if not 0 < back <= len(out):
            raise ValueError("a compressed block refers to bytes before its start; it is damaged")
        copied = out[len(out) - back : len(out) - back + size]
        out += (copied * (size // len(copied) + 1))[:size]  # a copy longer than its offset repeats itself
    if len(out) != length:
        raise ValueError(f"a compressed block has {len(out)} bytes instead of {length}; it is damaged")
    return bytes(out)


def read_block(table: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block.

    A key is stored as the length of the prefix that it shares with the previous key, and the rest.
    """
    stored = Cursor(table[offset : offset + size + 5])
    block, compression, checksum = stored.take(size), stored.take(1), stored.take(4)
    if masked(crc32c(block + compression)) != little_endian(checksum):
        raise ValueError(f"the block at byte {offset} fails its checksum; it is damaged, download it again")
    if compression not in (b"\0", b"\1"):
        raise ValueError(f"the block at byte {offset} has compression {compression[0]}, not 0 (none) or 1 (Snappy)")
    if compression == b"\1":
        block = decompress_snappy(block)
    # The block ends with an index for binary search: the offsets of complete keys, 4 bytes each, and their number.
    end = len(block) - 4 * little_endian(block[-4:]) - 4
    if end < 0:
        raise ValueError(f"the block at byte {offset} is too short; it is damaged")
    entries, key = Cursor(block[:end]), b""
    while entries:
        shared, rest, length = entries.varint(), entries.varint(), entries.varint()
        if shared + rest > MAX_KEY:
            raise ValueError(f"a name has {shared + rest} bytes, more than {MAX_KEY}; it is damaged")
        key = Cursor(key).take(shared) + entries.take(rest)
        yield key, entries.take(length)


def read_table(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a sorted table."""
    if len(table) < FOOTER or not table.endswith(SIGNATURE):
        raise ValueError("it does not end like the index of a checkpoint: it is something else, or truncated")
    # Two blocks: one with statistics, empty in TensorFlow, and one with the locations of all others.
    footer = Cursor(table[-FOOTER:])
    _, _, offset, size = [footer.varint() for _ in range(4)]
    last, end = None, 0
    for _, value in read_block(table, offset, size):
        location = Cursor(value)
        start, size = location.varint(), location.varint()
        if start < end:
            raise ValueError(f"the block at byte {start} overlaps another; it is damaged")
        end = start + size
        for key, value in read_block(table, start, size):
            if last is not None and key <= last:
                raise ValueError(f"its keys are not sorted: {key!r} follows {last!r}; it is damaged")
            yield key, value
            last = key


def read_message(data: bytes, known: dict[int, type]) -> dict[int, list]:
    """Return the values of a protocol buffer by field number; `known` fields must be of these types."""
    message, found = Cursor(data), defaultdict(list)
    while message:
        field, kind = divmod(message.varint(), 8)
        value: int | bytes | None = None
        if kind == 0:
            value = message.varint()
        elif kind == 2:
            value = message.take(message.varint())
        elif kind == 5:
            value = little_endian(message.take(4))
        if not isinstance(value, known.get(field, int | bytes)):
            raise ValueError(f"it does not describe variables: field {field} has wire type {kind}")
        found[field].append(value)
    return found


def last_of(values: list, default=0):
    return values[-1] if values else default  # defaults are not stored


@dataclass(frozen=True)
class Entry:
    """The location, dtype and shape of a tensor: BundleEntryProto."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    sliced: bool

    @classmethod
    def parse(cls, message: bytes) -> "Entry":
        found = read_message(message, {1: int, 2: bytes, 3: int, 4: int, 5: int, 6: int, 7: bytes})
        dims = read_message(last_of(found[2], b""), {2: bytes})[2]
        shape = tuple(last_of(read_message(dim, {1: int})[1]) for dim in dims)
        if len(shape) > MAX_DIMENSIONS:
            raise ValueError(f"a tensor has {len(shape)} dimensions; it is damaged")
        if any(size >= 1 << 63 for size in shape):
            raise ValueError(f"a tensor has a dimension of unknown size, {shape}")
        return cls(
            dtype=last_of(found[1]),
            shape=shape,
            shard=last_of(found[3]),
            offset=last_of(found[4]),
            size=last_of(found[5]),
            checksum=last_of(found[6]),
            sliced=bool(found[7]),
        )


class TensorBundle(Mapping[str, np.ndarray]):
    """The variables of a TensorFlow checkpoint, each read when it is accessed.

    `prefix` is a path without suffixes, e.g. "model.ckpt-1000". Strings, partitioned variables and others without a
    numpy equivalent are listed, but raise ValueError when they are accessed.
    """

    def __init__(self, prefix: str | Path):
        self.prefix = Path(prefix)
        self.index = Path(f"{prefix}.index")
        if not self.index.is_file():
            hint = ", or load and save it with TensorFlow if it is of format V1" if self.prefix.is_file() else ""
            raise FileNotFoundError(
                f"Cannot read {prefix}: there is no {self.index}; pass a checkpoint's path without its suffix{hint}."
            )
        with named_errors(self.index):
            table = self.index.read_bytes()
        try:
            records = dict(read_table(table))
            self._shards = self._read_header(records.pop(b"", b""))
            # Slices of partitioned variables have keys that start with a zero byte.
            self._entries = {
                key.decode(): Entry.parse(value) for key, value in records.items() if not key.startswith(b"\0")
            }
        except ValueError as error:
            raise ValueError(f"Cannot read {self.index}: {one_line(error)}.") from error

    @staticmethod
    def _read_header(message: bytes) -> int:
        header = read_message(message, {1: int, 2: int, 3: bytes})
        shards, endianness = last_of(header[1]), last_of(header[2])
        oldest = last_of(read_message(last_of(header[3], b""), {2: int})[2])
        if not shards:
            raise ValueError("it has no header, so it is not the index of a checkpoint")
        if endianness:
            raise ValueError("it is big-endian; load and save it with TensorFlow on a little-endian machine")
        if oldest > VERSION:
            raise ValueError(f"it requires a reader of version {oldest}; this one has version {VERSION}")
        return shards

    def __getitem__(self, name: str) -> np.ndarray:
        entry = self._entries[name]
        path = Path(f"{self.prefix}.data-{entry.shard:05d}-of-{self._shards:05d}")
        if not path.is_file():
            raise FileNotFoundError(f"Cannot read {name} of {self.index}: {path} is missing; put it next to the index.")
        try:
            with named_errors(path):
                return self._read_tensor(entry, path)
        except ValueError as error:
            raise ValueError(f"Cannot read {name} of {path}: {one_line(error)}.") from error

    @staticmethod
    def _read_tensor(entry: Entry, path: Path) -> np.ndarray:
        if entry.dtype not in DTYPES:
            raise ValueError(f"it has TensorFlow's dtype {entry.dtype} (7: strings), which numpy does not have")
        if entry.sliced:
            raise ValueError("it is partitioned; load it with TensorFlow and save it without a partitioner")
        dtype = np.dtype(DTYPES[entry.dtype])
        if entry.size != prod(entry.shape) * dtype.itemsize:
            raise ValueError(f"{entry.size} bytes are not the size of {dtype.name} with shape {entry.shape}")
        end, found = entry.offset + entry.size, path.stat().st_size
        if end > found:
            raise ValueError(f"it ends at byte {end}, the file at {found}: the file is truncated; download it again")
        data = np.fromfile(path, np.uint8, entry.size, offset=entry.offset)
        if masked(crc32c(data)) != entry.checksum:
            raise ValueError("it fails its checksum, so the file is damaged; download it again")
        values = data.view(dtype)
        if entry.dtype == BFLOAT16:
            values = (values.astype("<u4") << 16).view("<f4")  # the upper half of a float32
        return values.reshape(entry.shape)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entries[name].shape

    def dtype(self, name: str) -> str:
        number = self._entries[name].dtype
        return "bfloat16" if number == BFLOAT16 else np.dtype(DTYPES.get(number, "V")).name

    def __contains__(self, name: object) -> bool:
        return name in self._entries  # Mapping would read the tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
