"""Time and memory of a conversion, by default of a model of the original size (93.6 million parameters).

    python benchmarks/convert.py [--size small|medium|original]

Random weights in bilm-tf's format are converted with the `elmo` command, verification included. Memory is that of the
command and of the verification process, as a multiple of the size of the weights; shared pages count once. Linux only.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from transformers_elmo import ElmoConfig, ElmoModel, ElmoTokenizer
from transformers_elmo.convert.export import export_bilm


def memory_of(pid: int) -> dict[int, int]:
    """Return the memory of a process and of each of its children in bytes, by process id, as the Pss of Linux."""
    try:
        found = {}
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                found[pid] = 1024 * int(line.split()[1])
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in children.read_text().split():
                found |= memory_of(int(child))
        return found
    except OSError:  # the process has ended
        return {}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=["small", "medium", "original"], default="original")
    size = parser.parse_args().size
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "source", Path(folder) / "output"
        torch.manual_seed(0)
        export_bilm(ElmoModel(getattr(ElmoConfig, size)()), ElmoTokenizer(), source)
        command = [sys.executable, "-m", "transformers_elmo.command", "convert", str(source), "-o", str(output)]
        start, total, largest = time.perf_counter(), 0, 0
        process = subprocess.Popen(command)
        while process.poll() is None:
            memory = memory_of(process.pid)
            total, largest = max(total, sum(memory.values())), max(largest, *memory.values(), 0)
            time.sleep(0.05)
        seconds = time.perf_counter() - start
        if process.returncode:
            sys.exit(process.returncode)
        file_size = (source / "weights.hdf5").stat().st_size
        print(f"{size}: {seconds:.0f} s for {file_size / 1e6:,.0f} MB of weights; memory as a multiple of that:")
        print(f"{largest / file_size:.2f} in the larger process, {total / file_size:.2f} in both")


if __name__ == "__main__":
    main()
