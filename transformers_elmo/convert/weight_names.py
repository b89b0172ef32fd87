# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""The names and layouts of ELMo's weights in each format, beside ours: one table a format, to be read both ways.

A row is: their name, our names, and what changes between them. `{i}` is a number that both names hold, `{d}` a
direction. Shapes: P outputs and H cells of one direction, F filters, D numbers a character.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Change:
    """One tensor of theirs <-> one or more parameters of ours, bit for bit; of meta tensors, their shapes."""

    to_ours: Callable[[torch.Tensor], tuple[torch.Tensor, ...]]
    to_theirs: Callable[..., torch.Tensor]


def reordered(tensor: torch.Tensor, *order: int) -> torch.Tensor:
    """The four gates along the last axis in another order."""
    gates = tensor.chunk(4, -1)
    return torch.cat([gates[index] for index in order], -1)


SAME = Change(lambda a: (a,), lambda a: a)
TRANSPOSED = Change(lambda a: (a.t(),), lambda a: a.t())
COLUMN = Change(lambda a: (a[:, 0],), lambda a: a[:, None])  # (V, 1) <-> (V,)
NUMBER = Change(lambda a: (a.reshape(1),), lambda a: a.reshape(()))  # () <-> (1,)
# Row 0 means "no word here". Files do not hold it.
WITHOUT_ROW_0 = Change(lambda a: (torch.cat([torch.zeros_like(a[:1]), a]),), lambda a: a[1:])
# (1, width, D, F) <-> (F, D, width)
KERNEL = Change(lambda a: (a[0].permute(2, 1, 0),), lambda a: a.permute(2, 1, 0)[None])

# TensorFlow: gates i, j, f, o, and one kernel for [x; h]: (2P, 4H) <-> (P, 4H), (P, 4H) with gates i, f, o, j.
TF_GATES = Change(lambda a: (reordered(a, 0, 2, 3, 1),), lambda a: reordered(a, 0, 3, 1, 2))
TF_KERNEL = Change(lambda a: reordered(a, 0, 2, 3, 1).chunk(2), lambda x, h: reordered(torch.cat([x, h]), 0, 3, 1, 2))
# AllenNLP and ELMoForManyLangs: gates i, f, j, o as torch has them. Their highway is one matrix (2F, F) for the
# transformed and the carried half, and its gate is open for the word where ours is for the transformed: sigmoid(-x) is
# 1 - sigmoid(x), so the second half changes its sign.
TORCH_GATES = Change(lambda a: (reordered(a, 0, 1, 3, 2),), lambda a: reordered(a, 0, 1, 3, 2))
TORCH_GATES_TRANSPOSED = Change(lambda a: (reordered(a.t(), 0, 1, 3, 2),), lambda a: reordered(a, 0, 1, 3, 2).t())
TORCH_HIGHWAY = Change(
    lambda a: (a.chunk(2)[0], -a.chunk(2)[1]), lambda transform, carry: torch.cat([transform, -carry])
)

CHARACTERS = "token_encoder.characters."
LSTM = "bilm.layers.{i}.{d}_lstm."
FIRST_LSTM = "bilm.layers.0.{d}_lstm."

Row = tuple[str, str | tuple[str, ...], Change]


class NameTable:
    """A format's rows; `directions` are its words for forward and backward."""

    def __init__(self, rows: tuple[Row, ...], directions: tuple[str, str]):
        self.rows = [(theirs, ours if isinstance(ours, tuple) else (ours,), change) for theirs, ours, change in rows]
        self.directions = dict(zip(directions, ("forward", "backward")))

    def to_ours(self, name: str) -> tuple[tuple[str, ...], Change] | None:
        """Our names for one of theirs, and the change; None if the format knows no such name."""
        for theirs, ours, change in self.rows:
            if (found := match(theirs, name, self.directions)) is not None:
                if "d" in found:
                    found["d"] = self.directions[found["d"]]
                return tuple(our.format(**found) for our in ours), change
        return None

    def to_theirs(self, name: str) -> tuple[str, tuple[str, ...], Change] | None:
        """Their name for one of ours, all of ours that are in it, and the change."""
        words = {ours: theirs for theirs, ours in self.directions.items()}
        for theirs, ours, change in self.rows:
            for our in ours:
                if (found := match(our, name, words)) is not None:
                    together = tuple(other.format(**found) for other in ours)
                    if "d" in found:
                        found["d"] = words[found["d"]]
                    return theirs.format(**found), together, change
        return None


def match(template: str, name: str, directions) -> dict[str, str] | None:
    pattern = re.escape(template)
    pattern = pattern.replace(r"\{i\}", r"(?P<i>\d+)").replace(r"\{d\}", rf"(?P<d>{'|'.join(directions)})")
    found = re.fullmatch(pattern, name)
    return None if found is None else found.groupdict()


def bilm_rows(top: str, lstm: dict[str, str], *cells: str) -> tuple[Row, ...]:
    """The rows of a format that goes back to bilm-tf.

    `lstm` are the names of a cell's kernel, bias and projection, `cells` those of cells: of one among several layers,
    and of the only one where it is named otherwise.
    """
    return (
        (top + "char_embed", CHARACTERS + "embedding.weight", WITHOUT_ROW_0),
        (top + "CNN/W_cnn_{i}", CHARACTERS + "convolutions.{i}.weight", KERNEL),
        (top + "CNN/b_cnn_{i}", CHARACTERS + "convolutions.{i}.bias", SAME),
        (top + "CNN_high_{i}/W_carry", CHARACTERS + "highways.{i}.carry.weight", TRANSPOSED),
        (top + "CNN_high_{i}/b_carry", CHARACTERS + "highways.{i}.carry.bias", SAME),
        (top + "CNN_high_{i}/W_transform", CHARACTERS + "highways.{i}.transform.weight", TRANSPOSED),
        (top + "CNN_high_{i}/b_transform", CHARACTERS + "highways.{i}.transform.bias", SAME),
        (top + "CNN_proj/W_proj", "token_encoder.projection.weight", TRANSPOSED),
        (top + "CNN_proj/b_proj", "token_encoder.projection.bias", SAME),
        (top + "embedding", "token_encoder.word_embedding.weight", WITHOUT_ROW_0),
        *(
            row
            for cell, ours in zip(cells, (LSTM, FIRST_LSTM))
            for row in (
                (top + cell + lstm["kernel"], (ours + "input_weight", ours + "recurrent_weight"), TF_KERNEL),
                (top + cell + lstm["bias"], ours + "bias", TF_GATES),
                (top + cell + lstm["projection"], ours + "projection_weight", SAME),
            )
        ),
        (top + "softmax/W", "lm_head.weight", SAME),
        (top + "softmax/b", "lm_head.bias", SAME),
    )


DUMPED = {"kernel": "W_0", "bias": "B", "projection": "W_P_0"}
TENSORFLOW = {"kernel": "kernel", "bias": "bias", "projection": "projection/kernel"}

# hdf5 files of bilm-tf's dump_weights, read by AllenNLP too.
BILM = NameTable(
    bilm_rows("", DUMPED, "RNN_{d}/RNN/MultiRNNCell/Cell{i}/LSTMCell/", "RNN_{d}/RNN/LSTMCell/"), ("0", "1")
)

# Checkpoints of bilm-tf's training.
BILM_CHECKPOINT = NameTable(
    bilm_rows("lm/", TENSORFLOW, "RNN_{d}/rnn/multi_rnn_cell/cell_{i}/lstm_cell/", "RNN_{d}/rnn/lstm_cell/"), ("0", "1")
)

# Variables of Google's TensorFlow Hub module, which has a mix.
TF_HUB = NameTable(
    (
        *bilm_rows("bilm/", TENSORFLOW, "RNN_{d}/RNN/MultiRNNCell/Cell{i}/rnn/lstm_cell/"),
        ("aggregation/weights", "mix.weights", SAME),
        ("aggregation/scaling", "mix.gamma", NUMBER),
    ),
    ("0", "1"),
)


def torch_rows(convolution: str, highway: str, projection: str, lstm: str) -> tuple[Row, ...]:
    """The rows that AllenNLP and ELMoForManyLangs share, given their names for the parts."""
    highways = CHARACTERS + "highways.{i}."
    return (
        (convolution + "weight", CHARACTERS + "convolutions.{i}.weight", SAME),
        (convolution + "bias", CHARACTERS + "convolutions.{i}.bias", SAME),
        (highway + "weight", (highways + "transform.weight", highways + "carry.weight"), TORCH_HIGHWAY),
        (highway + "bias", (highways + "transform.bias", highways + "carry.bias"), TORCH_HIGHWAY),
        (projection + "weight", "token_encoder.projection.weight", SAME),
        (projection + "bias", "token_encoder.projection.bias", SAME),
        (lstm + "input_linearity.weight", LSTM + "input_weight", TORCH_GATES_TRANSPOSED),
        (lstm + "state_linearity.weight", LSTM + "recurrent_weight", TORCH_GATES_TRANSPOSED),
        (lstm + "state_linearity.bias", LSTM + "bias", TORCH_GATES),
        (lstm + "state_projection.weight", LSTM + "projection_weight", TRANSPOSED),
    )


# An `Elmo` module inside an AllenNLP model, without the path to it. Its `scalar_parameters.0`, `.1` ... are one array
# here, and its characters have their row 0.
ALLENNLP = NameTable(
    (
        ("_elmo_lstm._token_embedder._char_embedding_weights", CHARACTERS + "embedding.weight", SAME),
        *torch_rows(
            "_elmo_lstm._token_embedder.char_conv_{i}.",
            "_elmo_lstm._token_embedder._highways._layers.{i}.",
            "_elmo_lstm._token_embedder._projection.",
            "_elmo_lstm._elmo_lstm.{d}_layer_{i}.",
        ),
        ("scalar_mix_0.scalar_parameters", "mix.weights", SAME),
        ("scalar_mix_0.gamma", "mix.gamma", SAME),
    ),
    ("forward", "backward"),
)

# token_embedder.pkl, encoder.pkl and classifier.pkl of ELMoForManyLangs.
MANY_LANGS = NameTable(
    (
        ("word_emb_layer.embedding.weight", "token_encoder.word_embedding.weight", WITHOUT_ROW_0),
        ("char_emb_layer.embedding.weight", CHARACTERS + "embedding.weight", WITHOUT_ROW_0),
        *torch_rows("convolutions.{i}.", "highways._layers.{i}.", "projection.", "{d}_layer_{i}."),
        ("column_emb.weight", "lm_head.weight", SAME),  # of the sampled softmax
        ("column_bias.weight", "lm_head.bias", COLUMN),
        ("hidden2tag.weight", "lm_head.weight", SAME),  # of the whole one
        ("hidden2tag.bias", "lm_head.bias", SAME),
    ),
    ("forward", "backward"),
)
