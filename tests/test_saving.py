"""The model card that `save_pretrained` and `push_to_hub` write where there is none."""

import sys

import pytest
from huggingface_hub import ModelCard

from helpers.environments import run
from helpers.hub_server import LoopbackHub
from helpers.models import tiny_config
from transformers_elmo import ElmoForPreTraining, ElmoForTokenClassification, ElmoModel

CLASSES = {ElmoModel: "feature-extraction", ElmoForPreTraining: "feature-extraction"}
CLASSES |= {ElmoForTokenClassification: "token-classification"}


@pytest.mark.parametrize("model_class, task", CLASSES.items())
def test_save_pretrained_writes_a_card(tmp_path, model_class, task):
    model = model_class(tiny_config())
    model.save_pretrained(tmp_path / "my-elmo")
    card = ModelCard.load(tmp_path / "my-elmo" / "README.md")
    assert (card.data.pipeline_tag, card.data.library_name) == (task, "transformers")
    assert "# my-elmo\n" in card.text and f"{model.num_parameters():,}" in card.text


def test_card_of_the_working_directory_has_its_name(tmp_path, monkeypatch):
    (tmp_path / "my-elmo").mkdir()
    monkeypatch.chdir(tmp_path / "my-elmo")
    ElmoModel(tiny_config()).save_pretrained(".")
    assert "# my-elmo\n" in (tmp_path / "my-elmo" / "README.md").read_text()


def test_save_pretrained_keeps_a_card_that_exists(tmp_path):
    (tmp_path / "README.md").write_text("Mine.\n")
    ElmoModel(tiny_config()).save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "Mine.\n"


def test_other_processes_write_no_card(tmp_path):
    ElmoModel(tiny_config()).save_pretrained(tmp_path, is_main_process=False)
    assert not (tmp_path / "README.md").exists()


def test_push_to_hub_writes_a_card(tmp_path):
    """Not transformers' empty template: into a new repository, one with a tokenizer, and one with a card of its own."""
    script = """
        from huggingface_hub import HfApi
        from transformers_elmo import ElmoConfig, ElmoForTokenClassification, ElmoModel, ElmoTokenizer

        sizes = {"lstm_dim": 4, "projection_dim": 3, "char_filters": [[1, 2]], "char_embedding_dim": 2, "vocab_size": 4}
        model, tagger = ElmoModel(ElmoConfig(**sizes)), ElmoForTokenClassification(ElmoConfig(**sizes))
        model.push_to_hub("me/new")
        ElmoTokenizer().push_to_hub("me/after-tokenizer")
        tagger.push_to_hub("me/after-tokenizer")
        model.save_pretrained("saved", push_to_hub=True, repo_id="me/saved")
        HfApi().create_repo("me/own")
        HfApi().upload_file(path_or_fileobj=b"Mine.", path_in_repo="README.md", repo_id="me/own")
        model.push_to_hub("me/own")
    """
    with LoopbackHub(tmp_path / "store") as hub:
        run(sys.executable, script, tmp_path / "script", hub)

        def card(repo):
            folder = hub.store / "models" / repo
            return ModelCard((folder / (folder / "refs" / "main").read_text() / "README.md").read_text())

        for repo, task in (
            ("me/new", "feature-extraction"),
            ("me/saved", "feature-extraction"),
            ("me/after-tokenizer", "token-classification"),
        ):
            assert card(repo).data.pipeline_tag == task
            assert f'"{repo}", trust_remote_code=True' in card(repo).text
        assert card("me/own").text.strip() == "Mine."
