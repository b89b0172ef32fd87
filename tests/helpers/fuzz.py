"""Damaged copies of a valid file: a hypothesis strategy for the suite, and long random runs in child processes."""

import os
import resource
import signal
import time
import traceback
from collections.abc import Callable
from random import Random

from hypothesis import strategies as st

# Claimed sizes: the limits of integer types in both byte orders, and what a parser of text may trip over.
NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
TOKENS = (
    *(b"NaN", b"Infinity", b"-1", b"1e400", b"1e300", b"1.5", b"9" * 30, b"9" * 5000, b"true", b"null", b"{}", b"[]"),
    *(b'""', b'"', b",", b"\\", b"\\ud800", b"\0", b"\n", b"\r", b"\t", b"\xff", b"\xef\xbb\xbf", b"\xe2\x80\xa8"),
    *(b"[" * 100_000, b'{"a":' * 100_000, b"../", b"/etc/passwd"),
)


def flip_bit(content: bytes, random: Random) -> bytes:
    at = random.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << random.randrange(8)]) + content[at + 1 :]


def set_byte(content: bytes, random: Random) -> bytes:
    at = random.randrange(len(content))
    return content[:at] + bytes([random.randrange(256)]) + content[at + 1 :]


def set_number(content: bytes, random: Random) -> bytes:
    """Overwrite up to eight bytes with a number, often the length of something and then a huge one."""
    size = random.choice((1, 2, 4, 8))
    number = (random.choice(NUMBERS) % (1 << 8 * size)).to_bytes(size, random.choice(("little", "big")))
    at = random.randrange(len(content))
    return content[:at] + number + content[at + size :]


def insert_token(content: bytes, random: Random) -> bytes:
    at = random.randint(0, len(content))
    return content[:at] + random.choice(TOKENS) + content[at:]


def replace_digits(content: bytes, random: Random) -> bytes:
    """Replace the first run of digits after a random place, a number in JSON, with a token."""
    digits = [at for at, byte in enumerate(content) if 48 <= byte < 58]
    if not digits:
        return insert_token(content, random)
    start = end = random.choice(digits)
    while content[end : end + 1].isdigit():
        end += 1
    return content[:start] + random.choice(TOKENS) + content[end:]


def cut_end(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content))]


def cut_out(content: bytes, random: Random) -> bytes:
    start, end = piece(content, random)
    return content[:start] + content[end:]


def repeat(content: bytes, random: Random) -> bytes:
    start, end = piece(content, random)
    return content[:end] + content[start:]


def move(content: bytes, random: Random) -> bytes:
    """Overwrite a piece with another one."""
    start, end = piece(content, random)
    at = random.randrange(len(content))
    return content[:at] + content[start:end] + content[at + end - start :]


def piece(content: bytes, random: Random) -> tuple[int, int]:
    start = random.randrange(len(content))
    return start, min(len(content), start + random.choice((1, 2, 4, 8, 64, 1024)))


EDITS = (
    *(flip_bit, set_byte, set_number, set_number, insert_token, replace_digits),
    *(cut_end, cut_out, repeat, move),
)


def damage(seed: bytes, random: Random) -> bytes:
    """Return a copy of a file with one to three random edits."""
    for _ in range(random.randint(1, 3)):
        seed = random.choice(EDITS)(seed, random) if seed else b"\0"
    return seed


def damaged(seed: bytes) -> st.SearchStrategy[bytes]:
    """Draw damaged copies of a file."""
    return st.builds(damage, st.just(seed), st.randoms(use_true_random=False))


def fuzz(
    check: Callable[[Random], object],
    count: int,
    *,
    start: int | None = None,
    memory: int = 1 << 30,
    seconds: int = 20,
    batch: int = 500,
) -> list[str]:
    """Call `check` with `count` random generators, in forked children with limits of memory and of time per call.

    Returns the failures: calls that raise, crash or hang. The generator of call i is `Random(i)`, so that a failure can
    be repeated; calls are numbered from `start`, by default from the time.
    """
    failures, number = [], int(time.time()) * 1000 if start is None else start
    end = number + count
    while number < end:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            run_calls(check, range(number, min(end, number + batch)), write, memory, seconds)
        os.close(write)
        with open(read, encoding="utf-8") as pipe:
            reports = pipe.read().split("\0")
        _, status = os.waitpid(child, 0)
        failures += [report for report in reports if not report.isdecimal() and report]
        number = max((int(report) for report in reports if report.isdecimal()), default=number) + 1
        if os.WIFSIGNALED(status):
            failures.append(f"Random({number - 1}): {signal.strsignal(os.WTERMSIG(status))}")
    return failures


def run_calls(check: Callable[[Random], object], numbers: range, pipe: int, memory: int, seconds: int):
    """Report each call's number before it starts, and its traceback if it raises; end this process."""
    with open("/proc/self/statm") as sizes:
        limit = int(sizes.read().split()[0]) * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # kills, also within C code
    for number in numbers:
        os.write(pipe, f"{number}\0".encode())
        signal.alarm(seconds)
        try:
            check(Random(number))
        except BaseException:
            report = traceback.format_exc()[-2000:].replace("\0", "")
            os.write(pipe, f"Random({number}): {report}\0".encode(errors="backslashreplace"))
    os._exit(0)
