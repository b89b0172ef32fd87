"""Time and memory of a loop over batches, with the standard library alone: peers measure with it too. Linux only."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path


def memory(name: str) -> int:
    """Bytes by the name of a line in /proc/self/status.

    VmHWM is the peak as `ru_maxrss` tells it, except that it does not begin with the memory of the parent process.
    """
    return 1024 * int(re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


class Watch:
    """Gives the first batch to warm up, then all of them `rounds` times; what the loop does with each is measured."""

    def __init__(self, batches: list, rounds: int):
        self.batches, self.rounds = batches, rounds
        self.seconds = [float("inf")] * len(batches)  # of each batch, the fastest

    def __iter__(self) -> Iterator:
        self.before = memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
        yield self.batches[0]
        for _ in range(self.rounds):
            for number, batch in enumerate(self.batches):
                start = time.perf_counter()
                yield batch
                self.seconds[number] = min(self.seconds[number], time.perf_counter() - start)

    def report(self, losses: list[float] | None = None):
        """Print the result as the last line, as JSON."""
        result = {"seconds": sum(self.seconds), "before": self.before, "peak": memory("VmHWM"), "losses": losses or []}
        print(json.dumps(result))
