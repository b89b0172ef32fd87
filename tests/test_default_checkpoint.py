"""Test the checkpoint in the package: its files, and that it knows some English."""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoModelForPreTraining, AutoTokenizer

from transformers_elmo import DEFAULT_CHECKPOINT, ElmoLanguageModel
from transformers_elmo.command import main
from transformers_elmo.configuration_elmo import HUB_FILES

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def language_model() -> ElmoLanguageModel:
    return ElmoLanguageModel.from_pretrained("default")


def test_files_are_small_and_in_half_precision():
    files = {path.name: path.stat().st_size for path in Path(DEFAULT_CHECKPOINT).iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md", "curves.png"} <= files.keys()
    assert sum(files.values()) <= 32 * 2**20
    weights = load_file(Path(DEFAULT_CHECKPOINT) / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.float16}
    assert all(weight.isfinite().all() for weight in weights.values())


def test_auto_classes_load_it():
    model, tokenizer = AutoModel.from_pretrained(DEFAULT_CHECKPOINT), AutoTokenizer.from_pretrained(DEFAULT_CHECKPOINT)
    assert model.dtype == torch.float32
    assert model(**tokenizer(["Any wörd will do."], return_tensors="pt")).last_hidden_state.shape == (1, 7, 384)


@pytest.mark.parametrize("options", [{}, {"trust_remote_code": True}, {"trust_remote_code": False}], ids=str)
@pytest.mark.parametrize("copied", [False, True])
def test_trust_remote_code_changes_nothing(tmp_path, options, copied):
    """The folder has no code of its own, so its files must not name any."""
    folder = shutil.copytree(DEFAULT_CHECKPOINT, tmp_path / "copy") if copied else DEFAULT_CHECKPOINT
    for auto_class in (AutoConfig, AutoTokenizer, AutoModel, AutoModelForPreTraining):
        assert type(auto_class.from_pretrained(folder, **options)).__module__.startswith("transformers_elmo.")


def test_whose_code_runs(tmp_path):
    """As SECURITY.md says: with the package, of a checkpoint's own code only the tokenizer's, and only if trusted."""
    AutoModel.from_pretrained(DEFAULT_CHECKPOINT).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(DEFAULT_CHECKPOINT).save_pretrained(tmp_path)
    for name in HUB_FILES:
        (tmp_path / name).write_text(f"raise SystemExit('{name}')")
    for auto_class in (AutoConfig, AutoModel):
        auto_class.from_pretrained(tmp_path, trust_remote_code=True)
    AutoTokenizer.from_pretrained(tmp_path)
    ElmoLanguageModel.from_pretrained(DEFAULT_CHECKPOINT)
    with pytest.raises(SystemExit):
        AutoTokenizer.from_pretrained(tmp_path, trust_remote_code=True)


def test_saved_again_it_has_its_code(tmp_path):
    AutoModel.from_pretrained(DEFAULT_CHECKPOINT).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(DEFAULT_CHECKPOINT).save_pretrained(tmp_path)
    assert all((tmp_path / name).is_file() for name in HUB_FILES)
    for name in ("config.json", "tokenizer_config.json"):
        assert json.loads((tmp_path / name).read_text())["auto_map"]


def test_command_accepts_the_name_default(capsys, tmp_path):
    assert main(["info", "default"]) == 0
    assert "40,000 words" in capsys.readouterr().out
    text = tmp_path / "text.txt"
    text.write_text("One sentence .\n")
    assert main(["embed", "default", str(text), "-o", str(tmp_path / "vectors.npz")]) == 0


def test_predicted_words_are_plausible(language_model):
    substitutes = language_model.substitutes("She opened the box and went into the garden .", 3, k=3)
    assert "door" in [word for word, _ in substitutes]
    assert "have" in [word for word, _ in language_model.next_words("They must", k=5)]
    sentence = "The old man sat down by the fire and took off his hat .".split()
    shuffled = list(np.random.default_rng(0).permutation(sentence))
    assert language_model.perplexity([sentence]).both < language_model.perplexity([shuffled]).both / 5


def test_demo(monkeypatch, capfd):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import demo

    monkeypatch.chdir(EXAMPLES.parent)
    demo.main()
    printed = capfd.readouterr().out
    correct, chance = map(int, re.search(r"All words: (\d+) of 80; by chance it would be (\d+)", printed).groups())
    assert correct >= 65 and chance == 36  # the README says 67
    assert (EXAMPLES.parent / "demo_output" / "senses.png").read_bytes()[:4] == b"\x89PNG"
    del sys.modules["demo"]


def test_perplexity_of_held_out_text(language_model, shared_folder):
    """On every 40th sentence of the held-out novels. On all of them it is 68.2, that of a 5-gram model 99.9."""
    from transformers_elmo.pretrain.corpus import SentenceSplitter, Splitting
    from transformers_elmo.text import find_files, read_texts

    (path,) = find_files([str(shared_folder / "data" / "text" / "novels" / "valid.txt.gz")])
    splitter = SentenceSplitter(language_model.tokenizer, Splitting())
    tokens, ends = next(splitter.split_all(read_texts([path])))
    words = np.array(list(splitter.numbers))[tokens]
    sentences = [list(part) for part in np.split(words, ends[:-1])][::40]
    assert language_model.perplexity(sentences).both < 90
