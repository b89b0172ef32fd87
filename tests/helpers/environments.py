"""Run scripts in other processes, such as those of a virtual environment without the package."""

import inspect
import json
import os
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import numpy as np
import pytest

from helpers.hub_server import LoopbackHub

REPOSITORY = Path(__file__).resolve().parents[2]


def arrays_of(model, tokenizer, texts) -> dict:
    """Return the inputs, the layers, the mix and the head's output of a model of any class, by name."""
    import torch

    model.eval()
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        base = model.base_model(**inputs, output_hidden_states=True)
        arrays = {**inputs, "mix": base.last_hidden_state}
        arrays |= {f"layer {index}": layer for index, layer in enumerate(base.hidden_states)}
        if model.base_model is not model:
            arrays["head"] = model(**inputs)[0]
    return {name: tensor.numpy() for name, tensor in arrays.items()}


def open_checkpoint(name, auto_class, **options):
    """Load a model and its tokenizer with the Auto classes, seeded because a new head is random."""
    import torch
    import transformers

    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(name, **options)
    return getattr(transformers, auto_class).from_pretrained(name, **options), tokenizer


def make_environment(folder: Path) -> Path:
    """Create a virtual environment that sees all packages of this one except ours, and return its interpreter.

    A .pth file adds this environment's site-packages, whose own .pth files, such as that of an editable install, are
    not processed.
    """
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"), folder / "Lib" / "site-packages")
    outer = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (site / "outer.pth").write_text("\n".join(outer))
    python = next(path for path in (folder / "bin" / "python", folder / "Scripts" / "python.exe") if path.exists())
    check = "import importlib.util; print(importlib.util.find_spec('transformers_elmo'))"
    result = subprocess.run([python, "-c", check], cwd=folder, env=environment(), capture_output=True, text=True)
    if result.stdout.strip() != "None":
        pytest.skip(
            "transformers_elmo is installed for all environments; make it an editable install: "
            f"{result.stdout}{result.stderr}"
        )
    return python


def environment(home: Path | None = None, hub: LoopbackHub | None = None, with_package: bool = False) -> dict[str, str]:
    """Return the environment variables of a process, offline or with the loopback Hub, with or without this package."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING", "TRANSFORMERS_", "PYTHON"))}
    env = hub.client_env(home) if hub else env | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    env = {name: value for name, value in env.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    return env | {"PYTHONPATH": str(REPOSITORY)} if with_package else env


def run(python, script: str, folder: Path, hub: LoopbackHub | None = None, **args) -> dict:
    """Run a script in a new folder; it reads the dictionary `args` and fills `results`, which is returned.

    The script can use numpy, torch, `arrays_of` and `open_checkpoint`.
    """
    folder.mkdir()
    head = "import importlib.util, json\nimport numpy as np\nimport torch\n"
    with_package = Path(python) == Path(sys.executable)
    if not with_package:
        head += "assert importlib.util.find_spec('transformers_elmo') is None\n"
    functions = [inspect.getsource(function) for function in (arrays_of, open_checkpoint)]
    body = f"args, results = json.loads({json.dumps(args)!r}), {{}}\n" + textwrap.dedent(script)
    end = "json.dump(results, open('results.json', 'w'))\n"
    (folder / "script.py").write_text("\n".join([head, *functions, body, end]), encoding="utf-8")
    env = environment(folder / "home", hub, with_package)
    result = subprocess.run([python, "script.py"], cwd=folder, env=env, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads((folder / "results.json").read_text())


def load_arrays(path) -> dict:
    with np.load(path) as file:
        return dict(file)
