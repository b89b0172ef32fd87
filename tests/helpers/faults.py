"""Run a job of the `elmo` command in processes whose n-th file operation fails, and check what each of them leaves.

`run_faults` starts this file as a script with the library of faults.c. The script imports everything once and forks a
process per case, so that a case takes no longer than its job.
"""

import contextlib
import ctypes
import errno
import importlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
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
REPO = "test-user/elmo"
FINAL_FILES = (
    "README.md config.json model.safetensors tokenizer.json tokenizer_config.json configuration_elmo.py "
    "lstm_elmo.py modeling_elmo.py softmax_elmo.py tokenization_elmo.py"
)
RESULT_OF_TRAINING = tuple(f"run/{name}" for name in FINAL_FILES.split())
JOBS = {
    "embed": Job("embed checkpoint text.txt -o vectors.npz", ("vectors.npz",), prepare_embed),
    "export": Job("export checkpoint -o out", ("out",), save_checkpoint),
    "convert": Job("convert source -o out", ("out",), prepare_convert),
    "push": Job(f"push checkpoint {REPO}", ("pushed",), prepare_push),
    "pretrain": Job(TRAIN, RESULT_OF_TRAINING, prepare_pretrain, can_resume=True),
    "resume": Job(f"{TRAIN} --resume", RESULT_OF_TRAINING, prepare_resume, can_resume=True),
}


def run_faults(library: Path, folder: Path, job: str, **options) -> dict:
    """Return the number of operations and of cases, and the problems that were found."""
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, __file__, job, str(folder), json.dumps(options)]
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


def run(folder: Path, arguments: list[str], arm: Callable[[ctypes.CDLL], object] = lambda library: None) -> Outcome:
    """Run the command in `folder` in a process of its own, in which `arm` is called first."""
    with tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as report:
        hub.store = folder / "tmp" / "hub"
        (hub.store / "lfs").mkdir(parents=True, exist_ok=True)
        process = os.fork()
        if process == 0:
            os._exit(run_here(folder, arguments, arm, err, report))
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        err.seek(0)
        report.seek(0)
        operation, _, count = report.read().decode().rpartition("\0")
        copy_pushed_files(folder)
        return Outcome(code, err.read().decode(), operation, int(count or 0))


def run_here(folder: Path, arguments: list[str], arm, err, report) -> int:
    library = ctypes.CDLL(None)
    library.failed.restype = ctypes.c_char_p
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


def contents(folder: Path, names: tuple[str, ...] | None = None) -> dict[str, bytes]:
    """Return the files in a folder, or those of a result in it. Folders have the content b"/"."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.split("/")[0] == "tmp" or path.name == "training_args.bin":  # pickled, with times
            continue
        if names is None or any(name == part or name.startswith(f"{part}/") for part in names):
            found[name] = b"/" if path.is_dir() else path.read_bytes()
    return found


def differences(found: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    return sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))


def check_case(job: Job, template: Path, folder: Path, expected: dict, options: tuple) -> tuple[Outcome, list[str]]:
    """Run one case and an undisturbed run after it; return what is wrong."""
    shutil.copytree(template, folder, symlinks=True)
    old = contents(folder, job.outputs)
    new = {name: expected[name] for name in expected if in_result(name, job)}
    outcome = run(folder, job.arguments.split(), lambda library: library.arm(os.fsencode(folder), *options))
    result, problems = contents(folder, job.outputs), []
    is_done = not differences(result, new)
    if outcome.code == 1:
        if not outcome.err.startswith("elmo: error: ") or outcome.err.count("\n") != 1 or "unfinished" in outcome.err:
            problems.append(f"not one sentence: {outcome.err[-600:]}")
    elif outcome.code == 0:
        if not is_done:
            problems.append(f"success without its result: {differences(result, new)}")
    elif outcome.code != -signal.SIGKILL:
        problems.append(f"exit code {outcome.code}: {outcome.err[-600:]}")
    is_old = not differences(result, old) or (job.can_resume and "run/config.json" not in result)
    if not is_done and not is_old:
        problems.append(f"neither old nor new: {differences(result, new)}")
    arguments = job.arguments.split()
    if job.can_resume:
        arguments = [part for part in arguments if part != "--resume"]
        arguments += ["--resume"] * (folder / "run" / "pretraining.json").is_file()
    elif is_done and arguments[-1] == "out":
        arguments[-1] = "again"
    after = run(folder, arguments)
    if arguments[-1] == "again":
        shutil.rmtree(folder / "again", ignore_errors=True)
    if after.code != 0:
        problems.append(f"the next run fails with {after.code}: {after.err[-600:]}")
    elif different := differences(contents(folder), expected):
        problems.append(f"the next run differs in {different}")
    shutil.rmtree(folder)
    return outcome, problems


def in_result(name: str, job: Job) -> bool:
    return any(name == part or name.startswith(f"{part}/") for part in job.outputs)


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


def main(name: str, folder: Path, kinds: int, error: str, persistent: bool = False, every: int = 1, start: int = 1):
    import torch

    torch.set_num_threads(1)
    for module in IMPORTS.split():
        importlib.import_module(module)
    verify_in_this_process()
    use_only_this_hub()
    job, template = JOBS[name], folder / "template"
    (template / "tmp").mkdir(parents=True)
    job.prepare(template)
    shutil.copytree(template, folder / "whole", symlinks=True)
    whole = run(
        folder / "whole",
        job.arguments.split(),
        lambda library: library.arm(os.fsencode(folder / "whole"), kinds, 0, 0, 0),
    )
    assert whole.code == 0, whole.err
    expected = contents(folder / "whole")
    problems, operations, cases = [], {}, 0
    for nth in range(start, whole.count + 1, every):
        options = (kinds, nth, ERRORS[error], persistent)
        outcome, found = check_case(job, template, folder / "case", expected, options)
        cases += 1
        operations[outcome.operation.split(" ")[0]] = operations.get(outcome.operation.split(" ")[0], 0) + 1
        problems += [f"{nth} {outcome.operation}: {problem}" for problem in found]
        if os.environ.get("FAULTS_VERBOSE"):
            print(nth, outcome, found, file=sys.stderr, flush=True)
    print(json.dumps({"count": whole.count, "cases": cases, "operations": operations, "problems": problems}))


if __name__ == "__main__":
    with LoopbackHub(Path(sys.argv[2]) / "hub") as hub:
        main(sys.argv[1], Path(sys.argv[2]).resolve(), **json.loads(sys.argv[3]))
