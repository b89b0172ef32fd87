# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""A reference implementation of ELMo in plain numpy, which converted checkpoints are verified against.

It runs on the original arrays and shares no code with the model, the tokenizer or the tables of weight names, so that
a mistake in one of them shows. Each format follows its original code: first bilm-tf, then AllenNLP and
ELMoForManyLangs. Everything is computed in float64, one sentence and one time step at a time.

Shapes: N words of all sentences, T of one sentence; W characters per word, D character embedding; F filters; H cells
and P outputs per direction; L layers; V vocabulary.
"""

from collections.abc import Callable

import numpy as np

Read = Callable[[str], np.ndarray]  # original name -> array
Cell = tuple[Callable[..., tuple[np.ndarray, np.ndarray]], int]  # step: x_t (P,), h (P,), c (H,) -> h, c; H


def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))


def relu(x):
    return np.maximum(x, 0)


ACTIVATIONS: dict[str, Callable] = {"relu": relu, "tanh": np.tanh}


def clip(x, bound):
    return x if bound is None else np.clip(x, -bound, bound)


def softmax(x):
    exponents = np.exp(x - x.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


def max_pooled_convolution(embedded: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return each filter's maximum over positions: embedded (N, W, D), kernel (width, D, f), bias (f,) -> (N, f)."""
    positions = embedded.shape[1] - len(kernel) + 1
    scores = sum(embedded[:, start : start + positions] @ kernel[start] for start in range(len(kernel)))
    return scores.max(1) + bias


def run_bilm(
    x: np.ndarray, sentences: list[list[str]], cell: Callable[[int, int], Cell], num_layers: int, skip: bool
) -> list[np.ndarray]:
    """Run the LSTMs of both directions: x (N, P) -> (L + 1, T, 2P) per sentence, forward half first."""
    split = np.split(x, np.cumsum([len(sentence) for sentence in sentences])[:-1])  # (T, P) per sentence
    directions = []
    for d in range(2):
        layers = [[x_s if d == 0 else x_s[::-1] for x_s in split]]
        for layer in range(num_layers):
            step, cells = cell(d, layer)
            outputs = []
            for x_s in layers[-1]:
                h, c, output = np.zeros(x_s.shape[1]), np.zeros(cells), []
                for x_t in x_s:
                    h, c = step(x_t, h, c)
                    output.append(h)
                outputs.append(np.array(output) + (x_s if skip and layer > 0 else 0))
            layers.append(outputs)
        directions.append([np.stack(layers_s)[:, :: 1 if d == 0 else -1] for layers_s in zip(*layers)])
    return [np.concatenate(both, -1) for both in zip(*directions)]


def mix(layers: np.ndarray, weights: np.ndarray, gamma: float, layer_norm: bool = False) -> np.ndarray:
    """Mix the layers by equation (1) of the paper: (L + 1, T, 2P) -> (T, 2P)."""
    if layer_norm:
        mean = layers.mean((1, 2), keepdims=True)
        layers = (layers - mean) / np.sqrt(((layers - mean) ** 2).mean((1, 2), keepdims=True) + 1e-13)
    return gamma * np.tensordot(softmax(weights), layers, 1)


def next_words(layers: np.ndarray, weight: np.ndarray, bias: np.ndarray, rows: int = 1 << 16) -> np.ndarray:
    """Return the next word's log-probabilities: layers (L + 1, T, 2P), weight (V, P), bias (V,) -> (2, T, V)."""
    halves = np.stack(np.split(layers[-1], 2, -1))  # (2, T, P)
    parts = [halves @ weight[start : start + rows].T.astype(np.float64) for start in range(0, len(weight), rows)]
    scores = np.concatenate(parts, -1) + bias
    scores -= scores.max(-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))


def byte_ids(word: str, width: int) -> list[int]:
    """Return the character ids of a word in bilm-tf's training, which start at 0; 260 is padding."""
    inner = {"<S>": [256], "</S>": [257]}.get(word) or list(word.encode("utf-8", "ignore")[: width - 2])
    return [258, *inner, 259] + [260] * (width - 2 - len(inner))


# bilm-tf


class BilmTf:
    """bilm-tf, with the names of its .hdf5 files."""

    def __init__(self, options: dict, read: Read, word_rows: dict[str, int] | None):
        self.options, self.read, self.word_rows = options, read, word_rows or {}

    def __call__(self, sentences: list[list[str]]) -> list[np.ndarray]:
        """Return the layers (L + 1, T, 2P) of each sentence, a list of words with its boundaries."""
        lstm, words = self.options["lstm"], [word for sentence in sentences for word in sentence]
        x = self.encode_characters(words) if self.options.get("char_cnn") else self.embed(words)
        return run_bilm(x, sentences, self.cell, lstm.get("n_layers", 1), lstm.get("use_skip_connections", False))

    def embed(self, words):
        return self.read("embedding")[[self.word_rows.get(word, self.word_rows["<UNK>"]) for word in words]]

    def encode_characters(self, words):
        cnn = self.options["char_cnn"]
        ids = [byte_ids(word, cnn.get("max_characters_per_token", 50)) for word in words]
        embedded = self.read("char_embed")[ids]  # (N, W, D)
        kernels = [(self.read(f"CNN/W_cnn_{i}")[0], self.read(f"CNN/b_cnn_{i}")) for i in range(len(cnn["filters"]))]
        x = np.concatenate([max_pooled_convolution(embedded, kernel, bias) for kernel, bias in kernels], 1)  # (N, F)
        x = ACTIVATIONS[cnn.get("activation", "relu")](x)
        for i in range(cnn.get("n_highway") or 0):
            high = f"CNN_high_{i}/"
            gate = sigmoid(x @ self.read(high + "W_carry") + self.read(high + "b_carry"))
            transformed = relu(x @ self.read(high + "W_transform") + self.read(high + "b_transform"))
            x = gate * transformed + (1 - gate) * x
        if x.shape[1] != self.options["lstm"]["projection_dim"]:
            x = x @ self.read("CNN_proj/W_proj") + self.read("CNN_proj/b_proj")
        return x  # (N, P)

    def cell(self, d, layer):
        options, name = self.options["lstm"], f"RNN_{d}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"
        kernel, bias = self.read(name + "W_0"), self.read(name + "B")  # (2P, 4H), (4H,)
        projection = self.read(name + "W_P_0") if options["projection_dim"] < options["dim"] else None  # (H, P)

        def step(x, h, c):
            i, j, f, o = np.split(np.concatenate([x, h]) @ kernel + bias, 4)
            c = clip(sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(j), options.get("cell_clip"))
            h = sigmoid(o) * np.tanh(c)
            return h if projection is None else clip(h @ projection, options.get("proj_clip")), c

        return step, len(bias) // 4


# AllenNLP and ELMoForManyLangs


class TorchElmo:
    """The code that both torch implementations share; the attributes are the prefixes of a format's weights."""

    convolution: str
    highway: str
    lstm: str

    def __init__(self, options: dict, read: Read):
        self.options, self.read = options, read

    def convolve(self, embedded: np.ndarray, options: dict) -> np.ndarray:
        """Apply the convolutions and the highway layers: (N, W, D) -> (N, F)."""
        pooled = []
        for i in range(len(options["filters"])):
            kernel = self.read(self.convolution.format(i) + "weight")  # (f, D, width)
            bias = self.read(self.convolution.format(i) + "bias")
            pooled.append(max_pooled_convolution(embedded, kernel.transpose(2, 1, 0), bias))
        x = ACTIVATIONS[options.get("activation", "relu")](np.concatenate(pooled, 1))
        for i in range(options.get("n_highway") or 0):
            both = x @ self.read(self.highway.format(i) + "weight").T + self.read(self.highway.format(i) + "bias")
            transformed, gate = np.split(both, 2, 1)
            gate = sigmoid(gate)
            x = gate * x + (1 - gate) * relu(transformed)
        return x

    def cell(self, d, layer, options):
        name = self.lstm.format("forward" if d == 0 else "backward", layer)
        input_weight, bias = self.read(name + "input_linearity.weight"), self.read(name + "state_linearity.bias")
        state_weight = self.read(name + "state_linearity.weight")  # (4H, P)
        projection = self.read(name + "state_projection.weight")  # (P, H)

        def step(x, h, c):
            i, f, g, o = np.split(input_weight @ x + state_weight @ h + bias, 4)
            c = clip(sigmoid(i) * np.tanh(g) + sigmoid(f) * c, options.get("cell_clip"))
            return clip(projection @ (sigmoid(o) * np.tanh(c)), options.get("proj_clip")), c

        return step, len(bias) // 4


class AllenNlp(TorchElmo):
    """AllenNLP's `Elmo` module, whose characters are bytes and whose weights include the forget bias."""

    convolution = "_elmo_lstm._token_embedder.char_conv_{}."
    highway = "_elmo_lstm._token_embedder._highways._layers.{}."
    lstm = "_elmo_lstm._elmo_lstm.{}_layer_{}."

    def __call__(self, sentences: list[list[str]]) -> list[np.ndarray]:
        embedder, options = "_elmo_lstm._token_embedder.", self.options["lstm"]
        # Words are padded to 50 characters, regardless of the options, and row 0 of the embedding is padding.
        ids = np.array([byte_ids(word, 50) for sentence in sentences for word in sentence]) + 1
        x = self.convolve(self.read(embedder + "_char_embedding_weights")[ids], self.options["char_cnn"])
        x = x @ self.read(embedder + "_projection.weight").T + self.read(embedder + "_projection.bias")
        skip = options.get("use_skip_connections", False)
        return run_bilm(x, sentences, lambda d, i: self.cell(d, i, options), options.get("n_layers", 1), skip)


class ManyLangs(TorchElmo):
    """ELMoForManyLangs: a word embedding and a CNN over a vocabulary of characters, with swapped word marks."""

    convolution = "convolutions.{}."
    highway = "highways._layers.{}."
    lstm = "{}_layer_{}."

    def __init__(self, options: dict, read: Read, words: dict[str, int] | None, characters: dict[str, int] | None):
        super().__init__(options, read)
        self.words, self.characters = words, characters
        self.width = options["token_embedder"]["max_characters_per_token"]

    def __call__(self, sentences: list[list[str]]) -> list[np.ndarray]:
        embedder, encoder = self.options["token_embedder"], self.options["encoder"]
        words = [
            word if word in ("<bos>", "<eos>") else word[: self.width - 2]
            for sentence in sentences
            for word in sentence
        ]
        parts = []
        if self.words is not None:
            ids = [self.words.get(word, self.words["<oov>"]) for word in words]
            parts.append(self.read("word_emb_layer.embedding.weight")[ids])
        if self.characters is not None:
            char_ids = [self.char_ids(word, self.characters) for word in words]
            parts.append(self.convolve(self.read("char_emb_layer.embedding.weight")[char_ids], embedder))
        x = np.concatenate(parts, 1) @ self.read("projection.weight").T + self.read("projection.bias")
        return run_bilm(x, sentences, lambda d, i: self.cell(d, i, encoder), encoder["n_layers"], skip=True)

    def char_ids(self, word: str, known: dict[str, int]) -> list[int]:
        if word in ("<bos>", "<eos>"):
            inner = [known[word]]
        else:
            inner = [known.get(character, known["<oov>"]) for character in word]
        ids = [known["<eow>"], *inner, known["<bow>"]]  # swapped, as in training
        return ids + [known["<pad>"]] * (self.width - len(ids))
