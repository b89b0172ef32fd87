"""Disturb jobs of the `elmo` command, by failing file operations and by signals, and check what each of them leaves.

`disturb` starts this file as a script with the library of faults.c. The script imports everything once and forks a
process per case, so that a case takes no longer than its job.
"""

import contextlib
import ctypes
import errno
import importlib
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from helpers.hub_server import LoopbackHub

WRITES, READS = 1, 2  # as in faults.c
SHORT, KILL = -1, -2
ERRORS = {name: getattr(errno, name) for name in ("ENOSPC", "EACCES", "EPERM", "EIO", "EINTR")}
ERRORS |= {"SHORT": SHORT, "KILL": KILL}
IMPORTS = """
    transformers_elmo.command.embed transformers_elmo.command.convert transformers_elmo.command.export
    transformers_elmo.command.push transformers_elmo.command.pretrain transformers_elmo.checkpoints
    transformers_elmo.embed.job transformers_elmo.convert.job transformers_elmo.convert.export
    transformers_elmo.convert.push transformers_elmo.pretrain.job h5py matplotlib.figure accelerate pyarrow.parquet
    helpers.models helpers.released_cases
"""
SIZES = {"lstm_dim": 4, "projection_dim": 3, "char_filters": [[1, 3]], "char_embedding_dim": 2}
TEXT = "the cat sat on the old mat .\nthe old dog ran to the cat .\n"


@dataclass(frozen=True)
class Job:
    """A command that runs in a folder with `inputs`; `outputs` are the files and folders of its result."""

    arguments: str
    outputs: tuple[str, ...]
    prepare: Callable[[Path], None]  # fill the folder with the inputs, and an old result if there can be one
    can_resume: bool = False


def save_checkpoint(folder: Path):
    from helpers.models import randomize, tiny_config
    from transformers_elmo import ElmoModel, ElmoTokenizer

    model = ElmoModel(tiny_config(max_characters_per_token=50, char_vocab_size=262, forget_bias=1.0))
    randomize(model).save_pretrained(folder / "checkpoint")
    ElmoTokenizer(vocab=["the", "cat"]).save_pretrained(folder / "checkpoint")
    (folder / "text.txt").write_text(TEXT)


def prepare_embed(folder: Path):
    save_checkpoint(folder)
    (folder / "vectors.npz").write_text("old")


def prepare_convert(folder: Path):
    from helpers.released import WORDS
    from helpers.released_cases import bilm

    bilm(folder / "source", vocab=WORDS, softmax=True)


def prepare_push(folder: Path):
    """Push another checkpoint first, which is the old result."""
    save_checkpoint(folder)
    (folder / "checkpoint" / "config.json").replace(folder / "config.json")
    config = json.loads((folder / "config.json").read_text())
    (folder / "checkpoint" / "config.json").write_text(json.dumps({**config, "dropout": 0.25}))
    assert run(folder, JOBS["push"].arguments.split()).code == 0
    (folder / "config.json").replace(folder / "checkpoint" / "config.json")


def prepare_pretrain(folder: Path):
    (folder / "text.txt").write_text(TEXT * 20)
    (folder / "sizes.json").write_text(json.dumps(SIZES))


def prepare_resume(folder: Path):
    """Train, and take the result and the last checkpoint away."""
    prepare_pretrain(folder)
    assert run(folder, JOBS["pretrain"].arguments.split()).code == 0
    for path in (folder / "run").iterdir():
        if path.is_file() and path.name != "pretraining.json":
            path.unlink()
    shutil.rmtree(folder / "run" / "checkpoint-3")


TRAIN = "pretrain text.txt --config sizes.json --cache cache --cpu -o run --rows 2 --window 4 --negative-samples 3"
TRAIN += " --steps 3 --save-every 1 --eval-every 2 --log-every 1"
# Temporary files of libraries, and an old checkpoint: if it cannot be removed, Trainer tries again after the next one.
IGNORED = ("tmp", "run/checkpoint-1")
VARYING = ("training_args.bin", "checksums.json")
REPO = "test-user/elmo"
FINAL_FILES = (
    "README.md config.json model.safetensors tokenizer.json tokenizer_config.json configuration_elmo.py "
    "inputs_elmo.py lstm_elmo.py modeling_elmo.py quantization_elmo.py softmax_elmo.py tokenization_elmo.py"
)
RESULT_OF_TRAINING = tuple(f"run/{name}" for name in FINAL_FILES.split())
JOBS = {
    "embed": Job("embed checkpoint text.txt -o vectors.npz", ("vectors.npz",), prepare_embed),
    "quantize": Job("quantize checkpoint -o out", ("out",), save_checkpoint),
    "export": Job("export checkpoint -o out", ("out",), save_checkpoint),
    "convert": Job("convert source -o out", ("out",), prepare_convert),
    "push": Job(f"push checkpoint {REPO}", ("pushed",), prepare_push),
    "pretrain": Job(TRAIN, RESULT_OF_TRAINING, prepare_pretrain, can_resume=True),
    "resume": Job(f"{TRAIN} --resume", RESULT_OF_TRAINING, prepare_resume, can_resume=True),
}


def disturb(library: Path, folder: Path, *plans: dict) -> list[dict]:
    """Carry out plans, which are arguments of `fail_operations` and `send_signals`; return a report for each."""
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, __file__, str(folder), json.dumps(plans)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def compile_library(folder: Path) -> Path | None:
    """Return the compiled faults.c, None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        return None
    library = folder / "faults.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, Path(__file__).with_suffix(".c")], check=True)
    return library


# In the script


@dataclass(frozen=True)
class Outcome:
    code: int  # negative for a signal
    err: str
    operation: str = ""  # the one that failed
    count: int = 0


def run(
    folder: Path,
    arguments: list[str],
    arm: Callable[[ctypes.CDLL], object] = lambda library: None,
    during: Callable[[int], object] = lambda process: None,
) -> Outcome:
    """Run the command in `folder` in a process of its own, which calls `arm` first, and `during` in this one."""
    with tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as report:
        hub.store = folder / "tmp" / "hub"
        (hub.store / "lfs").mkdir(parents=True, exist_ok=True)
        process = os.fork()
        if process == 0:
            os._exit(run_here(folder, arguments, arm, err, report))
        during(process)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        err.seek(0)
        report.seek(0)
        operation, _, count = report.read().decode().rpartition("\0")
        copy_pushed_files(folder)
        return Outcome(code, err.read().decode(), operation, int(count or 0))


def run_here(folder: Path, arguments: list[str], arm, err, report) -> int:
    library = ctypes.CDLL(None)
    library.failed.restype = ctypes.c_char_p
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    os.dup2(err.fileno(), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.chdir(folder)
    try:
        from transformers_elmo.command import main

        arm(library)
        return main(arguments)
    except SystemExit as error:
        return error.code
    except BaseException:
        traceback.print_exc()
        return 99
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        library.disarm()
        os.write(report.fileno(), b"%b\0%d" % (library.failed(), library.count()))
        sys.stdout.flush()
        sys.stderr.flush()


def copy_pushed_files(folder: Path):
    """Copy the files of the last commit to `folder`/pushed, where they are compared."""
    shutil.rmtree(folder / "pushed", ignore_errors=True)
    repo = hub.store / "models" / REPO
    if repo.is_dir():
        shutil.copytree(repo / (repo / "refs" / "main").read_text(), folder / "pushed")


def use_only_this_hub():
    """Let pushes go to the loopback Hub, and retry without delays."""
    from huggingface_hub import constants
    from huggingface_hub.utils import _http

    constants.ENDPOINT, constants.HF_HUB_OFFLINE, constants.HF_HUB_DISABLE_XET = hub.endpoint, False, True
    _http.time = SimpleNamespace(sleep=lambda seconds: None)
    os.environ |= {"HF_TOKEN": "hf_test", "NO_PROXY": "127.0.0.1"}


def contents(folder: Path, job: Job | None = None) -> dict[str, bytes]:
    """Return the files in a folder, or those of a result in it. Folders have the content b"/"."""
    found = {}
    for path in sorted(folder.rglob("*")):
        # The text cache is named by the times of the text too, which are those of this copy.
        name = re.sub(r"^cache/[0-9a-f]{16}", "cache/x", path.relative_to(folder).as_posix())
        # Pickled, with times; and the checksums of these and of files with the command line.
        if name.startswith(IGNORED) or path.name in VARYING:
            continue
        content = b"/" if path.is_dir() else path.read_bytes()
        # The command line is in the card and the settings of a training run; a checkpoint says that training stopped.
        for old, new in ((b" --resume", b""), (b'"should_training_stop": true', b'"should_training_stop": false')):
            content = content.replace(old, new)
        found[name] = content
    return found if job is None else in_result(found, job)


def differences(found: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    return sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))


@dataclass
class Case:
    """A folder in which a job is disturbed, and what is in it after a run that is not."""

    job: Job
    template: Path
    folder: Path
    expected: dict[str, bytes] = field(default_factory=dict)
    report: dict = field(default_factory=lambda: {"cases": 0, "failed": 0, "operations": [], "problems": []})

    def prepare(self, kinds: int = 0) -> Outcome:
        """Fill the template, and run the job undisturbed."""
        (self.template / "tmp").mkdir(parents=True)
        self.job.prepare(self.template)
        self.reset()
        outcome = run(self.folder, self.job.arguments.split(), self.arming(kinds, 0, 0, 0))
        assert outcome.code == 0, outcome.err
        self.expected = contents(self.folder)
        return outcome

    def reset(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.template, self.folder, symlinks=True)

    def arming(self, *options: int) -> Callable[[ctypes.CDLL], object]:
        return lambda library: library.arm(os.fsencode(self.folder), *options)

    def arguments(self) -> list[str]:
        """Return the arguments for a run after another one."""
        arguments = self.job.arguments.split()
        if self.job.can_resume:
            arguments = [argument for argument in arguments if argument != "--resume"]
            arguments += ["--resume"] * (self.folder / "run" / "pretraining.json").is_file()
        elif arguments[-1] == "out" and (self.folder / "out").exists():
            arguments[-1] = "again"
        return arguments

    def check(self, what: str, outcome: Outcome, codes: tuple[int, ...] = ()):
        """Check an outcome and what it left, then that an undisturbed run leads to the expected files."""
        result, new = contents(self.folder, self.job), in_result(self.expected, self.job)
        old, problems = contents(self.template, self.job), []
        if outcome.code == 0 and result != new:
            problems.append(f"success without its result: {differences(result, new)}")
        elif outcome.code == 1 and not is_sentence(outcome.err):
            problems.append(f"not one sentence: {outcome.err[-600:]}")
        elif outcome.code not in (0, 1, *codes) or "Traceback" in outcome.err:
            problems.append(f"exit code {outcome.code}: {outcome.err[-600:]}")
        if result not in (new, old) and not (self.job.can_resume and "run/config.json" not in result):
            problems.append(f"neither old nor new: {differences(result, new)}")
        after = run(self.folder, self.arguments())
        shutil.rmtree(self.folder / "again", ignore_errors=True)
        if after.code != 0:
            problems.append(f"the next run fails with {after.code}: {after.err[-600:]}")
        elif different := differences(contents(self.folder), self.expected):
            problems.append(f"the next run differs in {different}")
        self.report["cases"] += 1
        self.report["failed"] += outcome.code != 0
        self.report["operations"].append(outcome.operation.split(" ")[0])
        self.report["problems"] += [f"{what} {outcome.operation}: {problem}" for problem in problems]
        if os.environ.get("FAULTS_VERBOSE"):
            print(what, outcome, problems, file=sys.stderr, flush=True)


def is_sentence(err: str) -> bool:
    return err.startswith("elmo: error: ") and err.count("\n") == 1 and ".unfinished" not in err and "Errno" not in err


def in_result(files: dict[str, bytes], job: Job) -> dict[str, bytes]:
    return {
        name: content
        for name, content in files.items()
        if any(name == part or name.startswith(f"{part}/") for part in job.outputs)
    }


def verify_in_this_process():
    """Run the script of convert's verification here: a fresh process takes seconds to start."""
    from transformers_elmo import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer
    from transformers_elmo.convert import checkpoint_activations, verification

    def run_script(command, **options):
        with contextlib.redirect_stderr(io.StringIO()):
            checkpoint_activations.main(*command[3:])
        return SimpleNamespace(returncode=0)

    verification.subprocess = SimpleNamespace(run=run_script)
    checkpoint_activations.AutoConfig, checkpoint_activations.AutoModel = ElmoConfig, ElmoModel
    checkpoint_activations.AutoModelForPreTraining = ElmoForPreTraining
    checkpoint_activations.AutoTokenizer = ElmoTokenizer


def fail_operations(
    case: Case, errors: list[str], kinds: int = WRITES, persistent: bool = False, every: int = 1, start: int = 1
):
    """Let the n-th operation fail, with each of the errors in turn."""
    count = case.prepare(kinds).count
    for number, nth in enumerate(range(start, count + 1, every)):
        error = errors[number % len(errors)]
        case.reset()
        outcome = run(case.folder, case.arguments(), case.arming(kinds, nth, ERRORS[error], persistent))
        case.check(f"{error} at {nth} of {count}", outcome, codes=(-signal.SIGKILL,) * (error == "KILL"))


def send_signals(case: Case, signals: list[str], times: int, seed: int):
    """Send signals at random moments; a run that can be resumed gets them again and again until it is complete."""
    started = time.monotonic()
    case.prepare()
    duration, draw = time.monotonic() - started, random.Random(seed)
    for _ in range(times):
        name = draw.choice(signals)
        number, delay = getattr(signal, name), 0.03 + duration * draw.random()
        case.reset()
        for attempt in range(30):  # later each time, or it would never get further
            during = partial(kill, number, delay * 1.2**attempt)
            outcome = run(case.folder, case.arguments(), during=during)
            if outcome.code == 0 or not case.job.can_resume:
                break
        codes = {signal.SIGINT: (130,), signal.SIGTERM: (130, 143), signal.SIGKILL: (-signal.SIGKILL,)}[number]
        case.check(f"{name} after {delay:.3f} s", outcome, codes)


def kill(number: int, delay: float, process: int):
    """Send a signal after a delay, or not at all if the process has ended by itself."""
    time.sleep(delay)
    os.kill(process, number)  # not yet waited for, so its id is not another's


def main(folder: Path, plans: list[dict]) -> list[dict]:
    import torch

    torch.set_num_threads(1)
    for module in IMPORTS.split():
        importlib.import_module(module)
    verify_in_this_process()
    use_only_this_hub()
    reports = []
    for number, plan in enumerate(plans):
        case = Case(JOBS[plan.pop("job")], folder / str(number) / "template", folder / str(number) / "case")
        (send_signals if "signals" in plan else fail_operations)(case, **plan)
        reports.append(case.report)
        shutil.rmtree(folder / str(number))
    return reports


if __name__ == "__main__":
    with LoopbackHub(Path(sys.argv[1]) / "hub") as hub:
        print(json.dumps(main(Path(sys.argv[1]).resolve(), json.loads(sys.argv[2]))))
