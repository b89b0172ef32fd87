"""A tiny checkpoint for the verbs that load one."""

import pytest

from helpers.models import randomize, tiny_config
from transformers_elmo import ElmoModel, ElmoTokenizer


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    model = ElmoModel(tiny_config(max_characters_per_token=50, char_vocab_size=262))
    randomize(model, 0)
    model.save_pretrained(folder)
    ElmoTokenizer().save_pretrained(folder)
    return folder
