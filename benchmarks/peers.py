"""Time the original implementations. pretraining.py and compare.py run this file with the interpreters of the peers.

    python benchmarks/peers.py MEASUREMENT FOLDER ROUNDS

MEASUREMENT is one of the functions at the end of this file, FOLDER holds the inputs that they have written. ELMO_PEERS
and ELMO_PEERS_TF are the paths of the interpreters, as for tests/test_peers.py.

The peers carry the LSTM states from batch to batch. Vectors are therefore compared for the first batch, which every
measurement of vectors computes from a zero state to warm up, and writes to layers.npz.
"""

import contextlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from text import SHARED
from watch import Watch

STUBS = SHARED / "peers"  # stubs of modules that AllenNLP imports and ELMo does not need
NUM_CHECKED = 16  # sentences whose vectors are written


def environment(folder: Path, threads: int) -> dict[str, str]:
    """Return environment variables for a process with this many threads, caches in `folder`, and no network."""
    names = "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"
    home = {"ALLENNLP_CACHE_ROOT": str(folder), "KERAS_HOME": str(folder), "HF_HUB_OFFLINE": "1"}
    return {**os.environ, **dict.fromkeys(names, str(threads)), **home}


def run(command: list[str], variables: dict[str, str], title: str) -> dict:
    """Run a process and parse the JSON in the last line of its output."""
    result = subprocess.run(command, env=variables, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{title} failed:\n{result.stderr[-5000:]}")
    return json.loads(result.stdout.splitlines()[-1])


def run_peer(title: str, variable: str, name: str, folder: Path, rounds: int, threads: int) -> dict | None:
    """Run a measurement of a peer; print a note and return None if `variable`, its interpreter, is not set."""
    if variable not in os.environ:
        print(f"{title:<44}  skipped: {variable} is not set; see tests/test_peers.py", flush=True)
        return None
    variables = environment(folder, threads) | {"PYTHONPATH": str(STUBS), "TF_CPP_MIN_LOG_LEVEL": "2"}
    return run([os.environ[variable], __file__, name, str(folder), str(rounds)], variables, title)


def bilm_tf(folder: Path, rounds: int):
    """Run bilm-tf's training loop on our windows."""
    import tensorflow.compat.v1 as tf
    from simple_elmo import training

    tf.disable_eager_execution()
    tf.disable_resource_variables()
    with np.load(folder / "windows.npz") as windows:
        # bilm-tf's ids are ours minus one: it has no padding.
        pairs = zip(*[[both - 1 for both in windows[name]] for name in ("char_ids", "targets")])
    names = [name + side for name in ("tokens_characters", "next_token_id") for side in ("", "_reverse")]
    watch = Watch([dict(zip(names, (*characters, *targets))) for characters, targets in pairs], rounds)

    class Data:
        def iter_batches(self, *_):
            return iter(watch)

    training.train(json.loads((folder / "training.json").read_text()), Data(), 1, str(folder), str(folder / "logs"))
    watch.report()


def read_batches(folder: Path) -> list[list[list[str]]]:
    return json.loads((folder / "sentences.json").read_text())


def allennlp_bilm(folder: Path, requires_grad: bool):
    """Return AllenNLP's biLM and batches of sentences for it."""
    with contextlib.suppress(ImportError):
        import allen_stub  # noqa: F401 (empty modules for imports that ELMo does not need)
    from allennlp.modules.elmo import _ElmoBiLm, batch_to_ids

    model = _ElmoBiLm(folder / "bilm" / "options.json", folder / "bilm" / "weights.hdf5", requires_grad=requires_grad)
    return model, [batch_to_ids(batch) for batch in read_batches(folder)]


def allennlp(folder: Path, rounds: int):
    """Run forward and backward through the whole biLM; the loss is the sum of the layers' mean squares."""
    model, batches = allennlp_bilm(folder, requires_grad=True)
    watch, losses = Watch(batches, rounds), []
    for batch in watch:
        model._elmo_lstm.reset_states()
        loss = sum(layer.square().mean() for layer in model(batch)["activations"])
        loss.backward()
        model.zero_grad()
        losses.append(loss.item())
    watch.report(losses)


def time_vectors(folder: Path, watch: Watch, compute: Callable, layers_of: Callable):
    """Time `compute` for each batch; `layers_of` returns the layers (L + 1, words, 2P) of sentence n in its result."""
    lengths, checked = [len(sentence) for sentence in read_batches(folder)[0][:NUM_CHECKED]], False
    for batch in watch:
        result = compute(batch)
        if not checked:
            np.savez(folder / "layers.npz", *[layers_of(result, n, length) for n, length in enumerate(lengths)])
            checked = True
    watch.report()


def allennlp_vectors(folder: Path, rounds: int):
    """Compute all layers of the sentences, without gradients."""
    import torch

    model, batches = allennlp_bilm(folder, requires_grad=False)

    def layers_of(result, n, length):
        return np.stack([layer[n, 1 : length + 1].numpy() for layer in result["activations"]])

    with torch.no_grad():
        time_vectors(folder, Watch(batches, rounds), model.eval(), layers_of)


def simple_elmo_vectors(folder: Path, rounds: int):
    """Compute all layers of the sentences in bilm-tf's graph."""
    import tensorflow.compat.v1 as tf
    from simple_elmo import ElmoModel

    sentences, model = read_batches(folder), ElmoModel()
    logging.disable(logging.INFO)
    model.load(str(folder / "bilm"), max_batch_size=max(map(len, sentences)))
    threads = int(os.environ["TF_NUM_INTRAOP_THREADS"])
    options = tf.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
    layers, ids = model.sentence_embeddings_op["lm_embeddings"], model.sentence_character_ids
    batches = [{ids: model.batcher.batch_sentences(batch)} for batch in sentences]
    with tf.Session(config=options) as session:
        session.run(tf.global_variables_initializer())
        time_vectors(
            folder,
            Watch(batches, rounds),
            lambda batch: session.run(layers, batch),
            lambda result, n, length: result[n, :, :length],
        )


def many_langs_vectors(folder: Path, rounds: int):
    """Compute all layers with ELMoForManyLangs, as shipped: it sorts the sentences and saves for gradients."""
    from elmoformanylangs import Embedder

    (sentences,) = read_batches(folder)
    embedder = Embedder(str(folder / "many_langs"))
    time_vectors(
        folder,
        Watch([sentences], rounds, warm_up=sentences[: embedder.batch_size]),
        lambda batch: embedder.sents2elmo(batch, output_layer=-2),
        lambda result, n, length: result[n],
    )


def many_langs_no_grad(folder: Path, rounds: int):
    """Compute all layers with ELMoForManyLangs, without gradients."""
    import torch

    with torch.no_grad():
        many_langs_vectors(folder, rounds)


if __name__ == "__main__":
    functions = bilm_tf, allennlp, allennlp_vectors, simple_elmo_vectors, many_langs_vectors, many_langs_no_grad
    measurements = {function.__name__: function for function in functions}
    measurements[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
