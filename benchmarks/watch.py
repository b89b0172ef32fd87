"""Time and memory of a loop over batches. Standard library only, since the peers import it too. Linux only."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path


def memory(name: str) -> int:
    """Return a field of /proc/self/status in bytes.

    VmHWM is the peak, like `ru_maxrss`, which however starts at the memory of the parent process.
    """
    return 1024 * int(re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


class Watch:
    """Yields the first batch to warm up, then all batches `rounds` times, and measures the loop's body for each."""

    def __init__(self, batches: list, rounds: int):
        self.batches, self.rounds = batches, rounds
        self.seconds = [float("inf")] * len(batches)  # fastest time of each batch

    def __iter__(self) -> Iterator:
        self.before = memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        yield self.batches[0]
        for _ in range(self.rounds):
            for number, batch in enumerate(self.batches):
                start = time.perf_counter()
                yield batch
                self.seconds[number] = min(self.seconds[number], time.perf_counter() - start)

    def report(self, losses: list[float] | None = None):
        """Print the result as JSON."""
        result = {"seconds": sum(self.seconds), "before": self.before, "peak": memory("VmHWM"), "losses": losses or []}
        print(json.dumps(result))
