"""Training that is stopped or killed and resumed ends with the same bits, in one process and in two."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoModel

import helpers
from helpers.pretraining import StopAt, assert_same_weights, logged_losses, train, write
from transformers_elmo import ElmoTokenizer
from transformers_elmo.command import main
from transformers_elmo.files import host_name
from transformers_elmo.pretrain.callbacks import StopOnSignal
from transformers_elmo.pretrain.output import check_output, last_checkpoint


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation": 3}, {"optimizer": "adagrad", "steps": 9}], ids=str)
def test_stopped_and_resumed(corpus, tmp_path, options):
    whole = train(corpus, tmp_path / "whole", **options)
    assert not whole.stopped
    first = train(corpus, tmp_path / "parts", callbacks=[StopAt(5)], **options)
    assert first.stopped and first.state.global_step == 5 and not (tmp_path / "parts" / "model.safetensors").exists()
    resumed = train(corpus, tmp_path / "parts", resume=True, **options)
    assert_same_weights(tmp_path / "whole", tmp_path / "parts")
    assert torch.equal(whole.lstm_state[1], resumed.lstm_state[1])
    assert logged_losses(whole)[-3:] == logged_losses(resumed)[-3:]
    assert whole.state.epoch == resumed.state.epoch


def test_intervals_of_a_resumed_run(corpus, tmp_path):
    """They are those of the command that resumes, not those of the first one."""
    train(corpus, tmp_path / "elmo", callbacks=[StopAt(3)], save_every=1000, log_every=1000, eval_every=1000)
    trainer = train(corpus, tmp_path / "elmo", resume=True, save_every=5, log_every=2, eval_every=3)
    steps = {key: [row["step"] for row in trainer.state.log_history if key in row] for key in ("loss", "eval_loss")}
    assert steps == {"loss": [4, 6, 8], "eval_loss": [6, 8]}
    assert {path.name for path in (tmp_path / "elmo").glob("checkpoint-*")} == {"checkpoint-5", "checkpoint-8"}


def test_signal_while_the_progress_bar_is_printed(monkeypatch):
    """Python's files refuse a call inside of another one; the signal counts all the same."""

    def refuse(*_, **__):
        raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")

    stop = StopOnSignal()
    monkeypatch.setattr(sys.stderr, "write", refuse)
    stop.on_signal(signal.SIGINT, None)
    assert stop.requested


def test_second_signal_stops_at_once(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(StopOnSignal, "SAME_SIGNAL_SECONDS", -1.0)
    with pytest.raises(KeyboardInterrupt):
        train(corpus, tmp_path, callbacks=[StopAt(5)])
    assert last_checkpoint(tmp_path).name == "checkpoint-4"


def test_resumed_in_a_later_epoch(corpus, tmp_path):
    """The text ends twice: an epoch has 29 steps."""
    options = {"rows": 8, "window": 10, "steps": 70, "save_every": 1000}
    train(corpus, tmp_path / "whole", **options)
    train(corpus, tmp_path / "parts", **options, callbacks=[StopAt(47)])
    train(corpus, tmp_path / "parts", **options, resume=True)
    assert_same_weights(tmp_path / "whole", tmp_path / "parts")


def kill_after_first_checkpoint(command: list[str], folder: Path, environment: dict[str, str] | None = None):
    process = subprocess.Popen([*command, "-o", str(folder)], stdout=subprocess.DEVNULL, env=environment)
    while last_checkpoint(folder) is None and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not (folder / "model.safetensors").exists()


def test_killed_and_resumed(command, tmp_path):
    command = [*command, "--steps", "40"]
    # One thread as in this process: sums round differently with more.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    elmo = [sys.executable, "-m", "transformers_elmo.command"]
    kill_after_first_checkpoint([*elmo, *command], tmp_path / "parts", environment)
    for folder, resume in (("whole", []), ("parts", ["--resume"])):
        assert main([*command, "-o", str(tmp_path / folder), *resume]) == 0
    assert_same_weights(tmp_path / "whole", tmp_path / "parts")


def test_killed_before_the_settings_were_written(tmp_path):
    (tmp_path / f".pretraining.json.{host_name()}-0123abcd.unfinished").touch()
    check_output(tmp_path, resume=False)
    assert list(tmp_path.iterdir()) == []


def test_incomplete_checkpoints_are_skipped(corpus, tmp_path):
    train(corpus, tmp_path, callbacks=[StopAt(5)])
    assert last_checkpoint(tmp_path).name == "checkpoint-5"
    (tmp_path / "checkpoint-5" / "trainer_state.json").write_text('{"global_')
    assert last_checkpoint(tmp_path).name == "checkpoint-4"
    (tmp_path / "checkpoint-4" / "reader_state-0.pt").unlink()
    assert last_checkpoint(tmp_path) is None


def test_rest_of_a_killed_checkpoint_is_removed(corpus, tmp_path):
    """safetensors writes to a temporary file, and a card that exists is kept."""
    train(corpus, tmp_path, callbacks=[StopAt(5)])
    expected = {path.name for path in (tmp_path / "checkpoint-5").iterdir()}
    (tmp_path / "checkpoint-8").mkdir()
    for name in (".tmpQxZ3", "README.md"):
        (tmp_path / "checkpoint-8" / name).write_text("half")
    train(corpus, tmp_path, resume=True)
    assert {path.name for path in (tmp_path / "checkpoint-8").iterdir()} == expected
    assert (tmp_path / "checkpoint-8" / "README.md").read_text() != "half"


TWO_PROCESSES = """
import os, sys
import torch
from transformers import TrainerCallback
from helpers.pretraining import StopAt, train
from transformers_elmo.pretrain.corpus import Corpus

class RecordSentences(TrainerCallback):
    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
        self.windows, self.sentences = train_dataloader.dataset, []

    def on_step_end(self, args, state, control, **kwargs):
        self.sentences.append([direction.sentence.tolist() for direction in self.windows.directions])

corpus, folder, mode, rank = *sys.argv[1:], os.environ["RANK"]
callbacks = [record := RecordSentences()]
if mode == "stop" and rank == "1":  # one process gets the signal, and both stop
    callbacks.append(StopAt(3))
trainer = train(Corpus(corpus), folder, steps=6, resume=mode == "resume", callbacks=callbacks)
result = {"weights": trainer.model.state_dict(), "sentences": record.sentences, "stopped": trainer.stopped}
torch.save(result, f"{folder}-{rank}.pt")
trainer.accelerator.end_training()
"""


def test_two_processes(corpus, tmp_path):
    """Each reads other sentences, and both have the same weights, whether training was stopped and resumed or not."""
    script = write(tmp_path / "script.py", TWO_PROCESSES)
    tests = Path(helpers.__file__).parents[1]
    path = os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master-port", "0"]
    launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", str(script), str(corpus.folder)]

    def train_on_two(name: str, mode: str) -> list[dict]:
        subprocess.run([*launch, str(tmp_path / name), mode], check=True, env=environment)
        return [torch.load(tmp_path / f"{name}-{rank}.pt", weights_only=True) for rank in range(2)]

    one, two = train_on_two("whole", "whole")
    for name, weight in one["weights"].items():
        assert torch.equal(weight, two["weights"][name]), name
    assert one["sentences"] != two["sentences"] and len(one["sentences"]) == 6
    for step, other_step in zip(one["sentences"], two["sentences"]):
        for rows, other_rows in zip(step, other_step):
            assert not (set(rows) & set(other_rows)) - {-1}
    assert {path.name for path in (tmp_path / "whole/checkpoint-6").glob("reader_state-*")} == {
        "reader_state-0.pt",
        "reader_state-1.pt",
    }

    assert all(process["stopped"] for process in train_on_two("parts", "stop"))
    resumed = train_on_two("parts", "resume")
    assert_same_weights(tmp_path / "whole", tmp_path / "parts")
    assert [process["sentences"] for process in resumed] == [one["sentences"][3:], two["sentences"][3:]]


@pytest.mark.slow
def test_wikitext(shared_folder, tmp_path):
    """A short run on real text: one command, a checkpoint that AutoModel loads, falling perplexity; killed, resumed."""
    text = shared_folder / "data" / "text" / "wikitext-2" / "train.txt.gz"
    if not text.is_file():
        pytest.skip(f"{text} does not exist")
    command = [sys.executable, "-m", "transformers_elmo.command", "pretrain", str(text), "--pretokenized"]
    command += ["--drop-tokens", "<unk>", "--cache", str(tmp_path / "cache"), "--cpu"]
    command += ["--steps", "80", "--rows", "32", "--eval-every", "20", "--save-every", "20"]
    subprocess.run([*command, "-o", str(tmp_path / "whole")], check=True)
    assert "<unk>" not in ElmoTokenizer.from_pretrained(tmp_path / "whole").get_vocab()
    history = json.loads((last_checkpoint(tmp_path / "whole") / "trainer_state.json").read_text())["log_history"]
    perplexities = [row["eval_perplexity"] for row in history if "eval_perplexity" in row]
    assert perplexities == sorted(perplexities, reverse=True) and perplexities[-1] < perplexities[0] / 2
    assert AutoModel.from_pretrained(tmp_path / "whole").config.hidden_size == 384
    kill_after_first_checkpoint(command, tmp_path / "parts")
    subprocess.run([*command, "-o", str(tmp_path / "parts"), "--resume"], check=True)
    assert_same_weights(tmp_path / "whole", tmp_path / "parts")
