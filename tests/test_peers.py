"""Compare `elmo convert` and `elmo export` with the original implementations, each in an environment of its own.

    ELMO_PEERS=peers/bin/python ELMO_PEERS_TF=peers-tf/bin/python make slow

ELMO_PEERS is the interpreter of an environment with AllenNLP 2.10.1 and ELMoForManyLangs 0.0.4.post2, ELMO_PEERS_TF of
one with simple_elmo 0.9.2, which is bilm-tf for TensorFlow 2; without them the tests are skipped, with a message on how
to create them. Both sides start every sentence from a zero state. `pytest -m slow -rP tests/test_peers.py` prints the
largest differences.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from transformers_elmo import ElmoForPreTraining, ElmoModel, ElmoTokenizer
from transformers_elmo.command import main

pytestmark = pytest.mark.slow

TOLERANCE = 1e-5

KNOWN = [  # sentences whose words are in the vocabularies of these tests
    sentence.split()
    for sentence in (
        "The cat sat on the mat , and the dog of the house looked at it .",
        "When the rain that had fallen since the morning stopped at last , the cat left the mat , looked at the dog "
        "that slept on the floor of the old house , and went out of the door to see what the birds did .",
    )
]
SENTENCES = [
    *KNOWN,
    *(
        sentence.split()
        for sentence in (
            "Hello",
            ".",
            "Zxqvj frobnicates the qwertyish blorps of the mat !",
            "the The THE mat Mat mats",
            "I ♥ my 🦄 , 👩‍👩‍👧 , 𐍈 龘 and the naïve café of Ωμέγα — for 3,000 € .",
            "我 喜欢 自然 语言 处理 。",
            # Words are truncated to 48 bytes or characters, the last three inside a character.
            f"the {'a' * 47} {'b' * 48} {'c' * 49} {'d' * 300} of x{'é' * 47} x{'é' * 48} x{'龘' * 60} .",
        )
    ),
]

MAKE_PEERS = (
    "ELMO_PEERS must be the interpreter of an environment with allennlp==2.10.1 and elmoformanylangs==0.0.4.post2: "
    "python3.11 -m venv peers, then peers/bin/pip install the packages that the README of shared/peers lists for both"
)
MAKE_PEERS_TF = (
    "ELMO_PEERS_TF must be the interpreter of an environment with simple_elmo: "
    "python3.11 -m venv peers-tf && peers-tf/bin/pip install 'tensorflow-cpu==2.15.*' simple_elmo==0.9.2"
)

# The scripts read JSON from standard input and write arrays to the file named by their argument.

ALLENNLP = """
import json, sys
import allen_stub
import numpy as np, torch
from allennlp.modules.elmo import _ElmoBiLm, batch_to_ids

folder, sentences = json.load(sys.stdin)
model = _ElmoBiLm(f"{folder}/options.json", f"{folder}/weights.hdf5").eval()
arrays = {}
for number, sentence in enumerate(sentences):
    model._elmo_lstm.reset_states()
    with torch.no_grad():
        arrays[f"layers_{number}"] = torch.cat(model(batch_to_ids([sentence]))["activations"])
np.savez(sys.argv[1], **arrays)
"""

# Archives a tagger with an ELMo whose weights and mix differ from the initial ones, as after training.
ALLENNLP_ARCHIVE = """
import json, sys
import allen_stub
import numpy as np, torch
from allennlp.common import Params
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.models.archival import archive_model, load_archive
from allennlp.modules.elmo import batch_to_ids

config, mix, gamma, sentences = json.load(sys.stdin)
with open("config.json", "w") as file:
    json.dump(config, file)
vocabulary = Vocabulary(tokens_to_add={"labels": ["noun", "verb"]})
vocabulary.save_to_files("vocabulary")
model = Model.from_params(vocab=vocabulary, params=Params(config["model"]))
torch.manual_seed(1)
with torch.no_grad():
    for parameter in model.parameters():
        parameter *= 1 + 0.1 * torch.randn_like(parameter)
    scalar_mix = model.text_field_embedder.token_embedder_elmo._elmo.scalar_mix_0
    scalar_mix.gamma.fill_(gamma)
    for parameter, value in zip(scalar_mix.scalar_parameters, mix):
        parameter.fill_(value)
torch.save(model.state_dict(), "best.th")
model = load_archive(archive_model(".")).model.eval()
elmo = model.text_field_embedder.token_embedder_elmo._elmo
elmo._keep_sentence_boundaries = True
arrays = {}
for number, sentence in enumerate(sentences):
    elmo._elmo_lstm._elmo_lstm.reset_states()
    with torch.no_grad():
        arrays[f"mix_{number}"] = elmo(batch_to_ids([sentence]))["elmo_representations"][0][0]
np.savez(sys.argv[1], **arrays)
"""

# Calls the model itself, because `sents2elmo` removes the boundaries.
MANY_LANGS = """
import json, sys
import numpy as np, torch
from elmoformanylangs import Embedder
from elmoformanylangs.elmo import read_list
from elmoformanylangs.frontend import create_one_batch

folder, sentences = json.load(sys.stdin)
embedder = Embedder(folder, batch_size=1)
model, lexicons = embedder.model, (embedder.word_lexicon, embedder.char_lexicon)
arrays = {}
for number, sentence in enumerate(sentences):
    words, _ = read_list([sentence], embedder.config["token_embedder"]["max_characters_per_token"])
    word_ids, char_ids, _, masks = create_one_batch(words, *lexicons, embedder.config)
    with torch.no_grad():
        model.encoder.reset_states()
        arrays[f"layers_{number}"] = layers = model(word_ids, char_ids, masks)[:, 0].numpy()
        model.encoder.reset_states()
        assert np.array_equal(embedder.sents2elmo([sentence], output_layer=-2)[0], layers[:, 1:-1])
np.savez(sys.argv[1], **arrays)
"""

# Trains for a few batches, and restores the checkpoint into the evaluation graph, which reads one word at a time.
BILM_TRAINING = """
import json, random, sys
import numpy as np
import tensorflow.compat.v1 as tf
from simple_elmo import training
from simple_elmo.data import BidirectionalLMDataset

tf.disable_eager_execution()
tf.disable_resource_variables()
tf.set_random_seed(1)
random.seed(1)  # from which Keras takes the seeds of the LSTMs
options, sentences = json.load(sys.stdin)
characters = "char_cnn" in options
vocabulary = training.load_vocab("vocab.txt", 50 if characters else None)
training.train(options, BidirectionalLMDataset("text.txt", vocabulary), 1, ".", "logs")

tf.reset_default_graph()
with tf.Session() as session, tf.variable_scope("lm"):
    model = training.LanguageModel({**options, "batch_size": 1, "unroll_steps": 1}, False)
    tf.train.Saver().restore(session, tf.train.latest_checkpoint("."))
    layers, next_words = [], [tf.nn.softmax(scores[0]) for scores in model.output_scores]
    tops = tf.get_collection("lstm_output_embeddings")
    for words, top, state in zip((model.embedding, model.embedding_reverse), tops, model.final_lstm_state):
        lower = [state[0].h[0]] if options["lstm"]["n_layers"] == 2 else []
        layers.append(tf.stack([words[0, 0], *lower, top[0][0]]))  # (L + 1, P)
    if characters:
        spell, inputs = vocabulary.encode_chars, (model.tokens_characters, model.tokens_characters_reverse)
    else:
        spell, inputs = vocabulary.encode, (model.token_ids, model.token_ids_reverse)
    arrays = {}
    for number, sentence in enumerate(sentences):
        words, states, steps = spell(sentence, split=False), {}, []
        for both in zip(words, words[::-1]):
            feed = {ids: word[None, None] for ids, word in zip(inputs, both)}
            steps.append(session.run((layers, next_words, model.final_lstm_state), {**feed, **states}))
            states = dict(zip(model.init_lstm_state, steps[-1][2]))
        forward, backward = (np.stack([step[0][d] for step in steps], 1) for d in range(2))  # in reading order
        arrays[f"layers_{number}"] = np.concatenate([forward, backward[:, ::-1]], -1)
        forward, backward = (np.stack([step[1][d] for step in steps]) for d in range(2))
        arrays[f"next_{number}"] = np.stack([forward, backward[::-1]])
np.savez(sys.argv[1], **arrays)
"""

BILM_LOADER = """
import json, sys
import numpy as np
import tensorflow.compat.v1 as tf
from simple_elmo.data import Batcher, TokenBatcher
from simple_elmo.model import BidirectionalLanguageModel

tf.disable_eager_execution()
characters, sentences = json.load(sys.stdin)
if characters:
    batcher, ids, inputs = Batcher("vocab.txt", 50), tf.placeholder("int32", (None, None, 50)), {}
else:
    batcher, ids = TokenBatcher("vocab.txt"), tf.placeholder("int32", (None, None))
    inputs = {"use_character_inputs": False, "embedding_weight_file": "weights.hdf5"}
model = BidirectionalLanguageModel("options.json", "weights.hdf5", max_batch_size=1, **inputs)
layers, fresh, arrays = model(ids)["lm_embeddings"], tf.global_variables_initializer(), {}
with tf.Session() as session:
    for number, sentence in enumerate(sentences):
        session.run(fresh)
        arrays[f"layers_{number}"] = session.run(layers, {ids: batcher.batch_sentences([sentence])})[0]
np.savez(sys.argv[1], **arrays)
"""


def run(command: list, folder: Path, stdin=None, **variables):
    """Run a command in a folder, with `stdin` as JSON on its standard input, and assert that it succeeds."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HF_"))}
    home = str(folder / "home")
    offline = {"HF_HOME": home, "HF_HUB_OFFLINE": "1", "ALLENNLP_CACHE_ROOT": home, "KERAS_HOME": home}
    result = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=inherited | offline | {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"} | variables,
        input=json.dumps(stdin),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-5000:]


def convert(source: Path, output: Path, *options) -> Path:
    run([sys.executable, "-m", "transformers_elmo.command", "convert", source, "-o", output, *options], output.parent)
    return output


def export(checkpoint: Path, output: Path) -> Path:
    assert main(["export", str(checkpoint), "-o", str(output)]) == 0
    return output


class Peers:
    """An environment with original implementations; `scripts` is a folder of modules that it can import."""

    def __init__(self, python: str, scripts: Path | None = None):
        self.python, self.scripts = Path(python).absolute(), scripts

    def write_weights(self, folder: Path, *arguments):
        run([self.python, self.scripts / "gen_weights.py", "--out", folder, *arguments], folder)

    def compute(self, script: str, stdin, folder: Path) -> dict[str, np.ndarray]:
        """Run a script in a folder and return the arrays that it writes."""
        run([self.python, "-c", script, "arrays.npz"], folder, stdin, PYTHONPATH=str(self.scripts or ""))
        with np.load(folder / "arrays.npz") as arrays:
            return dict(arrays)


@pytest.fixture(scope="module")
def peers(request) -> Peers:
    python = os.environ.get("ELMO_PEERS")
    if python is None:
        pytest.skip(MAKE_PEERS)
    try:
        scripts = request.getfixturevalue("shared_folder") / "peers"
    except pytest.skip.Exception as missing:
        pytest.skip(f"{missing}; {MAKE_PEERS}")
    if not scripts.is_dir():
        pytest.skip(f"{scripts} does not exist; {MAKE_PEERS}")
    return Peers(python, scripts)


@pytest.fixture(scope="module")
def peers_tf() -> Peers:
    python = os.environ.get("ELMO_PEERS_TF")
    if python is None:
        pytest.skip(MAKE_PEERS_TF)
    return Peers(python)


@pytest.fixture(scope="module")
def make_folder(tmp_path_factory):
    """Create folders that are removed at the end of the module, because they hold weights of up to 800 MB."""
    folders = []

    def make(name: str) -> Path:
        folders.append(tmp_path_factory.mktemp(name))
        return folders[-1]

    yield make
    for folder in folders:
        shutil.rmtree(folder)


@torch.no_grad()
def compute_outputs(checkpoint: Path) -> dict[str, np.ndarray]:
    """Return layers (L + 1, T, 2P), mix (T, 2P) and next-word probabilities (2, T, V) of each sentence alone."""
    has_lm_head = json.loads((checkpoint / "config.json").read_text())["architectures"] == ["ElmoForPreTraining"]
    model = (ElmoForPreTraining if has_lm_head else ElmoModel).from_pretrained(checkpoint).eval()
    tokenizer = ElmoTokenizer.from_pretrained(checkpoint)
    arrays = {}
    for number, sentence in enumerate(SENTENCES):
        inputs = tokenizer([sentence], is_split_into_words=True, return_tensors="pt")
        outputs = model.base_model(**inputs, output_hidden_states=True)
        arrays[f"layers_{number}"] = torch.cat(outputs.hidden_states)
        arrays[f"mix_{number}"] = outputs.last_hidden_state[0]
        if has_lm_head:
            outputs = model(**inputs)
            # Id 0 is padding.
            arrays[f"next_{number}"] = torch.cat([outputs.forward_logits, outputs.backward_logits]).softmax(-1)[..., 1:]
    return {name: array.numpy() for name, array in arrays.items()}


def compare(theirs: dict, ours: dict, record_property, kind: str = "layers"):
    """Assert that all arrays of a kind agree, and record their largest difference."""
    names = [name for name in theirs if name.startswith(f"{kind}_")]
    assert len(names) == len(SENTENCES)
    assert [theirs[name].shape for name in names] == [ours[name].shape for name in names]
    largest = np.max([np.abs(theirs[name]).max() for name in names])
    difference = np.max([np.abs(theirs[name] - ours[name]).max() for name in names])
    record_property(f"largest difference of {kind}", float(difference))
    print(f"{kind}: largest {largest:.3f}, largest difference {difference:.1e}")
    assert difference <= TOLERANCE


@pytest.fixture(scope="module")
def allennlp(request, peers, make_folder):
    """Random weights in a folder, the checkpoint converted from them, and AllenNLP's outputs."""
    folder = make_folder(request.param)
    peers.write_weights(folder, "--sizes", request.param)
    source = folder / request.param
    theirs = peers.compute(ALLENNLP, [str(source), SENTENCES], folder)
    return folder, convert(source, folder / "checkpoint"), theirs


@pytest.mark.parametrize("allennlp", ["small", "original"], indirect=True)
def test_outputs_match_allennlp(allennlp, record_property):
    _, checkpoint, theirs = allennlp
    compare(theirs, compute_outputs(checkpoint), record_property)


@pytest.mark.parametrize("allennlp", ["small"], indirect=True)
def test_allennlp_loads_exported_weights(allennlp, peers):
    folder, checkpoint, theirs = allennlp
    exported = peers.compute(ALLENNLP, [str(export(checkpoint, folder / "exported")), SENTENCES], folder)
    assert theirs.keys() == exported.keys()
    assert [name for name in theirs if not np.array_equal(theirs[name], exported[name])] == []


@pytest.mark.parametrize("layer_norm", [False, True])
def test_outputs_match_an_allennlp_archive(layer_norm, peers, make_folder, record_property):
    folder = make_folder("archive")
    peers.write_weights(folder, "--sizes", "tiny")
    embedder = {
        "type": "elmo_token_embedder",
        "options_file": str(folder / "tiny" / "options.json"),
        "weight_file": str(folder / "tiny" / "weights.hdf5"),
        "do_layer_norm": layer_norm,
        "requires_grad": True,
    }
    config = {
        "dataset_reader": {"type": "sequence_tagging", "token_indexers": {"elmo": {"type": "elmo_characters"}}},
        "model": {
            "type": "simple_tagger",
            "text_field_embedder": {"token_embedders": {"elmo": embedder}},
            "encoder": {"type": "lstm", "input_size": 32, "hidden_size": 4},
        },
    }
    theirs = peers.compute(ALLENNLP_ARCHIVE, [config, [0.4, -0.3, 1.1], 0.7, SENTENCES], folder)
    ours = compute_outputs(
        convert(folder / "model.tar.gz", folder / "checkpoint", "--options", embedder["options_file"])
    )
    compare(theirs, ours, record_property, "mix")


def test_outputs_match_many_langs(peers, make_folder, record_property):
    folder = make_folder("many_langs")
    # A word must occur three times to enter the dictionary.
    (folder / "corpus.txt").write_text("".join(f"{' '.join(sentence)}\n" for sentence in 3 * KNOWN), encoding="utf-8")
    peers.write_weights(folder, "--sizes", "", "--emlangs")
    theirs = peers.compute(MANY_LANGS, [str(folder / "emlangs"), SENTENCES], folder)
    checkpoint = convert(folder / "emlangs", folder / "checkpoint")
    compare(theirs, compute_outputs(checkpoint), record_property)

    tokenizer = ElmoTokenizer.from_pretrained(checkpoint)
    known = tokenizer(KNOWN, is_split_into_words=True)
    unknown = tokenizer(SENTENCES, is_split_into_words=True)
    oov = tokenizer.char_vocab.index("<oov>") + 1
    for unknown_id, name in ((tokenizer.unk_token_id, "input_ids"), (oov, "char_ids")):
        assert not any((np.array(rows) == unknown_id).any() for rows in known[name])
        assert any((np.array(rows) == unknown_id).any() for rows in unknown[name])


WORDS = ["<S>", "</S>", "<UNK>", *sorted({word for sentence in KNOWN for word in sentence})]
# Narrow clips, which a tenth to a third of the cells and outputs reach after a short training.
OPTIONS = {
    "bidirectional": True,
    "lstm": {
        "dim": 32,
        "projection_dim": 8,
        "n_layers": 2,
        "cell_clip": 0.3,
        "proj_clip": 0.3,
        "use_skip_connections": True,
    },
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 4},
        "filters": [[1, 4], [2, 8], [3, 16]],
        "max_characters_per_token": 50,
        "n_characters": 261,
        "n_highway": 2,
    },
    "dropout": 0.1,
    "n_tokens_vocab": len(WORDS),
    "n_negative_samples_batch": 8,
    "batch_size": 4,
    "unroll_steps": 10,
    "n_train_tokens": 10 * 4 * 10,  # ten batches
    "n_epochs": 1,
    "all_clip_norm_val": 10.0,
}


@pytest.fixture(scope="module")
def bilm(request, peers_tf, make_folder):
    """A checkpoint of bilm-tf's training, converted, and TensorFlow's outputs."""
    options = {**OPTIONS, "lstm": {**OPTIONS["lstm"], "n_layers": 2 if request.param == "characters" else 1}}
    if request.param == "words":
        del options["char_cnn"]
    folder = make_folder(request.param)
    training = folder / "training"
    training.mkdir()
    (training / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    (training / "text.txt").write_text("".join(f"{' '.join(words)}\n" for words in 50 * KNOWN), encoding="utf-8")
    theirs = peers_tf.compute(BILM_TRAINING, [options, SENTENCES], training)
    return folder, convert(training, folder / "checkpoint"), theirs


@pytest.mark.parametrize("bilm", ["characters", "words"], indirect=True)
def test_outputs_match_bilm_training(bilm, record_property):
    _, checkpoint, theirs = bilm
    ours = compute_outputs(checkpoint)
    compare(theirs, ours, record_property)
    compare(theirs, ours, record_property, "next")
    outputs = np.concatenate([theirs[f"layers_{number}"][1] for number in range(len(SENTENCES))])
    clipped = np.mean(np.abs(outputs) >= np.float32(OPTIONS["lstm"]["proj_clip"]))
    assert 0.05 < clipped < 0.95


@pytest.mark.parametrize("bilm", ["characters", "words"], indirect=True)
def test_bilm_loads_exported_weights(bilm, peers_tf, record_property):
    folder, checkpoint, _ = bilm
    exported = export(checkpoint, folder / "exported")
    characters = "char_cnn" in json.loads((exported / "options.json").read_text())
    theirs = peers_tf.compute(BILM_LOADER, [characters, SENTENCES], exported)
    # bilm-tf's loader removes the boundaries.
    ours = {name: array[:, 1:-1] for name, array in compute_outputs(checkpoint).items() if name.startswith("layers_")}
    compare(theirs, ours, record_property)
