"""Damaged files of a checkpoint: one of our errors or vectors of finite numbers, in bounded memory.

The suite tries some damages of each file, always the same; the slow test runs as long as ELMO_FUZZ says, at random.
"""

import json
import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils import logging

from helpers.fuzz import damage, fuzz
from helpers.models import randomize, tiny_config
from transformers_elmo import ElmoForPreTraining, ElmoTokenizer
from transformers_elmo.checkpoints import load

WORDS = ["the", "cat", "sat"]
# Replace any value of a JSON file.
VALUES = (None, True, 0, -1, 1, 3, 1.5, 1e300, 10**6, 2**31, 10**12, 10**30, "", "x", "../x", "\ud800", [], {}, [[1]])
VALUES += ({"a": 1}, float("nan"), float("inf"), ["x"], [0, 1], "0", "float16", "int8", "ElmoForPreTraining")
# Fields that ELMo does not write, but transformers reads.
FIELDS = ("dtype", "torch_dtype", "quantization_config", "attn_implementation", "_attn_implementation", "num_labels")
FIELDS += ("id2label", "label2id", "problem_type", "transformers_weights", "configuration_files", "name_or_path")
FIELDS += ("per_layer_config", "sub_configs", "base_model_tp_plan", "output_hidden_states", "return_dict", "use_cache")
FIELDS += ("added_tokens_decoder", "extra_special_tokens", "tokenizer_file", "vocab_file", "fast_tokenizer_files")
FIELDS += ("chat_template", "truncation", "padding", "normalizer", "decoder", "tokenizer_type", "backend", "auto_map")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A small checkpoint whose weights are in two files, and the same one with all of them in one."""
    folder = tmp_path_factory.mktemp("checkpoint")
    tokenizer = ElmoTokenizer(WORDS, max_characters_per_token=12)
    config = tiny_config(char_vocab_size=262, vocab_size=len(tokenizer), inputs="words+characters")
    model = randomize(ElmoForPreTraining(config))
    for name, size in (("whole", "1GB"), ("sharded", "8KB")):
        model.save_pretrained(folder / name, max_shard_size=size)
        tokenizer.save_pretrained(folder / name)
        for file in folder.glob(f"{name}/*.py"):
            file.unlink()
    return folder


def paths_of(value, path=()):
    """Yield the keys that lead to every value of a JSON document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from paths_of(item, (*path, key))


def change_json(content: bytes, chance: random.Random) -> bytes:
    """Replace, remove or rename one to three values of a JSON document, or add a field."""
    document = json.loads(content)
    for _ in range(chance.randint(1, 3)):
        paths = list(paths_of(document))
        value = chance.choice(VALUES)
        if not paths or chance.random() < 0.2:
            if isinstance(document, dict):
                document[chance.choice(FIELDS)] = value
            continue
        *path, key = chance.choice(paths)
        parent = document
        for step in path:
            parent = parent[step]
        if chance.random() < 0.2:
            del parent[key]
        elif isinstance(parent, dict) and chance.random() < 0.2:
            parent[str(value)] = parent.pop(key)
        else:
            parent[key] = value
    return json.dumps(document).encode()


def change_header(content: bytes, chance: random.Random) -> bytes:
    """Change the JSON header of a safetensors file, and its length with it."""
    size = int.from_bytes(content[:8], "little")
    header = change_json(content[8 : 8 + size], chance)
    return len(header).to_bytes(8, "little") + header + content[8 + size :]


FILES = {
    "config.json": ("whole", change_json),
    "tokenizer.json": ("whole", change_json),
    "tokenizer_config.json": ("whole", change_json),
    "model.safetensors": ("whole", change_header),
    "model.safetensors.index.json": ("sharded", change_json),
}


def check(checkpoint: Path, name: str, chance: random.Random):
    """Damage a file of a copy of the checkpoint, and load it: an error of ours, or vectors of finite numbers."""
    folder, change = FILES[name]
    with tempfile.TemporaryDirectory() as copy:
        copy = shutil.copytree(checkpoint / folder, Path(copy) / "x")
        content = (copy / name).read_bytes()
        content = (change if chance.random() < 0.6 else damage)(content, chance)
        (copy / name).write_bytes(content)
        try:
            model, tokenizer = load(str(copy), with_lm_head=chance.random() < 0.5)
            with torch.no_grad():
                output = getattr(model, "elmo", model)(
                    **tokenizer([WORDS], is_split_into_words=True, return_tensors="pt")
                )
        except (OSError, ValueError, RuntimeError) as error:
            assert str(error) and not isinstance(error, RecursionError)
        else:
            assert output.last_hidden_state.isfinite().all()


@pytest.fixture(scope="module")
def silent():
    level = logging.get_verbosity()
    logging.set_verbosity(60)
    logging.disable_progress_bar()
    yield
    logging.set_verbosity(level)
    logging.enable_progress_bar()


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_damaged_checkpoints(checkpoint, silent, name, seed):
    check(checkpoint, name, random.Random(seed))


@pytest.mark.slow
def test_many_damaged_checkpoints(checkpoint, silent):
    """In child processes with limits of memory and time; ELMO_FUZZ is the number of checkpoints."""
    names = list(FILES)
    number = int(os.environ.get("ELMO_FUZZ", "5000"))
    failures = fuzz(lambda chance: check(checkpoint, chance.choice(names), chance), number, memory=1 << 31)
    assert not failures, "\n".join(failures[:10])
