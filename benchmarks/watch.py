"""Time and memory of a loop over batches. Standard library only, since the peers import it too. Linux only."""

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

QUIET = 0.06  # CPUs that other processes may use during an undisturbed measurement


def memory(name: str) -> int:
    """Return a field of /proc/self/status in bytes.

    VmHWM is the peak, like `ru_maxrss`, which however starts at the memory of the parent process.
    """
    return 1024 * int(re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def other_cpu_seconds() -> float:
    """Return the CPU time that all other processes have used since the machine was started."""
    # /proc/stat: user, nice, system, idle, iowait, irq, softirq in clock ticks.
    user, nice, system, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK") - time.process_time()


class Watch:
    """Yields a batch to warm up, then all batches `rounds` times, and measures the loop's body for each.

    The batch to warm up is the first one, unless `warm_up` is given. `before_round` is called before each round, and
    not timed.
    """

    def __init__(self, batches: list, rounds: int, warm_up=None, before_round: Callable[[], object] = lambda: None):
        self.batches, self.rounds, self.before_round = batches, rounds, before_round
        self.warm_up = batches[0] if warm_up is None else warm_up
        self.seconds = [float("inf")] * len(batches)  # fastest time of each batch

    def __iter__(self) -> Iterator:
        self.before = memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        yield self.warm_up
        first, others = time.perf_counter(), other_cpu_seconds()
        for _ in range(self.rounds):
            self.before_round()
            for number, batch in enumerate(self.batches):
                start = time.perf_counter()
                yield batch
                self.seconds[number] = min(self.seconds[number], time.perf_counter() - start)
        self.others = max(0.0, other_cpu_seconds() - others) / (time.perf_counter() - first)

    def result(self) -> dict:
        """Return the sum of the fastest times, memory, and the number of CPUs that other processes used meanwhile."""
        return {"seconds": sum(self.seconds), "before": self.before, "peak": memory("VmHWM"), "others": self.others}

    def report(self, losses: list[float] | None = None):
        """Print the result as JSON."""
        print(json.dumps({**self.result(), "losses": losses or []}))
