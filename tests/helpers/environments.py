"""Processes without the package: a virtual environment, scripts that run in it, and what they compute."""

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


def arrays_of(model, tokenizer, texts) -> dict:
    """What a model of any class computes: its inputs, all layers, their mix, and what its head makes of them."""
    import torch

    model.eval()
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        base = model.base_model(**inputs, output_hidden_states=True)
        arrays = {**inputs, "mix": base.last_hidden_state}
        arrays |= {f"layer {number}": layer for number, layer in enumerate(base.hidden_states)}
        if model.base_model is not model:
            arrays["head"] = model(**inputs)[0]
    return {name: tensor.numpy() for name, tensor in arrays.items()}


def open_checkpoint(name, auto_class, **options):
    """A model and its tokenizer through the Auto classes; seeded, since a new head is random."""
    import torch
    import transformers

    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(name, **options)
    return getattr(transformers, auto_class).from_pretrained(name, **options), tokenizer


def make_environment(folder: Path) -> Path:
    """The Python of a virtual environment that has everything of this one but the package.

    A .pth file names this environment's packages; the .pth files among these, an editable install's, are not read.
    """
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"), folder / "Lib" / "site-packages")
    found = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (site / "outer.pth").write_text("\n".join(found))
    python = next(path for path in (folder / "bin" / "python", folder / "Scripts" / "python.exe") if path.exists())
    check = "import importlib.util; print(importlib.util.find_spec('transformers_elmo'))"
    seen = subprocess.run([python, "-c", check], cwd=folder, env=environment(), capture_output=True, text=True)
    if seen.stdout.strip() != "None":
        pytest.skip(f"the package is seen from everywhere, it must be an editable install: {seen.stdout}{seen.stderr}")
    return python


def environment(home: Path | None = None, hub: LoopbackHub | None = None) -> dict[str, str]:
    """Variables of a process that knows the Hub on loopback, or none."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING", "TRANSFORMERS_", "PYTHON"))}
    env = hub.client_env(home) if hub else env | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    return {name: value for name, value in env.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}


def run(python, script: str, folder: Path, hub: LoopbackHub | None = None, **given) -> dict:
    """Run a script in a new folder, where it is all there is; the JSON it leaves in `said`."""
    folder.mkdir()
    head = "import importlib.util, json\nimport numpy as np\nimport torch\n"
    if Path(python) != Path(sys.executable):
        head += "assert importlib.util.find_spec('transformers_elmo') is None\n"
    functions = [inspect.getsource(function) for function in (arrays_of, open_checkpoint)]
    body = f"given, said = json.loads({json.dumps(given)!r}), {{}}\n" + textwrap.dedent(script)
    end = "json.dump(said, open('said.json', 'w'))\n"
    (folder / "script.py").write_text("\n".join([head, *functions, body, end]), encoding="utf-8")
    env = environment(folder / "home", hub)
    done = subprocess.run([python, "script.py"], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "said.json").read_text())


def load_arrays(path) -> dict:
    with np.load(path) as file:
        return dict(file)
