"""The `elmo` command around its verbs: help, usage errors, tracebacks, bad checkpoints, startup without torch."""

import json
import subprocess
import sys

import pytest
from transformers import BertConfig

from helpers.command import assert_one_sentence, run
from transformers_elmo import ElmoModel
from transformers_elmo.command import VERBS

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
        ("embed --nonsense", 2, "usage: elmo embed"),
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


def test_wrong_arguments(capsys, checkpoint, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("One\n")
    for arguments in (
        ["embed", checkpoint, text],
        ["embed", checkpoint, text, "-o", "x.npz", "--batch-size", "0"],
        ["embed", checkpoint, text, "-o", "x.npz", "--layer", "lstm_9"],
        ["info"],
        ["nonsense"],
        [],
        ["info", checkpoint, "--nonsense"],
        ["--nonsense", "info", checkpoint],
    ):
        code, out, err = run(capsys, *arguments)
        assert code == 2 and out == "" and "elmo" in err and "Traceback" not in err


def test_wrong_numbers(capsys):
    for value in ("0", "-1", "1.5", "x"):
        err = run(capsys, "embed", "default", "-o", "x.npz", "--batch-size", value)[2]
        assert f"--batch-size: must be a whole number, at least 1, got {value}\n" in err


def test_traceback_before_or_after_the_verb(capsys, tmp_path):
    arguments = ["embed", "default", "-o", tmp_path / "x.txt"]
    hidden = run(capsys, *arguments)
    assert_one_sentence(hidden, ".npz")
    for with_traceback in (["--traceback", *arguments], [*arguments, "--traceback"]):
        code, out, err = run(capsys, *with_traceback)
        assert (code, out) == (1, "")
        assert err.startswith("Traceback (most recent call last):") and "check_arguments" in err
        assert err.endswith(hidden[2])


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
