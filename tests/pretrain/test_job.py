"""`elmo pretrain`: from text to a checkpoint, from a checkpoint to another, and bad input."""

import gzip
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer, Trainer

from helpers.models import tiny_config
from helpers.pretraining import FAST, assert_same_weights, load_weights, made_up_text, write
from transformers_elmo import ElmoForPreTraining, ElmoLanguageModel, ElmoModel, ElmoTokenizer
from transformers_elmo.command import main
from transformers_elmo.pretrain.job import InitialModel, Texts, hold_out, pretrain
from transformers_elmo.pretrain.output import last_checkpoint
from transformers_elmo.pretrain.recipe import Recipe, Settings
from transformers_elmo.pretrain.trainer import ElmoPretrainer


def test_text_to_checkpoint(command, tmp_path, capsys):
    folder = tmp_path / "elmo"
    assert main([*command, "-o", str(folder), "--steps", "300", "--eval-every", "50", "--learning-rate", "0.03"]) == 0
    printed = capsys.readouterr().out
    assert "300 steps, held-out perplexity" in printed and "step 300/300" in printed
    history = json.loads((last_checkpoint(folder) / "trainer_state.json").read_text())["log_history"]
    perplexities = [row["eval_perplexity"] for row in history if "eval_perplexity" in row]
    assert perplexities[0] > perplexities[-1] and perplexities[-1] < 4
    words = sum(len(line.replace(".", " .").split()) + 1 for line in made_up_text().splitlines())
    assert history[-1]["epoch"] == pytest.approx(300 * 20 / (0.95 * words), rel=0.01)
    model = AutoModelForPreTraining.from_pretrained(folder)
    assert isinstance(model, ElmoForPreTraining)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.config.vocab_size == len(tokenizer) == 4 + 9
    assert_same_weights(folder, last_checkpoint(folder))  # in float32
    assert tokenizer.convert_ids_to_tokens([1, 2, 3]) == ["<S>", "</S>", "<UNK>"]
    language_model = ElmoLanguageModel(model, tokenizer)
    assert language_model.perplexity(made_up_text(30, seed=9).split("\n")[:-1]).both < 5
    card = (folder / "README.md").read_text()
    assert f"elmo pretrain {Path(command[1]).name}" in card and "![loss and perplexity](curves.png)" in card
    assert f"{perplexities[-1]:.2f}" in card and "300 steps of 20 words" in card
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
    vocabulary.write_text("\ufeff" + "\r\n".join(words) + "\r\n", newline="")  # as Windows writes it
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


BAD_CONFIGS = {
    '{"lstm_dims": 12}': "'lstm_dims' is not one: did you mean 'lstm_dim'?",
    '{"zzz": 12}': "'zzz' is not one: the fields are inputs, ",
    '{"model_type": "bert"}': "'model_type' is not one",
    '{"tie_word_embeddings": true}': "'tie_word_embeddings' is not one",
    '{"vocab_size": 9}': "must not set 'vocab_size', which is set by the vocabulary (--vocab-size or --vocab)",
    '{"dropout": 0.5}': "must not set 'dropout', which is set by --dropout",
    '{"num_negative_samples": 5}': "which is set by --negative-samples",
    '{"char_vocab_size": 100}': "which is set by the tokenizer",
    '{"pad_token_id": 3}': "which is set by the tokenizer",
    '{"lstm_dim": "12"}': "lstm_dim must be of type int",
    '{"lstm_dim": 12.0}': "lstm_dim must be of type int",
    '{"lstm_dim": true}': "lstm_dim must be of type int",
    '{"lstm_dim": [1]}': "lstm_dim must be of type int",
    '{"lstm_dim": -1}': "lstm_dim must be at least 1",
    '{"char_filters": 5}': "char_filters must be of type list",
    '{"char_filters": [["a", 1]]}': "char_filters must be of type list",
    '{"inputs": "bytes"}': "inputs must be one of",
    '{"cell_clip": NaN}': "cell_clip must be positive and finite, or None; got cell_clip=nan",
    '{"mix": "fixed", "mix_weights": [1, -Infinity, 1]}': "mix_weights must be finite numbers",
    '{"lstm_dim": 10000000}': "too large to be trained here: 69,28",
    '{"lstm_dim": 16000000, "projection_dim": 16000000, "num_hidden_layers": 1000}': "too large to be trained here",
    json.dumps({"lstm_dim": 10**40}): "lstm_dim must be at most 16,777,216",
    '{"num_hidden_layers": 1000000000}': "num_hidden_layers must be at most 1,000",
    json.dumps({"char_filters": 1001 * [[1, 1]]}): "char_filters must be at most 1,000 widths",
    '{"max_characters_per_token": 1000000000000}': "max_characters_per_token must be at most 32,767",
    "[1]": "must be a JSON object; it is a list",
    "": "must be JSON; it cannot be parsed",
    "{": "must be JSON; it cannot be parsed",
    "\xff": "must be UTF-8 text; it has the byte 0xff",
    9999 * "[": "must be JSON; it cannot be parsed",
}


@pytest.mark.parametrize("content", BAD_CONFIGS, ids=lambda content: content[:40])
def test_bad_config_file(command, tmp_path, capsys, content):
    path = write(tmp_path / "sizes.json", content.encode("latin-1"))
    assert main([*command[:2], "--config", str(path), *command[4:], "-o", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert BAD_CONFIGS[content] in error and error.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nowhere*.txt"], "matches no file"),
        (["--config", "none.json"], "none.json: No such file"),
        (["--config", "."], ".: Is a directory"),
        (["--vocab", "binary.txt"], "binary.txt must be UTF-8 text, one word per line"),
        (["--vocab", "german.txt"], "german.txt must have words of the text; none of them occurs in it"),
        (["--vocab", "blank.txt"], "blank.txt must have one word per line, without spaces; line 5 is ''"),
        (["--vocab", "counts.txt"], "counts.txt must have one word per line, without spaces; line 4 is 'the 12'"),
        (["--vocab", "twice.txt"], "must not repeat a word, got 'the'"),
        (["--init", ""], "--init must be a folder or a name on the Hub"),
        (["--init", "default", "--steps", "2000000000"], "steps must be a whole number, at least 0 and at most 1,000"),
        (["--seed", "-1"], "seed must be a whole number, at least 0 and at most 4,294,967,295; got -1"),
        (["--learning-rate", "1e300"], "learning_rate must be a number, above 0 and at most 1,000,000,000; got 1e+300"),
        (["--epochs", "1e308"], "A run must have at most 1,000,000,000 steps; 1e+308 epochs have inf"),
        (["--drop-tokens", "a b"], "must be a word without spaces; got 'a b'"),
        (["--held-out", "empty.txt"], "must contain words; there are none in empty.txt"),
        (["--vocab", "none.txt"], "none.txt: No such file"),
        (["--init", "/nowhere/at/all"], "/nowhere/at/all is neither a folder"),
        (
            ["--init", "default", "--vocab-size", "9"],
            "default has a vocabulary already; leave out --vocab, --vocab-size",
        ),
        (["--report-to", "mlflow"], "--report-to must be one of none, all"),
    ],
)
def test_bad_arguments(command, tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    specials = "<S>\n</S>\n<UNK>\n"
    write(tmp_path / "binary.txt", bytes(range(256)))
    write(tmp_path / "german.txt", specials + "der\ndie\n")
    write(tmp_path / "blank.txt", specials + "the\n\ncat\n")
    write(tmp_path / "counts.txt", specials + "the 12\ncat\n")
    write(tmp_path / "twice.txt", specials + "the\nthe\n")
    write(tmp_path / "empty.txt", "")
    assert main([*command[:2], *arguments, *command[4:], "-o", "out"]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def run(command, tmp_path_factory) -> list[str]:
    """The arguments of a run that has ended after one step."""
    folder = tmp_path_factory.mktemp("run")
    text = write(folder / "text.txt", made_up_text())
    vocab = write(folder / "vocab.txt", "\n".join(["<S>", "</S>", "<UNK>", "the", ".", "cat", "dog", "sat", "ran"]))
    held_out = write(folder / "held_out.txt", "the cat sat\n" * 3)
    arguments = ["pretrain", str(text), *command[2:], "-o", str(folder / "elmo"), "--steps", "1", "--vocab", str(vocab)]
    arguments += ["--held-out", str(held_out)]
    assert main(arguments) == 0
    return arguments


CHANGES = {
    "text.txt": (lambda text: text.replace("cat", "CAT").replace("dog", "cat").replace("CAT", "dog"), "the text"),
    "vocab.txt": (lambda text: text.replace("cat\ndog", "dog\ncat"), "the vocabulary"),
    "held_out.txt": (lambda text: text.replace("cat", "dog"), "the held-out text"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_resume_needs_the_same_files(run, capsys, name):
    """Also if all counts and sizes are the same."""
    path, (change, what) = Path(run[1]).with_name(name), CHANGES[name]
    content = path.read_text()
    changed = change(content)
    assert len(changed) == len(content) and changed != content
    try:
        path.write_text(changed)
        assert main([*run, "--resume"]) == 1
        error = capsys.readouterr().err
        assert f"own settings, but in {run[run.index('-o') + 1]} {what} is another one: restore them" in error
    finally:
        path.write_text(content)
    assert main([*run, "--resume"]) == 0


@pytest.mark.parametrize(
    "options, difference",
    [
        (["--recipe", "paper", "--rows", "4", "--window", "5"], "recipe.epochs is 10.0, was 1.0"),
        (["--dropout", "0.3"], "model.dropout is 0.3, was 0.0; recipe.dropout is 0.3, was 0.0"),
        (["--window", "6"], "recipe.window is 6, was 5"),
        (["--negative-samples", "7"], "recipe.negative_samples is 7, was 6"),
        (["--gradient-accumulation", "2"], "gradient_accumulation is 2, was 1"),
        (["--bf16"], "bf16 is True, was False"),
        (["--seed", "1"], "seed is 1, was 0"),
        (["--pretokenized"], "text.pretokenized is True, was False"),
        (["--one-sentence-per-line"], "text.one_sentence_per_line is True, was False"),
        (["--size", "small"], "model.projection_dim is 128, was 8"),
    ],
)
def test_resume_refuses_other_options(run, capsys, options, difference):
    if options[0] == "--size":
        options = [*options, "--config", str(write(Path(run[1]).with_name("less.json"), json.dumps({"lstm_dim": 12})))]
    assert main([*run, *options, "--resume"]) == 1
    error = capsys.readouterr().err
    assert difference in error and error.count("\n") == 1


def test_resume_refuses_another_initial_model(command, run, tmp_path, capsys):
    first = run[run.index("-o") + 1]
    model = ElmoForPreTraining.from_pretrained(first)
    model.elmo.bilm.layers[0].forward_lstm.bias.data += 1
    model.save_pretrained(tmp_path / "other")
    ElmoTokenizer.from_pretrained(first).save_pretrained(tmp_path / "other")
    arguments = [*command[:2], *command[4:], "--steps", "1", "-o", str(tmp_path / "elmo")]
    assert main([*arguments, "--init", first]) == 0
    assert main([*arguments, "--init", str(tmp_path / "other"), "--resume"]) == 1
    assert "the initial model is another one" in capsys.readouterr().err
    assert main([*arguments, "--config", command[3], "--resume"]) == 1
    assert "the initial model is another one" in capsys.readouterr().err
    assert main([*arguments, "--init", first, "--resume"]) == 0


def test_ways_forward_after_divergence(command, tmp_path, capsys, monkeypatch):
    """Those that the message tells: another output, from the beginning or from the last good weights."""
    clip = Trainer._clip_grad_norm
    monkeypatch.setattr(
        Trainer,
        "_clip_grad_norm",
        lambda self, model: torch.tensor(float("nan")) if self.state.global_step == 3 else clip(self, model),
    )
    arguments = [*command, "--steps", "5", "-o", str(tmp_path / "elmo")]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    checkpoint = tmp_path / "elmo" / "checkpoint-2"
    assert "norm became nan at step 4: train again in another --output with a lower --learning-rate, from" in error
    assert f"(--init {checkpoint}, without other options of the model)" in error
    monkeypatch.undo()
    again = ["--steps", "1", "--learning-rate", "0.001", "-o"]
    assert main([*command, *again, str(tmp_path / "beginning")]) == 0
    assert main([*command[:2], *command[4:], "--init", str(checkpoint), *again, str(tmp_path / "last")]) == 0


def test_initial_model_with_nan(command, run, tmp_path, capsys):
    folder = run[run.index("-o") + 1]
    model = ElmoForPreTraining.from_pretrained(folder)
    model.lm_head.bias.data[1] = float("nan")
    model.save_pretrained(tmp_path / "nan")
    ElmoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "nan")
    arguments = [*command[:2], *command[4:], "--init", str(tmp_path / "nan"), "-o", str(tmp_path / "out")]
    assert main(arguments) == 1
    assert "nan must be finite numbers; lm_head.bias contains NaN or infinity" in capsys.readouterr().err


def test_weights_beyond_half_precision(command, run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ElmoPretrainer, "check_weights", lambda self: self.model.lm_head.bias.data.fill_(1e6))
    assert main([*command, "--steps", "1", "--half", "-o", str(tmp_path / "out")]) == 1
    assert "lm_head.bias has numbers beyond float16: leave out --half" in capsys.readouterr().err
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: Recipe(learning_rate=float("nan")), "learning_rate must be a number, above 0 and at most"),
        (lambda: Recipe(learning_rate="0.1"), "learning_rate must be a number, .*; got '0.1'"),
        (lambda: Recipe(dropout=1.0), r"dropout must be a number, at least 0 and below 1; got 1\.0"),
        (lambda: Recipe(warmup_ratio=1.5), "warmup_ratio must be a number, at least 0 and at most 1; got 1.5"),
        (lambda: Recipe(rows=0), "rows must be a whole number, at least 1"),
        (lambda: Recipe(window=2.5), "window must be a whole number"),
        (lambda: Recipe(negative_samples=True), "negative_samples must be a whole number"),
        (lambda: Recipe(epochs=-1), "epochs must be a number, above 0; got -1"),
        (lambda: Recipe(optimizer="adam"), "optimizer must be one of muon, adagrad; got 'adam'"),
        (lambda: Settings("x", steps=-1), "steps must be a whole number, at least 0"),
        (lambda: Settings("x", seed=2**32), "seed must be a whole number"),
        (lambda: Settings("x", save_every=0), "save_every must be a whole number, at least 1"),
        (lambda: Texts("a.txt"), "must be a list of paths, got 'a.txt'"),
        (lambda: Texts([], held_out="a.txt"), "must be a list of paths, got 'a.txt'"),
        (lambda: Texts([], encoding_errors="ignore"), "must be strict or replace; got 'ignore'"),
        (lambda: InitialModel(size="huge"), "must be one of mini, small, medium, original; got 'huge'"),
        (lambda: InitialModel(vocab_size=0), "vocab_size must be a whole number, at least 1"),
        (lambda: InitialModel(min_count=0), "min_count must be a whole number, at least 1"),
    ],
)
def test_bad_python_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_tokenizer_of_another_model(corpus, tmp_path):
    model = ElmoForPreTraining(tiny_config(vocab_size=13, max_characters_per_token=50, char_vocab_size=262))
    vocab = corpus.vocabulary()
    without_padding = ElmoTokenizer(vocab=vocab)
    without_padding.pad_token = None
    for tokenizer, message in (
        (ElmoTokenizer(vocab=vocab[:5]), "a tokenizer of 13 words, got one of 9"),
        (ElmoTokenizer(vocab=vocab, max_characters_per_token=20), "of 50 characters per word, got one of 20"),
        (without_padding, "must have a pad_token"),
    ):
        with pytest.raises(ValueError, match=message):
            pretrain(model, tokenizer, corpus, Settings(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    "moment", ["corpus.write_array", "job.set_seed", "callbacks.Progress.on_step_end", "job.model_card"]
)
def test_signals(command, tmp_path, capsys, monkeypatch, number, code, moment):
    """While the text is read, the model made, in the first step and in the final save: nothing unfinished is left."""
    monkeypatch.setattr(f"transformers_elmo.pretrain.{moment}", lambda *_, **__: os.kill(os.getpid(), number))
    cache, handler = tmp_path / "cache", signal.getsignal(signal.SIGTERM)
    arguments = [*command, "--steps", "2", "--cache", str(cache), "-o", str(tmp_path / "elmo")]
    try:
        found = main(arguments)
    except SystemExit as error:
        found = error.code
    finally:
        signal.signal(signal.SIGTERM, handler)
    out, err = capsys.readouterr()
    left = {path.name for path in (tmp_path / "elmo").glob("*")}
    assert "Traceback" not in err and len(list(cache.iterdir())) == (moment != "corpus.write_array")
    if moment == "callbacks.Progress.on_step_end":
        assert found == 130 and "stopped at step 1; continue with --resume" in out
        assert left == {"pretraining.json", "curves.png", "checkpoint-1"}
    elif moment == "job.model_card":
        assert found == code and left == {"pretraining.json", "curves.png", "checkpoint-2"}
        monkeypatch.undo()
        assert main([*arguments, "--resume"]) == 0
    else:
        assert found == code and not (tmp_path / "elmo").exists()


ALL_OF_TORCHRUN = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "one"},
        {"RANK": "5"},
        {"WORLD_SIZE": ""},
        {"WORLD_SIZE": "0"},
        {"WORLD_SIZE": "-3"},
        {"WORLD_SIZE": "2", "RANK": "0"},  # it would train on half of the text
        {"LOCAL_RANK": "0"},
        ALL_OF_TORCHRUN | {"RANK": "1"},
        ALL_OF_TORCHRUN | {"LOCAL_RANK": "x"},
        {"ACCELERATE_MIXED_PRECISION": "bf16"},  # it would train in another precision
        {"ACCELERATE_USE_DEEPSPEED": "true"},
        {"ACCELERATE_TORCH_DEVICE": "cuda"},
    ],
    ids=str,
)
def test_environment_variables_that_would_change_the_run(command, tmp_path, capsys, monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main([*command, "--steps", "1", "-o", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert f"{list(variables)[-1]}" in error and "unset" in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()
