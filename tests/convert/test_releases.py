"""The table of released ELMos."""

import re
import tarfile
import zipfile
from dataclasses import replace

import pytest

import transformers_elmo.convert.download as downloads
from helpers.command import run
from helpers.released import bilm_arrays, bilm_options, write_bilm
from transformers_elmo import ElmoModel, ElmoTokenizer
from transformers_elmo.convert.releases import RELEASES, find_release


def test_table_is_consistent():
    assert len(RELEASES) == 12 + 2 + 12 + 44
    archives = []
    for name, release in RELEASES.items():
        assert name == release.name and re.fullmatch(r"[a-z0-9.-]+", name)
        assert release.name == "seqvec" or re.fullmatch(r"[a-z]{2}|grc", release.language)
        assert release.license in (None, "mit", "bsd-2-clause", "cc-by-4.0")
        assert release.description and release.homepage.startswith("https://")
        names = [file.name for file in release.files]
        assert names in (
            ["options.json", "weights.hdf5"],
            ["options.json", "weights.hdf5", "softmax.hdf5", "vocab.txt"],
            [f"{names[0][:-4]}.zip"],
            ["slovenian-elmo.tar.gz"],
        )
        archives += names if len(names) == 1 else []
        for file in release.files:
            assert file.urls and len(set(file.urls)) == len(file.urls)
            assert all(re.fullmatch(r"https://[a-z0-9.-]+/[\w./:~-]+", url) for url in file.urls)
            assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)
    addresses = [url for file in {f for release in RELEASES.values() for f in release.files} for url in file.urls]
    assert len(set(addresses)) == len(addresses) and len(set(archives)) == len(archives)
    weights = RELEASES["small"].files[1]
    assert weights.size == 54_402_456
    assert weights.sha256 == "747ba97abce8a5f446558369e10bb0f7931437a46867476fdd156f5d7f576229"
    assert RELEASES["many-langs-catalan"].files[0].urls == ("https://vectors.nlpl.eu/repository/11/138.zip",)


def test_unverified_files_are_named():
    assert RELEASES["small"].notes == ["Downloaded over https; no SHA-256 was published to verify options.json."]
    assert RELEASES["seqvec"].notes[0].endswith("to verify seqvec.zip.")
    verified = replace(RELEASES["small"], files=RELEASES["small"].files[1:])
    assert verified.notes == []


@pytest.mark.parametrize(
    "name, archive, folder, weights",
    [
        ("seqvec", zipfile.ZipFile, "uniref50_v2", "weights.hdf5"),
        ("embeddia-slovenian", tarfile.open, "slovenian", "slovenian-elmo-weights.hdf5"),
    ],
)
def test_layouts(capsys, tmp_path, monkeypatch, skip_verification, name, archive, folder, weights):
    """Archives of the same layout are downloaded by name and converted, and the card says what is not verified."""
    source = write_bilm(tmp_path / folder, bilm_options(), bilm_arrays(bilm_options()))
    (source / "weights.hdf5").rename(source / weights)
    (remote,) = RELEASES[name].files
    with archive(tmp_path / remote.name, "w") if name == "seqvec" else archive(tmp_path / remote.name, "w:gz") as file:
        for path in source.iterdir():
            (file.write if name == "seqvec" else file.add)(path, f"{folder}/{path.name}")

    def fetch(url, file, output, *arguments):
        assert url == remote.urls[0]
        output.write((tmp_path / remote.name).read_bytes())

    monkeypatch.setattr(downloads, "fetch", fetch)
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "cache"))
    code, out, err = run(capsys, "convert", "--name", name, "-o", tmp_path / "x")
    assert (code, err) == (0, "") and f"note         {RELEASES[name].notes[0]}" in out
    card = (tmp_path / "x" / "README.md").read_text(encoding="utf-8")
    assert RELEASES[name].notes[0] in card and f"# ELMo {name}\n" in card and str(tmp_path) not in card
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "x")
    inputs = tokenizer([list("MSEQXUZO")], is_split_into_words=True, return_tensors="pt")
    assert ElmoModel.from_pretrained(tmp_path / "x")(**inputs).last_hidden_state.shape == (1, 10, 10)


@pytest.mark.parametrize(
    "name, similar",
    [
        ("smal", "small"),
        ("Original", "original-5.5b"),
        ("catalan", "many-langs-catalan"),
        ("", "small"),
        ("?", "small"),
    ],
)
def test_unknown_name_gets_similar_ones(name, similar):
    assert find_release("small") is RELEASES["small"]
    with pytest.raises(ValueError, match="--list") as caught:
        find_release(name)
    assert repr(name) in str(caught.value) and similar in str(caught.value)
