"""The table of released ELMos."""

import re

import pytest

from transformers_elmo.convert.releases import RELEASES, find_release


def test_table_is_consistent():
    assert len(RELEASES) == 12 + 12 + 44
    archives = []
    for name, release in RELEASES.items():
        assert name == release.name and re.fullmatch(r"[a-z0-9.-]+", name)
        assert re.fullmatch(r"[a-z]{2}|grc", release.language)
        assert release.license in (None, "mit", "bsd-2-clause", "cc-by-4.0")
        assert release.description and release.homepage.startswith("http")
        names = [file.name for file in release.files]
        assert names in (
            ["options.json", "weights.hdf5"],
            ["options.json", "weights.hdf5", "softmax.hdf5", "vocab.txt"],
            [f"{names[0][:-4]}.zip"],
        )
        archives += names if len(names) == 1 else []
        for file in release.files:
            assert file.urls and len(set(file.urls)) == len(file.urls)
            assert all(re.fullmatch(r"https?://[a-z0-9.-]+/[\w./-]+", url) for url in file.urls)
            assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)
    addresses = [url for file in {f for release in RELEASES.values() for f in release.files} for url in file.urls]
    assert len(set(addresses)) == len(addresses) and len(set(archives)) == len(archives)
    weights = RELEASES["small"].files[1]
    assert weights.size == 54_402_456
    assert weights.sha256 == "747ba97abce8a5f446558369e10bb0f7931437a46867476fdd156f5d7f576229"
    assert RELEASES["many-langs-catalan"].files[0].urls == ("http://vectors.nlpl.eu/repository/11/138.zip",)


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
