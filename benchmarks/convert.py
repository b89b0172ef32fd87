"""How long a conversion takes and how much memory, for weights of the original size (93.6 million parameters).

    python benchmarks/convert.py [--size small|medium|original]

Random weights are written as bilm-tf's files and converted by the command, its verification included. Memory is that of
the command and of the fresh process in which it verifies, as a multiple of the weights' file; a page that both share
counts once. Linux only.
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
    """Bytes of a process and of each of its children by their numbers."""
    try:
        found = {}
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                found[pid] = 1024 * int(line.split()[1])
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in children.read_text().split():
                found |= memory_of(int(child))
        return found
    except OSError:  # it has ended
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
        start, together, largest = time.perf_counter(), 0, 0
        process = subprocess.Popen(command)
        while process.poll() is None:
            memory = memory_of(process.pid)
            together, largest = max(together, sum(memory.values())), max(largest, *memory.values(), 0)
            time.sleep(0.05)
        seconds = time.perf_counter() - start
        if process.returncode:
            sys.exit(process.returncode)
        file = (source / "weights.hdf5").stat().st_size
        print(f"{size}: {seconds:.0f} s for a file of {file / 1e6:,.0f} MB; memory as a multiple of the file:")
        print(f"{largest / file:.2f} the larger process, {together / file:.2f} both together")


if __name__ == "__main__":
    main()
