"""Test that every block of the README runs as pasted, in order, in one empty folder, with the output it shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(
    r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)


def test_every_block_is_run_or_accounted_for():
    languages = [language for language, _ in BLOCKS]
    assert set(languages) <= {"console", "python", "bash", "bibtex"}
    assert languages.count("console") == 1  # the set-up, which runs these tests
    (setup,) = [text for language, text in BLOCKS if language == "console"]
    targets = re.findall(r"^make (\w+)", setup, re.MULTILINE)
    assert targets == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(f"\n{target}:" in makefile for target in targets)


def test_blocks_run_as_pasted(tmp_path, monkeypatch, capfd):
    pytest.importorskip("h5py")
    pytest.importorskip("accelerate")
    monkeypatch.chdir(tmp_path)
    environment = os.environ | {"HF_HOME": str(tmp_path / ".cache"), "OMP_NUM_THREADS": "1"}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    namespace, printed = {}, []
    for language, text in BLOCKS:
        if language == "python":
            exec(compile(text, "README.md", "exec"), namespace)
        elif language == "bash":
            subprocess.run(["bash", "-euo", "pipefail", "-c", text], check=True, env=environment)
        printed.append(capfd.readouterr().out)
    quickstart, vectors = [out for (language, _), out in zip(BLOCKS, printed) if language == "python"][:2]
    assert quickstart.split()[0] == "door"
    same, other = map(float, re.findall(r"tensor\((\S+)\)", vectors))
    assert same > other + 0.1
    assert (tmp_path / "my-elmo" / "curves.png").is_file() and (tmp_path / "my-tagger" / "README.md").is_file()


def test_links_point_to_existing_files():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
