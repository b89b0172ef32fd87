"""`elmo info`, and checkpoints that it and `elmo embed` refuse."""

import json
import math
import shutil

import pytest
from safetensors.torch import load_file, save_file

from helpers.command import assert_one_sentence, run
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


def change_file(name, **changes):
    """Return a function that changes fields of a JSON file in a folder."""

    def change(folder):
        fields = json.loads((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps(fields | changes), encoding="utf-8")

    return change


def write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def set_weight(name, value):
    def change(folder):
        weights = load_file(folder / "model.safetensors")
        weights[name].flatten()[-1] = value
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return change


def save_another_tokenizer(**options):
    return lambda folder: ElmoTokenizer(**options).save_pretrained(folder)


def add_code_of_another_model(folder):
    change_file("config.json", model_type="evil", auto_map={"AutoConfig": "evil.EvilConfig"})(folder)
    (folder / "evil.py").write_text(f"open({str(folder / 'executed')!r}, 'w')")


LSTM = "bilm.layers.1.backward_lstm.projection_weight"
BAD_CHECKPOINTS = {
    "NaN": (set_weight(LSTM, math.nan), [f"must be finite numbers; {LSTM} contains NaN or infinity"]),
    "infinity": (set_weight("mix.gamma", -math.inf), ["must be finite numbers; mix.gamma contains"]),
    "NaN in the configuration": (change_file("config.json", forget_bias=math.nan), ["config.json", "forget_bias=nan"]),
    "truncated configuration": (write("config.json", b'{"model'), ["config.json", "JSON"]),
    "configuration of bytes": (write("config.json", b"\xff\xfe"), ["config.json", "JSON"]),
    "a list as configuration": (write("config.json", b"[]"), ["must be an ELMo checkpoint"]),
    "a deep configuration": (write("config.json", b"[" * 100_000), ["must be an ELMo checkpoint"]),
    "configuration without a type": (write("config.json", b"{}"), ["its model type is None"]),
    "a wrong type": (change_file("config.json", lstm_dim="7"), ["config.json", "lstm_dim must be of type int"]),
    "huge sizes": (change_file("config.json", lstm_dim=10**6, projection_dim=10**6), ["contradict its configuration"]),
    "many layers": (change_file("config.json", num_hidden_layers=10**5), ["num_hidden_layers must be at most 1,000"]),
    "many words": (change_file("config.json", vocab_size=10**12), ["vocab_size must be at most 2,147,483,647"]),
    "code of another model": (add_code_of_another_model, ["must be an ELMo checkpoint; its model type is 'evil'"]),
    "very wide words": (change_file("tokenizer_config.json", max_characters_per_token=10**9), ["below 32768"]),
    "a damaged tokenizer": (write("tokenizer.json", b"{}"), ["tokenizer of", "cannot be read"]),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), ["tokenizer.json or vocab.txt"]),
    "wider words": (
        save_another_tokenizer(max_characters_per_token=60),
        ["must match its config.json, where max_characters_per_token is 50; the tokenizer's is 60"],
    ),
    "another alphabet": (
        save_another_tokenizer(char_vocab=["<bos>", "<eos>", "<bow>", "<eow>", "<pad>", "<oov>", "a"]),
        ["must match its config.json, where char_vocab_size is 262; the tokenizer's is 8"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage, parts", BAD_CHECKPOINTS.values(), ids=BAD_CHECKPOINTS.keys())
def test_bad_checkpoints(capsys, checkpoint, tmp_path, damage, parts):
    folder = shutil.copytree(checkpoint, tmp_path / "bad")
    damage(folder)
    (tmp_path / "text.txt").write_text("One sentence.\n")
    assert_one_sentence(run(capsys, "info", folder), *parts)
    assert_one_sentence(run(capsys, "embed", folder, tmp_path / "text.txt", "-o", tmp_path / "x.npz"), *parts)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "text.txt"]
    assert not (folder / "executed").exists()


def test_tuples_of_a_configuration_are_ignored(capsys, checkpoint, tmp_path):
    folder = shutil.copytree(checkpoint, tmp_path / "tuples")
    change_file("config.json", return_dict=False)(folder)
    (tmp_path / "text.txt").write_text("One sentence.\n")
    assert run(capsys, "embed", folder, tmp_path / "text.txt", "-o", tmp_path / "x.npz")[0] == 0
