"""The `elmo` command as a stranger uses it: right and wrong arguments, broken files, Ctrl-C."""

import io
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from transformers import BertConfig

from helpers.command import assert_one_sentence, run
from helpers.models import randomise, tiny_config
from transformers_elmo import ElmoForTokenClassification, ElmoModel, ElmoTokenizer
from transformers_elmo.embed.job import embed

LINES = ["Don't stop, Mr. Smith!", "", "Any wörd 😀 will do .", "One"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    model = ElmoModel(tiny_config(max_characters_per_token=50, char_vocab_size=262))
    randomise(model, 0)
    model.save_pretrained(folder)
    ElmoTokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def test_info(capsys, checkpoint):
    code, out, err = run(capsys, "info", checkpoint)
    assert (code, err) == (0, "")
    model = ElmoModel.from_pretrained(checkpoint)
    for part in (f"{model.num_parameters():,} (float32)", "learned: words", f"{model.config.hidden_size} numbers"):
        assert part in out


def test_info_of_a_tagger_with_a_vocabulary(capsys, tmp_path):
    ElmoForTokenClassification(tiny_config(mix="fixed", mix_weights=[0.0, 0.25, 0.75])).save_pretrained(tmp_path)
    ElmoTokenizer(["the", "cat"]).save_pretrained(tmp_path)
    _, out, _ = run(capsys, "info", tmp_path)
    assert "fixed: words 0.000, lstm_1 0.250, lstm_2 0.750, gamma 1.000" in out
    assert "ElmoForTokenClassification" in out
    assert "2 words and 4 special tokens" in out


@pytest.mark.parametrize("layer", ["mix", "all", "words", "top"])
def test_embed_gives_the_vectors_of_each_line(capsys, checkpoint, text, tmp_path, layer):
    output = tmp_path / "vectors.npz"
    code, out, _ = run(capsys, "embed", checkpoint, text, "-o", output, "--layer", layer, "--batch-size", 3)
    assert code == 0 and "4 sentences, 14 words" in out
    model, tokenizer = ElmoModel.from_pretrained(checkpoint), ElmoTokenizer()
    with np.load(output) as arrays:
        assert json.loads(arrays["words"].item())[0] == ["Don", "'t", "stop", ",", "Mr.", "Smith", "!"]
        assert set(arrays.files) == {"0", "1", "2", "3", "words"}
        for index, line in enumerate(LINES):
            with torch.no_grad():
                outputs = model(**tokenizer(line, return_tensors="pt"), output_hidden_states=True)
            expected = {
                "mix": outputs.last_hidden_state[0],
                "all": torch.cat(outputs.hidden_states),
                "words": outputs.hidden_states[0][0],
                "top": outputs.hidden_states[-1][0],
            }[layer][..., 1:-1, :]
            assert arrays[str(index)].shape == expected.shape
            np.testing.assert_allclose(arrays[str(index)], expected, atol=1e-6)


def test_embed_takes_words_and_standard_input(capsys, checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Don't split, me.\r\nx\x0by\n")))
    output = tmp_path / "vectors.npz"
    assert run(capsys, "embed", checkpoint, "-o", output, "--words")[0] == 0
    with np.load(output) as arrays:
        assert json.loads(arrays["words"].item()) == [["Don't", "split,", "me."], ["x", "y"]]


def test_wrong_arguments(capsys, checkpoint, text, tmp_path):
    for arguments in (
        ["embed", checkpoint, text],
        ["embed", checkpoint, text, "-o", "x.npz", "--batch-size", "0"],
        ["embed", checkpoint, text, "-o", "x.npz", "--layer", "lstm_9"],
        ["info"],
        ["nonsense"],
        [],
        ["info", checkpoint, "--nonsense"],
    ):
        code, out, err = run(capsys, *arguments)
        assert code == 2 and out == "" and "elmo" in err and "Traceback" not in err


def test_bad_input_and_output_of_embed(capsys, checkpoint, text, tmp_path):
    empty, latin, folder = tmp_path / "empty.txt", tmp_path / "latin.txt", tmp_path / "folder"
    empty.write_text("\n \n")
    latin.write_bytes(b"fine\nna\xefve\n")
    folder.mkdir()
    output = tmp_path / "vectors.npz"
    assert_one_sentence(run(capsys, "embed", checkpoint, empty, "-o", output), empty, "text")
    assert_one_sentence(run(capsys, "embed", checkpoint, latin, "-o", output), latin, "line 2", "0xef")
    assert_one_sentence(run(capsys, "embed", checkpoint, folder, "-o", output), folder)
    assert_one_sentence(run(capsys, "embed", checkpoint, tmp_path / "none.txt", "-o", output), "none.txt")
    assert_one_sentence(run(capsys, "embed", checkpoint, text, "-o", tmp_path / "x.txt"), ".npz")
    assert_one_sentence(run(capsys, "embed", checkpoint, text, "-o", tmp_path / "no" / "x.npz"), tmp_path / "no")
    assert_one_sentence(run(capsys, "embed", checkpoint, text, "-o", output, "--device", "nonsense"), "nonsense")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.txt", "folder", "latin.txt", "text.txt"]


def test_bad_checkpoints(capsys, checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert_one_sentence(run(capsys, "info", tmp_path / "nowhere"), "nowhere", "neither a folder")
    assert_one_sentence(run(capsys, "info", tmp_path), tmp_path)
    BertConfig().save_pretrained(tmp_path / "bert")
    assert_one_sentence(run(capsys, "info", tmp_path / "bert"), "must be an ELMo checkpoint", "bert")
    cut = tmp_path / "cut"
    ElmoModel.from_pretrained(checkpoint).save_pretrained(cut)
    weights = cut / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert_one_sentence(run(capsys, "info", cut), cut, "cut off")
    (cut / "config.json").write_text("{ not json")
    assert_one_sentence(run(capsys, "info", cut), "config.json")


def test_ctrl_c_leaves_no_file(checkpoint, tmp_path):
    text, output = tmp_path / "text.txt", tmp_path / "vectors.npz"
    text.write_text("a sentence of some words\n" * 200_000)
    command = [sys.executable, "-m", "transformers_elmo.command", "embed", checkpoint, text, "-o", output]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.time() + 120
        while not list(tmp_path.glob(".vectors.npz.*")) and process.poll() is None and time.time() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.strip().splitlines()[-1] == "elmo: stopped" and "Traceback" not in err
    assert os.listdir(tmp_path) == ["text.txt"]


@pytest.mark.parametrize("boundaries", [{"add_bos_token": False}, {"add_eos_token": False}])
def test_embed_without_a_boundary_keeps_every_word(checkpoint, boundaries):
    model, tokenizer = ElmoModel.from_pretrained(checkpoint), ElmoTokenizer(**boundaries)
    embedded = list(embed(model, tokenizer, ["the cat sat", ["on", "it"], ""]))
    assert [words for words, _ in embedded] == [["the", "cat", "sat"], ["on", "it"], []]
    with torch.no_grad():
        expected = model(**tokenizer("the cat sat", return_tensors="pt")).last_hidden_state[0]
    expected = expected[:-1] if tokenizer.add_eos_token else expected[1:]
    np.testing.assert_allclose(embedded[0][1], expected, atol=1e-6)
    assert [len(vectors) for _, vectors in embedded] == [3, 2, 0]
