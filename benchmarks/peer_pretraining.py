"""The peers' lines of benchmarks/pretraining.py, which runs this file with a peer's Python.

    python benchmarks/peer_pretraining.py bilm_tf|allennlp folder rounds

The folder holds what pretraining.py has written.
"""

import contextlib
import json
import sys
from pathlib import Path

import numpy as np
from watch import Watch


def bilm_tf(folder: Path, rounds: int):
    """bilm-tf's own training loop, which reads our windows."""
    import tensorflow.compat.v1 as tf
    from simple_elmo import training

    tf.disable_eager_execution()
    tf.disable_resource_variables()
    with np.load(folder / "windows.npz") as windows:
        # Ids are ours minus one: there is no padding.
        pairs = zip(*[[both - 1 for both in windows[name]] for name in ("char_ids", "targets")])
    names = [name + side for name in ("tokens_characters", "next_token_id") for side in ("", "_reverse")]
    watch = Watch([dict(zip(names, (*characters, *targets))) for characters, targets in pairs], rounds)

    class Data:
        def iter_batches(self, *_):
            return iter(watch)

    training.train(json.loads((folder / "training.json").read_text()), Data(), 1, str(folder), str(folder / "logs"))
    watch.report()


def allennlp(folder: Path, rounds: int):
    """Forward and backward through the whole biLM, the outputs' squares as the loss."""
    with contextlib.suppress(ImportError):
        import allen_stub  # noqa: F401 (empty modules in place of what ELMo does not need)
    from allennlp.modules.elmo import _ElmoBiLm, batch_to_ids

    model = _ElmoBiLm(folder / "bilm" / "options.json", folder / "bilm" / "weights.hdf5", requires_grad=True)
    batches = [batch_to_ids(batch) for batch in json.loads((folder / "sentences.json").read_text())]
    watch, losses = Watch(batches, rounds), []
    for batch in watch:
        model._elmo_lstm.reset_states()
        loss = sum(layer.square().mean() for layer in model(batch)["activations"])
        loss.backward()
        model.zero_grad()
        losses.append(loss.item())
    watch.report(losses)


if __name__ == "__main__":
    {"bilm_tf": bilm_tf, "allennlp": allennlp}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
