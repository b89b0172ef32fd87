"""Text, sizes and arguments that the tests of training share."""

import json
from pathlib import Path

import pytest

from helpers.pretraining import FAST, SIZES, made_up_text
from transformers_elmo import ElmoTokenizer
from transformers_elmo.pretrain.corpus import Corpus


@pytest.fixture(scope="session")
def command(tmp_path_factory) -> list[str]:
    """Arguments of `elmo pretrain` on made-up text, except --output."""
    folder = tmp_path_factory.mktemp("command")
    text, sizes = folder / "text.txt", folder / "sizes.json"
    text.write_text(made_up_text())
    sizes.write_text(json.dumps(SIZES))
    return ["pretrain", str(text), "--config", str(sizes), "--cache", str(folder / "cache"), "--cpu", *FAST]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Corpus:
    folder: Path = tmp_path_factory.mktemp("corpora") / "corpus"
    return Corpus.build(made_up_text().splitlines(), folder, ElmoTokenizer())
