"""Test the metadata of the package: its dependencies and its version."""

import ast
import configparser
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def setup_cfg() -> configparser.RawConfigParser:
    config = configparser.RawConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    return config


def test_every_third_party_import_is_declared(setup_cfg):
    # Imports inside functions count too: extras are imported there.
    imported = set()
    for path in (ROOT / "transformers_elmo").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(node.module.split(".")[0])
    requirements = [setup_cfg["options"]["install_requires"]]
    requirements += [setup_cfg["options.extras_require"][extra] for extra in ("convert", "embed", "onnx", "train")]
    declared = {name.replace("-", "_") for name in re.findall(r"(?m)^([\w-]+)", "\n".join(requirements))}
    assert imported - sys.stdlib_module_names - {"transformers_elmo", "elmo_command"} <= declared


def test_the_citation_has_the_version_of_the_package(setup_cfg):
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {setup_cfg['metadata']['version']}\n" in citation
