# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""ELMo in plain numpy, straight from the arrays of a released file: what a converted checkpoint is compared with.

It shares nothing with the model, the tokenizer and the tables of weight names, so that a mistake in one of them shows.
Each source is computed as its own code does it: bilm-tf's in the first half, ELMoForManyLangs' and AllenNLP's in the
second. Everything in float64, one sentence, one step at a time.

Shapes: T words of W characters, D numbers each; F filters; H cells and P outputs of one direction; L layers; V words.
"""

from collections.abc import Callable

import numpy as np

Read = Callable[[str], np.ndarray]  # an array of the source by its name there
Cell = tuple[Callable[..., tuple[np.ndarray, np.ndarray]], int]  # x_t (P,), h (P,), c (H,) -> h, c; and H


def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))


def relu(x):
    return np.maximum(x, 0)


ACTIVATIONS = {"relu": relu, "tanh": np.tanh}


def clip(x, bound):
    return x if bound is None else np.clip(x, -bound, bound)


def softmax(x):
    exponents = np.exp(x - x.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


def pooled(embedded: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The largest answer of each filter: embedded (T, W, D), kernel (width, D, f), bias (f,) -> (T, f)"""
    positions = embedded.shape[1] - len(kernel) + 1
    scores = sum(embedded[:, start : start + positions] @ kernel[start] for start in range(len(kernel)))
    return scores.max(1) + bias


def run_bilm(
    x: np.ndarray, sentences: list[list[str]], cell: Callable[[int, int], Cell], num_layers: int, skip: bool
) -> list[np.ndarray]:
    """x (N, P) of the words of all sentences -> (L + 1, T, 2P) of each sentence, forward half first"""
    x = np.split(x, np.cumsum([len(sentence) for sentence in sentences])[:-1])  # (T, P) of each
    directions = []
    for d in range(2):
        layers = [[x_s if d == 0 else x_s[::-1] for x_s in x]]
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
    """Equation (1) of the paper: layers (L + 1, T, 2P) -> (T, 2P)"""
    if layer_norm:
        mean = layers.mean((1, 2), keepdims=True)
        layers = (layers - mean) / np.sqrt(((layers - mean) ** 2).mean((1, 2), keepdims=True) + 1e-13)
    return gamma * np.tensordot(softmax(weights), layers, 1)


def next_words(layers: np.ndarray, weight: np.ndarray, bias: np.ndarray, rows: int = 1 << 16) -> np.ndarray:
    """The logarithms of the next word's probabilities in each direction: weight (V, P), bias (V,) -> (2, T, V)"""
    halves = np.stack(np.split(layers[-1], 2, -1))  # (2, T, P)
    parts = [halves @ weight[start : start + rows].T.astype(np.float64) for start in range(0, len(weight), rows)]
    scores = np.concatenate(parts, -1) + bias
    scores -= scores.max(-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))


def byte_characters(word: str, width: int) -> list[int]:
    """bilm-tf's characters of a word as it trains on them, from 0 on; 260 fills up."""
    inner = {"<S>": [256], "</S>": [257]}.get(word) or list(word.encode("utf-8", "ignore")[: width - 2])
    return [258, *inner, 259] + [260] * (width - 2 - len(inner))


# bilm-tf


class BilmTf:
    """A biLM of bilm-tf, by the names that its hdf5 files have."""

    def __init__(self, options: dict, read: Read, words: dict[str, int] | None):
        self.options, self.read, self.words = options, read, words

    def __call__(self, sentences: list[list[str]]) -> list[np.ndarray]:
        """Sentences of words, boundaries included -> (L + 1, T, 2P) of each"""
        lstm, words = self.options["lstm"], [word for sentence in sentences for word in sentence]
        x = self.characters(words) if self.options.get("char_cnn") else self.embedded(words)
        return run_bilm(x, sentences, self.cell, lstm.get("n_layers", 1), lstm.get("use_skip_connections", False))

    def embedded(self, words):
        return self.read("embedding")[[self.words.get(word, self.words["<UNK>"]) for word in words]]

    def characters(self, words):
        cnn = self.options["char_cnn"]
        ids = [byte_characters(word, cnn.get("max_characters_per_token", 50)) for word in words]
        embedded = self.read("char_embed")[ids]  # (N, W, D)
        kernels = [(self.read(f"CNN/W_cnn_{i}")[0], self.read(f"CNN/b_cnn_{i}")) for i in range(len(cnn["filters"]))]
        x = np.concatenate([pooled(embedded, kernel, bias) for kernel, bias in kernels], 1)  # (N, F)
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
    """What the two torch implementations have in common, given the names that each has for it."""

    convolution: str
    highway: str
    lstm: str

    def __init__(self, options: dict, read: Read):
        self.options, self.read = options, read

    def convolved(self, embedded: np.ndarray, options: dict) -> np.ndarray:
        """(N, W, D) -> (N, F)"""
        found = []
        for i in range(len(options["filters"])):
            kernel = self.read(self.convolution.format(i) + "weight")  # (f, D, width)
            found.append(pooled(embedded, kernel.transpose(2, 1, 0), self.read(self.convolution.format(i) + "bias")))
        x = ACTIVATIONS[options.get("activation", "relu")](np.concatenate(found, 1))
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
    """An `Elmo` of AllenNLP, without the path to it: bytes, and the forget bias in the weights."""

    convolution = "_elmo_lstm._token_embedder.char_conv_{}."
    highway = "_elmo_lstm._token_embedder._highways._layers.{}."
    lstm = "_elmo_lstm._elmo_lstm.{}_layer_{}."

    def __call__(self, sentences: list[list[str]]) -> list[np.ndarray]:
        embedder, options = "_elmo_lstm._token_embedder.", self.options["lstm"]
        # Its words are 50 wide whatever the options say, and row 0 of its characters is no character.
        ids = np.array([byte_characters(word, 50) for sentence in sentences for word in sentence]) + 1
        x = self.convolved(self.read(embedder + "_char_embedding_weights")[ids], self.options["char_cnn"])
        x = x @ self.read(embedder + "_projection.weight").T + self.read(embedder + "_projection.bias")
        skip = options.get("use_skip_connections", False)
        return run_bilm(x, sentences, lambda d, i: self.cell(d, i, options), options.get("n_layers", 1), skip)


class ManyLangs(TorchElmo):
    """ELMoForManyLangs: its own characters between swapped marks, and a word embedding before them."""

    convolution = "convolutions.{}."
    highway = "highways._layers.{}."
    lstm = "{}_layer_{}."

    def __init__(self, options: dict, read: Read, words: dict[str, int] | None, characters: dict[str, int] | None):
        super().__init__(options, read)
        self.words, self.known = words, characters
        self.width = options["token_embedder"]["max_characters_per_token"]

    def __call__(self, sentences: list[list[str]]) -> list[np.ndarray]:
        embedder, encoder = self.options["token_embedder"], self.options["encoder"]
        words = [word[: self.width - 2] for sentence in sentences for word in sentence]
        found = []
        if self.words is not None:
            ids = [self.words.get(word, self.words["<oov>"]) for word in words]
            found.append(self.read("word_emb_layer.embedding.weight")[ids])
        if self.known is not None:
            ids = [self.spelled(word) for word in words]
            found.append(self.convolved(self.read("char_emb_layer.embedding.weight")[ids], embedder))
        x = np.concatenate(found, 1) @ self.read("projection.weight").T + self.read("projection.bias")
        return run_bilm(x, sentences, lambda d, i: self.cell(d, i, encoder), encoder["n_layers"], skip=True)

    def spelled(self, word):
        if word in ("<bos>", "<eos>"):
            inner = [self.known[word]]
        else:
            inner = [self.known.get(character, self.known["<oov>"]) for character in word]
        marked = [self.known["<eow>"], *inner, self.known["<bow>"]]  # swapped, and the released models need it so
        return marked + [self.known["<pad>"]] * (self.width - len(marked))
