"""The `elmo` command around its verbs: help, usage errors, tracebacks, bad checkpoints, startup without torch."""

import errno
import io
import json
import os
import subprocess
import sys

import pytest
import torch
from transformers import BertConfig

from helpers.command import assert_one_sentence, run
from transformers_elmo import ElmoModel, checkpoints
from transformers_elmo.command import VERBS, main

# What the console script runs; then the modules that it must not have imported, on the last line of standard output.
CONSOLE_SCRIPT = """
import json, sys
import elmo_command

try:
    code = elmo_command.main()
except SystemExit as error:
    code = error.code
heavy = [name for name in ("torch", "transformers") if name in sys.modules]
print()
print(json.dumps([code, heavy]))
"""


def run_console_script(*arguments):
    """Return the exit code, standard output, standard error and the heavy modules imported by `elmo ARGUMENTS`."""
    command = [sys.executable, "-c", CONSOLE_SCRIPT, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *out, last = done.stdout.splitlines()
    code, heavy = json.loads(last)
    return code, "\n".join(out), done.stderr, heavy


@pytest.mark.parametrize(
    "command_line, expected_code, part",
    [
        ("--help", 0, "describe a checkpoint"),
        ("--version", 0, "transformers-elmo "),
        *((f"{verb} --help", 0, f"usage: elmo {verb}") for verb in VERBS),
        ("convert --list", 0, "1 Billion Word Benchmark"),
        ("", 2, "describe a checkpoint"),
        ("nonsense", 2, "unknown verb"),
        ("embed --nonsense", 2, "see elmo embed --help."),
        ("embed default -o x.npz --layer lstm_9", 2, "lstm_9"),
        ("embed default -o x.txt", 1, ".npz"),
        ("convert --name nonsense -o x", 1, "nonsense"),
        ("pretrain x.txt -o x --init default --size mini", 1, "--init"),
    ],
)
def test_help_and_usage_errors_do_not_import_torch(command_line, expected_code, part):
    code, out, err, heavy = run_console_script(*command_line.split())
    assert code == expected_code
    assert part in (err if code else out)
    assert heavy == []


def test_the_console_script_registers_elmo_before_it_runs_a_verb(checkpoint):
    code, out, err, heavy = run_console_script("info", checkpoint)
    assert (code, err) == (0, "") and "ElmoModel" in out
    assert heavy == ["torch", "transformers"]


@pytest.mark.parametrize(
    "imports",
    [
        "import transformers, transformers_elmo",
        "import elmo_command, transformers_elmo, transformers",
        "import transformers_elmo.command, transformers_elmo",
    ],
)
def test_importing_the_package_registers_and_exports_its_classes(imports):
    script = f"""
{imports}
import pickle
from transformers import AutoConfig, AutoModelForTextEncoding
from transformers_elmo import *

assert set(transformers_elmo.__all__) <= set(dir(transformers_elmo))
config = ElmoConfig.mini()
assert type(AutoConfig.for_model("elmo")) is ElmoConfig
assert type(AutoModelForTextEncoding.from_config(config)) is ElmoModel
assert pickle.loads(pickle.dumps(config)).to_dict() == config.to_dict()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_verb_has_help_and_examples(capsys):
    for verb in VERBS:
        code, out, err = run(capsys, verb, "--help")
        assert (code, err) == (0, "")
        assert f"examples:\n  elmo {verb} " in out and "--traceback" in out


def test_help_without_a_verb(capsys):
    code, out, err = run(capsys)
    assert (code, out) == (2, "")
    assert err == run(capsys, "--help")[1]
    for verb, summary in VERBS.items():
        assert verb in err and summary in err


def test_unknown_verbs_get_a_suggestion(capsys):
    result = run(capsys, "embd")
    assert result[0] == 2
    assert_one_sentence(result, "unknown verb 'embd'; did you mean 'embed'?", ", ".join(VERBS))
    result = run(capsys, "--traceback", "zzz", "--nonsense")
    assert result[0] == 2
    assert_one_sentence(result, "unknown verb 'zzz'. The verbs are ", ", ".join(VERBS))


def test_wrong_numbers(capsys):
    for value in ("0", "-1", "1.5", "x", 1 << 31, "9" * 5000, "\x1b[31m"):
        result = run(capsys, "embed", "default", "-o", "x.npz", "--batch-words", value)
        assert_one_sentence(result, "--batch-words: must be a whole number, at least 1 and below 2^31, got ")
        assert len(result[2]) < 200 and "\x1b" not in result[2]


def test_traceback_before_or_after_the_verb(capsys, tmp_path):
    arguments = ["embed", "default", "-o", tmp_path / "x.txt"]
    hidden = run(capsys, *arguments)
    assert_one_sentence(hidden, ".npz")
    for with_traceback in (["--traceback", *arguments], [*arguments, "--traceback"]):
        code, out, err = run(capsys, *with_traceback)
        assert (code, out) == (1, "")
        assert err.startswith("Traceback (most recent call last):") and "check_arguments" in err
        assert err.endswith(hidden[2])


@pytest.mark.parametrize(
    "error, code, part",
    [
        (
            TypeError("unhashable"),
            70,
            "elmo: internal error: TypeError: unhashable; this is a bug: please report it with",
        ),
        (KeyError("x"), 70, "elmo: internal error: KeyError: 'x'; this is a bug"),
        (AssertionError(), 70, "elmo: internal error: AssertionError: ; this is a bug"),
        (RecursionError("too deep"), 70, "elmo: internal error: RecursionError: too deep; "),
        (ValueError(), 70, "elmo: internal error: ValueError"),
        (
            MemoryError(),
            1,
            "elmo: error: there was not enough memory (MemoryError); use smaller batches (--batch-words",
        ),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 1, "not enough memory (Cannot allocate memory)"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), 1, "not enough memory (DefaultCPU"),
        (torch.OutOfMemoryError("CUDA out of memory."), 1, "not enough memory (CUDA out of memory.); use"),
        (RuntimeError("a\n  b\x1b[31m\u202e"), 1, "elmo: error: a b\\x1b[31m\\u202e\n"),
        (
            FileNotFoundError(errno.ENOENT, "No such file", "a\n\x1b\udcff"),
            1,
            "error: a\\n\\x1b\\udcff: No such file\n",
        ),
        (PermissionError(errno.EACCES, "Permission denied", b"a"), 1, "elmo: error: a: Permission denied\n"),
        (FileNotFoundError(errno.ENOENT, "No such file"), 1, "elmo: error: the working directory no longer exists"),
        (
            RuntimeError("[gloo/pair.cc:5] Connection closed by peer [::1]:5. GLHF"),
            1,
            "another process of this run has",
        ),
        (OSError(errno.EIO, "Input/output error"), 1, "elmo: error: Input/output error\n"),
        (OSError(errno.ENOSPC, "No space left", "run/x"), 1, "elmo: error: run/x: No space left\n"),
    ],
    ids=repr,
)
def test_every_error_is_one_sentence(capsys, monkeypatch, error, code, part):
    def fail(checkpoint):
        raise error

    monkeypatch.setattr(checkpoints, "load", fail)
    result = run(capsys, "info", "default")
    assert result[0] == code and part in result[2]
    assert result[1] == "" and result[2].count("\n") == 1
    if code == 70:
        assert result[2].endswith(
            "with the output of --traceback at https://github.com/transformers-elmo/transformers-elmo/issues\n"
        )
    assert "Traceback (most recent call last)" in run(capsys, "info", "default", "--traceback")[2]


def test_bad_checkpoints(capsys, checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert_one_sentence(run(capsys, "info", tmp_path / "nowhere"), "nowhere", "neither a folder")
    assert_one_sentence(run(capsys, "info", tmp_path), tmp_path, "config.json")
    BertConfig().save_pretrained(tmp_path / "bert")
    assert_one_sentence(run(capsys, "info", tmp_path / "bert"), "must be an ELMo checkpoint", "bert")
    truncated = tmp_path / "cut"
    ElmoModel.from_pretrained(checkpoint).save_pretrained(truncated)
    weights = truncated / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert_one_sentence(run(capsys, "info", truncated), truncated, "is truncated")
    (truncated / "config.json").write_text("{ not json")
    assert_one_sentence(run(capsys, "info", truncated), "config.json")


def test_a_closed_pipe_is_not_an_error(checkpoint):
    command = [sys.executable, "-m", "transformers_elmo.command", "info", str(checkpoint)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, err) == (141, "")


# The console script with its files in another state; the code after the standard library's imports starts `elmo`.
STATES = """
import os, signal, sys
state, folder, *sys.argv[1:] = sys.argv[1:]
os.chdir(folder)
if state == "deleted folder":
    os.rmdir(folder)
else:
    full = os.open("/dev/full", os.O_WRONLY)
    for number in {"full output": [1], "full output and errors": [1, 2], "full errors": [2]}.get(state, []):
        os.dup2(full, number)
    closed = {"closed output": ["stdout"], "closed output and errors": ["stdout", "stderr"]}
    for name in closed.get(state, []):
        os.close(getattr(sys, name).fileno())
        setattr(sys, name, None)  # as Python does when it starts
import elmo_command
sys.exit(elmo_command.main())
"""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    "state, command_line, code, message",
    [
        (
            "full output",
            "convert --list",
            1,
            "elmo: error: the output cannot be written: No space left on device; ",
        ),
        ("full output", "embed --help", 1, "elmo: error: the output cannot be written: No space left on device; "),
        ("full output and errors", "convert --list", 1, ""),
        ("full errors", "embed x", 2, ""),
        (
            "closed output",
            "convert --list",
            1,
            "elmo: error: standard output must be open, and is closed; redirect it, ",
        ),
        ("closed output and errors", "convert --list", 1, ""),
        ("deleted folder", "embed CHECKPOINT TEXT -o x.npz", 1, "elmo: error: the working directory no longer exists"),
    ],
)
def test_output_input_and_working_directory_that_are_not_there(
    checkpoint, tmp_path, state, command_line, code, message
):
    text, folder = tmp_path / "text.txt", tmp_path / "folder"
    text.write_text("One\n")
    folder.mkdir()
    paths = {"CHECKPOINT": checkpoint, "TEXT": text}
    arguments = [str(paths.get(argument, argument)) for argument in command_line.split()]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", STATES, state, folder, *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(message) and done.stderr.count("\n") == bool(message)


def test_closed_standard_input(capsys, monkeypatch, checkpoint):
    monkeypatch.setattr(sys, "stdin", None)  # as Python does when it starts
    result = run(capsys, "embed", checkpoint, "-o", "x.npz")
    assert_one_sentence(result, "Standard input must be open, and is closed; pass a file.")


def test_names_that_are_no_text_are_escaped_on_standard_output(checkpoint, tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("One\n")
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.chdir(tmp_path)
    assert main(["embed", str(checkpoint), "text.txt", "-o", "\udcff \xe9.npz"]) == 0
    assert output.buffer.getvalue() == b"1 sentence, 1 word: \\udcff \\xe9.npz\n"
    assert b"\xff \xc3\xa9.npz" in os.listdir(b".")
