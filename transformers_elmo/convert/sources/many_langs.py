# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""ELMoForManyLangs: word and character embeddings with a dictionary each, and sometimes the training's softmax."""

import io
from pathlib import Path
from typing import Any

from ...configuration_elmo import ElmoConfig
from ...files import one_line, read_json, read_text
from ...tokenization_elmo import ElmoTokenizer
from .. import numpy_elmo, weight_names
from . import ExtraFiles, Source, StoredArray, combined
from .bilm import check_max_characters, float64_reader, unknown_options, unused_pad_token
from .pickles import pickled_arrays

# The options file named by the config.json of all published models, and its contents: some models come without it.
PUBLISHED_OPTIONS_FILE = "cnn_50_100_512_4096_sample.json"
PUBLISHED_OPTIONS: dict[str, Any] = {
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
PARTS = ("token_embedder", "encoder")


def open_many_langs(folder: Path, extra_files: ExtraFiles) -> Source:
    """Open the folder of a model: config.json, the options that it names, the pickles and the dictionaries."""
    extra_files.reject("options", "vocab", "softmax", format="ELMoForManyLangs")
    options, options_file = find_options(folder)
    embedder, encoder = options["token_embedder"], options["encoder"]
    notes = unknown_options(
        options, {f"{part}.{key}" for part in PARTS for key in PUBLISHED_OPTIONS[part]}, options_file
    )
    arrays = combined(pickled_arrays(folder / "token_embedder.pkl"), pickled_arrays(folder / "encoder.pkl"))
    words, num_words = read_entries("word", folder, arrays, embedder)
    characters, num_characters = read_entries("char", folder, arrays, embedder)
    if (folder / "classifier.pkl").is_file():
        arrays = combined(arrays, softmax_arrays(folder / "classifier.pkl", num_words, notes))
    if characters is None and embedder["word_dim"] == encoder["projection_dim"]:
        raise ValueError(
            f"{options_file}: word_dim must differ from projection_dim, as ElmoModel has no projection between equal "
            f"sizes; both are {embedder['word_dim']}."
        )
    fields = {
        # by word_dim and char_dim
        "inputs": "+".join(kind for kind in ("words", "characters") if embedder[f"{kind[:4]}_dim"]),
        "max_characters_per_token": embedder["max_characters_per_token"],
        "lstm_dim": encoder["dim"],
        "projection_dim": encoder["projection_dim"],
        "num_hidden_layers": encoder["n_layers"],
        "cell_clip": encoder["cell_clip"],
        "projection_clip": encoder["proj_clip"],
        "forget_bias": 0.0,  # the weights include it
        "dropout": options.get("dropout", 0.1),
    }
    if words is not None:
        fields["word_embedding_dim"] = embedder["word_dim"]
    if characters is not None:
        fields |= {
            "char_vocab_size": num_characters + 1,
            "char_embedding_dim": embedder["char_dim"],
            "char_filters": embedder["filters"],
            "char_activation": embedder["activation"],
            "num_highway_layers": embedder["n_highway"],
        }
    try:
        tokenizer = ElmoTokenizer(
            vocab=None if words is None else rows_in_order(words, num_words),
            char_vocab=None if characters is None else rows_in_order(characters, num_characters),
            swap_word_marks=True,  # ELMoForManyLangs' frontend.py swaps them, and the models were trained with that
            max_characters_per_token=embedder["max_characters_per_token"],
            pad_token=unused_pad_token(words),
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
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{options_file} and the dictionaries of {folder} must describe an ELMo: {one_line(error)}."
        ) from error
    check_max_characters(config, options_file)
    return Source(
        format="ELMoForManyLangs",
        config=config,
        tokenizer=tokenizer,
        name_table=weight_names.MANY_LANGS,
        arrays=arrays,
        compute_layers=numpy_elmo.ManyLangs(options, float64_reader(arrays), words, characters),
        text_files=[options_file, *sorted(folder.glob("*.dic"))],
        word_rows=words,
        notes=notes,
    )


def find_options(folder: Path) -> tuple[dict, Path]:
    """Return the options and their file, which config.json names by a path on another machine: only the name counts."""
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} must contain the config.json of ELMoForManyLangs; it does not.")
    config_path = read_json(folder / "config.json").get("config_path")
    if not isinstance(config_path, str):
        raise ValueError(
            f"{folder / 'config.json'}: config_path must be the path of a .json file; it is {config_path!r}."
        )
    name = Path(config_path.replace("\\", "/")).name[:255]
    found = [path for path in (folder / name, folder / "configs" / name) if path.is_file()]
    if not found and name != PUBLISHED_OPTIONS_FILE:
        raise FileNotFoundError(f"{folder} must contain {name!r:.80}, the config_path of config.json; it does not.")
    options, path = (read_json(found[0]), found[0]) if found else (PUBLISHED_OPTIONS, folder / "config.json")
    for part in PARTS:
        published, group = PUBLISHED_OPTIONS[part], options.get(part)
        group = group if isinstance(group, dict) else {}
        missing = [key for key in published if key not in group]
        if missing:
            raise ValueError(f"{path}: {part} must have {', '.join(published)}; it lacks {', '.join(missing)}.")
        if group["name"] != published["name"]:
            raise ValueError(f"{path}: {part} must be of type {published['name']!r}; it is {group['name']!r}.")
        for key, value in published.items():
            if type(value) is int and not key.endswith("clip") and type(group[key]) is not int:
                raise ValueError(f"{path}: {key} of {part} must be an integer; it is {group[key]!r}.")
    return options, path


def read_entries(
    kind: str, folder: Path, arrays: dict[str, StoredArray], embedder: dict
) -> tuple[dict[str, int] | None, int]:
    """Return the dictionary for `kind`, "word" or "char", and the number of embedding rows; None, 0 without either."""
    if embedder[f"{kind}_dim"] == 0:
        return None, 0
    name = f"{kind}_emb_layer.embedding.weight"
    embedding = arrays.get(name)
    # Without the second size, an empty tensor could have any number of rows.
    if embedding is None or embedding.shape[1:] != (embedder[f"{kind}_dim"],):
        found = "it does not" if embedding is None else f"its shape is {embedding.shape}"
        raise ValueError(
            f"{folder / 'token_embedder.pkl'} must contain the embedding {name} with {embedder[f'{kind}_dim']} "
            f"columns, the {kind}_dim; {found}."
        )
    path, rows = folder / f"{kind}.dic", embedding.shape[0]
    if not path.is_file():
        raise FileNotFoundError(f"{path} is required, as {kind}_dim is not 0; it is missing.")
    # A dictionary may have more or fewer entries than the embedding has rows.
    entries = {key: row for key, row in read_dictionary(path).items() if 0 <= row < rows}
    required = ("<bos>", "<eos>", "<oov>", *(("<bow>", "<eow>", "<pad>") if kind == "char" else ()))
    missing = [key for key in required if key not in entries]
    if missing:
        raise ValueError(
            f"{path} must have {', '.join(required)} with ids below {rows}; it lacks {', '.join(missing)}."
        )
    keys: dict[int, str] = {}
    for key, row in entries.items():
        if keys.setdefault(row, key) != key:
            raise ValueError(f"{path} must have distinct ids; {keys[row]} and {key} both have {row}.")
    return entries, rows


def read_dictionary(path: Path) -> dict[str, int]:
    """Return the entries of word.dic or char.dic, which has lines of a word or character, a tab and its id."""
    entries = {}
    text = read_text(path).removeprefix("\ufeff")  # some editors write a byte order mark
    for line in filter(None, io.StringIO(text, newline=None).read().split("\n")):
        fields = line.strip().split("\t")
        # As in ELMoForManyLangs, a character that is lost by stripping the line is read as an ideographic space.
        key, number = fields if len(fields) == 2 else ("\u3000", fields[-1])
        if len(fields) > 2 or not number.isdecimal() or len(number) > 18:
            raise ValueError(f"{path} must have an entry, a tab and a number on each line; it has {line!r:.80}.")
        entries[key] = int(number)
    return entries


def rows_in_order(entries: dict[str, int], rows: int) -> list[str]:
    """Return the entries in the order of their ids, with a placeholder for each row without an entry."""
    ordered = [f"<row {row}>" for row in range(rows)]
    for key, row in entries.items():
        ordered[row] = key
    return ordered


def softmax_arrays(path: Path, num_words: int, notes: list[str]) -> dict[str, StoredArray]:
    """Return the softmax of ELMoForManyLangs' training, if it has a row for each word of word.dic."""
    arrays = pickled_arrays(path)
    arrays.pop("oov_column", None)  # unused by the original code
    weight = arrays.get("column_emb.weight") or arrays.get("hidden2tag.weight")
    if weight is None or weight.shape[:1] != (num_words,):
        notes.append("classifier.pkl is not a softmax over the words of word.dic and was dropped.")
        return {}
    return arrays
