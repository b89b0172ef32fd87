"""`elmo pretrain`: how its options become a job. The job itself is tested in tests/pretrain."""

from dataclasses import asdict
from pathlib import Path

import pytest

from helpers.command import assert_one_sentence, run
from transformers_elmo.pretrain.recipe import CACHE, RECIPES


@pytest.fixture
def jobs(monkeypatch):
    """Collect the arguments of the pretraining jobs instead of running them."""
    jobs = []
    monkeypatch.setattr(
        "transformers_elmo.pretrain.job.pretrain_from_texts",
        lambda *arguments, resume: jobs.append((*arguments, resume)) or True,
    )
    return jobs


def test_default_options(capsys, jobs):
    assert run(capsys, "pretrain", "a.txt", "-o", "out") == (0, "", "")
    texts, initial_model, settings, resume = jobs.pop()
    assert (texts.files, texts.held_out, texts.column, texts.encoding_errors) == (["a.txt"], None, "text", "strict")
    assert texts.cache == CACHE
    assert asdict(texts.splitting) == {"pretokenized": False, "one_sentence_per_line": False, "drop_tokens": ()}
    assert asdict(initial_model) == {
        "checkpoint": None,
        "size": None,
        "config_file": None,
        "vocab_file": None,
        "vocab_size": None,
        "min_count": None,
    }
    assert (settings.output, settings.recipe, settings.steps) == ("out", RECIPES["default"], 0)
    assert settings.command == "elmo pretrain a.txt -o out"
    assert not resume


def test_options_reach_the_job(capsys, jobs):
    text = ["a.txt", "b.txt", "--held-out", "c.txt", "--column", "body", "--encoding-errors", "replace"]
    splitting = ["--pretokenized", "--one-sentence-per-line", "--drop-tokens", "<unk>", "@@", "--cache", "cache"]
    model = ["--size", "small", "--config", "c.json", "--vocab-size", "7", "--min-count", "3"]
    recipe = ["--recipe", "paper", "--dropout", "0", "--learning-rate", "0.5", "--rows", "4", "--window", "6"]
    recipe += ["--negative-samples", "9", "--epochs", "0.5"]
    training = ["--gradient-accumulation", "2", "--bf16", "--cpu", "--seed", "5", "--log-every", "1"]
    training += ["--eval-every", "2", "--save-every", "3", "--report-to", "tensorboard", "--half", "--resume"]
    card = ["--language", "pt", "--license", "mit"]
    options = [*text, *splitting, *model, *recipe, *training, *card]
    assert run(capsys, "pretrain", *options, "-o", "out")[0] == 0
    texts, initial_model, settings, resume = jobs.pop()
    assert (texts.files, texts.held_out, texts.cache) == (["a.txt", "b.txt"], ["c.txt"], Path("cache"))
    assert (texts.column, texts.encoding_errors) == ("body", "replace")
    assert asdict(texts.splitting) == {
        "pretokenized": True,
        "one_sentence_per_line": True,
        "drop_tokens": ("<unk>", "@@"),
    }
    assert (initial_model.size, initial_model.config_file) == ("small", Path("c.json"))
    assert (initial_model.vocab_size, initial_model.min_count) == (7, 3)
    changes = {
        "dropout": 0.0,
        "learning_rate": 0.5,
        "rows": 4,
        "window": 6,
        "negative_samples": 9,
        "epochs": 0.5,
    }
    assert asdict(settings.recipe) == asdict(RECIPES["paper"]) | changes
    assert (settings.gradient_accumulation, settings.seed) == (2, 5)
    assert settings.bf16 and settings.cpu and settings.save_half and resume
    assert (settings.log_every, settings.eval_every, settings.save_every) == (1, 2, 3)
    assert (settings.report_to, settings.language, settings.license) == ("tensorboard", "pt", "mit")
    assert run(capsys, "pretrain", "a.txt", "-o", "out", "--vocab", "v.txt", "--steps", "8")[0] == 0
    _, initial_model, settings, _ = jobs.pop()
    assert (initial_model.vocab_file, settings.steps) == (Path("v.txt"), 8)


def test_an_interrupted_training_exits_as_ctrl_c_does(capsys, monkeypatch):
    monkeypatch.setattr("transformers_elmo.pretrain.job.pretrain_from_texts", lambda *_, resume: False)
    assert run(capsys, "pretrain", "a.txt", "-o", "out")[0] == 130


def test_wrong_arguments(capsys, jobs):
    assert_one_sentence(run(capsys, "pretrain", "a.txt", "-o", "x", "--init", "default", "--size", "mini"), "--init")
    for option, value in (("--dropout", "1"), ("--learning-rate", "inf"), ("--steps", "0"), ("--size", "huge")):
        code, out, err = run(capsys, "pretrain", "a.txt", "-o", "x", option, value)
        assert (code, out) == (2, "") and option in err and value in err
    assert jobs == []
