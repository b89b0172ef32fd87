"""The output folder of a run: one run at a time, and no damaged checkpoint is resumed from."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

from helpers.pretraining import StopAt, assert_same_weights, train, write
from transformers_elmo.files import try_lock
from transformers_elmo.pretrain.output import (
    CHECKSUMS_FILE,
    LOCK_FILE,
    SETTINGS_FILE,
    acquire_lock,
    checkpoints,
    last_checkpoint,
    locked_output,
    release_lock,
    remove_old_checkpoints,
    write_checksums,
)


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory) -> Path:
    """The folder of a completed run of 6 steps, with checkpoints 4 and 6."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(corpus, folder, steps=6)
    return folder


@pytest.fixture
def folder(finished, tmp_path) -> Path:
    """A copy of that folder without the final checkpoint."""
    copy = tmp_path / "run"
    shutil.copytree(finished, copy)
    (copy / "model.safetensors").unlink()
    return copy


def flip_a_bit(path: Path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "flipped bit": flip_a_bit,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
    "folder": lambda path: (path.unlink(), path.mkdir()),
}
CHECKPOINT_FILES = [
    "config.json",
    "model.safetensors",
    "optimizer.pt",
    "scheduler.pt",
    "rng_state.pth",
    "reader_state-0.pt",
    "trainer_state.json",
    SETTINGS_FILE,
    CHECKSUMS_FILE,
]


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
@pytest.mark.parametrize("name", CHECKPOINT_FILES)
def test_damaged_checkpoint_is_found(folder, name, damage):
    damage(folder / "checkpoint-6" / name)
    assert last_checkpoint(folder).name == "checkpoint-4"


@pytest.mark.parametrize("name", ["optimizer.pt", "trainer_state.json"])
def test_resumes_from_the_checkpoint_before(corpus, finished, folder, capsys, name):
    flip_a_bit(folder / "checkpoint-6" / name)
    train(corpus, folder, steps=6, resume=True)
    message = f"checkpoint-6 cannot be used ({name} is damaged): training continues from checkpoint-4.\n"
    assert message in capsys.readouterr().err
    assert_same_weights(folder, finished)
    assert last_checkpoint(folder).name == "checkpoint-6"  # written anew


def test_all_checkpoints_damaged(corpus, finished, folder):
    for step in (4, 6):
        flip_a_bit(folder / f"checkpoint-{step}" / "optimizer.pt")
    with pytest.raises(ValueError, match=r"has no undamaged checkpoint; .*-6 .*-4 .*: restore one .*, or remove them"):
        train(corpus, folder, steps=6, resume=True)
    for step in (4, 6):
        shutil.rmtree(folder / f"checkpoint-{step}")
    train(corpus, folder, steps=6, resume=True)
    assert_same_weights(folder, finished)


def test_killed_while_the_first_checkpoint_was_written(corpus, finished, folder, capsys):
    shutil.rmtree(folder / "checkpoint-4")
    (folder / "checkpoint-6" / CHECKSUMS_FILE).unlink()
    train(corpus, folder, steps=6, resume=True)
    assert "checksums.json is missing): training starts from the beginning.\n" in capsys.readouterr().err
    assert_same_weights(folder, finished)


def test_names_that_are_no_checkpoints(corpus, finished, folder):
    others = ["checkpoint-6.bak", "checkpoint-", "checkpoint-x", "checkpoint-007", "checkpoint--7", "checkpoint-²"]
    others += ["checkpoint-" + 200 * "9"]
    for name in others:
        shutil.copytree(folder / "checkpoint-4", folder / name)
    write(folder / "checkpoint-9", "a file")
    shutil.rmtree(folder / "checkpoint-6")
    train(corpus, folder, steps=6, resume=True)
    assert_same_weights(folder, finished)
    assert {path.name for path in folder.glob("checkpoint-*")} == {
        *others,
        "checkpoint-4",
        "checkpoint-6",
        "checkpoint-9",
    }


def test_two_checkpoints_are_kept(finished, tmp_path):
    assert [step for step, _ in checkpoints(finished)] == [6, 4]
    for step in (2, 4, 6, 8, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
    remove_old_checkpoints(tmp_path, 8)  # after a resume from 6, as 8 and 10 were damaged
    assert [step for step, _ in checkpoints(tmp_path)] == [8, 6]


def test_checkpoint_of_another_run(corpus, folder, tmp_path):
    train(corpus, tmp_path / "other", steps=8, learning_rate=0.5)
    shutil.copytree(tmp_path / "other" / "checkpoint-8", folder / "checkpoint-8")
    with pytest.raises(ValueError, match=r"own settings, but in .*checkpoint-8 recipe.learning_rate is 0.02, was 0.5"):
        train(corpus, folder, steps=6, resume=True)


def test_run_of_an_older_version(corpus, folder):
    path = folder / SETTINGS_FILE
    settings = json.loads(path.read_text())
    del settings["vocabulary_sha256"]
    path.write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=r"written by an older version .* start a new run in another --output"):
        train(corpus, folder, steps=6, resume=True)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "\0"])
def test_damaged_settings(corpus, folder, content):
    write(folder / SETTINGS_FILE, content)
    with pytest.raises(ValueError, match=r"pretraining.json must be "):
        train(corpus, folder, steps=6, resume=True)


def test_one_run_at_a_time(corpus, folder):
    files = sorted(folder.iterdir())
    with locked_output(folder, resume=True):
        for resume, message in (
            (True, rf"in use by another run, process {os.getpid()} on "),
            (False, "already exists"),
        ):
            with pytest.raises((OSError, ValueError), match=message):
                train(corpus, folder, steps=6, resume=resume)
    assert sorted(folder.iterdir()) == files  # the lock is gone
    train(corpus, folder, steps=6, resume=True)


def test_lock_of_a_killed_run(tmp_path):
    """It leaves its lock file, but not its lock."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with locked_output(tmp_path / "run", resume=False):
            os.write(writing, b"locked")
            signal.pause()
    assert os.read(reading, 6) == b"locked"
    with (
        pytest.raises(OSError, match=f"in use by another run, process {child} on .*: wait until it ends"),
        locked_output(tmp_path / "run", resume=False),
    ):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert (tmp_path / "run" / LOCK_FILE).exists()
    with locked_output(tmp_path / "run", resume=False):
        pass
    assert (tmp_path / "run").is_dir() and not list((tmp_path / "run").iterdir())


def test_new_folders_are_removed_if_nothing_was_written(tmp_path):
    with pytest.raises(RuntimeError), locked_output(tmp_path / "a" / "b", resume=False):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_lock_file_removed_meanwhile(tmp_path, monkeypatch):
    """A lock on a file that its holder has just removed excludes nobody."""
    path, locks = tmp_path / LOCK_FILE, []

    def lock_and_remove_the_first(path):
        locks.append(try_lock(path))
        if len(locks) == 1:
            path.unlink()
        return locks[-1]

    monkeypatch.setattr("transformers_elmo.pretrain.output.try_lock", lock_and_remove_the_first)
    lock = acquire_lock(path)
    assert len(locks) == 2 and os.path.samestat(os.fstat(lock), path.stat())
    release_lock(path, lock)


def test_file_system_without_locks(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("transformers_elmo.pretrain.output.try_lock", lambda path: None)
    with locked_output(tmp_path / "run", resume=False):
        pass
    assert "run cannot be locked: make sure that no other run" in capsys.readouterr().err


def test_interrupted_while_saving(corpus, finished, tmp_path, monkeypatch):
    """No part of the checkpoint stays, and the run can be resumed."""

    def interrupt(folder):
        raise KeyboardInterrupt

    monkeypatch.setattr("transformers_elmo.pretrain.trainer.write_checksums", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(corpus, tmp_path / "run", steps=6)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {SETTINGS_FILE}
    monkeypatch.undo()
    train(corpus, tmp_path / "run", steps=6, resume=True)
    assert_same_weights(tmp_path / "run", finished)


def test_configuration_is_saved_last(corpus, folder, monkeypatch):
    """With it the folder is a checkpoint, so all other files must be there."""
    saved, replace = [], Path.replace
    monkeypatch.setattr(Path, "replace", lambda path, target: saved.append(path.name) or replace(path, target))
    train(corpus, folder, steps=6, resume=True)
    assert "model.safetensors" in saved and saved[-1] == "config.json"


def test_no_checkpoint_of_diverged_weights(corpus, tmp_path):
    """The loss of step 4 is finite, the weights after it are not."""

    class Diverge(StopAt):
        def on_step_end(self, args, state, control, model=None, **kwargs):
            if state.global_step == self.step:
                model.lm_head.bias.data[2] = float("inf")

    with pytest.raises(RuntimeError, match=r"weight lm_head.bias became inf at step 4: .*--init .*checkpoint-2"):
        train(corpus, tmp_path / "saved", callbacks=[Diverge(4)])
    assert [step for step, _ in checkpoints(tmp_path / "saved")] == [2]
    with pytest.raises(RuntimeError, match=r"weight lm_head.bias became inf .*, from the beginning\."):
        train(corpus, tmp_path / "last", callbacks=[Diverge(1)], steps=1, save_every=100, held_out_words=0)
    assert not (tmp_path / "last" / "model.safetensors").exists()


def test_checksums(tmp_path):
    write(tmp_path / "a", "text")
    torch.save({}, tmp_path / "b.pt")
    write_checksums(tmp_path)
    checksums = json.loads((tmp_path / CHECKSUMS_FILE).read_text())
    assert list(checksums) == ["a", "b.pt"]
    assert checksums["a"] == "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1"
