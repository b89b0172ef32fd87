"""`elmo pretrain`: from text to a checkpoint, stopped and resumed, on one process and on two, and bad input."""

import copy
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer, TrainerCallback

from helpers.models import tiny_config
from transformers_elmo import ElmoForPreTraining, ElmoModel, ElmoTokenizer
from transformers_elmo.command import main
from transformers_elmo.pretrain.corpus import Corpus
from transformers_elmo.pretrain.recipe import RECIPES, Recipe
from transformers_elmo.pretrain.trainer import (
    MuonAndAdamW,
    Settings,
    StopWhenAsked,
    hold_out,
    last_checkpoint,
    pretrain,
)
from transformers_elmo.pretrain.windows import Windows

SIZES = {"lstm_dim": 12, "projection_dim": 8, "char_filters": [[1, 4], [2, 4]], "char_embedding_dim": 4}
RECIPE = Recipe(rows=4, window=5, negative_samples=6, warmup=0.1, learning_rate=0.02, dropout=0.1)
FAST = ["--rows", "4", "--window", "5", "--negative-samples", "6", "--log-every", "1", "--save-every", "2"]


def made_up_text(sentences: int = 300, seed: int = 0) -> str:
    """A language that can be learned: what comes next depends on what was before."""
    draw = random.Random(seed)
    after = {"the": ["cat", "dog", "old"], "old": ["cat", "dog"], "cat": ["sat", "ran"], "dog": ["sat", "ran"]}
    after |= {"sat": ["on", "."], "ran": ["to", "."], "on": ["the"], "to": ["the"]}
    lines = []
    for _ in range(sentences):
        words = ["the"]
        while words[-1] != "." and len(words) < 12:
            words.append(draw.choice(after[words[-1]]))
        lines.append(" ".join(words).replace(" .", "."))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(made_up_text())
    return path


@pytest.fixture(scope="module")
def sizes(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("sizes") / "sizes.json"
    path.write_text(json.dumps(SIZES))
    return path


@pytest.fixture(scope="module")
def command(text, sizes, tmp_path_factory):
    """Arguments of `elmo pretrain` on the text, but for --output."""
    cache = tmp_path_factory.mktemp("cache")
    return ["pretrain", str(text), "--config", str(sizes), "--cache", str(cache), "--cpu", *FAST]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpora") / "corpus"
    return Corpus.build(made_up_text().splitlines(), folder, ElmoTokenizer())


def run(corpus, folder, resume=False, callbacks=None, **options):
    recipe = replace(RECIPE, **{name: options.pop(name) for name in list(options) if hasattr(RECIPE, name)})
    tokenizer = ElmoTokenizer(vocab=corpus.vocabulary())
    torch.manual_seed(0)
    config = tiny_config(**SIZES, char_vocab_size=262, max_characters_per_token=50, vocab_size=len(tokenizer))
    config.dropout, config.num_negative_samples = recipe.dropout, recipe.negative_samples
    settings = Settings(str(folder), recipe, cpu=True, **{"steps": 8, "save_every": 2, "log_every": 1, **options})
    return pretrain(ElmoForPreTraining(config), tokenizer, corpus, settings, resume=resume, callbacks=callbacks)


def weights_of(folder) -> dict[str, torch.Tensor]:
    return load_file(Path(folder) / "model.safetensors")


def assert_same_bits(some, others):
    some, others = weights_of(some), weights_of(others)
    assert some.keys() == others.keys()
    for name, weight in some.items():
        assert torch.equal(weight, others[name]), name


def losses_of(trainer) -> list[float]:
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


class StopAt(TrainerCallback):
    """What Ctrl-C does, at a known step."""

    def __init__(self, step: int):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)  # torchrun's, at the same time


def test_text_to_a_checkpoint(command, tmp_path, capsys):
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
    assert tokenizer.convert_ids_to_tokens([1, 2, 3]) == ["<S>", "</S>", "<UNK>"]
    found = model.perplexity(made_up_text(30, seed=9).split("\n")[:-1], tokenizer)
    assert found.both < 5
    card = (folder / "README.md").read_text()
    assert f"elmo pretrain {command[1]}" in card and "![loss and perplexity](curves.png)" in card
    assert f"{perplexities[-1]:.2f}" in card and "150 steps of 20 words" in card
    assert {word for word, _ in model.next_words("the old", tokenizer, k=2)} == {"cat", "dog"}
    vectors = AutoModel.from_pretrained(folder)(**tokenizer(["the cat"], return_tensors="pt")).last_hidden_state
    assert vectors.shape == (1, 4, 16)
    pytest.importorskip("matplotlib")
    assert (folder / "curves.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation": 3}, {"optimizer": "adagrad", "steps": 9}], ids=str)
def test_stopped_and_resumed_is_not_stopped(corpus, tmp_path, options):
    whole = run(corpus, tmp_path / "whole", **options)
    assert not whole.stopped
    first = run(corpus, tmp_path / "parts", callbacks=[StopAt(5)], **options)
    assert first.stopped and first.state.global_step == 5 and not (tmp_path / "parts" / "model.safetensors").exists()
    again = run(corpus, tmp_path / "parts", resume=True, **options)
    assert_same_bits(tmp_path / "whole", tmp_path / "parts")
    assert torch.equal(whole.lstm_state[1], again.lstm_state[1])
    assert losses_of(whole)[-3:] == losses_of(again)[-3:]
    assert whole.state.epoch == again.state.epoch


def test_asked_twice_it_stops_at_once(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(StopWhenAsked, "TOGETHER", -1.0)
    with pytest.raises(KeyboardInterrupt):
        run(corpus, tmp_path, callbacks=[StopAt(5)])
    assert last_checkpoint(tmp_path).name == "checkpoint-4"


def test_resumed_across_epochs(corpus, tmp_path):
    """The text ends twice: an epoch has 29 steps."""
    options = {"rows": 8, "window": 10, "steps": 70, "save_every": 1000}
    run(corpus, tmp_path / "whole", **options)
    run(corpus, tmp_path / "parts", **options, callbacks=[StopAt(47)])
    run(corpus, tmp_path / "parts", **options, resume=True)
    assert_same_bits(tmp_path / "whole", tmp_path / "parts")


def test_killed_and_resumed_is_not_killed(command, tmp_path):
    arguments = [sys.executable, "-m", "transformers_elmo.command", *command, "--steps", "40"]
    process = subprocess.Popen(
        [*arguments, "-o", str(tmp_path / "parts")],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # as in this process: the number of threads changes how sums round
    )
    while last_checkpoint(tmp_path / "parts") is None and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not (tmp_path / "parts" / "model.safetensors").exists()
    for folder, resume in (("whole", []), ("parts", ["--resume"])):
        assert main([*command, "--steps", "40", "-o", str(tmp_path / folder), *resume]) == 0
    assert_same_bits(tmp_path / "whole", tmp_path / "parts")


def test_half_a_checkpoint_is_passed_over(corpus, tmp_path):
    run(corpus, tmp_path, callbacks=[StopAt(5)])
    assert last_checkpoint(tmp_path).name == "checkpoint-5"
    (tmp_path / "checkpoint-5" / "trainer_state.json").write_text('{"global_')
    assert last_checkpoint(tmp_path).name == "checkpoint-4"
    (tmp_path / "checkpoint-4" / "reading-0.pt").unlink()
    assert last_checkpoint(tmp_path) is None


def test_accumulated_windows_follow_each_other(corpus, tmp_path):
    """Two windows a step, with the states carried between them: the gradient is the mean of theirs."""
    trainer = run(corpus, tmp_path, steps=1, gradient_accumulation=2, dropout=0.0, negative_samples=None, max_norm=1e9)
    tokenizer = ElmoTokenizer(vocab=corpus.vocabulary())
    torch.manual_seed(0)
    model = ElmoForPreTraining(trainer.model.config)
    sentences, _ = hold_out(corpus, 50_000, 0)
    windows = iter(Windows(corpus, tokenizer, sentences, 4, 5, seed=0))
    first = model(**next(windows))
    second = model(**next(windows), state=first.state)
    loss = (first.loss + second.loss) / 2
    assert trainer.state.log_history[0]["loss"] == pytest.approx(float(loss.detach()), rel=1e-6)
    loss.backward()
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    assert trainer.state.log_history[0]["grad_norm"] == pytest.approx(float(norm), rel=1e-5)


def test_the_recipe_of_the_paper(corpus, tmp_path):
    """Adagrad from an accumulator of 1, on the gradient of the loss times the window, clipped as a whole to 10."""
    paper = RECIPES["paper"]
    assert (paper.rows, paper.window, paper.negative_samples, paper.dropout, paper.epochs) == (128, 20, 8192, 0.1, 10)
    options = {name: getattr(paper, name) for name in ("optimizer", "learning_rate", "schedule", "warmup", "max_norm")}
    trainer = run(corpus, tmp_path, steps=1, loss_scale=5.0, dropout=0.0, negative_samples=None, **options)
    torch.manual_seed(0)
    model = ElmoForPreTraining(trainer.model.config)
    sentences, _ = hold_out(corpus, 50_000, 0)
    windows = Windows(corpus, ElmoTokenizer(vocab=corpus.vocabulary()), sentences, 4, 5, seed=0)
    loss = model(**next(iter(windows))).loss
    (5 * loss).backward()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(float(loss.detach()), rel=1e-6)  # shown as it is
    norm = float(torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm())
    for (name, before), after in zip(model.named_parameters(), trainer.model.parameters()):
        if before.grad is not None:
            gradient = before.grad * min(1.0, 10.0 / norm)
            expected = before - 0.2 * gradient / (1 + gradient**2).sqrt()
            torch.testing.assert_close(after, expected, rtol=1e-5, atol=1e-6, msg=name)


def test_muon_and_adamw():
    """Each parameter by one of them, as if it were alone, and from a saved state as if it had not been saved."""

    def made() -> ElmoForPreTraining:
        torch.manual_seed(0)
        return ElmoForPreTraining(tiny_config(inputs="words+characters", num_highway_layers=1))

    def gradients(model):
        torch.manual_seed(1)
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)

    model, expected, again = made(), made(), made()
    by_adamw = {name for name, p in model.named_parameters() if p.dim() != 2 or "embedding" in name}
    by_adamw |= {"lm_head.weight"}
    parts = [[p for name, p in expected.named_parameters() if (name in by_adamw) == adamw] for adamw in (False, True)]
    ours = MuonAndAdamW(model, 0.1)
    assert [len(group["params"]) for group in ours.param_groups] == list(map(len, parts)) and min(map(len, parts)) > 5
    alone = [
        torch.optim.Muon(parts[0], 0.1, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(parts[1], 0.1, betas=(0.9, 0.99), weight_decay=0.0, fused=True),
    ]
    for step in range(4):
        rate = 0.1 / (step + 1)  # as a schedule sets it
        for optimizer in (ours, *alone):
            for group in optimizer.param_groups:
                group["lr"] = rate
        gradients(model)
        gradients(expected)
        ours.step()
        alone[0].step()
        alone[1].step()
        for (name, found), wanted in zip(model.named_parameters(), expected.parameters()):
            assert torch.equal(found, wanted), name
        if step == 1:
            saved = copy.deepcopy(ours.state_dict())
            again.load_state_dict(model.state_dict())
            ours, model = MuonAndAdamW(again, 0.5), again
            ours.load_state_dict(saved)
    assert not torch.equal(model.lm_head.weight, made().lm_head.weight)


def test_held_out_text():
    """About as many words as asked for, a twentieth at most, the same ones each time, and nothing twice."""
    lengths = np.random.default_rng(0).integers(1, 30, 2000)
    corpus = type("Made up", (), {"offsets": np.concatenate([[0], lengths.cumsum()]), "__len__": lambda self: 2000})()
    corpus.tokens = np.zeros(lengths.sum())
    for asked, expected in ((500, 500), (10**9, lengths.sum() // 20)):
        kept, held = hold_out(corpus, asked, seed=0)
        assert sorted([*kept, *held]) == list(range(2000))
        assert expected - 30 <= lengths[held].sum() <= expected
        assert np.array_equal(held, hold_out(corpus, asked, seed=0)[1])
    assert not np.array_equal(held, hold_out(corpus, asked, seed=1)[1])


def test_held_out_files(command, tmp_path, capsys):
    other = tmp_path / "other.txt"
    other.write_text(made_up_text(20, seed=5))
    folder = tmp_path / "elmo"
    assert main([*command, "-o", str(folder), "--steps", "2", "--held-out", str(other)]) == 0
    model, tokenizer = ElmoForPreTraining.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)
    # Read as in training, with states that go on; each sentence alone is near that, and not the same.
    alone = model.perplexity(other.read_text().splitlines(), tokenizer).both
    assert float(capsys.readouterr().out.split("perplexity")[-1].split()[0]) == pytest.approx(alone, rel=0.05)


def test_bf16(corpus, tmp_path):
    trainer = run(corpus, tmp_path, steps=60, bf16=True)
    assert all(p.dtype == torch.float32 for p in trainer.model.parameters())
    losses = losses_of(trainer)
    assert sum(losses[-10:]) < sum(losses[:10]) - 1


def test_bf16_where_nobody_says_that_there_is_no_gpu(command, tmp_path):
    arguments = [word for word in command if word != "--cpu"]
    assert main([*arguments, "--bf16", "--steps", "2", "-o", str(tmp_path / "elmo")]) == 0


def test_half_precision_on_disk(command, tmp_path):
    folder = tmp_path / "elmo"
    assert main([*command, "-o", str(folder), "--steps", "2", "--half"]) == 0
    assert {weight.dtype for weight in weights_of(folder).values()} == {torch.float16}
    model = AutoModel.from_pretrained(folder)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_tuning_a_checkpoint_to_other_text(command, text, tmp_path, capsys):
    first, other = tmp_path / "first", tmp_path / "other.txt"
    assert main([*command, "-o", str(first), "--steps", "60", "--learning-rate", "0.03"]) == 0
    other.write_text(made_up_text(100, seed=3).replace("cat", "zebra"))
    tune = ["pretrain", str(other), "--cache", str(tmp_path / "cache"), "--cpu", *FAST, "--steps", "30"]
    # With its softmax: the vocabulary stays.
    assert main([*tune, "--init", str(first), "-o", str(tmp_path / "tuned")]) == 0
    tuned = ElmoTokenizer.from_pretrained(tmp_path / "tuned")
    assert tuned.get_vocab() == ElmoTokenizer.from_pretrained(first).get_vocab()
    # Without: a new one of the new words.
    ElmoModel.from_pretrained(first).save_pretrained(tmp_path / "plain")
    ElmoTokenizer.from_pretrained(first).save_pretrained(tmp_path / "plain")
    assert main([*tune, "--init", str(tmp_path / "plain"), "-o", str(tmp_path / "new")]) == 0
    assert "zebra" in ElmoTokenizer.from_pretrained(tmp_path / "new").get_vocab()
    assert main([*tune, "--init", str(first), "--size", "small", "-o", str(tmp_path / "x")]) == 1
    assert "leave them out" in capsys.readouterr().err


def test_a_vocabulary_of_ones_own(command, tmp_path, capsys):
    vocabulary = tmp_path / "vocab.txt"
    words = ["<S>", "</S>", "<UNK>", "the", ".", "cat", "dog", "sat", "ran", "old", "on", "to"]
    vocabulary.write_text("\n".join(words) + "\n")
    assert main([*command, "--vocab", str(vocabulary), "--steps", "2", "-o", str(tmp_path / "elmo")]) == 0
    assert ElmoTokenizer.from_pretrained(tmp_path / "elmo").convert_ids_to_tokens(list(range(1, 13))) == words
    for wrong, sentence in (
        (words[3:], "must begin with <S>, </S>, <UNK>, a line each; it lacks <S>, </S>, <UNK> there"),
        (words[:3] + words[:2:-1], "must be sorted by frequency"),
    ):
        vocabulary.write_text("\n".join(wrong) + "\n")
        assert main([*command, "--vocab", str(vocabulary), "--steps", "2", "-o", str(tmp_path / "no")]) == 1
        assert sentence in capsys.readouterr().err


def test_other_settings_are_not_resumed(command, tmp_path, capsys):
    folder = tmp_path / "elmo"
    assert main([*command, "-o", str(folder), "--steps", "4"]) == 0
    capsys.readouterr()
    assert main([*command, "-o", str(folder), "--steps", "4"]) == 1
    assert "is there already; give --resume" in capsys.readouterr().err
    assert main([*command, "-o", str(folder), "--steps", "6", "--learning-rate", "0.5", "--resume"]) == 1
    error = capsys.readouterr().err
    assert f"recipe.learning_rate is 0.5, was {Recipe().learning_rate}" in error and "steps is 6, was 4" in error
    assert main([*command, "-o", str(tmp_path / "none"), "--resume"]) == 1
    assert "nothing to resume" in capsys.readouterr().err
    # How often it reports is no part of the result. There is nothing left to do but to save it.
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").unlink()
    assert main([*command, "-o", str(folder), "--steps", "4", "--log-every", "3", "--resume"]) == 0
    assert (folder / "model.safetensors").read_bytes() == weights


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "content, pieces",
    [
        (b"", ["must hold words", "holds none"]),
        (b"\n \n", ["must hold words"]),
        (b"the cat sat on the mat . the dog ran .", ["words to train on", "give more text"]),
        (b"the cat\xff sat\n" * 50, ["must be UTF-8", "line 1", "0xff", "--encoding-errors replace"]),
        (b"\x7fELF\x00\x01 the cat", ["must be UTF-8 text", "zero byte"]),
        (b"all these words stand here once", ["No word occurs 2 times", "--min-count"]),
    ],
)
def test_bad_text(command, tmp_path, capsys, content, pieces):
    path = write(tmp_path / "bad.txt", content)
    arguments = ["pretrain", str(path), *command[2:], "-o", str(tmp_path / "out"), "--steps", "2"]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert all(piece in error for piece in pieces) and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["nowhere*.txt"], "names no file"),
        (["--config", "wrong.json"], "must hold a JSON object"),
        (["--vocab", "none.txt"], "none.txt"),
        (["--init", "/nowhere/at/all"], "/nowhere/at/all is neither a folder"),
    ],
)
def test_bad_arguments(command, tmp_path, capsys, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "wrong.json", "{")
    whole = [*command[:2], *arguments, *command[4:], "-o", "out", "--steps", "2"]
    assert main(whole) == 1
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_loss_that_is_no_number(corpus, tmp_path):
    class Break(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **kwargs):
            if state.global_step == 5:
                model.lm_head.bias.data.fill_(float("nan"))

    with pytest.raises(RuntimeError, match=r"loss became nan at step 6; the last good checkpoint is .*checkpoint-4"):
        run(corpus, tmp_path, callbacks=[Break()])


def test_a_gradient_that_is_no_number(corpus, tmp_path):
    class Break(TrainerCallback):
        def on_step_begin(self, args, state, control, model=None, **kwargs):
            if state.global_step == 5:
                model.lm_head.bias.register_hook(lambda gradient: gradient * float("inf"))

    with pytest.raises(RuntimeError, match=r"gradient's norm became .* at step 6; .*checkpoint-4"):
        run(corpus, tmp_path, callbacks=[Break()])


def test_a_full_disk(corpus, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise RuntimeError("PytorchStreamWriter failed writing file data/3: file write failed")

    from transformers_elmo.pretrain.trainer import ElmoPretrainer

    original = ElmoPretrainer._save_optimizer_and_scheduler
    monkeypatch.setattr(
        ElmoPretrainer,
        "_save_optimizer_and_scheduler",
        lambda self, folder: full() if folder.endswith("-4") else original(self, folder),
    )
    with pytest.raises(OSError, match=r"checkpoint-4 could not be written .* is the disk full"):
        run(corpus, tmp_path)
    assert last_checkpoint(tmp_path).name == "checkpoint-2" and not (tmp_path / "checkpoint-4").exists()


TWO_PROCESSES = """
import os, sys
import torch
from transformers import TrainerCallback
from test_pretraining import Corpus, StopAt, run

class Look(TrainerCallback):
    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
        self.windows, self.seen = train_dataloader.dataset, []

    def on_step_end(self, args, state, control, **kwargs):
        self.seen.append([direction.sentence.tolist() for direction in self.windows.directions])

corpus, folder, how, rank = *sys.argv[1:], os.environ["RANK"]
callbacks = [look := Look()]
if how == "stopped" and rank == "1":  # one of them is asked, and all stop
    callbacks.append(StopAt(3))
trainer = run(Corpus(corpus), folder, steps=6, resume=how == "resumed", callbacks=callbacks)
found = {"weights": trainer.model.state_dict(), "seen": look.seen, "stopped": trainer.stopped}
torch.save(found, f"{folder}-{rank}.pt")
trainer.accelerator.end_training()
"""


def test_two_processes(corpus, tmp_path):
    """Each sees other sentences, and both come to the same weights, stopped and resumed or not."""
    script = write(tmp_path / "script.py", TWO_PROCESSES)
    path = os.pathsep.join(
        [str(Path(__file__).parent), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    )
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master-port", "0"]
    launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", str(script), str(corpus.folder)]

    def train(name: str, how: str) -> list[dict]:
        subprocess.run([*launch, str(tmp_path / name), how], check=True, env=environment)
        return [torch.load(tmp_path / f"{name}-{rank}.pt", weights_only=True) for rank in range(2)]

    one, two = train("whole", "whole")
    for name, weight in one["weights"].items():
        assert torch.equal(weight, two["weights"][name]), name
    assert one["seen"] != two["seen"] and len(one["seen"]) == 6
    for ours, theirs in zip(one["seen"], two["seen"]):
        for rows, others in zip(ours, theirs):
            assert not (set(rows) & set(others)) - {-1}
    assert {path.name for path in (tmp_path / "whole/checkpoint-6").glob("reading-*")} == {
        "reading-0.pt",
        "reading-1.pt",
    }

    assert all(process["stopped"] for process in train("parts", "stopped"))
    resumed = train("parts", "resumed")
    assert_same_bits(tmp_path / "whole", tmp_path / "parts")
    assert [process["seen"] for process in resumed] == [one["seen"][3:], two["seen"][3:]]


@pytest.mark.slow
def test_wikitext(shared_folder, tmp_path):
    """A short run on real text: one command, a checkpoint that AutoModel loads, falling perplexity; killed, resumed."""
    text = shared_folder / "data" / "text" / "wikitext-2" / "train.txt.gz"
    if not text.is_file():
        pytest.skip(f"no text {text}")
    command = [sys.executable, "-m", "transformers_elmo.command", "pretrain", str(text), "--words"]
    command += ["--leave-out", "<unk>", "--cache", str(tmp_path / "cache"), "--cpu"]
    command += ["--steps", "80", "--rows", "32", "--eval-every", "20", "--save-every", "20", "--output"]
    subprocess.run([*command, str(tmp_path / "whole")], check=True)
    assert "<unk>" not in ElmoTokenizer.from_pretrained(tmp_path / "whole").get_vocab()
    history = json.loads((last_checkpoint(tmp_path / "whole") / "trainer_state.json").read_text())["log_history"]
    perplexities = [row["eval_perplexity"] for row in history if "eval_perplexity" in row]
    assert perplexities == sorted(perplexities, reverse=True) and perplexities[-1] < perplexities[0] / 2
    assert AutoModel.from_pretrained(tmp_path / "whole").config.hidden_size == 384
    process = subprocess.Popen([*command, str(tmp_path / "parts")])
    while last_checkpoint(tmp_path / "parts") is None and process.poll() is None:
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert not (tmp_path / "parts" / "model.safetensors").exists()
    subprocess.run([*command, str(tmp_path / "parts"), "--resume"], check=True)
    assert_same_bits(tmp_path / "whole", tmp_path / "parts")


def test_compressed_text_and_columns(command, tmp_path):
    lines = made_up_text(60).splitlines()
    packed = tmp_path / "text.txt.gz"
    packed.write_bytes(gzip.compress(made_up_text(60).encode()))
    rows = write(tmp_path / "text.jsonl", "".join(json.dumps({"story": line}) + "\n" for line in lines))
    for path, more in ((packed, []), (rows, ["--column", "story"])):
        folder = tmp_path / f"out-{path.suffix}"
        assert main(["pretrain", str(path), *command[2:], "-o", str(folder), "--steps", "2", *more]) == 0
    assert_same_bits(tmp_path / "out-.gz", tmp_path / "out-.jsonl")
