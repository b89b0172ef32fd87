"""The checkpoint in the package: small enough, and knows some English."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from transformers_elmo import DEFAULT_CHECKPOINT, ElmoForPreTraining, ElmoTokenizer
from transformers_elmo.command import main

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def opened() -> tuple[ElmoForPreTraining, ElmoTokenizer]:
    return ElmoForPreTraining.from_pretrained(DEFAULT_CHECKPOINT), ElmoTokenizer.from_pretrained(DEFAULT_CHECKPOINT)


def test_files():
    files = {path.name: path.stat().st_size for path in Path(DEFAULT_CHECKPOINT).iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md", "curves.png"} <= files.keys()
    assert sum(files.values()) <= 32 * 2**20
    weights = load_file(Path(DEFAULT_CHECKPOINT) / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.float16}
    assert all(weight.isfinite().all() for weight in weights.values())


def test_opened_by_the_auto_classes():
    model, tokenizer = AutoModel.from_pretrained(DEFAULT_CHECKPOINT), AutoTokenizer.from_pretrained(DEFAULT_CHECKPOINT)
    assert model.dtype == torch.float32
    assert model(**tokenizer(["Any wörd will do."], return_tensors="pt")).last_hidden_state.shape == (1, 7, 384)


def test_the_command_knows_it(capsys, tmp_path):
    assert main(["info", "default"]) == 0
    assert "40,000 words" in capsys.readouterr().out
    text = tmp_path / "text.txt"
    text.write_text("One sentence .\n")
    assert main(["embed", "default", str(text), "-o", str(tmp_path / "vectors.npz")]) == 0


def test_words_that_fit(opened):
    model, tokenizer = opened
    found = [word for word, _ in model.substitutes("She opened the box and went into the garden .", 3, tokenizer, k=3)]
    assert "door" in found
    assert "have" in [word for word, _ in model.next_words("They must", tokenizer, k=5)]
    sentence = "The old man sat down by the fire and took off his hat .".split()
    shuffled = list(np.random.default_rng(0).permutation(sentence))
    assert model.perplexity([sentence], tokenizer).both < model.perplexity([shuffled], tokenizer).both / 5


def test_the_demo(monkeypatch, capfd):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import demo

    monkeypatch.chdir(EXAMPLES.parent)
    demo.main()
    printed = capfd.readouterr().out
    right = int(printed.split(" of 12 neighbours")[0].split()[-1])
    assert right >= 7  # by chance it would be 3
    assert (EXAMPLES.parent / "demo_output" / "play.png").read_bytes()[:4] == b"\x89PNG"
    del sys.modules["demo"]


def test_held_out_perplexity(opened, shared_folder):
    """A slice of novels that it has not read. On all of them it has 68.2, the 5-gram of the same vocabulary 99.9."""
    from transformers_elmo.pretrain.corpus import SentenceSplitter, Splitting
    from transformers_elmo.text import find_files, read_texts

    model, tokenizer = opened
    (path,) = find_files([str(shared_folder / "data" / "text" / "novels" / "valid.txt.gz")])
    splitter = SentenceSplitter(tokenizer, Splitting())
    tokens, ends = next(splitter.split_all(read_texts([path])))
    words = np.array(list(splitter.numbers))[tokens]
    sentences = [list(part) for part in np.split(words, ends[:-1])][::40]
    assert model.perplexity(sentences, tokenizer).both < 90
