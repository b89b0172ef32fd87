# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Names and layouts of ELMo's weights in each format and in ours: one table per format, used in both directions.

A row has the original name, our names and the conversion between them. `{i}` is an index that both names share, `{d}` a
direction. Shapes: P outputs and H cells per direction, F filters, D character embedding, V words.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Conversion:
    """One original tensor <-> one or more of our parameters, bit for bit; of meta tensors, the shapes."""

    to_hf: Callable[[torch.Tensor], tuple[torch.Tensor, ...]]
    to_original: Callable[..., torch.Tensor]


def reorder_gates(tensor: torch.Tensor, *order: int) -> torch.Tensor:
    """Permute the four gates along the last axis."""
    gates = tensor.chunk(4, -1)
    return torch.cat([gates[index] for index in order], -1)


SAME = Conversion(lambda a: (a,), lambda a: a)
TRANSPOSED = Conversion(lambda a: (a.t(),), lambda a: a.t())
COLUMN = Conversion(lambda a: (a[:, 0],), lambda a: a[:, None])  # (V, 1) <-> (V,)
SCALAR = Conversion(lambda a: (a.reshape(1),), lambda a: a.reshape(()))  # () <-> (1,)
# Our row 0 is padding, which the files do not store.
PADDING_ROW = Conversion(lambda a: (torch.cat([torch.zeros_like(a[:1]), a]),), lambda a: a[1:])
# (1, width, D, F) <-> (F, D, width)
KERNEL = Conversion(lambda a: (a[0].permute(2, 1, 0),), lambda a: a.permute(2, 1, 0)[None])

# TensorFlow: gates i, j, f, o, and one kernel for [x; h]: (2P, 4H) <-> (P, 4H), (P, 4H) with gates i, f, o, j.
TF_GATES = Conversion(lambda a: (reorder_gates(a, 0, 2, 3, 1),), lambda a: reorder_gates(a, 0, 3, 1, 2))
TF_KERNEL = Conversion(
    lambda a: reorder_gates(a, 0, 2, 3, 1).chunk(2), lambda x, h: reorder_gates(torch.cat([x, h]), 0, 3, 1, 2)
)
# AllenNLP and ELMoForManyLangs: gates i, f, j, o, torch's order. Their highway is one matrix (2F, F) for the transform
# and the gate, which weights the input; our gate (`carry`, as in bilm-tf) weights the transform. As
# sigmoid(-x) = 1 - sigmoid(x), the gate's weights change sign.
TORCH_GATES = Conversion(lambda a: (reorder_gates(a, 0, 1, 3, 2),), lambda a: reorder_gates(a, 0, 1, 3, 2))
TORCH_GATES_TRANSPOSED = Conversion(
    lambda a: (reorder_gates(a.t(), 0, 1, 3, 2),), lambda a: reorder_gates(a, 0, 1, 3, 2).t()
)
TORCH_HIGHWAY = Conversion(
    lambda a: (a.chunk(2)[0], -a.chunk(2)[1]), lambda transform, carry: torch.cat([transform, -carry])
)

CHARACTERS = "token_encoder.characters."
LSTM = "bilm.layers.{i}.{d}_lstm."
FIRST_LSTM = "bilm.layers.0.{d}_lstm."

Row = tuple[str, str | tuple[str, ...], Conversion]


class NameTable:
    """The rows of a format; `directions` are its terms for forward and backward."""

    def __init__(self, rows: Iterable[Row], directions: Iterable[str]):
        self.rows = [(original, (hf,) if isinstance(hf, str) else hf, conversion) for original, hf, conversion in rows]
        self.directions = dict(zip(directions, ("forward", "backward")))

    def to_hf(self, name: str) -> tuple[tuple[str, ...], Conversion] | None:
        """Return our names for an original name, and the conversion; None if the format does not have the name."""
        for original, hf_names, conversion in self.rows:
            if (fields := match(original, name, self.directions)) is not None:
                if "d" in fields:
                    fields["d"] = self.directions[fields["d"]]
                return tuple(hf_name.format(**fields) for hf_name in hf_names), conversion
        return None

    def to_original(self, name: str) -> tuple[str, tuple[str, ...], Conversion] | None:
        """Return the original name for one of ours, all of our names that it covers, and the conversion; or None."""
        directions = {ours: original for original, ours in self.directions.items()}
        for original, hf_names, conversion in self.rows:
            for hf_name in hf_names:
                if (fields := match(hf_name, name, directions)) is not None:
                    combined = tuple(other.format(**fields) for other in hf_names)
                    if "d" in fields:
                        fields["d"] = directions[fields["d"]]
                    return original.format(**fields), combined, conversion
        return None


def match(template: str, name: str, directions: Iterable[str]) -> dict[str, str] | None:
    """Return the `i` and `d` in a name, or None if it does not match the template."""
    pattern = re.escape(template)
    pattern = pattern.replace(r"\{i\}", r"(?P<i>\d+)").replace(r"\{d\}", rf"(?P<d>{'|'.join(directions)})")
    found = re.fullmatch(pattern, name)
    return None if found is None else found.groupdict()


def bilm_rows(top: str, lstm: dict[str, str], *cells: str) -> tuple[Row, ...]:
    """Return the rows of a format that derives from bilm-tf.

    Args:
        top: the prefix of all names.
        lstm: the names of a cell's kernel, bias and projection.
        cells: the prefix of a cell, and that of the cell in a single-layer model if it differs.
    """
    return (
        (top + "char_embed", CHARACTERS + "embedding.weight", PADDING_ROW),
        (top + "CNN/W_cnn_{i}", CHARACTERS + "convolutions.{i}.weight", KERNEL),
        (top + "CNN/b_cnn_{i}", CHARACTERS + "convolutions.{i}.bias", SAME),
        (top + "CNN_high_{i}/W_carry", CHARACTERS + "highways.{i}.carry.weight", TRANSPOSED),
        (top + "CNN_high_{i}/b_carry", CHARACTERS + "highways.{i}.carry.bias", SAME),
        (top + "CNN_high_{i}/W_transform", CHARACTERS + "highways.{i}.transform.weight", TRANSPOSED),
        (top + "CNN_high_{i}/b_transform", CHARACTERS + "highways.{i}.transform.bias", SAME),
        (top + "CNN_proj/W_proj", "token_encoder.projection.weight", TRANSPOSED),
        (top + "CNN_proj/b_proj", "token_encoder.projection.bias", SAME),
        (top + "embedding", "token_encoder.word_embedding.weight", PADDING_ROW),
        *(
            row
            for cell, hf in zip(cells, (LSTM, FIRST_LSTM))
            for row in (
                (top + cell + lstm["kernel"], (hf + "input_weight", hf + "recurrent_weight"), TF_KERNEL),
                (top + cell + lstm["bias"], hf + "bias", TF_GATES),
                (top + cell + lstm["projection"], hf + "projection_weight", SAME),
            )
        ),
        (top + "softmax/W", "lm_head.weight", SAME),
        (top + "softmax/b", "lm_head.bias", SAME),
    )


HDF5 = {"kernel": "W_0", "bias": "B", "projection": "W_P_0"}
TENSORFLOW = {"kernel": "kernel", "bias": "bias", "projection": "projection/kernel"}

# The .hdf5 files of bilm-tf's dump_weights, which AllenNLP reads too.
BILM = NameTable(bilm_rows("", HDF5, "RNN_{d}/RNN/MultiRNNCell/Cell{i}/LSTMCell/", "RNN_{d}/RNN/LSTMCell/"), ("0", "1"))

# Training checkpoints of bilm-tf.
BILM_CHECKPOINT = NameTable(
    bilm_rows("lm/", TENSORFLOW, "RNN_{d}/rnn/multi_rnn_cell/cell_{i}/lstm_cell/", "RNN_{d}/rnn/lstm_cell/"), ("0", "1")
)

# Google's TensorFlow Hub module, which has a mix.
TF_HUB = NameTable(
    (
        *bilm_rows("bilm/", TENSORFLOW, "RNN_{d}/RNN/MultiRNNCell/Cell{i}/rnn/lstm_cell/"),
        ("aggregation/weights", "mix.weights", SAME),
        ("aggregation/scaling", "mix.gamma", SCALAR),
    ),
    ("0", "1"),
)


def torch_rows(convolution: str, highway: str, projection: str, lstm: str) -> tuple[Row, ...]:
    """Return the rows that AllenNLP and ELMoForManyLangs share, each part under its prefix in the format."""
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


# The `Elmo` module of an AllenNLP model. Its `scalar_parameters.0`, `.1`, … are one array here, and its character
# embedding includes the padding row.
ALLENNLP = NameTable(
    (
        ("_elmo_lstm._token_embedder._char_embedding_weights", CHARACTERS + "embedding.weight", SAME),
        *torch_rows(
            convolution="_elmo_lstm._token_embedder.char_conv_{i}.",
            highway="_elmo_lstm._token_embedder._highways._layers.{i}.",
            projection="_elmo_lstm._token_embedder._projection.",
            lstm="_elmo_lstm._elmo_lstm.{d}_layer_{i}.",
        ),
        ("scalar_mix_0.scalar_parameters", "mix.weights", SAME),
        ("scalar_mix_0.gamma", "mix.gamma", SAME),
    ),
    ("forward", "backward"),
)

# token_embedder.pkl, encoder.pkl and classifier.pkl of ELMoForManyLangs.
MANY_LANGS = NameTable(
    (
        ("word_emb_layer.embedding.weight", "token_encoder.word_embedding.weight", PADDING_ROW),
        ("char_emb_layer.embedding.weight", CHARACTERS + "embedding.weight", PADDING_ROW),
        *torch_rows(
            convolution="convolutions.{i}.",
            highway="highways._layers.{i}.",
            projection="projection.",
            lstm="{d}_layer_{i}.",
        ),
        ("column_emb.weight", "lm_head.weight", SAME),  # sampled softmax
        ("column_bias.weight", "lm_head.bias", COLUMN),
        ("hidden2tag.weight", "lm_head.weight", SAME),  # full softmax
        ("hidden2tag.bias", "lm_head.bias", SAME),
    ),
    ("forward", "backward"),
)
