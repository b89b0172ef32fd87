"""`elmo info`."""

from helpers.command import run
from helpers.models import tiny_config
from transformers_elmo import ElmoForTokenClassification, ElmoModel, ElmoTokenizer


def test_info(capsys, checkpoint):
    code, out, err = run(capsys, "info", checkpoint)
    assert (code, err) == (0, "")
    model = ElmoModel.from_pretrained(checkpoint)
    for part in (f"{model.num_parameters():,} (float32)", "learned: words", f"{model.config.hidden_size} dimensions"):
        assert part in out


def test_info_of_a_tagger_with_a_vocabulary(capsys, tmp_path):
    config = tiny_config(char_vocab_size=262, mix="fixed", mix_weights=[0.0, 0.25, 0.75])
    ElmoForTokenClassification(config).save_pretrained(tmp_path)
    ElmoTokenizer(["the", "cat"], max_characters_per_token=12).save_pretrained(tmp_path)
    _, out, _ = run(capsys, "info", tmp_path)
    assert "fixed: words 0.000, lstm_1 0.250, lstm_2 0.750, gamma 1.000" in out
    assert "ElmoForTokenClassification" in out
    assert "2 words and 4 special tokens" in out
