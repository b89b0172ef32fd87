"""Fixtures: converted checkpoints, and sources to damage.

A conversion is verified in a fresh process, which takes seconds to start: few tests do that, the others run the
verification in this process or skip it.
"""

import contextlib
import io
import os
import shutil
from types import SimpleNamespace

import pytest

from helpers.conversion import elmo
from helpers.released import WORDS
from helpers.released_cases import WORD_INPUT, allennlp, bilm, checkpoint, many_langs, tf_hub
from transformers_elmo import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer
from transformers_elmo.command import main
from transformers_elmo.convert import checkpoint_activations, job, verification


@pytest.fixture
def verify_in_process(monkeypatch):
    """Run the verification's script in this process, with the package's code, which is faster."""

    def run_script(command, **options):
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                checkpoint_activations.main(*command[3:])
        except Exception as error:
            return SimpleNamespace(returncode=1, stderr=f"{type(error).__name__}: {error}")
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(verification, "subprocess", SimpleNamespace(run=run_script))
    for name, own in (
        ("AutoConfig", ElmoConfig),
        ("AutoModel", ElmoModel),
        ("AutoModelForPreTraining", ElmoForPreTraining),
        ("AutoTokenizer", ElmoTokenizer),
    ):
        monkeypatch.setattr(checkpoint_activations, name, own)


@pytest.fixture
def skip_verification(monkeypatch):
    monkeypatch.setattr(job, "verify", lambda *arguments: verification.Verification([], 0, 0))


@pytest.fixture(scope="session")
def converted(tmp_path_factory):
    """A bilm-tf model and one of ELMoForManyLangs, both with a softmax, verified in a fresh process."""
    folder = tmp_path_factory.mktemp("converted")
    cases = {
        "bilm": bilm(folder / "bilm_source", vocab=WORDS, softmax=True),
        "many_langs": many_langs(folder / "many_langs_source", softmax=True),
    }
    for name, case in cases.items():
        arguments = [*case.arguments, "-o", folder / name, "--language", "en", "--license", "apache-2.0"]
        assert main(["convert", *map(str, arguments)]) == 0
    return {name: (case, folder / name) for name, case in cases.items()}


@pytest.fixture(scope="session")
def pristine(tmp_path_factory):
    """A folder with a source of each format, to be copied and damaged."""
    folder = tmp_path_factory.mktemp("pristine")
    bilm(folder / "bilm", vocab=WORDS, softmax=True)
    bilm(folder / "words", **WORD_INPUT)
    checkpoint(folder / "checkpoint")
    tf_hub(folder / "tf_hub")
    many_langs(folder / "many_langs", softmax=True)
    allennlp(folder / "archive")
    shutil.move(folder / "archive" / "serialization", folder / "allennlp")
    return folder


@pytest.fixture
def convert_damaged(capfd, tmp_path, pristine, skip_verification):
    """Return a function that copies, damages and converts a source; a damage may return the command's arguments."""

    def convert_damaged(kind, damage):
        folder, output = tmp_path / "source", tmp_path / "out" / "x"
        shutil.copytree(pristine / kind, folder)
        output.parent.mkdir()
        arguments = damage(folder) or [folder]
        result = elmo(capfd, "convert", *arguments, "-o", output)
        assert os.listdir(output.parent) == (["x"] if result[0] == 0 else [])
        return result

    return convert_damaged
