"""`elmo pretrain`: from text to a checkpoint, from a checkpoint to another, and bad input."""

import gzip
import json

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer

from helpers.pretraining import FAST, assert_same_weights, load_weights, made_up_text, write
from transformers_elmo import ElmoForPreTraining, ElmoLanguageModel, ElmoModel, ElmoTokenizer
from transformers_elmo.command import main
from transformers_elmo.pretrain.job import hold_out
from transformers_elmo.pretrain.recipe import Recipe
from transformers_elmo.pretrain.trainer import last_checkpoint


def test_text_to_checkpoint(command, tmp_path, capsys):
    folder = tmp_path / "elmo"
    assert main([*command, "-o", str(folder), "--steps", "150", "--eval-every", "50", "--learning-rate", "0.03"]) == 0
    printed = capsys.readouterr().out
    assert "150 steps, held-out perplexity" in printed and "step 150/150" in printed
    history = json.loads((last_checkpoint(folder) / "trainer_state.json").read_text())["log_history"]
    perplexities = [row["eval_perplexity"] for row in history if "eval_perplexity" in row]
    assert perplexities[0] > perplexities[-1] and perplexities[-1] < 4
    words = sum(len(line.replace(".", " .").split()) + 1 for line in made_up_text().splitlines())
    assert history[-1]["epoch"] == pytest.approx(150 * 20 / (0.95 * words), rel=0.01)
    model = AutoModelForPreTraining.from_pretrained(folder)
    assert isinstance(model, ElmoForPreTraining)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.config.vocab_size == len(tokenizer) == 4 + 9
    assert_same_weights(folder, last_checkpoint(folder))  # in float32
    assert tokenizer.convert_ids_to_tokens([1, 2, 3]) == ["<S>", "</S>", "<UNK>"]
    language_model = ElmoLanguageModel(model, tokenizer)
    assert language_model.perplexity(made_up_text(30, seed=9).split("\n")[:-1]).both < 5
    card = (folder / "README.md").read_text()
    assert f"elmo pretrain {command[1]}" in card and "![loss and perplexity](curves.png)" in card
    assert f"{perplexities[-1]:.2f}" in card and "150 steps of 20 words" in card
    assert {word for word, _ in language_model.next_words("the old", k=2)} == {"cat", "dog"}
    vectors = AutoModel.from_pretrained(folder)(**tokenizer(["the cat"], return_tensors="pt")).last_hidden_state
    assert vectors.shape == (1, 4, 16)
    pytest.importorskip("matplotlib")
    assert (folder / "curves.png").read_bytes()[:4] == b"\x89PNG"


def test_compressed_text_and_columns(command, tmp_path):
    lines = made_up_text(60).splitlines()
    compressed = write(tmp_path / "text.txt.gz", gzip.compress(made_up_text(60).encode()))
    rows = write(tmp_path / "text.jsonl", "".join(json.dumps({"story": line}) + "\n" for line in lines))
    for path, more in ((compressed, []), (rows, ["--column", "story"])):
        folder = tmp_path / f"out-{path.suffix}"
        assert main(["pretrain", str(path), *command[2:], "-o", str(folder), "--steps", "2", *more]) == 0
    assert_same_weights(tmp_path / "out-.gz", tmp_path / "out-.jsonl")


def test_held_out_sentences():
    """About as many words as requested, at most 5%, the same ones each time, and no sentence twice."""
    lengths = np.random.default_rng(0).integers(1, 30, 2000)

    class FakeCorpus:
        tokens, offsets = np.zeros(lengths.sum()), np.concatenate([[0], lengths.cumsum()])

        def __len__(self):
            return len(lengths)

    corpus = FakeCorpus()
    for requested, expected in ((500, 500), (10**9, lengths.sum() // 20)):
        train, held_out = hold_out(corpus, requested, seed=0)
        assert sorted([*train, *held_out]) == list(range(2000))
        assert expected - 30 <= lengths[held_out].sum() <= expected
        assert np.array_equal(held_out, hold_out(corpus, requested, seed=0)[1])
    assert not np.array_equal(held_out, hold_out(corpus, requested, seed=1)[1])


def test_held_out_files(command, tmp_path, capsys):
    other = tmp_path / "other.txt"
    other.write_text(made_up_text(20, seed=5))
    folder = tmp_path / "elmo"
    assert main([*command, "-o", str(folder), "--steps", "2", "--held-out", str(other)]) == 0
    # Training carries the LSTM states between sentences: close to each sentence alone, but not equal.
    alone = ElmoLanguageModel.from_pretrained(str(folder)).perplexity(other.read_text().splitlines()).both
    assert float(capsys.readouterr().out.split("perplexity")[-1].split()[0]) == pytest.approx(alone, rel=0.05)


def test_bf16_without_gpu_and_without_cpu_flag(command, tmp_path):
    arguments = [argument for argument in command if argument != "--cpu"]
    assert main([*arguments, "--bf16", "--steps", "2", "-o", str(tmp_path / "elmo")]) == 0


def test_weights_in_half_precision(command, tmp_path):
    folder = tmp_path / "elmo"
    assert main([*command, "-o", str(folder), "--steps", "2", "--half"]) == 0
    assert {weight.dtype for weight in load_weights(folder).values()} == {torch.float16}
    model = AutoModel.from_pretrained(folder)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_start_from_a_checkpoint(command, tmp_path, capsys):
    first, other = tmp_path / "first", tmp_path / "other.txt"
    assert main([*command, "-o", str(first), "--steps", "60", "--learning-rate", "0.03"]) == 0
    other.write_text(made_up_text(100, seed=3).replace("cat", "zebra"))
    tune = ["pretrain", str(other), "--cache", str(tmp_path / "cache"), "--cpu", *FAST, "--steps", "3"]
    tune += ["--learning-rate", "1e-9"]

    def assert_tuned(folder, without=()):
        before, after = load_weights(first), load_weights(folder)
        for name in before.keys() - set(without):
            torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-6, msg=name)

    # With its output layer: the vocabulary stays.
    assert main([*tune, "--init", str(first), "-o", str(tmp_path / "tuned")]) == 0
    assert_tuned(tmp_path / "tuned")
    tuned = ElmoTokenizer.from_pretrained(tmp_path / "tuned")
    assert tuned.get_vocab() == ElmoTokenizer.from_pretrained(first).get_vocab()
    # Without one: a new vocabulary from the new text.
    ElmoModel.from_pretrained(first).save_pretrained(tmp_path / "plain")
    ElmoTokenizer.from_pretrained(first).save_pretrained(tmp_path / "plain")
    assert main([*tune, "--init", str(tmp_path / "plain"), "-o", str(tmp_path / "new")]) == 0
    assert_tuned(tmp_path / "new", without=("lm_head.weight", "lm_head.bias"))
    assert "zebra" in ElmoTokenizer.from_pretrained(tmp_path / "new").get_vocab()
    assert main([*tune, "--init", str(first), "--size", "small", "-o", str(tmp_path / "x")]) == 1
    assert "leave them out" in capsys.readouterr().err


def test_vocabulary_file(command, tmp_path, capsys):
    vocabulary = tmp_path / "vocab.txt"
    words = ["<S>", "</S>", "<UNK>", "the", ".", "cat", "dog", "sat", "ran", "old", "on", "to"]
    vocabulary.write_text("\n".join(words) + "\n")
    assert main([*command, "--vocab", str(vocabulary), "--steps", "2", "-o", str(tmp_path / "elmo")]) == 0
    assert ElmoTokenizer.from_pretrained(tmp_path / "elmo").convert_ids_to_tokens(list(range(1, 13))) == words
    for wrong, message in (
        (words[3:], "must begin with <S>, </S>, <UNK>, one per line; missing: <S>, </S>, <UNK>."),
        (words[:3] + words[:2:-1], "must be sorted by frequency"),
    ):
        vocabulary.write_text("\n".join(wrong) + "\n")
        assert main([*command, "--vocab", str(vocabulary), "--steps", "2", "-o", str(tmp_path / "no")]) == 1
        assert message in capsys.readouterr().err


def test_resume_needs_the_same_settings(command, tmp_path, capsys):
    folder = tmp_path / "elmo"
    assert main([*command, "-o", str(folder), "--steps", "4"]) == 0
    capsys.readouterr()
    assert main([*command, "-o", str(folder), "--steps", "4"]) == 1
    assert "already exists; pass --resume" in capsys.readouterr().err
    assert main([*command, "-o", str(folder), "--steps", "6", "--learning-rate", "0.5", "--resume"]) == 1
    error = capsys.readouterr().err
    assert f"recipe.learning_rate is 0.5, was {Recipe().learning_rate}" in error
    assert "steps is 6, was 4: restore them" in error
    assert main([*command, "-o", str(tmp_path / "none"), "--resume"]) == 1
    assert "no run to resume" in capsys.readouterr().err
    # How often a run logs does not change its result. All steps are done: only the final save is left.
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").unlink()
    assert main([*command, "-o", str(folder), "--steps", "4", "--log-every", "3", "--resume"]) == 0
    assert (folder / "model.safetensors").read_bytes() == weights


def test_output_must_be_new_or_empty(command, tmp_path, capsys):
    file = write(tmp_path / "file", "mine")
    for output in (file, tmp_path):
        assert main([*command, "-o", str(output), "--steps", "2"]) == 1
        assert f"--output must be a new or empty folder; {output} exists" in capsys.readouterr().err
    assert file.read_text() == "mine"


def test_resume_needs_the_same_splitting(command, tmp_path, capsys):
    folder = tmp_path / "elmo"
    assert main([*command, "-o", str(folder), "--steps", "2"]) == 0
    assert main([*command, "-o", str(folder), "--steps", "2", "--drop-tokens", "<unk>", "--resume"]) == 1
    assert "text.drop_tokens is ['<unk>'], was []" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content, parts",
    [
        (b"", ["must contain words", "there are none"]),
        (b"\n \n", ["must contain words"]),
        (b"the cat sat on the mat . the dog ran .", ["words to train on", "use more text"]),
        (b"the cat\xff sat\n" * 50, ["must be UTF-8", "line 1", "0xff", "--encoding-errors replace"]),
        (b"\x7fELF\x00\x01 the cat", ["must be UTF-8 text", "zero byte"]),
        (b"all these words stand here once", ["No word occurs 2 times", "--min-count"]),
    ],
)
def test_bad_text(command, tmp_path, capsys, content, parts):
    path = write(tmp_path / "bad.txt", content)
    arguments = ["pretrain", str(path), *command[2:], "-o", str(tmp_path / "out"), "--steps", "2"]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert all(part in error for part in parts) and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nowhere*.txt"], "matches no file"),
        (["--config", "wrong.json"], "wrong.json must be a JSON object of ElmoConfig fields"),
        (["--config", "list.json"], "list.json must be a JSON object of ElmoConfig fields"),
        (["--config", "type.json"], "'lstm_dim' expected int"),
        (["--vocab", "none.txt"], "none.txt: No such file"),
        (["--init", "/nowhere/at/all"], "/nowhere/at/all is neither a folder"),
    ],
)
def test_bad_arguments(command, tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    for name, content in (("wrong", "{"), ("list", "[1]"), ("type", '{"lstm_dim": "large"}')):
        write(tmp_path / f"{name}.json", content)
    assert main([*command[:2], *arguments, *command[4:], "-o", "out", "--steps", "2"]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not (tmp_path / "out").exists()
