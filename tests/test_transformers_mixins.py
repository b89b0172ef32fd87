"""Run transformers' own test mixins, which its models, configurations and tokenizers must pass, on our classes.

They are in the source distribution of transformers, not in the installed package:

    pip download --no-deps --no-binary transformers transformers==5.22.2 && tar xzf transformers-5.22.2.tar.gz
    TRANSFORMERS_SOURCE=transformers-5.22.2 make slow

The source distribution lacks some modules that the mixins import; STAND_INS replaces them.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

STAND_INS = {
    "__init__.py": "",
    "exporters/__init__.py": "",
    "exporters/test_export.py": "class ExportTesterMixin: pass",
    "generation/__init__.py": "",
    "generation/test_utils.py": "class GenerationTesterMixin: pass",
    "utils/__init__.py": "",
    "utils/test_configuration_utils.py": """
config_common_kwargs = {
    "return_dict": False, "output_hidden_states": True, "output_attentions": True, "dtype": "float16",
    "chunk_size_feed_forward": 5, "architectures": ["BertModel"], "id2label": {0: "label"},
    "label2id": {"label": "0"}, "problem_type": "regression", "is_encoder_decoder": True,
}
""",
    "fixtures/sample_text.txt": "A text of a few lines.\nThe tokenizer tests read it.\n\nThat is all.\n",
}

MODEL_TESTS = """
import unittest

import torch
from transformers.models.auto import modeling_auto

from transformers_elmo import ElmoConfig, ElmoForPreTraining, ElmoForTokenClassification, ElmoModel

from .test_configuration_common import ConfigTester
from .test_modeling_common import ModelTesterMixin, ids_tensor

# The mixins look up in these tables which labels a model needs.
modeling_auto.MODEL_MAPPING_NAMES["elmo"] = "ElmoModel"
modeling_auto.MODEL_FOR_PRETRAINING_MAPPING_NAMES["elmo"] = "ElmoForPreTraining"
modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES["elmo"] = "ElmoForTokenClassification"


class Tester:
    batch_size, seq_length, hidden_size, num_hidden_layers, is_training = 13, 7, 32, 2, True

    def __init__(self, inputs):
        self.inputs = inputs

    def get_config(self):
        return ElmoConfig(
            inputs=self.inputs, vocab_size=99, char_embedding_dim=4, char_filters=[[1, 4], [2, 8], [3, 8]],
            lstm_dim=24, projection_dim=16, num_highway_layers=1, num_labels=3,
        )

    def prepare_config_and_inputs_for_common(self):
        mask = torch.ones(self.batch_size, self.seq_length, dtype=torch.long)
        mask[1, 4:] = mask[2, :2] = 0
        inputs = {
            "input_ids": ids_tensor([self.batch_size, self.seq_length], 99),
            "char_ids": ids_tensor([self.batch_size, self.seq_length, 50], 261) + 1,
            "attention_mask": mask,
        }
        return self.get_config(), inputs


class CharacterModelTest(ModelTesterMixin, unittest.TestCase):
    all_model_classes = (ElmoModel, ElmoForPreTraining, ElmoForTokenClassification)
    has_attentions = False
    test_resize_embeddings = False  # a character model has no word embedding
    inputs = "characters"

    def setUp(self):
        self.model_tester = Tester(self.inputs)
        self.config_tester = ConfigTester(
            self, config_class=ElmoConfig, common_properties=["hidden_size", "num_hidden_layers"], lstm_dim=37
        )

    def test_config(self):
        self.config_tester.run_common_tests()

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels)
        if return_labels and model_class is ElmoForPreTraining:  # the mixin has no labels for these models
            inputs["labels"] = torch.ones(self.model_tester.batch_size, self.model_tester.seq_length).long()
        return inputs

    def skip_unless_embedding_is_the_input(self):
        if self.inputs != "words":
            self.skipTest("inputs_embeds come from the character CNN, not from get_input_embeddings()(input_ids)")

    def test_inputs_embeds(self):
        self.skip_unless_embedding_is_the_input()
        super().test_inputs_embeds()

    def test_inputs_embeds_matches_input_ids(self):
        self.skip_unless_embedding_is_the_input()
        super().test_inputs_embeds_matches_input_ids()

    @unittest.skip("expects a biLM of random weights where a checkpoint has none, which is an error")
    def test_model_weights_reload_no_missing_tied_weights(self):
        pass

    @unittest.skip("expects a row for padding in lm_head, which has vocab_size - 1 rows as in bilm-tf")
    def test_resize_embeddings_untied(self):
        pass


class WordModelTest(CharacterModelTest):
    inputs, test_resize_embeddings = "words", True


class WordAndCharacterModelTest(CharacterModelTest):
    inputs, test_resize_embeddings = "words+characters", True
"""

TOKENIZER_TESTS = """
import tempfile
import unittest

from transformers_elmo import ElmoTokenizer

from .test_tokenization_common import TokenizerTesterMixin

TEXTS = [
    "This is a test. I was born in 92000, and this is false. Hello world! How are you doing? Lower low newer",
    "Wonderful no inspiration example with subtoken. A first sentence, the second one, bos eos unk a b c d e f new",
]
FOLDER = tempfile.mkdtemp()
ElmoTokenizer().train_new_from_iterator(TEXTS, vocab_size=200).save_pretrained(FOLDER)


class TokenizerTest(TokenizerTesterMixin, unittest.TestCase):
    from_pretrained_id = [FOLDER]
    tokenizer_class = rust_tokenizer_class = ElmoTokenizer
    test_slow_tokenizer = False

    def get_input_output_texts(self, tokenizer):
        return "This is a test", "This is a test"

    @unittest.skip("expects every tensor to have two dimensions; char_ids have three")
    def test_batch_encode_dynamic_overflowing(self):
        pass
"""


@pytest.mark.slow
def test_transformers_mixins(tmp_path):
    source = os.environ.get("TRANSFORMERS_SOURCE")
    if source is None:
        pytest.skip("TRANSFORMERS_SOURCE must be the folder of transformers' unpacked source distribution")
    tests = tmp_path / "tests"
    tests.mkdir()
    for file in (Path(source) / "tests").glob("*.py"):
        shutil.copy(file, tests)
    for name, text in {**STAND_INS, "test_models.py": MODEL_TESTS, "test_tokenizers.py": TOKENIZER_TESTS}.items():
        (tests / name).parent.mkdir(exist_ok=True)
        (tests / name).write_text(text)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "unittest", "tests.test_models", "tests.test_tokenizers"]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-5000:]
    assert "Ran " in result.stderr and "OK" in result.stderr
