"""A naive ELMo in numpy, the reference for tests: one word, one step and one layer at a time, without padding.

Follows the paper (Peters et al. 2018, https://arxiv.org/abs/1802.05365) and bilm-tf. All functions also accept complex
numbers, whose real parts they compare, so f(w + 1j * h * d).imag / h is the derivative of f along d, exact up to
rounding (the complex step).

Shapes: B sentences; T words in a sentence; W characters of size D in a word; F filters; H cells; P outputs; L layers.
"""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def relu(x):
    return np.where(x.real > 0, x, 0)


def clip(x, bound):
    return x if bound is None else np.where(x.real > bound, bound, np.where(x.real < -bound, -bound, x))


def part(weights, prefix):
    """Return the weights whose names start with a prefix, without the prefix."""
    return {name[len(prefix) :]: value for name, value in weights.items() if name.startswith(prefix)}


def linear(weights, x):
    return weights["weight"] @ x + weights["bias"]  # (out, in), as in torch


def character_vector(config, weights, chars):
    """W character ids -> (F,)"""
    embedded = weights["embedding.weight"][chars]  # (W, D)
    pooled = []
    for index, (width, _) in enumerate(config.char_filters):
        kernel = weights[f"convolutions.{index}.weight"]  # (f, D, width)
        windows = [embedded[start : start + width] for start in range(len(chars) - width + 1)]  # each (width, D)
        scores = np.stack([np.einsum("fdw,wd->f", kernel, window) for window in windows])  # (W - width + 1, f)
        scores = scores + weights[f"convolutions.{index}.bias"]
        pooled.append(np.take_along_axis(scores, scores.real.argmax(0)[None], 0)[0])  # (f,) the maximum of each filter
    x = {"relu": relu, "tanh": np.tanh}[config.char_activation](np.concatenate(pooled))  # (F,)
    for index in range(config.num_highway_layers):
        g = sigmoid(linear(part(weights, f"highways.{index}.carry."), x))
        x = g * relu(linear(part(weights, f"highways.{index}.transform."), x)) + (1 - g) * x
    return x


def word_vector(config, weights, word, chars):
    """Return x, the context-free vector of a word: (P,)"""
    x = []
    if config.inputs in ("words", "words+characters"):
        x.append(weights["word_embedding.weight"][word])
    if config.inputs in ("characters", "words+characters"):
        x.append(character_vector(config, part(weights, "characters."), chars))
    x = np.concatenate(x)
    is_projected = len(x) != (config.projection_dim or config.lstm_dim) or config.inputs == "words+characters"
    return linear(part(weights, "projection."), x) if is_projected else x


def lstm(config, weights, x, h, c):
    """x (T, P), h (P,) and c (H,) before the first word -> outputs (T, P), h and c after the last

    i, f, o = sigmoid(W x + R h + b), with the forget bias added to b in f; j = tanh(W x + R h + b)
    c = clip(f c + i j); h = clip(V (o tanh(c)))
    """
    outputs = []
    for x_t in x:
        gates = x_t @ weights["input_weight"] + h @ weights["recurrent_weight"] + weights["bias"]  # (4H,)
        i, f, o, j = np.split(gates, 4)
        c = clip(sigmoid(f + config.forget_bias) * c + sigmoid(i) * np.tanh(j), config.cell_clip)  # (H,)
        h = sigmoid(o) * np.tanh(c)  # (H,)
        if config.projection_dim is not None:
            h = clip(h @ weights["projection_weight"], config.projection_clip)  # (P,)
        outputs.append(h)
    return np.array(outputs).reshape(len(x), len(h)), h, c


def normalize(sentences):
    """Normalize sentences (T, 2P) by one mean and variance over all their words."""
    numbers = np.concatenate([sentence.ravel() for sentence in sentences])
    mean = numbers.sum() / max(numbers.size, 1)
    variance = ((numbers - mean) ** 2).sum() / max(numbers.size, 1)
    return [(sentence - mean) / np.sqrt(variance + 1e-13) for sentence in sentences]


def mix(config, weights, layers):
    """Equation (1): gamma * sum_j s_j h_j. layers[sentence] (L + 1, T, 2P) -> (T, 2P) for each sentence"""
    if config.mix == "top":
        return [weights["gamma"] * sentence[-1] for sentence in layers]
    if config.mix_layer_norm:
        by_layer = [normalize([sentence[j] for sentence in layers]) for j in range(config.num_hidden_layers + 1)]
        layers = [np.stack(sentence) for sentence in zip(*by_layer)]
    if config.mix == "fixed":
        return [np.einsum("j,jtp->tp", np.array(config.mix_weights), sentence) for sentence in layers]
    exponents = np.exp(weights["weights"])
    s = exponents / exponents.sum()  # (L + 1,)
    return [weights["gamma"] * np.einsum("j,jtp->tp", s, sentence) for sentence in layers]


def elmo(config, weights, sentences, state=None):
    """Sentences of (word id, character ids) -> layers (L + 1, T, 2P) and mix (T, 2P) of each sentence, and the state

    Weights have the names of ElmoModel's state_dict; the state is outputs (L, 2, B, P) and cells (L, 2, B, H).
    """
    cells, size, depth = config.lstm_dim, config.projection_dim or config.lstm_dim, config.num_hidden_layers
    dtype = np.result_type(*weights.values(), *(state or ()))
    if state is None:
        state = [np.zeros((depth, 2, len(sentences), width)) for width in (size, cells)]
    last_h, last_c = [np.array(before, dtype) for before in state]
    layers = []
    for b, sentence in enumerate(sentences):
        x = [word_vector(config, part(weights, "token_encoder."), *word) for word in sentence]
        x = np.array(x, dtype).reshape(len(sentence), size)  # (T, P)
        directions = []
        for d, name in enumerate(("forward", "backward")):
            inputs = x if name == "forward" else x[::-1]
            outputs_by_layer = [inputs]
            for layer in range(depth):
                lstm_weights = part(weights, f"bilm.layers.{layer}.{name}_lstm.")
                outputs, h, c = lstm(config, lstm_weights, inputs, last_h[layer, d, b], last_c[layer, d, b])
                last_h[layer, d, b], last_c[layer, d, b] = h, c
                inputs = outputs + inputs if config.use_skip_connections and layer > 0 else outputs
                outputs_by_layer.append(inputs)
            stacked = np.stack(outputs_by_layer)  # (L + 1, T, P)
            directions.append(stacked if name == "forward" else stacked[:, ::-1])
        layers.append(np.concatenate(directions, 2))  # (L + 1, T, 2P)
    return layers, mix(config, part(weights, "mix."), layers), (last_h, last_c)
