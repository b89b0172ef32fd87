# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Released ELMos: finds out what a file or folder is, and what it is made of."""

import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from huggingface_hub.errors import StrictDataclassError

from ...configuration_elmo import ElmoConfig
from ...tokenization_elmo import ElmoTokenizer
from .. import numpy_elmo, weight_names
from ..reading import (
    Stored,
    checkpoint_arrays,
    hdf5_arrays,
    hdf5_groups,
    is_tar,
    one_line,
    pickled_arrays,
    read_dictionary,
    read_json,
    read_vocabulary,
    unpack_tar,
    unpack_zip,
)
from ..weight_names import NameTable

ALLENNLP_CHARACTERS = "_elmo_lstm._token_embedder._char_embedding_weights"  # what every Elmo of AllenNLP has
KINDS = {
    (int,): "a whole number",
    (int, float): "a number",
    (bool,): "true or false",
    (str,): "a word",
    (list,): "a list",
}
WHOLE, NUMBER, TRUTH, WORD, LIST = KINDS
# What bilm-tf's options.json holds, and whether it must.
BILM_OPTIONS = {
    "bidirectional": (TRUTH, False),
    "dropout": (NUMBER, False),
    "n_tokens_vocab": (WHOLE, False),
    "lstm.dim": (WHOLE, True),
    "lstm.projection_dim": (WHOLE, True),
    "lstm.n_layers": (WHOLE, False),
    "lstm.cell_clip": (NUMBER, False),
    "lstm.proj_clip": (NUMBER, False),
    "lstm.use_skip_connections": (TRUTH, False),
    "char_cnn.embedding.dim": (WHOLE, True),
    "char_cnn.filters": (LIST, True),
    "char_cnn.activation": (WORD, False),
    "char_cnn.n_highway": (WHOLE, False),
    "char_cnn.max_characters_per_token": (WHOLE, False),
}
MOST_CHARACTERS = 10_000  # of a word; more would be a mistake, and all of memory
# The second json of ELMoForManyLangs that all published models name, though not all of them hold it.
MANY_LANGS_JSON = "cnn_50_100_512_4096_sample.json"
MANY_LANGS_OPTIONS = {
    "encoder": {"name": "elmo", "projection_dim": 512, "cell_clip": 3, "proj_clip": 3, "dim": 4096, "n_layers": 2},
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        "n_highway": 2,
        "word_dim": 100,
        "char_dim": 50,
        "max_characters_per_token": 50,
    },
    "dropout": 0.1,
}


@dataclass
class Source:
    """A released ELMo: its arrays by the names of their format, and all that is needed to use them."""

    format: str
    files: list[Path]
    config: ElmoConfig
    table: NameTable
    arrays: dict[str, Stored]
    tokenizer: ElmoTokenizer
    layers: Callable[[list[list[str]]], list[np.ndarray]]  # in plain numpy, from the arrays: (L + 1, T, 2P) of each
    words: dict[str, int] | None = None  # the rows of its softmax or its word vectors
    notes: list[str] = field(default_factory=list)  # what a user should know of it
    layer_norm: bool = False  # of the mix

    def array_of(self, ours: str) -> np.ndarray | None:
        """The array for one of our parameters as it is, None where the source has none."""
        theirs = next((name for name in self.arrays if self.table.to_ours(name)[0] == (ours,)), None)
        return None if theirs is None else self.arrays[theirs].read()


def reader(arrays: dict[str, Stored]) -> Callable[[str], np.ndarray]:
    """Arrays by name for the plain numpy computation."""
    return lambda name: arrays[name].read().astype(np.float64)


@dataclass(frozen=True)
class Given:
    """Files that the user names because the source does not hold them."""

    options: Path | None = None
    vocab: Path | None = None
    softmax: Path | None = None


def open_source(path: Path, given: Given, scratch: Path) -> Source:
    """What is at `path`: a file, a folder or the common beginning of a TensorFlow checkpoint's names.

    Archives are unpacked into the folder `scratch`.
    """
    if path.is_dir():
        return open_folder(path, given, scratch)
    if not path.exists():
        if path.with_name(path.name + ".index").is_file():
            return open_checkpoint(path, given)
        raise FileNotFoundError(f"{path} must be a file or folder with a released ELMo; it does not exist.")
    if zipfile.is_zipfile(path) and path.suffix != ".pkl":
        return open_folder(unpack_zip(path, scratch), given, scratch)
    if is_tar(path):
        return open_folder(unpack_tar(path, scratch), given, scratch)
    if checkpoint := re.fullmatch(r"(.+)\.(index|meta|data-\d+-of-\d+)", path.name):
        return open_checkpoint(path.with_name(checkpoint[1]), given)
    if path.suffix in (".hdf5", ".h5"):
        return open_bilm(path.parent, given, path)
    raise ValueError(
        f"{path} must be a released ELMo: an .hdf5 file of bilm-tf, a .zip, a model.tar.gz of AllenNLP, a TensorFlow "
        "checkpoint, or a folder that holds one. It is none of them, or it is cut off."
    )


def open_folder(folder: Path, given: Given, scratch: Path) -> Source:
    visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
    names = {path.name for path in visible}
    weights, checkpoints = hdf5_weights_in(folder), checkpoints_in(folder)
    known = {
        "ELMoForManyLangs": ({"encoder.pkl", "token_embedder.pkl"} & names, lambda: open_many_langs(folder, given)),
        "a model of AllenNLP": ("weights.th" in names, lambda: open_allennlp(folder, given)),
        "an archive": ("model.tar.gz" in names, lambda: open_source(folder / "model.tar.gz", given, scratch)),
        "a TensorFlow Hub module": ({"saved_model.pb", "tfhub_module.pb"} & names, lambda: open_tf_hub(folder, given)),
        "a TensorFlow checkpoint": (checkpoints, lambda: open_checkpoint(checkpoints[-1], given)),
        " and ".join(path.name for path in weights): (weights, lambda: open_bilm(folder, given, weights[0])),
    }
    found = {kind: opener for kind, (is_there, opener) in known.items() if is_there}
    if len(found) > 1 or len(weights) > 1:
        raise ValueError(
            f"{folder} must hold one ELMo; it holds {' and '.join(found)}: give the path of the file that you "
            "mean, unpacked if need be."
        )
    for opener in found.values():
        return opener()
    if "config.json" in names and read_json(folder / "config.json").get("model_type") == "elmo":
        raise ValueError(f"{folder} must be an ELMo of another format; it is a Hugging Face checkpoint already.")
    inside = [path for path in visible if path.is_dir()]
    if len(inside) == 1:  # as archives have it
        return open_folder(inside[0], given, scratch)
    raise ValueError(
        f"{folder} must hold a released ELMo: options.json with an .hdf5 file or a TensorFlow checkpoint, "
        f"encoder.pkl with token_embedder.pkl, or a model.tar.gz; it holds {', '.join(sorted(names)[:8]) or 'nothing'}."
    )


def refuse(given: Given, format: str, *flags: str):
    """A file that the format has no use for was given by mistake."""
    for flag in flags:
        if getattr(given, flag) is not None:
            raise ValueError(f"--{flag} is of no use for {format}; leave it out.")


def given_file(path: Path | None, flag: str) -> Path | None:
    if path is not None and not path.is_file():
        raise FileNotFoundError(f"{flag} must name a file; {path} is none.")
    return path


def find(folder: Path, pattern: str, given: Path | None, flag: str, exact: str) -> Path | None:
    """The one file of a kind in a folder, or the one that the user gave."""
    if given_file(given, flag) is not None:
        return given
    if (folder / exact).is_file():
        return folder / exact
    found = sorted(path for path in folder.glob(pattern) if path.is_file())
    if len(found) > 1:
        raise ValueError(
            f"{folder} must hold one {exact}; it holds {', '.join(p.name for p in found)}: choose by {flag}."
        )
    return found[0] if found else None


def some_of(names) -> str:
    """A few names, to say what was found instead of something else."""
    return ", ".join(sorted(names)[:3]) or "nothing"


# bilm-tf


def find_options(weights: Path, given: Path | None) -> Path:
    """The options.json beside weights, or the one that the user gave."""
    found = find(weights.parent, "*options*.json", given, "--options", "options.json")
    if found is None:
        raise FileNotFoundError(
            f"{weights} needs its options.json, and {weights.parent} holds none: name it by --options."
        )
    return found


def checkpoints_in(folder: Path) -> list[Path]:
    """Checkpoints of bilm-tf's training, the last one last."""
    steps = {}
    for path in folder.glob("*.index"):
        if step := re.fullmatch(r"(.*?ckpt.*?)(?:-(\d+))?\.index", path.name):
            steps[folder / step[1] if step[2] is None else folder / f"{step[1]}-{step[2]}"] = int(step[2] or 0)
    return sorted(steps, key=steps.get)


def hdf5_files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in (".hdf5", ".h5"))


def hdf5_weights_in(folder: Path) -> list[Path]:
    """The hdf5 files that hold a biLM, among others that hold vectors or a softmax."""
    return [path for path in hdf5_files_in(folder) if any(name.startswith("RNN_") for name in hdf5_groups(path))]


def dumped_name(name: str) -> str:
    """A variable's name in the hdf5 files of bilm-tf's `dump_weights`; one layer is named as the first of several."""
    for pattern, replacement in (
        (r"^(lm|bilm)/", ""),
        (r"/rnn/multi_rnn_cell/cell_", "/RNN/MultiRNNCell/Cell"),
        (r"/rnn/lstm_cell/", "/LSTMCell/"),
        (r"/lstm_cell/", "/LSTMCell/"),
        (r"/LSTMCell/projection/kernel$", "/LSTMCell/W_P_0"),
        (r"/LSTMCell/kernel$", "/LSTMCell/W_0"),
        (r"/LSTMCell/bias$", "/LSTMCell/B"),
        (r"^(RNN_[01])(/RNN)?/LSTMCell/", r"\1/RNN/MultiRNNCell/Cell0/LSTMCell/"),
    ):
        name = re.sub(pattern, replacement, name)
    return name


def bilm_source(
    format: str,
    table: NameTable,
    arrays: dict[str, Stored],
    options: dict,
    options_file: Path,
    vocabulary_file: Path | None,
) -> Source:
    """A biLM of bilm-tf in any of the formats that keep its names."""
    arrays = {name: byte_table(stored) if name.endswith("char_embed") else stored for name, stored in arrays.items()}
    dumped = {dumped_name(name): stored for name, stored in arrays.items()}
    words, notes, fields = None, [], {}
    if vocabulary_file is not None:
        words = read_vocabulary(vocabulary_file)
        fields["vocab_size"] = len(words) + 1 + sum(word not in words for word in ("<S>", "</S>", "<UNK>"))
        unused = sum(word.startswith("<line ") for word in words)
        if unused:
            notes.append(f"{unused} lines of {vocabulary_file.name} are empty or come again, and the last one counts.")
    for name in ("embedding", "softmax/W"):
        if name in dumped:
            check_words(dumped[name], options, options_file, words, vocabulary_file)
            fields["vocab_size"] = dumped[name].shape[0] + 1
    if words is None and "embedding" in dumped:
        raise FileNotFoundError(f"{dumped['embedding'].file} reads words and needs its vocab.txt: name it by --vocab.")
    if words is None and "softmax/W" in dumped:
        notes.append("The softmax came without vocab.txt, so that nobody knows whose its rows are.")
    if "char_embed" in dumped:
        fields["char_vocab_size"] = 262  # whatever n_characters says: 261 or 262
    config = bilm_config(options, options_file, **fields)
    tokenizer = ElmoTokenizer(
        vocab=words,
        max_characters_per_token=config.max_characters_per_token,
        pad_token=padding_token(words),
    )
    config.bos_token_id, config.eos_token_id = tokenizer.bos_token_id, tokenizer.eos_token_id
    numbers = None if words is None else {word: number for number, word in enumerate(words)}
    return Source(
        format=format,
        files=used_files(arrays, options_file, vocabulary_file),
        config=config,
        table=table,
        arrays=arrays,
        tokenizer=tokenizer,
        layers=numpy_elmo.BilmTf(options, reader(dumped), numbers),
        words=numbers if "softmax/W" in dumped or "embedding" in dumped else None,
        notes=notes,
    )


def padding_token(words) -> str:
    """A name for padding that no word has."""
    token = "<PAD>"
    while token in (words or ()):
        token = f"<{token}>"
    return token


def check_words(
    table: Stored, options: dict, options_file: Path, words: list[str] | None, vocabulary_file: Path | None
):
    """A table of words must have a row for each word, wherever the words are counted."""
    if len(table.shape) != 2:
        raise ValueError(f"{table.file}: {table.name} must have a row for each word; it has the shape {table.shape}.")
    rows = table.shape[0]
    for what, number in (
        (f"n_tokens_vocab in {options_file}", options.get("n_tokens_vocab")),
        (f"the number of words in {vocabulary_file}", None if words is None else len(words)),
    ):
        if number not in (None, rows):
            raise ValueError(f"{what} must be {rows}, the rows of {table.name} in {table.file}; it is {number!r}.")
    missing = [] if words is None else [word for word in ("<S>", "</S>", "<UNK>") if word not in words]
    if missing:
        raise ValueError(f"{vocabulary_file} must hold <S>, </S> and <UNK>; it lacks {', '.join(missing)}.")


def byte_table(table: Stored) -> Stored:
    """The 256 bytes and five marks. Of 262 rows the first is that of "no word here", or else the last has no use."""
    if len(table.shape) != 2 or table.shape[0] not in (261, 262):
        raise ValueError(
            f"{table.file}: {table.name} must have 261 rows, for bytes and marks; it has the shape {table.shape}."
        )

    def load():
        array = table.load()
        return array[1:] if not array[0].any() else array[:-1]

    return table if table.shape[0] == 261 else replace(table, shape=(261, table.shape[1]), load=load)


def used_files(arrays: dict[str, Stored], *others: Path | None) -> list[Path]:
    """What a source was read from, to be named in the model card; a checkpoint of TensorFlow is several files."""
    files = []
    for path in dict.fromkeys([*(stored.file for stored in arrays.values()), *others]):
        if path is not None and path.is_file():
            files.append(path)
        elif path is not None and not path.is_dir():
            files += [*path.parent.glob(f"{path.name}.index"), *sorted(path.parent.glob(f"{path.name}.data-*"))]
    return files


def bilm_config(options: dict, path: Path, **fields) -> ElmoConfig:
    """The configuration that bilm-tf's options describe, or a sentence in their own words."""
    for name, (kinds, is_needed) in BILM_OPTIONS.items():
        *groups, key = name.split(".")
        group = options
        for part in groups:
            group = group.get(part) if isinstance(group, dict) else None
        if group is None and groups[:1] == ["char_cnn"] and options.get("char_cnn") is None:
            continue  # a model of words
        if not isinstance(group, dict):
            raise ValueError(f"{path} must hold the options of a bilm-tf model; it lacks {'.'.join(groups)}.")
        value = group.get(key)
        if value is None and is_needed:
            raise ValueError(f"{path} must hold the options of a bilm-tf model; it lacks {name}.")
        if value is not None and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
            raise ValueError(f"{path} must have {KINDS[kinds]} as {name}; it has {value!r:.40}.")
    try:
        config = ElmoConfig.from_bilm_options(options, **fields)
    except (ValueError, TypeError, StrictDataclassError) as error:
        raise ValueError(f"{path} must hold the options of a bilm-tf model: {one_line(error)}.") from error
    check_width(config, path)
    return config


def check_width(config: ElmoConfig, path: Path):
    if config.max_characters_per_token > MOST_CHARACTERS:
        width = config.max_characters_per_token
        raise ValueError(f"{path} must have a max_characters_per_token of at most {MOST_CHARACTERS}; it has {width}.")


def open_bilm(folder: Path, given: Given, weights: Path) -> Source:
    """options.json and the weights that bilm-tf's `dump_weights` writes and AllenNLP reads."""
    arrays = hdf5_arrays(weights)
    if not any(name.startswith("RNN_") for name in arrays):
        raise ValueError(f"{weights} must hold a biLM, datasets RNN_0/… and RNN_1/…; it holds {some_of(arrays)}.")
    # The released files are elmo_2x1024_128_2048cnn_1xhighway_weights.hdf5 and …_options.json.
    beside = weights.with_name(re.sub(r"weights\.(hdf5|h5)$", "options.json", weights.name))
    options_file = find_options(weights, given.options or (beside if beside.is_file() else None))
    softmax = given_file(given.softmax, "--softmax")
    if softmax is None:
        others = [path for path in hdf5_files_in(folder) if path != weights and "softmax" in hdf5_groups(path)]
        if len(others) > 1:
            shown = ", ".join(path.name for path in others)
            raise ValueError(f"{folder} must hold one softmax; it holds {shown}: choose by --softmax.")
        softmax = others[0] if others else None
    if softmax is not None:
        found = hdf5_arrays(softmax)
        if "softmax/W" not in found:
            raise ValueError(f"{softmax} must hold the datasets softmax/W and softmax/b; it holds {some_of(found)}.")
        arrays |= found
    vocabulary_file = find(folder, "*vocab*.txt", given.vocab, "--vocab", "vocab.txt")
    options = read_json(options_file)
    return bilm_source("weights of bilm-tf", weight_names.BILM, arrays, options, options_file, vocabulary_file)


def open_checkpoint(prefix: Path, given: Given) -> Source:
    """A checkpoint of bilm-tf's training, its softmax included."""
    refuse(given, "a checkpoint of TensorFlow, which holds it", "softmax")
    folder = prefix.parent
    arrays = checkpoint_arrays(prefix)
    if not any(name.startswith("lm/") for name in arrays):
        raise ValueError(f"{prefix} must be a checkpoint of bilm-tf, with variables lm/…; it holds {some_of(arrays)}.")
    options_file = find_options(prefix, given.options)
    options = read_json(options_file)
    if options.get("share_embedding_softmax") and "lm/embedding" in arrays:
        arrays.setdefault("lm/softmax/W", arrays["lm/embedding"])
    vocabulary_file = find(folder, "*vocab*.txt", given.vocab, "--vocab", "vocab.txt")
    table = weight_names.BILM_CHECKPOINT
    return bilm_source("a training checkpoint of bilm-tf", table, arrays, options, options_file, vocabulary_file)


def open_tf_hub(folder: Path, given: Given) -> Source:
    """The variables of a TensorFlow Hub module, which brings neither options nor words."""
    refuse(given, "a TensorFlow Hub module", "options", "vocab", "softmax")
    if not (folder / "variables" / "variables.index").is_file():
        raise FileNotFoundError(
            f"{folder} must hold variables/variables.index of a TensorFlow Hub module; it does not."
        )
    arrays = checkpoint_arrays(folder / "variables" / "variables")
    # The graph keeps its LSTM states in variables too.
    arrays = {
        re.sub(r"^module/", "", name): stored
        for name, stored in arrays.items()
        if not re.fullmatch(r"(module/)?bilm/Variable(_\d+)?", name)
    }
    names = {
        "characters": "bilm/char_embed",
        "kernel": "bilm/CNN/W_cnn_{i}",
        "highway": "bilm/CNN_high_{i}/W_carry",
        "projection": "bilm/RNN_0/RNN/MultiRNNCell/Cell{i}/rnn/lstm_cell/projection/kernel",
    }
    options = usual_options(arrays, names, folder, lambda kernel: (kernel[1], kernel[3]), lambda projection: projection)
    return bilm_source("a TensorFlow Hub module", weight_names.TF_HUB, arrays, options, folder, None)


def usual_options(
    arrays: dict[str, Stored], names: dict[str, str], path: Path, width_and_number: Callable, cells_and_size: Callable
) -> dict:
    """The options of a model that comes without them, but is known to be like AllenNLP's: its sizes are its shapes."""
    shapes = {part: [] for part in names}
    for part, name in names.items():
        while name.format(i=len(shapes[part])) in arrays:
            shapes[part].append(arrays[name.format(i=len(shapes[part]))].shape)
            if "{i}" not in name:
                break
        if not shapes[part] and part != "highway":
            raise ValueError(f"{path} must hold an ELMo, and in it {name.format(i=0)}; it does not.")
    try:
        dim, projection_dim = cells_and_size(shapes["projection"][0])
        return {
            "lstm": {
                "cell_clip": 3,
                "proj_clip": 3,
                "use_skip_connections": True,
                "dim": dim,
                "projection_dim": projection_dim,
                "n_layers": len(shapes["projection"]),
            },
            "char_cnn": {
                "activation": "relu",
                "max_characters_per_token": 50,
                "embedding": {"dim": shapes["characters"][0][1]},
                "filters": [list(width_and_number(kernel)) for kernel in shapes["kernel"]],
                "n_highway": len(shapes["highway"]),
            },
        }
    except (ValueError, IndexError) as error:
        raise ValueError(
            f"{path} must hold an ELMo; its weights have the shapes of something else: {shapes}."
        ) from error


# AllenNLP


def open_allennlp(folder: Path, given: Given) -> Source:
    """The ELMo inside a model of AllenNLP: biLM and trained mix."""
    refuse(given, "a model of AllenNLP", "vocab", "softmax")
    path, notes = folder / "weights.th", []
    arrays = elmo_inside(pickled_arrays(path), path, notes)
    settings = elmo_settings(read_json(folder / "config.json")) if (folder / "config.json").is_file() else {}
    options, options_file = allennlp_options(folder, given, settings, arrays, path)
    if not options.get("char_cnn"):
        raise ValueError(f"{options_file} must hold the options of a model that reads characters; it has no char_cnn.")
    characters = arrays[ALLENNLP_CHARACTERS]
    if len(characters.shape) != 2 or characters.shape[0] != 262:
        raise ValueError(f"{path}: {characters.name} must have 262 rows; it has the shape {characters.shape}.")
    layer_norm = bool(settings.get("do_layer_norm", False))
    # AllenNLP's words are 50 wide, its characters have their row 0, and its weights hold the forget bias.
    config = bilm_config(
        options,
        options_file,
        forget_bias=0.0,
        max_characters_per_token=50,
        char_vocab_size=262,
        mix_layer_norm=layer_norm,
    )
    return Source(
        format="a model of AllenNLP",
        files=used_files(arrays, options_file),
        config=config,
        table=weight_names.ALLENNLP,
        arrays=arrays,
        tokenizer=ElmoTokenizer(),
        layers=numpy_elmo.AllenNlp(options, reader(arrays)),
        notes=notes,
        layer_norm=layer_norm,
    )


def elmo_inside(stored: dict[str, Stored], path: Path, notes: list[str]) -> dict[str, Stored]:
    """The weights of the `Elmo` module in a model, without the path to it."""
    roots = [name.removesuffix(ALLENNLP_CHARACTERS) for name in stored if name.endswith(ALLENNLP_CHARACTERS)]
    if not roots:
        raise ValueError(f"{path} must hold a model with ELMo inside, a weight …{ALLENNLP_CHARACTERS}; it has none.")
    root = roots[0]
    if len(roots) > 1:
        notes.append(f"The model has {len(roots)} ELMos; this is {root.rstrip('.')}.")
    around = [name for name in stored if not name.startswith(root)]
    if around:
        parts = ", ".join(dict.fromkeys(name.split(".")[0] for name in around))
        notes.append(f"{len(around)} weights of the model around ELMo were left out: {parts}.")
    arrays = {name.removeprefix(root): array for name, array in stored.items() if name.startswith(root)}
    # A table of words that were spelled beforehand says nothing that their characters do not say.
    arrays.pop("_elmo_lstm._word_embedding.weight", None)
    others = sorted({name.split(".")[0] for name in arrays if name.startswith("scalar_mix_")} - {"scalar_mix_0"})
    if others:
        notes.append(f"The model has {len(others) + 1} mixes; this is the first, scalar_mix_0.")
    arrays = {name: array for name, array in arrays.items() if name.split(".")[0] not in others}
    parameters = []
    while (parameter := arrays.pop(f"scalar_mix_0.scalar_parameters.{len(parameters)}", None)) is not None:
        parameters.append(parameter)
    if parameters:
        arrays["scalar_mix_0.scalar_parameters"] = Stored(
            path,
            root + "scalar_mix_0.scalar_parameters",
            (len(parameters),),
            lambda: np.concatenate([parameter.read() for parameter in parameters]),
        )
    return arrays


def elmo_settings(config) -> dict:
    """The settings of the ELMo in a model's configuration, wherever they stand."""
    if isinstance(config, list):
        return next((found for part in config if (found := elmo_settings(part))), {})
    if not isinstance(config, dict):
        return {}
    return config if "options_file" in config else elmo_settings(list(config.values()))


def allennlp_options(
    folder: Path, given: Given, settings: dict, arrays: dict[str, Stored], path: Path
) -> tuple[dict, Path]:
    """The options of the biLM in a model: given, archived, on disk, or those of AllenNLP's released models."""
    named = str(settings.get("options_file", ""))
    if given_file(given.options, "--options") is not None:
        return read_json(given.options), given.options
    for candidate in (*folder.glob("fta/**/*options*"), *folder.glob("*options*.json"), Path(named)):
        if candidate.is_file():
            return read_json(candidate), candidate
    if not re.search(r"/elmo_2x\d+_\d+_2048cnn_[12]xhighway(_\w+)?_options\.json$", named):
        raise FileNotFoundError(
            f"{path} does not hold the options of its ELMo ({named or 'it names none'}): name the file by --options."
        )
    names = {
        "characters": ALLENNLP_CHARACTERS,
        "kernel": "_elmo_lstm._token_embedder.char_conv_{i}.weight",
        "highway": "_elmo_lstm._token_embedder._highways._layers.{i}.weight",
        "projection": "_elmo_lstm._elmo_lstm.forward_layer_{i}.state_projection.weight",
    }
    options = usual_options(arrays, names, path, lambda kernel: kernel[::-2], lambda projection: projection[::-1])
    return options, path


# ELMoForManyLangs


def open_many_langs(folder: Path, given: Given) -> Source:
    """ELMoForManyLangs: word and character embedding, two dictionaries, and a classifier where one was saved."""
    refuse(given, "ELMoForManyLangs", "options", "vocab", "softmax")
    options, options_file = many_langs_options(folder)
    embedder, encoder, notes = options["token_embedder"], options["encoder"], []
    arrays = pickled_arrays(folder / "token_embedder.pkl") | pickled_arrays(folder / "encoder.pkl")
    words, word_rows = dictionary(folder, "word", arrays, embedder)
    characters, character_rows = dictionary(folder, "char", arrays, embedder)
    if (folder / "classifier.pkl").is_file():
        arrays |= classifier(folder / "classifier.pkl", word_rows, notes)
    if characters is None and embedder["word_dim"] == encoder["projection_dim"]:
        raise ValueError(
            f"{options_file} must have a word_dim other than projection_dim, since ElmoModel projects words to another "
            f"size only; both are {embedder['word_dim']}."
        )
    fields = {
        "inputs": "+".join(kind for kind in ("words", "characters") if embedder[f"{kind[:4]}_dim"]),
        "max_characters_per_token": embedder["max_characters_per_token"],
        "lstm_dim": encoder["dim"],
        "projection_dim": encoder["projection_dim"],
        "num_hidden_layers": encoder["n_layers"],
        "cell_clip": encoder["cell_clip"],
        "projection_clip": encoder["proj_clip"],
        "forget_bias": 0.0,  # the weights hold it
        "dropout": options.get("dropout", 0.1),
    }
    if words is not None:
        fields["word_embedding_dim"] = embedder["word_dim"]
    if characters is not None:
        fields |= {
            "char_vocab_size": character_rows + 1,
            "char_embedding_dim": embedder["char_dim"],
            "char_filters": embedder["filters"],
            "char_activation": embedder["activation"],
            "num_highway_layers": embedder["n_highway"],
        }
    try:
        tokenizer = ElmoTokenizer(
            vocab=None if words is None else by_number(words, word_rows),
            char_vocab=None if characters is None else by_number(characters, character_rows),
            swap_word_marks=True,  # frontend.py of ELMoForManyLangs swaps them, and the released models need it so
            max_characters_per_token=embedder["max_characters_per_token"],
            pad_token=padding_token(words),
            bos_token="<bos>",
            eos_token="<eos>",
            unk_token="<oov>",
        )
        config = ElmoConfig(
            vocab_size=tokenizer.vocab_size,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            **fields,
        )
    except (ValueError, TypeError, StrictDataclassError) as error:
        raise ValueError(f"{options_file} and the dictionaries of {folder} make no ELMo: {one_line(error)}.") from error
    check_width(config, options_file)
    return Source(
        format="ELMoForManyLangs",
        files=used_files(arrays, options_file, *sorted(folder.glob("*.dic"))),
        config=config,
        table=weight_names.MANY_LANGS,
        arrays=arrays,
        tokenizer=tokenizer,
        layers=numpy_elmo.ManyLangs(options, reader(arrays), words, characters),
        words=words,
        notes=notes,
    )


def many_langs_options(folder: Path) -> tuple[dict, Path]:
    """The second json that config.json names: by its name, since the path is that of another machine."""
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} must hold config.json of ELMoForManyLangs; it does not.")
    named = read_json(folder / "config.json").get("config_path")
    if not isinstance(named, str):
        raise ValueError(f"{folder / 'config.json'} must name a json as config_path; it has {named!r}.")
    name = Path(named.replace("\\", "/")).name
    beside = [path for path in (folder / name, folder / "configs" / name) if path.is_file()]
    if not beside and name != MANY_LANGS_JSON:
        raise FileNotFoundError(f"{folder} must hold {name}, which config.json names as config_path; it does not.")
    options, path = (read_json(beside[0]), beside[0]) if beside else (MANY_LANGS_OPTIONS, folder / "config.json")
    for part in ("token_embedder", "encoder"):
        got, published = options.get(part), MANY_LANGS_OPTIONS[part]
        missing = [key for key in published if key not in got] if isinstance(got, dict) else list(published)
        if missing:
            raise ValueError(f"{path} must have {', '.join(published)} in {part}; it lacks {', '.join(missing)}.")
        if got["name"] != published["name"]:
            raise ValueError(f"{path} must describe {published['name']} as {part}; it has {got['name']!r}.")
        for key, value in published.items():
            if type(value) is int and not key.endswith("clip") and type(got[key]) is not int:
                raise ValueError(f"{path} must have a whole number as {key} of {part}; it has {got[key]!r}.")
    return options, path


def dictionary(folder: Path, kind: str, arrays: dict[str, Stored], embedder: dict) -> tuple[dict[str, int] | None, int]:
    """The words or characters of a model and the rows of their table; None where it does not read them."""
    if embedder[f"{kind}_dim"] == 0:
        return None, 0
    table = arrays.get(f"{kind}_emb_layer.embedding.weight")
    if table is None or len(table.shape) != 2:
        name = f"{kind}_emb_layer.embedding.weight"
        raise ValueError(f"{folder / 'token_embedder.pkl'} must hold the table {name}, as {kind}_dim is not 0.")
    path, rows = folder / f"{kind}.dic", table.shape[0]
    if not path.is_file():
        raise FileNotFoundError(f"{path} must be there, as {kind}_dim is not 0; it is missing.")
    # The rows are what counts: the dictionary may have more or fewer entries.
    entries = {key: number for key, number in read_dictionary(path).items() if 0 <= number < rows}
    needed = ("<bos>", "<eos>", "<oov>", *(("<bow>", "<eow>", "<pad>") if kind == "char" else ()))
    missing = [key for key in needed if key not in entries]
    if missing:
        raise ValueError(f"{path} must number {', '.join(needed)} below {rows}; it lacks {', '.join(missing)}.")
    numbers = {}
    for key, number in entries.items():
        if numbers.setdefault(number, key) != key:
            raise ValueError(f"{path} must have a number for each entry; {numbers[number]} and {key} have {number}.")
    return entries, rows


def by_number(entries: dict[str, int], rows: int) -> list[str]:
    """The entries of a dictionary in the order of their numbers; rows that have none get a name that nothing is."""
    listed = [f"<row {number}>" for number in range(rows)]
    for key, number in entries.items():
        listed[number] = key
    return listed


def classifier(path: Path, words: int, notes: list[str]) -> dict[str, Stored]:
    """The softmax of ELMoForManyLangs' training, a row for each word of word.dic."""
    arrays = pickled_arrays(path)
    arrays.pop("oov_column", None)  # which its own code never reads
    weight = arrays.get("column_emb.weight") or arrays.get("hidden2tag.weight")
    if weight is None or weight.shape[:1] != (words,):
        notes.append("classifier.pkl is no softmax over the words of word.dic, and was left out.")
        return {}
    return arrays
