"""Save, move and push checkpoints, load them where the package is not installed, and use them in stock pipelines.

A virtual environment without the package and a loopback Hub (helpers/hub_server.py) are created once. A few scripts run
in other processes and write arrays and JSON, which the tests compare with the model that was saved.
"""

import ast
import hashlib
import json
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import BadRequestError, EntryNotFoundError, HfHubHTTPError, RepositoryNotFoundError
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoTokenizer, pipeline
from transformers.dynamic_module_utils import get_relative_import_files

from helpers.environments import arrays_of, load_arrays, make_environment, open_checkpoint, run
from helpers.hub_server import LoopbackHub
from helpers.models import randomize
from transformers_elmo import ElmoConfig, ElmoForTokenClassification, ElmoTokenizer, configuration_elmo
from transformers_elmo.configuration_elmo import AUTO_MAP, HUB_FILES

INPUTS = ("characters", "words", "words+characters")
CLASSES = [name for name in AUTO_MAP if name != "AutoConfig"]
ALLOWED_IMPORTS = {*"torch transformers numpy tokenizers safetensors huggingface_hub".split(), *sys.stdlib_module_names}

WORDS = "Ann Lee visited Paris and London . the rain in New".split()
TEXTS = ["Ann Lee visited Paris, London.", "Rain!", "", "In New York it rained cats and dogs; nobody went to Žďár 🙂."]

# The words and labels that the tagger of `ner_folder` knows. Some words are not in the vocabulary.
LABELS = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
LABEL_OF = dict.fromkeys("visited and in the rain , . ( ) ! ' 's Zoë 🙂".split(), "O")
LABEL_OF |= {"Paris": "B-LOC", "London": "B-LOC", "New": "B-LOC", "York": "I-LOC", "Žďár": "B-LOC"}
LABEL_OF |= {"Ann": "B-PER", "Lee": "I-PER", "Bo": "B-PER"}
NER_TEXT = "Zoë 🙂 (Ann Lee) visited Paris, London. 'Žďár' and New  York's rain!Bo"
NER_ENTITIES = [
    ("PER", "Ann Lee"),
    ("LOC", "Paris"),
    ("LOC", "London"),
    ("LOC", "Žďár"),
    ("LOC", "New  York"),
    ("PER", "Bo"),
]
STRATEGIES = ("none", "simple", "first", "average", "max")


def difference(some: dict, others: dict) -> float:
    """Return the largest difference between arrays of the same names and shapes."""
    assert sorted(some) == sorted(others)
    assert {name: some[name].shape for name in some} == {name: others[name].shape for name in others}
    # inf - inf would be NaN.
    return max(float(np.abs(np.nan_to_num(some[name]) - np.nan_to_num(others[name])).max()) for name in some)


def without(arrays: dict, *names) -> dict:
    return {name: array for name, array in arrays.items() if name not in names}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="session")
def other_python(folder):
    """The interpreter of an environment without the package."""
    return make_environment(folder / "environment")


@pytest.fixture(scope="session")
def hub(folder):
    with LoopbackHub(folder / "store") as hub:
        yield hub


def build(inputs, auto_class):
    """Return a random model, whose odd sizes put weights at unaligned offsets in the file, and its tokenizer."""
    options = {"max_characters_per_token": 16}
    if inputs == "words+characters":  # like ELMoForManyLangs
        symbols = ["<bos>", "<eos>", "<bow>", "<eow>", "<pad>", "<oov>", *"abcdefghijklmnopqrstuvwxyzPLřž"]
        options |= {"char_vocab": symbols, "swap_word_marks": True}
    tokenizer = ElmoTokenizer(vocab=WORDS, **options)
    config = ElmoConfig(
        inputs=inputs,
        vocab_size=len(tokenizer),
        char_vocab_size=262 if tokenizer.char_vocab is None else len(tokenizer.char_vocab) + 1,
        max_characters_per_token=16,
        char_embedding_dim=5,
        char_filters=[[1, 9], [2, 11], [3, 13]],
        num_highway_layers=1,
        lstm_dim=37,
        projection_dim=19,
        num_labels=3,
    )
    return randomize(getattr(transformers, auto_class).from_config(config)), tokenizer


@pytest.fixture(scope="session")
def checkpoints(folder):
    """Checkpoints by inputs and class, moved after saving, and the outputs of their models before saving."""
    checkpoints = {}
    for inputs in INPUTS:
        for auto_class in CLASSES:
            model, tokenizer = build(inputs, auto_class)
            saved = folder / f"saved {inputs} {auto_class}"
            before = arrays_of(model, tokenizer, TEXTS)
            model.save_pretrained(saved)
            tokenizer.save_pretrained(saved)
            moved = folder / "moved" / f"{inputs.replace('+', '-')}-{auto_class}"
            moved.parent.mkdir(exist_ok=True)
            checkpoints[inputs, auto_class] = saved.rename(moved), before
    return checkpoints


@pytest.fixture(scope="session")
def ner_folder(folder):
    """A tagger with the labels of LABEL_OF: the mix is the context-free layer, the classifier a least-squares fit."""
    path = folder / "moved-ner"
    tokenizer = ElmoTokenizer(vocab=WORDS, max_characters_per_token=16)
    config = ElmoConfig(
        vocab_size=len(tokenizer),
        max_characters_per_token=16,
        char_embedding_dim=8,
        char_filters=[[1, 20], [2, 20], [3, 20]],
        num_highway_layers=1,
        lstm_dim=20,
        projection_dim=40,
        mix="fixed",
        mix_weights=[1.0, 0.0, 0.0],
        id2label=dict(enumerate(LABELS)),
        label2id={label: index for index, label in enumerate(LABELS)},
    )
    model = randomize(ElmoForTokenClassification(config)).eval()
    inputs = tokenizer([list(LABEL_OF)], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        vectors = model.elmo(**inputs).last_hidden_state[0, 1:-1].double()  # (words, 2P)
        logits = torch.tensor([[8.0 * (label == other) for other in LABELS] for label in LABEL_OF.values()])
        solution = torch.linalg.lstsq(vectors, logits.double(), driver="gelsd").solution  # (2P, labels)
        model.classifier.weight.copy_(solution.t())
        model.classifier.bias.zero_()
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


# Files of a checkpoint.


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("auto_class", CLASSES)
def test_checkpoint_contains_config_weights_tokenizer_and_code(checkpoints, inputs, auto_class):
    path, _ = checkpoints[inputs, auto_class]
    names = {file.name for file in path.iterdir()} - {"README.md"}
    assert names == {*HUB_FILES, "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert json.loads((path / "config.json").read_text())["auto_map"] == AUTO_MAP
    auto_map = json.loads((path / "tokenizer_config.json").read_text())["auto_map"]
    assert "tokenization_elmo.ElmoTokenizer" in auto_map["AutoTokenizer"]


def test_hub_files_are_those_that_transformers_copies(checkpoints):
    """transformers copies the modules of the saved classes and, recursively, the siblings that they import."""
    path, _ = checkpoints["characters", "AutoModel"]
    package = Path(configuration_elmo.__file__).parent
    assert sorted(file.name for file in path.glob("*.py")) == list(HUB_FILES)
    for name in HUB_FILES:
        assert (path / name).read_bytes() == (package / name).read_bytes(), name
    classes = {*AUTO_MAP.values(), "tokenization_elmo.ElmoTokenizer"}
    modules = {package / f"{name.partition('.')[0]}.py" for name in classes}
    siblings = {file for module in modules for file in get_relative_import_files(module)}
    assert sorted(Path(file).name for file in {*modules, *map(Path, siblings)}) == list(HUB_FILES)


def test_auto_map_contains_every_registered_class():
    names = [name for name in dir(transformers) if name.startswith("AutoModel")]
    mappings = {name: getattr(getattr(transformers, name), "_model_mapping", ()) for name in names}
    assert [name for name in names if ElmoConfig in mappings[name]] == sorted(CLASSES)


@pytest.mark.parametrize("name", HUB_FILES)
def test_hub_files_import_only_siblings_and_allowed_packages(checkpoints, name):
    path, _ = checkpoints["characters", "AutoModel"]
    tree = ast.parse((path / name).read_text(encoding="utf-8"))
    siblings, packages = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            packages |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            packages.add(node.module.partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1 and node.module, f"line {node.lineno}: write `from .x import name`"
            siblings.add(f"{node.module}.py")
    assert packages <= ALLOWED_IMPORTS and siblings <= {*HUB_FILES}


# Loading with the package and without it.


@pytest.fixture(scope="session")
def loaded_without_package(folder, other_python, checkpoints, ner_folder):
    """Load every checkpoint with every class and without the package; return the folder of arrays and the results."""
    script = """
        from transformers import AutoConfig, pipeline

        for name, path in args["paths"].items():
            config = AutoConfig.from_pretrained(path, trust_remote_code=True)
            results[name] = {"config": config.to_dict()}
            for auto_class in args["classes"]:
                model, tokenizer = open_checkpoint(path, auto_class, trust_remote_code=True)
                np.savez(f"{name} {auto_class}.npz", **arrays_of(model, tokenizer, args["texts"]))
                modules = [type(thing).__module__ for thing in (config, model, tokenizer)]
                frozen = not model.base_model.bilm.layers[0].forward_lstm.bias.requires_grad
                results[name][auto_class] = {"modules": modules, "frozen": frozen}
        tagger = pipeline("token-classification", args["ner"], trust_remote_code=True)
        results["entities"] = tagger(args["ner_text"], aggregation_strategy="simple")
        for entity in results["entities"]:
            entity["score"] = float(entity["score"])
        features = pipeline("feature-extraction", args["features"], trust_remote_code=True)
        results["features"] = features(args["ner_text"])
    """
    paths = {" ".join(key): str(path) for key, (path, _) in checkpoints.items()}
    args = {"paths": paths, "classes": CLASSES, "texts": TEXTS, "ner": str(ner_folder), "ner_text": NER_TEXT}
    features = paths["characters AutoModel"]
    return folder / "opened", run(other_python, script, folder / "opened", features=features, **args)


@pytest.mark.parametrize("opened_as", CLASSES)
@pytest.mark.parametrize("saved_as", CLASSES)
@pytest.mark.parametrize("inputs", INPUTS)
def test_same_outputs_with_and_without_the_package(checkpoints, loaded_without_package, inputs, saved_as, opened_as):
    path, before = checkpoints[inputs, saved_as]
    arrays, results = loaded_without_package
    results = results[f"{inputs} {saved_as}"]
    model, tokenizer = open_checkpoint(path, opened_as)
    outputs = arrays_of(model, tokenizer, TEXTS)
    assert difference(outputs, load_arrays(arrays / f"{inputs} {saved_as} {opened_as}.npz")) == 0.0
    # A head that is not in the checkpoint is newly initialized, with the same seed in both processes.
    new = () if saved_as == opened_as else ("head",)
    assert difference(without(outputs, *new), without(before, *new)) == 0.0
    assert not any(weight.data_ptr() % 64 for weight in model.parameters())  # or products may round differently
    assert all(module.startswith("transformers_modules.") for module in results[opened_as]["modules"])
    assert results[opened_as]["frozen"] == (opened_as == "AutoModelForTokenClassification")
    assert type(model).__module__ == "transformers_elmo.modeling_elmo"
    config = AutoConfig.from_pretrained(path)
    assert type(config) is ElmoConfig and json.loads(json.dumps(config.to_dict())) == results["config"]


def test_pipelines_without_the_package(checkpoints, loaded_without_package):
    _, results = loaded_without_package
    assert spans(results["entities"]) == NER_ENTITIES
    path, _ = checkpoints["characters", "AutoModel"]
    assert np.array_equal(results["features"], pipeline("feature-extraction", str(path))(NER_TEXT))


# The Hub, over HTTP with the official client.


@pytest.fixture(scope="session")
def pushed(folder, hub, checkpoints, ner_folder):
    """Push with the package, and return the commits and error messages of the client."""
    script = """
        import os

        from huggingface_hub.errors import HfHubHTTPError
        from transformers import AutoTokenizer
        from transformers_elmo import ElmoForTokenClassification, ElmoModel, ElmoTokenizer

        tokenizer = ElmoTokenizer.from_pretrained(args["tagger"])
        model = ElmoForTokenClassification.from_pretrained(args["tagger"])
        model.push_to_hub("me/tagger")
        results["first"] = tokenizer.push_to_hub("me/tagger").oid
        with torch.no_grad():
            model.classifier.bias += 1
        results["second"] = model.push_to_hub("me/tagger").oid
        for name, repo, options in (("base", "me/base", {}), ("base", "me/private", {"private": True})):
            ElmoModel.from_pretrained(args[name]).push_to_hub(repo, **options)
            ElmoTokenizer.from_pretrained(args[name]).push_to_hub(repo, **options)
        ElmoForTokenClassification.from_pretrained(args["ner"]).push_to_hub("me/ner")
        ElmoTokenizer.from_pretrained(args["ner"]).push_to_hub("me/ner")
        del os.environ["HF_TOKEN"]
        for thing in (model, tokenizer):
            try:
                thing.push_to_hub("me/nothing")
            except HfHubHTTPError as error:
                results[type(thing).__name__] = str(error)

        # Once the package is imported, its classes are used even with trust_remote_code=True.
        model, tokenizer = open_checkpoint("me/tagger", "AutoModelForTokenClassification", trust_remote_code=True)
        np.savez("package.npz", **arrays_of(model, tokenizer, args["texts"]))
        results["package"] = [type(model).__module__, type(tokenizer).__name__]
    """
    args = {"tagger": "AutoModelForTokenClassification", "base": "AutoModel"}
    args = {name: str(checkpoints["characters", auto_class][0]) for name, auto_class in args.items()}
    return run(sys.executable, script, folder / "push", hub, ner=str(ner_folder), texts=TEXTS, **args)


@pytest.fixture(scope="session")
def loaded_by_name(folder, hub, other_python, pushed):
    """Load models from the Hub without the package and save them again; return the folder of arrays and the results."""
    script = """
        from transformers import AutoModel, pipeline

        def load(name, auto_class, to, **options):
            model, tokenizer = open_checkpoint(name, auto_class, trust_remote_code=True, **options)
            np.savez(f"{to}.npz", **arrays_of(model, tokenizer, args["texts"]))
            return model, tokenizer

        load("me/tagger", "AutoModelForTokenClassification", "first", revision=args["first"])
        load("me/tagger", "AutoModel", "body")
        load("me/base", "AutoModel", "base")
        try:
            AutoModel.from_pretrained("me/private", trust_remote_code=True, token=False)
        except OSError as error:
            results["private"] = str(error)
        load("me/private", "AutoModel", "private", token="hf_test")
        for thing in load("me/tagger", "AutoModelForTokenClassification", "second"):
            thing.save_pretrained("again")
            thing.push_to_hub("me/again")
        tagger = pipeline("token-classification", "me/ner", trust_remote_code=True, aggregation_strategy="first")
        results["entities"] = [{**entity, "score": float(entity["score"])} for entity in tagger(args["ner_text"])]
    """
    args = {"texts": TEXTS, "first": pushed["first"], "ner_text": NER_TEXT}
    return folder / "by name", run(other_python, script, folder / "by name", hub, **args)


def test_same_outputs_after_loading_from_the_hub(checkpoints, pushed, loaded_by_name):
    arrays, results = loaded_by_name
    _, tagger = checkpoints["characters", "AutoModelForTokenClassification"]
    _, base = checkpoints["characters", "AutoModel"]
    assert difference(load_arrays(arrays / "first.npz"), tagger) == 0.0
    assert difference(load_arrays(arrays / "body.npz"), without(tagger, "head")) == 0.0
    for name in ("base", "private"):
        assert difference(load_arrays(arrays / f"{name}.npz"), base) == 0.0
    assert spans(results["entities"]) == NER_ENTITIES


def test_second_push_replaces_the_first(folder, checkpoints, pushed, loaded_by_name):
    arrays, _ = loaded_by_name
    _, before = checkpoints["characters", "AutoModelForTokenClassification"]
    second = load_arrays(arrays / "second.npz")
    assert pushed["first"] != pushed["second"]
    assert difference(without(second, "head"), without(before, "head")) == 0.0
    np.testing.assert_allclose(second["head"], before["head"] + 1, atol=1e-5)
    assert difference(second, load_arrays(folder / "push" / "package.npz")) == 0.0
    assert pushed["package"] == ["transformers_elmo.modeling_elmo", "ElmoTokenizer"]


def test_private_repository_requires_a_token(loaded_by_name):
    _, results = loaded_by_name
    assert "me/private" in results["private"] and "private" in results["private"].replace("me/private", "")


def test_push_without_a_token_writes_nothing(hub, pushed):
    for name in ("ElmoForTokenClassification", "ElmoTokenizer"):
        assert "401" in pushed[name] and "Invalid username or password." in pushed[name]
    assert not (hub.store / "models" / "me" / "nothing").exists()


def test_server_supports_every_request(hub, loaded_by_name):
    assert not [request for request in hub.requests if request[2] == 501]
    assert "/me/tagger.git/info/lfs/objects/batch" in [path for _, path, _ in hub.requests]


def test_checkpoint_saved_again_without_the_package_loads_offline(folder, hub, other_python, loaded_by_name):
    arrays, _ = loaded_by_name
    moved = (arrays / "again").rename(folder / "again and moved")
    assert {*HUB_FILES} <= {file.name for file in moved.iterdir()}
    assert json.loads((moved / "config.json").read_text())["auto_map"] == AUTO_MAP
    assert "--" not in json.dumps(json.loads((moved / "tokenizer_config.json").read_text())["auto_map"])
    # Offline and with an empty cache, so that nothing is loaded from the original repository.
    script = """
        for auto_class in args["classes"]:
            model, tokenizer = open_checkpoint(args["path"], auto_class, trust_remote_code=True)
            np.savez(f"{auto_class}.npz", **arrays_of(model, tokenizer, args["texts"]))
    """
    run(other_python, script, folder / "third", path=str(moved), classes=CLASSES, texts=TEXTS)
    second = load_arrays(arrays / "second.npz")
    assert difference(load_arrays(folder / "third" / "AutoModelForTokenClassification.npz"), second) == 0.0
    assert difference(load_arrays(folder / "third" / "AutoModel.npz"), without(second, "head")) == 0.0
    repo = hub.store / "models" / "me" / "again"
    repo /= (repo / "refs" / "main").read_text()
    for file in moved.iterdir():
        assert (repo / file.name).read_bytes() == file.read_bytes(), file.name


# Broken checkpoints.


def change_config(path, **changes):
    file = path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def is_one_sentence(error) -> bool:
    text = str(error.value)
    return "\n" not in text and len(text) < 500 and text.endswith(".")


@pytest.mark.parametrize("opened_as", CLASSES)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999], ids="empty in_the_header in_the_middle at_the_end".split())
def test_truncated_weights_raise_an_error(checkpoints, tmp_path, share, opened_as):
    path = shutil.copytree(checkpoints["characters", "AutoModel"][0], tmp_path / "truncated")
    content = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(content[: int(share * len(content))])
    with pytest.raises(OSError, match="truncated") as error:
        getattr(transformers, opened_as).from_pretrained(path)
    assert str(path) in str(error.value) and is_one_sentence(error)


@pytest.mark.parametrize("saved_as", CLASSES)
@pytest.mark.parametrize("opened_as", CLASSES)
@pytest.mark.parametrize(
    "inputs, changes",
    [
        ("characters", {"num_hidden_layers": 1}),
        ("characters", {"num_hidden_layers": 3}),
        ("characters", {"num_highway_layers": 0}),
        ("characters", {"num_highway_layers": 2}),
        ("characters", {"lstm_dim": 38}),
        ("characters", {"projection_dim": 18}),
        ("characters", {"projection_dim": None}),
        ("characters", {"char_vocab_size": 261}),
        ("characters", {"char_embedding_dim": 6}),
        ("characters", {"char_filters": [[1, 9], [2, 11], [4, 13]]}),
        ("characters", {"char_filters": [[1, 9], [2, 11]]}),
        ("characters", {"inputs": "words"}),
        ("words", {"vocab_size": 14}),
        ("words", {"inputs": "characters"}),
        ("words+characters", {"inputs": "characters"}),
        ("words+characters", {"word_embedding_dim": 3}),
    ],
    ids=lambda value: " ".join(f"{name}={new}" for name, new in value.items()) if isinstance(value, dict) else value,
)
def test_contradicting_weights_raise_an_error(checkpoints, tmp_path, inputs, changes, saved_as, opened_as):
    path = shutil.copytree(checkpoints[inputs, saved_as][0], tmp_path / "contradicting")
    change_config(path, **changes)
    with pytest.raises(RuntimeError, match="contradict its configuration") as error:
        getattr(transformers, opened_as).from_pretrained(path)
    assert str(path) in str(error.value) and is_one_sentence(error)


@pytest.mark.parametrize("opened_as", CLASSES)
@pytest.mark.parametrize("changes", [{"lstm_dim": 38}, {"char_vocab_size": 261}, {"num_hidden_layers": 3}], ids=str)
def test_a_bilm_of_another_size_is_never_ignored(checkpoints, tmp_path, changes, opened_as):
    path = shutil.copytree(checkpoints["characters", opened_as][0], tmp_path / "contradicting")
    change_config(path, **changes)
    with pytest.raises(RuntimeError, match="contradict its configuration") as error:
        getattr(transformers, opened_as).from_pretrained(path, ignore_mismatched_sizes=True)
    assert is_one_sentence(error)


def test_a_head_of_another_size_is_replaced_if_asked(checkpoints):
    path, before = checkpoints["characters", "AutoModelForTokenClassification"]
    with pytest.raises(RuntimeError, match=r"classifier\.bias has shape \(3,\), not \(7,\)"):
        ElmoForTokenClassification.from_pretrained(path, num_labels=7)
    model = ElmoForTokenClassification.from_pretrained(path, num_labels=7, ignore_mismatched_sizes=True)
    assert model.classifier.out_features == 7
    outputs = arrays_of(model, ElmoTokenizer.from_pretrained(path), TEXTS)
    assert difference(without(outputs, "head"), without(before, "head")) == 0.0


@pytest.mark.parametrize("opened_as", CLASSES)
def test_weights_of_another_model_raise_an_error(checkpoints, tmp_path, opened_as):
    """transformers would initialize everything at random, and only warn."""
    path = shutil.copytree(checkpoints["characters", "AutoModel"][0], tmp_path / "foreign")
    save_file({"bert.embeddings.weight": torch.ones(3, 4)}, path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RuntimeError, match=r"contradict its configuration: .* is missing") as error:
        getattr(transformers, opened_as).from_pretrained(path)
    assert is_one_sentence(error)


def test_missing_head_of_its_own_class_raises_an_error(checkpoints, tmp_path):
    path = shutil.copytree(checkpoints["characters", "AutoModelForTokenClassification"][0], tmp_path / "headless")
    weights = load_file(path / "model.safetensors")
    del weights["classifier.weight"]
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RuntimeError, match=r"contradict its configuration: classifier\.weight is missing"):
        ElmoForTokenClassification.from_pretrained(path)


@pytest.mark.parametrize(
    "changes", [{"lstm_dim": 10**6, "projection_dim": 10**6}, {"char_embedding_dim": 2**24}], ids=str
)
@pytest.mark.parametrize("opened_as", CLASSES)
def test_huge_sizes_are_refused_before_memory_is_allocated(checkpoints, tmp_path, changes, opened_as):
    path = shutil.copytree(checkpoints["characters", "AutoModel"][0], tmp_path / "huge")
    change_config(path, **changes)
    for options in ({}, {"ignore_mismatched_sizes": True}):
        with pytest.raises(RuntimeError, match="contradict its configuration"):
            getattr(transformers, opened_as).from_pretrained(path, **options)


def test_integer_weights_raise_an_error(checkpoints, tmp_path):
    path = shutil.copytree(checkpoints["characters", "AutoModel"][0], tmp_path / "integers")
    weights = load_file(path / "model.safetensors")
    weights["mix.gamma"] = torch.ones(1, dtype=torch.int32)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(OSError, match=r"must contain floating-point weights; mix\.gamma has type I32"):
        transformers.AutoModel.from_pretrained(path)


BAD_INDEXES = {
    "not JSON": (lambda index: "{", "must be the index"),
    "nested deeply": (lambda index: "[" * 100_000, "must be the index"),
    "a list": (lambda index: [], "must be the index"),
    "no map": (lambda index: {"metadata": {}}, "must be the index"),
    "no metadata": (lambda index: {"weight_map": index["weight_map"]}, "must be the index"),
    "a map of numbers": (lambda index: {**index, "weight_map": {"mix.gamma": 5}}, "must be the index"),
    "a missing file": (lambda index: {**index, "weight_map": {"mix.gamma": "x.safetensors"}}, "x.safetensors"),
    "a parent folder": (lambda index: {**index, "weight_map": {"mix.gamma": "../x.safetensors"}}, "in its own folder"),
    "an absolute path": (lambda index: {**index, "weight_map": {"mix.gamma": "/x.safetensors"}}, "in its own folder"),
}


@pytest.mark.parametrize("change, message", BAD_INDEXES.values(), ids=BAD_INDEXES.keys())
def test_bad_indexes_raise_an_error(checkpoints, tmp_path, change, message):
    model = transformers.AutoModel.from_pretrained(checkpoints["characters", "AutoModel"][0])
    model.save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    save_file(model.state_dict(), tmp_path / "x.safetensors", metadata={"format": "pt"})
    assert transformers.AutoModel.from_pretrained(tmp_path / "sharded")
    index = tmp_path / "sharded" / "model.safetensors.index.json"
    content = change(json.loads(index.read_text()))
    index.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(OSError, match=message):
        transformers.AutoModel.from_pretrained(tmp_path / "sharded")


# Pipelines.


def spans(entities, text=NER_TEXT) -> list:
    """Return (label, text) of entities, with the text sliced by their offsets."""
    return [(e.get("entity_group", e.get("entity")), text[e["start"] : e["end"]]) for e in entities]


def keys_and_scores(entities) -> tuple[list, np.ndarray]:
    """Split entities into their exact fields and their scores, which are compared with a tolerance."""
    keys = [{name: value for name, value in entity.items() if name != "score"} for entity in entities]
    return keys, np.array([entity["score"] for entity in entities])


@pytest.fixture(scope="module")
def tagger(ner_folder):
    return pipeline("token-classification", str(ner_folder))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_entities_of_each_aggregation_strategy(tagger, strategy):
    entities = tagger(NER_TEXT, aggregation_strategy=strategy)
    if strategy == "none":
        expected = "Ann Lee Paris London Žďár New York Bo".split()
        assert spans(entities) == [(LABEL_OF[word], word) for word in expected]
        assert [entity["word"] for entity in entities] == expected
        assert [entity["index"] for entity in entities] == [4, 5, 8, 10, 13, 16, 17, 21]
    else:
        assert spans(entities) == NER_ENTITIES
        assert [entity["word"] for entity in entities] == [" ".join(text.split()) for _, text in NER_ENTITIES]
    assert all(entity["score"] > 0.9 for entity in entities)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_punctuation_is_not_part_of_an_entity(tagger, strategy):
    for text, expected in (
        ("Paris, London.", ["Paris", "London"]),
        ("(Paris)!", ["Paris"]),
        ("'Paris'", ["Paris"]),
        ("Paris's rain", ["Paris"]),
        ("Paris,London!Bo", ["Paris", "London", "Bo"]),
        ("!Paris London", ["Paris", "London"]),
    ):
        entities = tagger(text, aggregation_strategy=strategy)
        assert [entity for _, entity in spans(entities, text)] == expected


def test_texts_without_entities(tagger):
    assert tagger("the rain", aggregation_strategy="simple") == []
    assert tagger("", aggregation_strategy="simple") == []
    assert tagger("   \n", aggregation_strategy="first") == []
    assert tagger(["", "Paris"], aggregation_strategy="simple", batch_size=2)[0] == []


LONG_TEXT = "Ann Lee visited New York, and Paris in the rain. " * 9 + "Bo visited the rain in London"


@pytest.mark.parametrize("strategy", STRATEGIES[1:])
@pytest.mark.parametrize("length, stride", [(12, 4), (9, 6), (30, 10), (500, 100)])
def test_chunks_of_a_long_text_give_the_same_entities(ner_folder, strategy, length, stride):
    tokenizer = AutoTokenizer.from_pretrained(ner_folder, model_max_length=length)
    options = {"model": str(ner_folder), "tokenizer": tokenizer, "aggregation_strategy": strategy}
    chunked = pipeline("token-classification", stride=stride, **options)
    whole = pipeline("token-classification", str(ner_folder), aggregation_strategy=strategy)(LONG_TEXT)
    expected = [("PER", "Ann Lee"), ("LOC", "New York"), ("LOC", "Paris")] * 9 + [("PER", "Bo"), ("LOC", "London")]
    assert spans(whole, LONG_TEXT) == expected
    keys, scores = keys_and_scores(whole)
    for batch_size in (1, 5):
        chunked_keys, chunked_scores = keys_and_scores(chunked(LONG_TEXT, batch_size=batch_size))
        assert chunked_keys == keys
        np.testing.assert_allclose(chunked_scores, scores, atol=1e-6)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_pretokenized_words(tagger, strategy):
    sentences = [["Ann", "Lee", "visited", "New", "York", "."], ["Paris"], ["the", "rain", ",", "Bo"]]
    expected = [["Ann Lee", "New York"], ["Paris"], ["Bo"]]
    if strategy == "none":
        expected = [["Ann", "Lee", "New", "York"], ["Paris"], ["Bo"]]
    batch = tagger(sentences, is_split_into_words=True, aggregation_strategy=strategy)
    assert len(batch) == len(sentences)
    for words, entities, texts in zip(sentences, batch, expected):
        assert [text for _, text in spans(entities, " ".join(words))] == texts
        alone = tagger(words, is_split_into_words=True, aggregation_strategy=strategy)
        alone = alone[0] if isinstance(alone[0], list) else alone
        assert keys_and_scores(alone)[0] == keys_and_scores(entities)[0]


def test_pretokenized_words_are_not_split(ner_folder, tagger):
    words = ["Ann", "Paris,", "(New York)"]
    model, tokenizer = open_checkpoint(ner_folder, "AutoModelForTokenClassification")
    with torch.no_grad():
        logits = model(**tokenizer([words], is_split_into_words=True, return_tensors="pt")).logits[0, 1:-1]
    entities = tagger(words, is_split_into_words=True, ignore_labels=[])
    entities = entities[0] if isinstance(entities[0], list) else entities
    assert [text for _, text in spans(entities, " ".join(words))] == words
    assert [entity["entity"] for entity in entities] == [LABELS[label] for label in logits.argmax(1)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_batch_size_does_not_change_entities(tagger, strategy):
    texts = [NER_TEXT, "Paris", LONG_TEXT, "the rain", "Bo visited Ann Lee."] * 2
    single = tagger(texts, aggregation_strategy=strategy)
    assert len(single) == len(texts)
    for batch_size in (2, 4, 10):
        for one, other in zip(single, tagger(texts, aggregation_strategy=strategy, batch_size=batch_size)):
            (keys, scores), (other_keys, other_scores) = keys_and_scores(one), keys_and_scores(other)
            assert keys == other_keys
            np.testing.assert_allclose(scores, other_scores, atol=1e-6)


@pytest.mark.parametrize("inputs", INPUTS)
def test_feature_extraction_pipeline(checkpoints, inputs):
    path, before = checkpoints[inputs, "AutoModel"]
    extractor = pipeline("feature-extraction", str(path))
    expected = [before["mix"][row, :length] for row, length in enumerate(before["attention_mask"].sum(1))]
    for batch_size in (1, 3):
        for features, vectors in zip(extractor(TEXTS, batch_size=batch_size), expected, strict=True):
            features = np.array(features)
            assert features.shape[0] == 1 and features.shape[2] == vectors.shape[1]
            np.testing.assert_allclose(features[0, : len(vectors)], vectors, atol=1e-5)
            assert not features[0, len(vectors) :].any()
    tensor = extractor(TEXTS[0], return_tensors=True)
    model, tokenizer = open_checkpoint(path, "AutoModel")
    with torch.no_grad():
        assert torch.equal(tensor, model(**tokenizer(TEXTS[0], return_tensors="pt")).last_hidden_state)


def test_feature_extraction_with_a_tagger_returns_its_vectors(checkpoints):
    path, before = checkpoints["characters", "AutoModelForTokenClassification"]
    features = np.array(pipeline("feature-extraction", str(path))(TEXTS[0]))
    np.testing.assert_allclose(features[0], before["mix"][0, : features.shape[1]], atol=1e-5)


# The loopback server itself, as far as the tests above rely on it.


@pytest.fixture
def api(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return HfApi(endpoint=hub.endpoint, token="hf_test")


def test_server_keeps_every_commit(api, tmp_path):
    api.create_repo("server/files")
    assert api.create_repo("server/files", exist_ok=True).repo_id == "server/files"
    weights = bytes(range(256)) * 100
    first = api.upload_file(repo_id="server/files", path_in_repo="a/w.safetensors", path_or_fileobj=weights).oid
    second = api.upload_file(repo_id="server/files", path_in_repo="a/w.safetensors", path_or_fileobj=b"\0new").oid
    assert api.list_repo_files("server/files") == [".gitattributes", "a/w.safetensors"]
    for revision, content in ((first, weights), (second, b"\0new"), ("main", b"\0new")):
        path = api.hf_hub_download("server/files", "a/w.safetensors", revision=revision, cache_dir=tmp_path)
        assert Path(path).read_bytes() == content
    with pytest.raises(HfHubHTTPError) as error:
        operation = CommitOperationAdd("b.txt", b"b")
        api.create_commit("server/files", [operation], commit_message="late", parent_commit=first)
    assert error.value.response.status_code == 412


def test_server_rejects_bad_requests(hub, api, tmp_path):
    guest = HfApi(endpoint=hub.endpoint, token=False)
    api.create_repo("server/secret", private=True)
    api.create_repo("server/open")
    for error, status, call in (
        (RepositoryNotFoundError, 404, lambda: api.model_info("server/none")),
        (EntryNotFoundError, 404, lambda: api.hf_hub_download("server/open", "none.txt", cache_dir=tmp_path)),
        (HfHubHTTPError, 401, lambda: guest.model_info("server/secret")),
        (HfHubHTTPError, 401, lambda: guest.create_repo("server/another")),
        (HfHubHTTPError, 401, lambda: guest.upload_file(repo_id="server/open", path_in_repo="a", path_or_fileobj=b"")),
    ):
        with pytest.raises(error) as caught:
            call()
        assert caught.value.response.status_code == status
    wrong = CommitOperationAdd("w.bin", b"\0right")
    wrong.upload_info.sha256 = hashlib.sha256(b"\0wrong").digest()
    with pytest.raises(RuntimeError, match="Error while uploading") as caught:
        api.create_commit("server/open", [wrong], commit_message="wrong")
    assert isinstance(caught.value.__cause__, BadRequestError)
    for path in ("/../../resolve/main/x", "/server/open/resolve/main/..%2F..%2Fx"):
        with pytest.raises(urllib.error.HTTPError, match=r"40[04]"):
            urllib.request.urlopen(hub.endpoint + path)
