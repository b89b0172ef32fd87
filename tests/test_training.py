"""Train ElmoForTokenClassification with the stock Trainer, on synthetic sentences and, in a slow test, on real ones."""

import gzip
import importlib.util
import math
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import DataCollatorForTokenClassification, Trainer, TrainingArguments, pipeline

from helpers.environments import environment, make_environment, run
from helpers.hub_server import LoopbackHub
from transformers_elmo import ElmoConfig, ElmoForTokenClassification, ElmoTokenizer

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "train_tagger.py"
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
OTHER_WORDS = "saw met left with from and near the old grey of , ; .".split()


def random_sentence(draw: random.Random) -> tuple[list[str], list[str]]:
    """Draw 2 to 14 words and their tags: capitalised words are places after "in" and people elsewhere."""
    words, tags = [], []
    while len(words) < 2 or (len(words) < 12 and draw.random() < 0.8):
        if draw.random() < 0.5:
            words.append(draw.choice(OTHER_WORDS))
            tags.append("O")
            continue
        kind = draw.choice(("PER", "LOC"))
        before = "in" if kind == "LOC" else draw.choice(OTHER_WORDS)
        names = ["".join(draw.choices("aeioulnrst", k=draw.randint(2, 7))) for _ in range(draw.randint(1, 2))]
        words += [before, *map(str.capitalize, names)]
        tags += ["O", f"B-{kind}", f"I-{kind}"][: 1 + len(names)]
    return words, tags


def random_data(size: int, tokenizer: ElmoTokenizer, seed: int = 0) -> list[dict]:
    """Return features as a user prepares them: pretokenized, with labels by word_ids() and -100 at special tokens."""
    draw, features = random.Random(seed), []
    for _ in range(size):
        words, tags = random_sentence(draw)
        encoded = tokenizer(words, is_split_into_words=True)
        labels = [-100 if word is None else LABELS.index(tags[word]) for word in encoded.word_ids()]
        features.append({**encoded, "labels": labels})
    return features


def build(**options) -> tuple[ElmoForTokenClassification, ElmoTokenizer]:
    torch.manual_seed(0)
    tokenizer = ElmoTokenizer(vocab=OTHER_WORDS, max_characters_per_token=12)
    sizes = {
        "vocab_size": len(tokenizer),
        "max_characters_per_token": 12,
        "char_embedding_dim": 8,
        "char_filters": [[1, 16], [2, 16]],
        "num_highway_layers": 1,
        "lstm_dim": 48,
        "projection_dim": 24,
        "classifier_dropout": 0.1,
        "id2label": dict(enumerate(LABELS)),
        "label2id": {label: index for index, label in enumerate(LABELS)},
    }
    return ElmoForTokenClassification(ElmoConfig(**{**sizes, **options})), tokenizer


def accuracy(prediction) -> dict[str, float]:
    is_labelled = prediction.label_ids != -100
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids)[is_labelled].mean())}


def build_trainer(model, tokenizer, folder, data, **arguments) -> Trainer:
    defaults = {
        "output_dir": str(folder),
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "seed": 1,
    }
    return Trainer(
        model=model,
        args=TrainingArguments(**{**defaults, **arguments}),
        train_dataset=data,
        eval_dataset=random_data(60, tokenizer, seed=1),
        data_collator=DataCollatorForTokenClassification(tokenizer),
        processing_class=tokenizer,
        compute_metrics=accuracy,
    )


def weights_of(model) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}


def losses(trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def largest_difference(some: dict, others: dict) -> float:
    assert some.keys() == others.keys()
    return max(float((some[name] - others[name]).abs().max()) for name in some)


WITH_CHECKPOINTS = {
    "learning_rate": 1e-2,
    "num_train_epochs": 3,
    "per_device_train_batch_size": 16,
    "save_strategy": "epoch",
    "eval_strategy": "epoch",
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A Trainer after training all weights, with its checkpoints, and the initial weights."""
    model, tokenizer = build(freeze_bilm=False)
    before = weights_of(model)
    folder = tmp_path_factory.mktemp("trained")
    trainer = build_trainer(model, tokenizer, folder, random_data(400, tokenizer), **WITH_CHECKPOINTS)
    trainer.train()
    return trainer, before


def test_training_changes_all_weights(trained):
    trainer, before = trained
    first, last = losses(trainer)[0], np.mean(losses(trainer)[-10:])
    assert first == pytest.approx(math.log(len(LABELS)), abs=0.2) and last < 0.1
    assert trainer.evaluate()["eval_accuracy"] > 0.98
    evaluated = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert evaluated[-1] < evaluated[0] < first
    after = weights_of(trainer.model)
    assert [name for name in before if torch.equal(before[name], after[name])] == []
    # The embedding of character 0, padding, stays zero.
    assert not after["elmo.token_encoder.characters.embedding.weight"][0].any()


def test_predictions_do_not_depend_on_the_batch(trained):
    trainer, _ = trained
    data = random_data(37, trainer.processing_class, seed=2)
    predicted = trainer.predict(data)
    longest = max(len(features["labels"]) for features in data)
    assert predicted.predictions.shape == (37, longest, len(LABELS)) and predicted.label_ids.shape == (37, longest)
    assert predicted.metrics["test_accuracy"] > 0.98
    collate, model = DataCollatorForTokenClassification(trainer.processing_class), trainer.model.eval()
    for features, logits in zip(data, predicted.predictions):
        with torch.no_grad():
            alone = model(**collate([features])).logits[0].numpy()
        np.testing.assert_allclose(logits[: len(alone)], alone, atol=1e-5)


def test_pipeline_loads_what_the_trainer_saved(trained, tmp_path):
    trainer, _ = trained
    trainer.save_model(str(tmp_path))
    tagger = pipeline("token-classification", str(tmp_path), aggregation_strategy="first")
    text = "the old Annalu Saro, met Lino in Turin Estora; and left."
    entities = [(entity["entity_group"], text[entity["start"] : entity["end"]]) for entity in tagger(text)]
    assert entities == [("PER", "Annalu Saro"), ("PER", "Lino"), ("LOC", "Turin Estora")]


def test_resumed_training_ends_with_the_same_weights(trained, tmp_path):
    trainer, _ = trained
    checkpoints = sorted(Path(trainer.args.output_dir).glob("checkpoint-*"), key=lambda path: int(path.name[11:]))
    assert len(checkpoints) == 3
    model, tokenizer = build(freeze_bilm=False)
    resumed = build_trainer(model, tokenizer, tmp_path, trainer.train_dataset, **WITH_CHECKPOINTS)
    resumed.train(resume_from_checkpoint=str(checkpoints[0]))
    assert resumed.state.global_step == trainer.state.global_step
    assert largest_difference(weights_of(resumed.model), weights_of(trainer.model)) == 0.0


def test_training_only_a_head(trained, tmp_path):
    """A new head on a trained, frozen biLM learns, and the biLM does not change by a bit."""
    trainer, _ = trained
    trainer.model.base_model.save_pretrained(tmp_path / "base")
    torch.manual_seed(0)
    options = {"num_labels": len(LABELS), "freeze_bilm": True}
    model = ElmoForTokenClassification.from_pretrained(tmp_path / "base", **options)
    before = weights_of(model)
    arguments = {"learning_rate": 5e-2, "num_train_epochs": 3, "per_device_train_batch_size": 16}
    head_trainer = build_trainer(model, trainer.processing_class, tmp_path / "head", trainer.train_dataset, **arguments)
    head_trainer.train()
    assert losses(head_trainer)[0] > 1.0 and np.mean(losses(head_trainer)[-10:]) < 0.2
    assert head_trainer.evaluate()["eval_accuracy"] > 0.98
    after = weights_of(model)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"elmo.mix.weights", "elmo.mix.gamma", "classifier.weight", "classifier.bias"}


# Different ways to compute the same steps.


def train_three_steps(folder, batch_size=16, accumulate=1, accepts_loss_kwargs=True, options=None, **arguments):
    """Return weights and losses after three steps of 16 sentences; plain SGD, whose updates are the gradients."""
    model, tokenizer = build(**{"dropout": 0.0, "classifier_dropout": 0.0, "freeze_bilm": False, **(options or {})})
    if not accepts_loss_kwargs:
        model.accepts_loss_kwargs = False
    arguments = {
        "per_device_train_batch_size": batch_size,
        "gradient_accumulation_steps": accumulate,
        "max_steps": 3,
        "learning_rate": 0.5,
        "lr_scheduler_type": "constant",
        "optim": "sgd",
        "max_grad_norm": 0.0,
        **arguments,
    }
    trainer = build_trainer(model, tokenizer, folder, random_data(48, tokenizer), **arguments)
    trainer.train()
    return weights_of(trainer.model), losses(trainer)


@pytest.mark.parametrize("freeze_bilm", [False, True])
def test_accumulated_gradients_equal_one_large_batch(tmp_path, freeze_bilm):
    options = {"freeze_bilm": freeze_bilm}
    whole, whole_losses = train_three_steps(tmp_path, options=options)
    for batch_size, accumulate in ((4, 4), (1, 16)):
        accumulated, accumulated_losses = train_three_steps(tmp_path, batch_size, accumulate, options=options)
        assert largest_difference(whole, accumulated) < 1e-6
        assert accumulated_losses == pytest.approx(whole_losses, abs=1e-5)
    # The mean of the batches' means differs, so the test can tell them apart.
    means, _ = train_three_steps(tmp_path, 4, 4, accepts_loss_kwargs=False, options=options)
    assert largest_difference(whole, means) > 1e-4


def test_gradient_checkpointing_gives_the_same_weights(tmp_path):
    options = {"dropout": 0.1, "classifier_dropout": 0.1}  # recomputed with the same dropout
    expected, _ = train_three_steps(tmp_path, options=options)
    got, _ = train_three_steps(tmp_path, options=options, gradient_checkpointing=True)
    assert largest_difference(expected, got) < 1e-6


def test_bf16_stays_close_to_float32(tmp_path):
    expected, expected_losses = train_three_steps(tmp_path)
    got, got_losses = train_three_steps(tmp_path, bf16=True)
    assert all(weight.dtype == torch.float32 for weight in got.values())
    assert got_losses == pytest.approx(expected_losses, rel=0.02) and got_losses != expected_losses
    assert 0 < largest_difference(expected, got) < 0.02


# The example.


def write_conll(path: Path, size: int):
    """Write random sentences in CoNLL format: a word, an unused column and a tag per line."""
    draw = random.Random(0)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("-DOCSTART- - O\n\n")
        for _ in range(size):
            file.writelines(f"{word} - {tag}\n" for word, tag in zip(*random_sentence(draw)))
            file.write("\n")


def test_example_trains_from_random_weights_and_from_a_checkpoint(tmp_path, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("train_tagger", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    write_conll(tmp_path / "data.txt.gz", 400)
    assert len(example.read_sentences(str(tmp_path / "data.txt.gz"))) == 400
    sizes = build(freeze_bilm=False)[0].config
    for name in ("char_filters", "lstm_dim", "projection_dim", "num_hidden_layers", "dropout", "classifier_dropout"):
        monkeypatch.setitem(example.SIZES, name, getattr(sizes, name))
    monkeypatch.setitem(example.TRAINING, "num_train_epochs", 4)
    monkeypatch.setitem(example.TRAINING, "learning_rate", 1e-2)
    example.main(str(tmp_path / "data.txt.gz"), str(tmp_path / "tagger"))
    assert f1_of(capsys.readouterr().out) > 0.9
    monkeypatch.setattr(example, "MODEL", str(tmp_path / "tagger"))
    monkeypatch.setitem(example.TRAINING, "num_train_epochs", 1)
    example.main(str(tmp_path / "data.txt.gz"), str(tmp_path / "tagger again"))
    assert f1_of(capsys.readouterr().out) > 0.9


def f1_of(printed: str) -> float:
    """Return the last evaluated F1 that the example printed."""
    return float(re.findall(r"'eval_f1': '([0-9.e-]+)'", printed)[-1])


@pytest.mark.slow
def test_example_on_wikigold(shared_folder, tmp_path):
    """Train for 2 to 3 minutes, push the tagger, and load it where the package is not installed."""
    data = shared_folder / "data" / "ner-wikigold" / "all.txt.gz"
    if not data.exists():
        pytest.skip(f"{data} does not exist")
    result = subprocess.run(
        [sys.executable, str(EXAMPLE), str(data), "tagger"],
        cwd=tmp_path,
        env=environment(tmp_path / "home", with_package=True),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    loss = [float(value) for value in re.findall(r"'loss': '([0-9.]+)'", result.stdout)]
    assert loss[-1] < loss[0] / 2
    assert f1_of(result.stdout) > 0.3

    push = """
        from transformers_elmo import ElmoForTokenClassification, ElmoTokenizer

        ElmoForTokenClassification.from_pretrained(args["path"]).push_to_hub("me/wikigold")
        ElmoTokenizer.from_pretrained(args["path"]).push_to_hub("me/wikigold")
    """
    tag = """
        from transformers import pipeline

        tagger = pipeline("token-classification", "me/wikigold", trust_remote_code=True, aggregation_strategy="simple")
        batch = tagger(args["texts"])
        results["entities"] = [[[e["word"], e["start"], e["end"]] for e in entities] for entities in batch]
    """
    with gzip.open(data, "rt", encoding="utf-8") as file:
        blocks = [block.splitlines() for block in file.read().split("\n\n")[:200]]
    texts = [" ".join(line.split()[0] for line in block) for block in blocks if len(block) > 1]
    with LoopbackHub(tmp_path / "store") as hub:
        run(sys.executable, push, tmp_path / "push", hub, path=str(tmp_path / "tagger"))
        results = run(make_environment(tmp_path / "environment"), tag, tmp_path / "tag", hub, texts=texts)
    expected = pipeline("token-classification", str(tmp_path / "tagger"), aggregation_strategy="simple")(texts)
    assert results["entities"] == [[[e["word"], e["start"], e["end"]] for e in entities] for entities in expected]
    assert sum(map(len, results["entities"])) > len(texts) / 2
    for text, entities in zip(texts, results["entities"]):
        for word, start, end in entities:
            assert "".join(text[start:end].split()) == "".join(word.split())
