"""Writers of tiny random ELMos in every format that `elmo convert` reads.

Weights and biases are large enough that clips take effect, gates open and close and nothing hides behind a zero. The
names are those of the original files, not taken from the tables of the package.

Shapes: D character embedding; F filters; H cells and P outputs per direction; V words.
"""

import copy
import json
import re
import tarfile
import zipfile
from collections import OrderedDict
from pathlib import Path

import h5py
import numpy as np
import torch

from helpers.tensor_bundles import to_records
from helpers.tensor_bundles import write as write_bundle

WORDS = "</S> <S> <UNK> the cat sat on it . Yes wörd".split()
MANY_LANGS_WORDS = "<oov> <bos> <eos> <pad> the cat sat on it . Yes wörd".split()  # 12
# 32, the last a space that ELMoForManyLangs strips
MANY_LANGS_CHARACTERS = ["<oov>", "<bos>", "<eos>", "<bow>", "<eow>", "<pad>", *"abcdehinorstuwxyzö.,!?Жж你", "\u3000"]
REMOVED = object()  # as the value of an option: remove it


def changed(options: dict, changes: dict) -> dict:
    """Return a copy of nested options with other values, by names like "lstm.dim"."""
    options = copy.deepcopy(options)
    for path, value in changes.items():
        *parts, key = path.split(".")
        place = options
        for part in parts:
            place = place[part]
        if value is REMOVED:
            del place[key]
        else:
            place[key] = value
    return options


def draw(shapes: dict[str, tuple[int, ...]], seed: int = 0, lstm: float = 2.0) -> dict[str, np.ndarray]:
    """Return random arrays; `lstm` is the scale of the LSTMs' weights."""
    generator = np.random.default_rng(seed)
    arrays = {}
    for name, shape in shapes.items():
        values = generator.standard_normal(shape)
        scale = lstm if re.search("RNN_|ward_layer_", name) else 1.0
        if re.search(r"embed(ding)?(\.weight|_weights)?$", name):
            values *= 0.8
        elif name.endswith("gamma"):
            values = 1.3 + 0.2 * values
        else:
            values *= scale / max(shape) ** 0.5 if len(shape) > 1 else 0.3 * scale
        arrays[name] = values.astype(np.float32)
    return arrays


def write_json(path: Path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def write_lines(path: Path, lines: list[str]):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


# bilm-tf


def bilm_options(**changes) -> dict:
    """Return options with 3 + 4 + 5 filters, 7 cells, 5 outputs and tight clips.

    Changes are passed like lstm_dim=9 or char_cnn=REMOVED.
    """
    options = {
        "bidirectional": True,
        "char_cnn": {
            "activation": "relu",
            "embedding": {"dim": 4},
            "filters": [[1, 3], [2, 4], [3, 5]],
            "max_characters_per_token": 50,
            "n_characters": 261,
            "n_highway": 2,
        },
        "dropout": 0.1,
        "lstm": {
            "cell_clip": 0.9,
            "dim": 7,
            "n_layers": 2,
            "proj_clip": 0.5,
            "projection_dim": 5,
            "use_skip_connections": True,
        },
        "n_tokens_vocab": len(WORDS),
    }
    return changed(options, {re.sub(r"^(lstm|char_cnn)_", r"\1.", key): value for key, value in changes.items()})


def bilm_shapes(options: dict, characters: int = 261, softmax: bool = False) -> dict[str, tuple[int, ...]]:
    cnn, lstm, words = options.get("char_cnn"), options["lstm"], options.get("n_tokens_vocab")
    cells, size, shapes = lstm["dim"], lstm["projection_dim"], {}
    if cnn is None:
        shapes["embedding"] = (words, size)
    else:
        filters = sum(number for _, number in cnn["filters"])
        shapes["char_embed"] = (characters, cnn["embedding"]["dim"])
        for i, (width, number) in enumerate(cnn["filters"]):
            shapes |= {
                f"CNN/W_cnn_{i}": (1, width, cnn["embedding"]["dim"], number),
                f"CNN/b_cnn_{i}": (number,),
            }
        for i in range(cnn.get("n_highway") or 0):
            for part in ("carry", "transform"):
                shapes |= {f"CNN_high_{i}/W_{part}": (filters, filters), f"CNN_high_{i}/b_{part}": (filters,)}
        if filters != size:
            shapes |= {"CNN_proj/W_proj": (filters, size), "CNN_proj/b_proj": (size,)}
    for d in range(2):
        for i in range(lstm["n_layers"]):
            cell = f"RNN_{d}/RNN/MultiRNNCell/Cell{i}/LSTMCell/"
            shapes |= {cell + "W_0": (2 * size, 4 * cells), cell + "B": (4 * cells,)}
            if size < cells:
                shapes[cell + "W_P_0"] = (cells, size)
    if softmax:
        shapes |= {"softmax/W": (words, size), "softmax/b": (words,)}
    return shapes


def bilm_arrays(options: dict, seed: int = 0, lstm: float = 2.0, **sizes) -> dict[str, np.ndarray]:
    return draw(bilm_shapes(options, **sizes), seed, lstm)


def without_layers(name: str) -> str:
    """Return the name of a cell in a single-layer model."""
    return name.replace("/MultiRNNCell/Cell0", "")


def write_hdf5(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)
    return path


def read_hdf5(path: Path) -> dict[str, np.ndarray]:
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[...]}) if isinstance(item, h5py.Dataset) else None)
    return found


def write_bilm(folder: Path, options, arrays: dict[str, np.ndarray], vocab: list[str] | None = None, stem="") -> Path:
    """Write weights.hdf5, options.json and, if there are any, vocab.txt and softmax.hdf5."""
    folder.mkdir(parents=True, exist_ok=True)
    softmax = {name: array for name, array in arrays.items() if name.startswith("softmax/")}
    write_hdf5(folder / f"{stem}weights.hdf5", {name: arrays[name] for name in arrays if name not in softmax})
    write_json(folder / f"{stem}options.json", options)
    if softmax:
        write_hdf5(folder / f"{stem}softmax.hdf5", softmax)
    if vocab is not None:
        write_lines(folder / f"{stem}vocab.txt", vocab)
    return folder


def variable(name: str) -> str:
    """Return the TensorFlow variable for a name in the .hdf5 file."""
    for pattern, replacement in (
        (r"/RNN/MultiRNNCell/Cell(\d+)/LSTMCell/", r"/rnn/multi_rnn_cell/cell_\1/lstm_cell/"),
        (r"/RNN/LSTMCell/", "/rnn/lstm_cell/"),
        (r"/W_0$", "/kernel"),
        (r"/B$", "/bias"),
        (r"/W_P_0$", "/projection/kernel"),
    ):
        name = re.sub(pattern, replacement, name)
    return name


def write_checkpoint(
    folder: Path, options: dict, arrays: dict[str, np.ndarray], vocab: list[str] | None = None, step: int = 7
) -> Path:
    """Write a training checkpoint of bilm-tf, with the optimizer's state; return its prefix."""
    folder.mkdir(parents=True, exist_ok=True)
    variables = {"global_step": np.array(step), "train_perplexity": np.array(99.5, np.float32)}
    for name, array in arrays.items():
        variables |= {f"lm/{variable(name)}": array, f"lm/{variable(name)}/Adagrad": np.ones_like(array)}
    write_json(folder / "options.json", options)
    if vocab is not None:
        write_lines(folder / "vocab.txt", vocab)
    return write_bundle(folder / f"model.ckpt-{step}", *to_records(variables))


def tf_hub_options() -> dict:
    """Return the options of the TensorFlow Hub module, which its files do not contain."""
    clips = {"lstm_cell_clip": 3, "lstm_proj_clip": 3}
    return bilm_options(**clips, char_cnn_n_highway=1, char_cnn_filters=[[1, 4], [3, 6]], n_tokens_vocab=REMOVED)


def write_tf_hub(folder: Path, arrays: dict[str, np.ndarray], weights: np.ndarray, scaling: float) -> Path:
    """Write a TensorFlow Hub module: an inference graph, whose character embedding has a padding row."""
    variables = {}
    for name, array in arrays.items():
        name = variable(name).replace("/rnn/multi_rnn_cell/cell_", "/RNN/MultiRNNCell/Cell")
        name = name.replace("/lstm_cell/", "/rnn/lstm_cell/")
        variables[f"bilm/{name}"] = np.pad(array, ((1, 0), (0, 0))) if name == "char_embed" else array
    states = {"bilm/Variable": np.ones((128, 7), np.float32), "bilm/Variable_1": np.ones((128, 5), np.float32)}
    mix = {"aggregation/weights": weights.astype(np.float32), "aggregation/scaling": np.float32(scaling)}
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").touch()
    write_bundle(folder / "variables" / "variables", *to_records({**variables, **states, **mix}))
    return folder


# ELMoForManyLangs


def many_langs_options(**changes) -> dict:
    """Return options with 3 + 4 + 5 filters, word vectors of size 3, 7 cells and 5 outputs.

    Changes are passed like encoder_dim=9.
    """
    options = {
        "encoder": {"name": "elmo", "projection_dim": 5, "cell_clip": 0.9, "proj_clip": 0.5, "dim": 7, "n_layers": 2},
        "token_embedder": {
            "name": "cnn",
            "activation": "relu",
            "filters": [[1, 3], [2, 4], [3, 5]],
            "n_highway": 2,
            "word_dim": 3,
            "char_dim": 4,
            "max_characters_per_token": 50,
        },
        "classifier": {"name": "sampled_softmax", "n_samples": 32},
        "dropout": 0.1,
    }
    return changed(options, {re.sub(r"^(encoder|token_embedder)_", r"\1.", key): changes[key] for key in changes})


def torch_lstm_shapes(name: str, layers: int, cells: int, size: int) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for i in range(layers):
        for direction in ("forward", "backward"):
            layer = f"{name}{direction}_layer_{i}."
            shapes |= {
                layer + "input_linearity.weight": (4 * cells, size),
                layer + "state_linearity.weight": (4 * cells, size),
                layer + "state_linearity.bias": (4 * cells,),
                layer + "state_projection.weight": (size, cells),
            }
    return shapes


def torch_filter_shapes(convolution: str, highway: str, options: dict, dim: int) -> dict[str, tuple[int, ...]]:
    filters, shapes = sum(number for _, number in options["filters"]), {}
    for i, (width, number) in enumerate(options["filters"]):
        shapes |= {f"{convolution}{i}.weight": (number, dim, width), f"{convolution}{i}.bias": (number,)}
    for i in range(options["n_highway"]):
        shapes |= {f"{highway}{i}.weight": (2 * filters, filters), f"{highway}{i}.bias": (2 * filters,)}
    return shapes


def many_langs_arrays(options: dict, words: int = 12, characters: int = 32, seed: int = 0) -> dict[str, np.ndarray]:
    embedder, encoder, shapes, width = options["token_embedder"], options["encoder"], {}, 0
    if embedder["word_dim"]:
        shapes["word_emb_layer.embedding.weight"] = (words, embedder["word_dim"])
        width += embedder["word_dim"]
    if embedder["char_dim"]:
        shapes["char_emb_layer.embedding.weight"] = (characters, embedder["char_dim"])
        shapes |= torch_filter_shapes("convolutions.", "highways._layers.", embedder, embedder["char_dim"])
        width += sum(number for _, number in embedder["filters"])
    size = encoder["projection_dim"]
    shapes |= {"projection.weight": (size, width), "projection.bias": (size,)}
    return draw(shapes | torch_lstm_shapes("", encoder["n_layers"], encoder["dim"], size), seed)


def classifier_arrays(options: dict, words: int = 12, seed: int = 1) -> dict[str, np.ndarray]:
    size = options["encoder"]["projection_dim"]
    return draw({"oov_column": (size, 1), "column_emb.weight": (words, size), "column_bias.weight": (words, 1)}, seed)


def save_tensors(path: Path, arrays: dict[str, np.ndarray]):
    torch.save(OrderedDict((name, torch.tensor(array)) for name, array in arrays.items()), path)


def write_many_langs(
    folder: Path,
    options: dict,
    arrays: dict[str, np.ndarray],
    words: list[str] = MANY_LANGS_WORDS,
    characters: list[str] = MANY_LANGS_CHARACTERS,
    classifier: dict[str, np.ndarray] | None = None,
    configs: str = "",
) -> Path:
    """Write config.json, the options next to it or in the folder `configs`, two dictionaries and the pickles."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "cnn_4_3_5_7_sample.json"
    write_json(folder / "config.json", {"seed": 1, "config_path": f"/users4/conll18st/elmo/configs/{name}", "lr": 0.01})
    write_json(folder / configs / name, options)
    write_lines(folder / "word.dic", [f"{word}\t{number}" for number, word in enumerate(words)])
    write_lines(folder / "char.dic", [f"{character}\t{number}" for number, character in enumerate(characters)])
    of_encoder = {name: array for name, array in arrays.items() if re.match("(for|back)ward_", name)}
    save_tensors(folder / "encoder.pkl", of_encoder)
    save_tensors(folder / "token_embedder.pkl", {name: arrays[name] for name in arrays if name not in of_encoder})
    if classifier is not None:
        save_tensors(folder / "classifier.pkl", classifier)
    return folder


# AllenNLP

ELMO = "text_field_embedder.token_embedder_elmo._elmo."


def allennlp_arrays(options: dict, seed: int = 0, lstm: float = 2.0, mixes: int = 1) -> dict[str, np.ndarray]:
    """Return the weights of a tagger; those of its ELMo start with ELMO."""
    cnn, sizes, embedder = options["char_cnn"], options["lstm"], "_elmo_lstm._token_embedder."
    dim, size = cnn["embedding"]["dim"], sizes["projection_dim"]
    shapes = {embedder + "_char_embedding_weights": (262, dim)}
    shapes |= torch_filter_shapes(embedder + "char_conv_", embedder + "_highways._layers.", cnn, dim)
    filters = sum(number for _, number in cnn["filters"])
    shapes |= {embedder + "_projection.weight": (size, filters), embedder + "_projection.bias": (size,)}
    shapes |= torch_lstm_shapes("_elmo_lstm._elmo_lstm.", sizes["n_layers"], sizes["dim"], size)
    for mix in range(mixes):
        shapes[f"scalar_mix_{mix}.gamma"] = (1,)
        shapes |= {f"scalar_mix_{mix}.scalar_parameters.{i}": (1,) for i in range(sizes["n_layers"] + 1)}
    shapes = {ELMO + name: shape for name, shape in shapes.items()}
    around = {"encoder._module.weight_ih_l0": (8, 2 * size), "tag_projection_layer._module.bias": (3,)}
    arrays = draw({**shapes, **around}, seed, lstm)
    arrays[ELMO + embedder + "_char_embedding_weights"][0] = 0  # padding
    return arrays


def write_allennlp(
    path: Path,
    arrays: dict[str, np.ndarray],
    options_file: str = "/nowhere/options.json",
    do_layer_norm: bool = False,
    files: dict[str, bytes] | None = None,
) -> Path:
    """Write a model.tar.gz with weights.th, config.json and other files."""
    settings = {"type": "elmo_token_embedder", "options_file": options_file, "do_layer_norm": do_layer_norm}
    model = {"type": "simple_tagger", "text_field_embedder": {"token_embedders": {"elmo": settings}}}
    folder = path.parent / "serialization"
    folder.mkdir(parents=True)
    save_tensors(folder / "weights.th", arrays)
    write_json(folder / "config.json", {"dataset_reader": {"type": "sequence_tagging"}, "model": model})
    for name, content in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    with tarfile.open(path, "w:gz") as archive:
        for file in sorted(folder.rglob("*")):
            archive.add(file, file.relative_to(folder))
    return path
