# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Configuration of ELMo (Peters et al. 2018, https://arxiv.org/abs/1802.05365).

The fields are those of bilm-tf's `options.json`, plus the word + character input of ELMoForManyLangs and the layer mix
of AllenNLP's `Elmo`.
"""

from dataclasses import field
from functools import wraps
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import PretrainedConfig

INPUTS = ("characters", "words", "words+characters")
ACTIVATIONS = ("relu", "tanh")
MIXES = ("learned", "top", "fixed")
# Far above any ELMo, and low enough that a config.json of any content costs little time and memory.
MAX_SIZE = 2**24
MAX_WORDS = 2**31 - 1
MAX_CHARACTERS = 2**15 - 1  # the character CNN stores positions in 16 bits
MAX_LAYERS = 1000
MAX_LABELS = 10**6

# Every class that can load a checkpoint. transformers writes only the class that was saved, so a tagger's
# checkpoint would fail under AutoModel; the complete map makes every combination work.
AUTO_MAP = {
    "AutoConfig": "configuration_elmo.ElmoConfig",
    "AutoModel": "modeling_elmo.ElmoModel",
    "AutoModelForPreTraining": "modeling_elmo.ElmoForPreTraining",
    "AutoModelForTextEncoding": "modeling_elmo.ElmoModel",
    "AutoModelForTokenClassification": "modeling_elmo.ElmoForTokenClassification",
}
# The files that transformers copies into every saved checkpoint.
HUB_FILES = (
    *("configuration_elmo.py", "inputs_elmo.py", "lstm_elmo.py", "modeling_elmo.py", "padded_elmo.py"),
    *("products_elmo.py", "quantization_elmo.py", "softmax_elmo.py", "tokenization_elmo.py"),
)


def original_filters() -> list[list[int]]:
    """Return the 2,048 filters of all released English models: [width, number]."""
    return [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]


def raise_value_errors(cls):
    """Class decorator: raise a ValueError of one sentence where a strict dataclass or transformers raises another."""

    def wrap(method):
        @wraps(method)
        def wrapper(self, *args, **kwargs):
            try:
                return method(self, *args, **kwargs)
            except ValueError:
                raise
            except Exception as error:
                if isinstance(error.__cause__, ValueError):  # our own, wrapped by the strict dataclass
                    raise error.__cause__ from None
                if method.__name__ == "__strict_setattr__" and args[0] in cls.__annotations__:
                    (name, value), expected = args, cls.__annotations__[args[0]]
                    expected = getattr(expected, "__name__", expected)
                    raise ValueError(f"{name} must be of type {expected}; got {name}={value!r:.80}.") from error
                raise ValueError(f"The options must be those of ElmoConfig; {error}.") from error

        return wrapper

    for name in ("__init__", "__setattr__", "validate"):
        setattr(cls, name, wrap(getattr(cls, name)))
    return cls


@raise_value_errors
@strict
class ElmoConfig(PretrainedConfig):
    r"""
    Sizes and options of an ELMo model. Without arguments: the original 4096/512 model.

    Args:
        vocab_size (`int`): size of the vocabulary, with padding as id 0. Only word inputs and the output layer of the
            language models have a row for each word; a character model reads any word.
        inputs (`str`): the input of the model: `"characters"`, `"words"` (an embedding of the word id) or
            `"words+characters"` (ELMoForManyLangs: word embedding and character CNN concatenated, then projected).
        char_vocab_size (`int`): number of characters, with padding as id 0; 262 for bytes.
        max_characters_per_token (`int`): characters per word, begin- and end-of-word marks included.
        char_embedding_dim (`int`): size of a character's vector.
        char_filters (`list[list[int]]`): convolutions as `[width, number of filters]`.
        char_activation (`str`): `"relu"` or `"tanh"`, applied after the maximum over positions.
        num_highway_layers (`int`): highway layers after the convolutions, 0 for none.
        word_embedding_dim (`int`, *optional*): size of a word's embedding; by default that of the projection.
        lstm_dim (`int`): LSTM cells of one layer and direction (H).
        projection_dim (`int`, *optional*): size of one direction's output (P); `None` for an LSTM without projection,
            whose output has size `lstm_dim`.
        num_hidden_layers (`int`): LSTM layers of each direction (L).
        cell_clip, projection_clip (`float`, *optional*): bounds of the cells and of the projected outputs.
        use_skip_connections (`bool`): add a layer's input to its output, from the second layer on.
        forget_bias (`float`): added to the forget gate at run time, as TensorFlow does: the weights do not contain it.
        dropout (`float`): dropout on each layer's input while the biLM itself is trained.
        num_negative_samples (`int`, *optional*): negative samples of the softmax in pretraining; `None` for the full
            softmax, which evaluation always uses.
        mix (`str`): how the layers become one vector: `"learned"` (gamma * sum_j softmax(w)_j h_j), `"top"`
            (gamma * h_L) or `"fixed"` (sum_j mix_weights_j h_j, nothing learned).
        mix_weights (`list[float]`, *optional*): the L + 1 weights of a fixed mix, used as they are.
        mix_layer_norm (`bool`): normalize each layer before it is mixed, by one mean and variance over all words of
            the batch, as the originals do. The only option with which a sentence's vectors depend on its batch.
        freeze_bilm (`bool`): train only a head's own layers and the mix; `False` trains the biLM with them.
        classifier_dropout (`float`): dropout on the ELMo vectors in a head.

    Example:

    ```python
    >>> from transformers_elmo import ElmoConfig
    >>> ElmoConfig.small().hidden_size
    256
    ```
    """

    model_type = "elmo"

    vocab_size: int = 793_472
    inputs: str = "characters"
    char_vocab_size: int = 262
    max_characters_per_token: int = 50
    char_embedding_dim: int = 16
    char_filters: list[list[int]] | list[tuple[int, int]] = field(default_factory=original_filters)
    char_activation: str = "relu"
    num_highway_layers: int = 2
    word_embedding_dim: int | None = None
    lstm_dim: int = 4096
    projection_dim: int | None = 512
    num_hidden_layers: int = 2
    cell_clip: float | int | None = 3.0
    projection_clip: float | int | None = 3.0
    use_skip_connections: bool = True
    forget_bias: float | int = 1.0
    dropout: float | int = 0.1
    num_negative_samples: int | None = 8192
    mix: str = "learned"
    mix_weights: list[float | int] | None = None
    mix_layer_norm: bool = False
    freeze_bilm: bool = True
    classifier_dropout: float | int = 0.5
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs: Any):
        # Accept tuples, but store lists, as JSON would return them.
        self.char_filters = [list(pair) for pair in self.char_filters]
        num_labels = kwargs.get("num_labels", 2)
        if num_labels is not None and not (type(num_labels) is int and 1 <= num_labels <= MAX_LABELS):
            raise ValueError(f"num_labels must be an integer from 1 to {MAX_LABELS:,}; got num_labels={num_labels!r}.")
        # transformers would download and run a kernel, owner/name, that a config.json names. ELMo has no attention.
        for name in [name for name in kwargs if name.endswith("_implementation")]:
            if not isinstance(kwargs[name], str) or "/" in kwargs[name]:
                del kwargs[name]
        labels = self.label2id
        if labels and getattr(self, "id2label", None) is None and "num_labels" not in kwargs:
            self.id2label = {index: label for label, index in labels.items()}  # transformers would ignore label2id
        super().__post_init__(**kwargs)
        if self.dtype is not None and not getattr(self.dtype, "is_floating_point", False):
            raise ValueError(f"dtype must be a floating-point type of torch; got dtype={self.dtype!r}.")
        self.auto_map = dict(AUTO_MAP)

    @property
    def output_dim(self) -> int:
        """P: the size of one direction's output, and of a context-free word vector."""
        return self.projection_dim if self.projection_dim is not None else self.lstm_dim

    @property
    def hidden_size(self) -> int:
        """2P: the size of an ELMo vector, both directions."""
        return 2 * self.output_dim

    @property
    def num_filters(self) -> int:
        """F: the number of convolution filters of all widths."""
        return sum(number for _, number in self.char_filters)

    def validate_elmo(self):
        """Raise a ValueError with the rule and the value if a size or an option is invalid."""

        def check(is_true: bool, rule: str, name: str):
            if not is_true:
                raise ValueError(f"{rule}; got {name}={getattr(self, name)!r}.")

        def check_choice(name: str, choices: tuple[str, ...]):
            check(getattr(self, name) in choices, f"{name} must be one of {', '.join(choices)}", name)

        def check_size(name: str, minimum: int, maximum: int = MAX_SIZE):
            check(minimum <= getattr(self, name), f"{name} must be at least {minimum}", name)
            check(getattr(self, name) <= maximum, f"{name} must be at most {maximum:,}", name)

        def is_finite(number: float) -> bool:  # also in float32; comparisons with NaN are false
            return -1e38 < number < 1e38

        check_choice("inputs", INPUTS)
        check_choice("char_activation", ACTIVATIONS)
        check_choice("mix", MIXES)
        check_size("vocab_size", 1, MAX_WORDS)
        check_size("lstm_dim", 1)
        check_size("num_hidden_layers", 1, MAX_LAYERS)
        check_size("num_highway_layers", 0, MAX_LAYERS)
        if self.projection_dim is not None:
            check_size("projection_dim", 1)
        for name, maximum in (("word_embedding_dim", MAX_SIZE), ("num_negative_samples", MAX_WORDS)):
            if getattr(self, name) is not None:
                check_size(name, 1, maximum)
        if "characters" in self.inputs:
            check_size("char_vocab_size", 2)
            check_size("char_embedding_dim", 1)
            check_size("max_characters_per_token", 3, MAX_CHARACTERS)
            check(
                len(self.char_filters) > 0 and all(len(pair) == 2 and min(pair) >= 1 for pair in self.char_filters),
                "char_filters must be a list of [width, number] pairs of positive integers",
                "char_filters",
            )
            check(
                len(self.char_filters) <= MAX_LAYERS and self.num_filters <= MAX_SIZE,
                f"char_filters must be at most {MAX_LAYERS:,} widths and {MAX_SIZE:,} filters",
                "char_filters",
            )
            check(
                max(width for width, _ in self.char_filters) <= self.max_characters_per_token,
                f"no filter may be wider than max_characters_per_token={self.max_characters_per_token}",
                "char_filters",
            )
        for name in ("cell_clip", "projection_clip"):
            clip = getattr(self, name)
            check(clip is None or (clip > 0 and is_finite(clip)), f"{name} must be positive and finite, or None", name)
        check(is_finite(self.forget_bias), "forget_bias must be a finite number", "forget_bias")
        for name in ("dropout", "classifier_dropout"):
            check(0 <= getattr(self, name) < 1, f"{name} must be at least 0 and below 1", name)
        check(
            (self.mix == "fixed") == (self.mix_weights is not None),
            f'mix_weights must be set if and only if mix is "fixed", and mix is "{self.mix}"',
            "mix_weights",
        )
        if self.mix_weights is not None:
            check(
                len(self.mix_weights) == self.num_hidden_layers + 1,
                f"mix_weights must have num_hidden_layers + 1 = {self.num_hidden_layers + 1} numbers, "
                "one for the word vectors and one for each LSTM layer",
                "mix_weights",
            )
            check(all(map(is_finite, self.mix_weights)), "mix_weights must be finite numbers", "mix_weights")
        check(
            isinstance(self.id2label, dict) and {*self.id2label} == {*range(max(len(self.id2label), 1))},
            "id2label must be a dictionary from the integers 0, 1, 2 ... to labels",
            "id2label",
        )
        quantization = getattr(self, "quantization_config", None)
        check(
            quantization is None or hasattr(quantization, "get"),  # a dictionary or an ElmoQuantizationConfig
            "quantization_config must be a dictionary",
            "quantization_config",
        )
        names = self.architectures
        check(
            names is None
            or (isinstance(names, list) and all(isinstance(name, str) and name.isidentifier() for name in names)),
            "architectures must be a list of class names",
            "architectures",
        )

    @classmethod
    def mini(cls, **kwargs) -> "ElmoConfig":
        """Return the sizes of the checkpoint in this package, 512/192 with 512 filters: 4.2 million parameters."""
        filters = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256]]
        sizes = {"lstm_dim": 512, "projection_dim": 192, "num_highway_layers": 1, "char_filters": filters}
        return cls(**{**sizes, **kwargs})

    @classmethod
    def small(cls, **kwargs) -> "ElmoConfig":
        """Return the sizes of the released small model, 1024/128: 13.6 million parameters."""
        return cls(**{"lstm_dim": 1024, "projection_dim": 128, "num_highway_layers": 1, **kwargs})

    @classmethod
    def medium(cls, **kwargs) -> "ElmoConfig":
        """Return the sizes of the released medium model, 2048/256: 28 million parameters."""
        return cls(**{"lstm_dim": 2048, "projection_dim": 256, "num_highway_layers": 1, **kwargs})

    @classmethod
    def original(cls, **kwargs) -> "ElmoConfig":
        """Return the sizes of the released original model, 4096/512: 93.6 million parameters."""
        return cls(**kwargs)

    @classmethod
    def from_bilm_options(cls, options: dict[str, Any], **kwargs) -> "ElmoConfig":
        """Read bilm-tf's `options.json`; keyword arguments override it."""
        try:
            if not options.get("bidirectional", True):
                raise ValueError("ELMo has two directions; got bilm-tf options with bidirectional=False.")
            lstm, char_cnn = options["lstm"], options.get("char_cnn")
            # bilm-tf always names both sizes, and projects only to a smaller one.
            projection_dim = lstm["projection_dim"] if lstm["projection_dim"] < lstm["dim"] else None
            if lstm["projection_dim"] > lstm["dim"]:
                raise ValueError(
                    f"bilm-tf options must have a projection_dim of at most dim={lstm['dim']}; "
                    f"got projection_dim={lstm['projection_dim']}."
                )
            fields = {
                "lstm_dim": lstm["dim"],
                "projection_dim": projection_dim,
                "num_hidden_layers": lstm.get("n_layers", 1),
                "cell_clip": lstm.get("cell_clip"),
                "projection_clip": lstm.get("proj_clip"),
                "use_skip_connections": bool(lstm.get("use_skip_connections", False)),
            }
            if char_cnn is None:
                fields["inputs"] = "words"
            else:
                fields |= {
                    "max_characters_per_token": char_cnn.get("max_characters_per_token", 50),
                    "char_embedding_dim": char_cnn["embedding"]["dim"],
                    "char_filters": char_cnn["filters"],
                    "char_activation": char_cnn.get("activation", "relu"),
                    "num_highway_layers": char_cnn.get("n_highway") or 0,
                }
            for name, option in (("dropout", "dropout"), ("num_negative_samples", "n_negative_samples_batch")):
                if option in options:
                    fields[name] = options[option]
            if "n_tokens_vocab" in options:
                fields["vocab_size"] = options["n_tokens_vocab"] + 1
        except KeyError as error:
            raise ValueError(f"bilm-tf options must have the key {error}; got {options!r:.500}.") from None
        except (AttributeError, TypeError) as error:
            raise ValueError(f"bilm-tf options must be like its options.json; got {options!r:.500}: {error}.") from None
        # `n_characters` is ignored: bilm-tf writes 261 in training and 262 in prediction for the same byte alphabet.
        return cls(**{**fields, **kwargs})


ElmoConfig.register_for_auto_class()

__all__ = ["ElmoConfig"]
