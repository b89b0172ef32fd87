"""The scripts in convert_scripts/, each run in a process of its own."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.conversion import CHECKPOINT_FILES
from helpers.hub_server import LoopbackHub
from helpers.released import WORDS
from helpers.released_cases import assert_computes, bilm, many_langs

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path.name for path in (ROOT / "convert_scripts").glob("*.py"))


def run_script(name, *arguments, env=os.environ) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "convert_scripts" / name, *map(str, arguments)]
    env = {**env, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


def test_there_are_four_scripts():
    assert len(SCRIPTS) == 4


def test_convert_bilm(tmp_path):
    case = bilm(tmp_path / "source", vocab=WORDS, softmax=True)
    (tmp_path / "source" / "options.json").rename(tmp_path / "options.json")
    arguments = [tmp_path / "source" / "weights.hdf5", tmp_path / "out", "--options", tmp_path / "options.json"]
    done = run_script("convert_bilm_to_hf.py", *arguments, "--language", "en")
    assert done.returncode == 0, done.stderr
    assert {*os.listdir(tmp_path / "out")} - {"vocab.txt"} == CHECKPOINT_FILES
    assert "language: en" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert_computes(case, tmp_path / "out")


def test_convert_many_langs(tmp_path):
    case = many_langs(tmp_path / "source")
    done = run_script("convert_many_langs_to_hf.py", tmp_path / "source", tmp_path / "out", "--language", "pt")
    assert done.returncode == 0, done.stderr
    assert "language: pt" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert_computes(case, tmp_path / "out")


def test_export(converted, tmp_path):
    done = run_script("export_hf_to_bilm.py", converted["bilm"][1], tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(tmp_path / "out")) == ["options.json", "softmax.hdf5", "vocab.txt", "weights.hdf5"]


def test_push(converted, tmp_path):
    with LoopbackHub(tmp_path / "store") as hub:
        env = hub.client_env(tmp_path / "home")
        done = run_script("push_to_hub.py", converted["bilm"][1], "me/elmo", "--private", env=env)
        assert done.returncode == 0, done.stderr
        repo = hub.store / "models" / "me" / "elmo"
        sha = (repo / "refs" / "main").read_text()
        assert done.stdout.endswith(f"\n{hub.endpoint}/me/elmo/commit/{sha}\n") and (repo / "private").exists()
        assert {path.name for path in (repo / sha).iterdir()} >= CHECKPOINT_FILES


@pytest.mark.parametrize("name", SCRIPTS)
def test_error_is_one_sentence(tmp_path, monkeypatch, capsys, name):
    """In this process, which is faster."""
    script, output = ROOT / "convert_scripts" / name, "me/elmo" if "push" in name else tmp_path / "out"
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / "nowhere"), str(output)])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(script), run_name="__main__")
    message = caught.value.code
    assert message.startswith("error: ") and "nowhere" in message and "\n" not in message
    assert capsys.readouterr().out == "" and os.listdir(tmp_path) == []
