"""How the options of `elmo convert`, `elmo export` and `elmo push` become jobs, which are tested in tests/convert."""

from pathlib import Path

import pytest
import torch

from helpers.command import assert_one_sentence, run
from transformers_elmo import ElmoForTokenClassification, ElmoTokenizer
from transformers_elmo.convert.releases import RELEASES

JOBS = {  # where each is defined, and what it returns here
    "files.check_new_folder": None,
    "convert.job.convert": None,
    "convert.download.download_release": Path("downloaded"),
    "convert.export.export_bilm": None,
    "convert.onnx.export_onnx": None,
    "convert.push.check_access": None,
    "convert.push.push": "https://hub/commit",
}


@pytest.fixture
def calls(monkeypatch):
    """Collect the calls of the jobs instead of running them: name, positional arguments, keyword arguments."""
    calls = []

    def recorder(name, result):
        def job(*arguments, **options):
            calls.append((name, *arguments, options))
            return result

        return job

    for path, result in JOBS.items():
        monkeypatch.setattr(f"transformers_elmo.{path}", recorder(path.rpartition(".")[2], result))
    return calls


def test_a_source_with_extra_files(capsys, calls):
    options = ["--options", "o.json", "--vocab", "v.txt", "--softmax", "s.hdf5", "--language", "pt", "--license", "mit"]
    assert run(capsys, "convert", "weights.hdf5", "-o", "out", *options) == (0, "", "")
    (checked, *_), (converted, source, output, extra_files, details) = calls
    assert (checked, converted, source, output) == ("check_new_folder", "convert", Path("weights.hdf5"), Path("out"))
    files = (extra_files.options, extra_files.vocab, extra_files.softmax)
    assert files == (Path("o.json"), Path("v.txt"), Path("s.hdf5"))
    assert details == {"language": "pt", "license": "mit", "title": None, "notes": []}


def test_a_release_is_downloaded_converted_and_pushed(capsys, calls):
    options = ["--push-to-hub", "me/elmo", "--private", "--revision", "v2", "--message", "Hello"]
    code, out, err = run(capsys, "convert", "--name", "small", "-o", "out", *options, "--license", "mit")
    assert (code, out, err) == (0, "pushed       https://hub/commit\n", "")
    names = ["check_new_folder", "check_access", "download_release", "convert", "push"]
    assert [name for name, *_ in calls] == names
    _, access, (_, release, *_), (_, source, *_, details), (_, folder, repo, push_options) = calls
    assert access[1] == "me/elmo" and release is RELEASES["small"] and source == Path("downloaded")
    notes = ["Downloaded over https; no SHA-256 was published to verify options.json."]
    assert details == {"language": "en", "license": "mit", "title": "ELMo small", "notes": notes}
    assert (folder, repo) == (Path("out"), "me/elmo")
    assert push_options == {"private": True, "revision": "v2", "message": "Hello"}


def test_wrong_arguments_of_convert(capsys, calls):
    assert_one_sentence(run(capsys, "convert", "-o", "x"), "needs a SOURCE", "--name", "--list")
    assert_one_sentence(run(capsys, "convert", "source", "--name", "small", "-o", "x"), "not both")
    assert_one_sentence(run(capsys, "convert", "source"), "--output")
    assert_one_sentence(run(capsys, "convert", "--name", "nonsense", "-o", "x"), "nonsense")
    for option in (["--private"], ["--revision", "v1"], ["--message", "Hello"]):
        assert_one_sentence(run(capsys, "convert", "source", "-o", "x", *option), option[0], "--push-to-hub")
    assert calls == []


def test_the_list_of_releases(capsys):
    code, out, err = run(capsys, "convert", "--list")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == list(RELEASES)


def test_export(capsys, calls, checkpoint):
    assert run(capsys, "export", checkpoint, "-o", "out") == (0, "", "")
    assert run(capsys, "export", "default", "-o", "out", "--format", "bilm") == (0, "", "")
    exports = [call for call in calls if call[0] == "export_bilm"]
    for (_, model, tokenizer, output, options), name in zip(exports, ["ElmoModel", "ElmoForPreTraining"], strict=True):
        assert type(model).__name__ == name and type(tokenizer).__name__ == "ElmoTokenizer"
        assert (output, options) == (Path("out"), {})


def test_export_as_onnx_keeps_the_classifier(capsys, calls, checkpoint, tmp_path):
    tagger = ElmoForTokenClassification.from_pretrained(checkpoint, num_labels=3)
    tagger.save_pretrained(tmp_path)
    ElmoTokenizer().save_pretrained(tmp_path)
    for name in (checkpoint, "default", tmp_path):
        assert run(capsys, "export", name, "-o", "out", "--format", "onnx") == (0, "", "")
    exports = [call for call in calls if call[0] == "export_onnx"]
    names = [(type(model).__name__, type(tokenizer).__name__) for _, model, tokenizer, *_ in exports]
    assert names == [(name, "ElmoTokenizer") for name in ("ElmoModel", "ElmoModel", "ElmoForTokenClassification")]
    assert torch.equal(exports[2][1].classifier.weight, tagger.classifier.weight)
    assert [call[3:] for call in exports] == [(Path("out"), {})] * 3


def test_push(capsys, calls):
    assert run(capsys, "push", "folder", "me/elmo") == (0, "pushed       https://hub/commit\n", "")
    assert calls == [("push", Path("folder"), "me/elmo", {"private": False, "revision": None, "message": None})]
