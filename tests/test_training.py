"""ElmoForTokenClassification under the stock Trainer, on sentences that are made up here and, slowly, on real ones."""

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


def made_up_sentence(draw: random.Random) -> tuple[list[str], list[str]]:
    """2 to 14 words and their tags: capitalised words are places after "in" and people elsewhere."""
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


def made_up_data(number: int, tokenizer: ElmoTokenizer, seed: int = 0) -> list[dict]:
    """Features as a user makes them: words given, labels by word_ids(), special tokens without label."""
    draw, features = random.Random(seed), []
    for _ in range(number):
        words, tags = made_up_sentence(draw)
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
        "label2id": {label: number for number, label in enumerate(LABELS)},
    }
    return ElmoForTokenClassification(ElmoConfig(**{**sizes, **options})), tokenizer


def accuracy(prediction) -> dict[str, float]:
    labelled = prediction.label_ids != -100
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids)[labelled].mean())}


def trainer_of(model, tokenizer, folder, data, **arguments) -> Trainer:
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
        eval_dataset=made_up_data(60, tokenizer, seed=1),
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
    """A Trainer that has trained everything, with its checkpoints, and the weights before."""
    model, tokenizer = build(freeze_bilm=False)
    before = weights_of(model)
    folder = tmp_path_factory.mktemp("trained")
    trainer = trainer_of(model, tokenizer, folder, made_up_data(400, tokenizer), **WITH_CHECKPOINTS)
    trainer.train()
    return trainer, before


def test_training_everything(trained):
    trainer, before = trained
    first, last = losses(trainer)[0], np.mean(losses(trainer)[-10:])
    assert first == pytest.approx(math.log(len(LABELS)), abs=0.2) and last < 0.1
    assert trainer.evaluate()["eval_accuracy"] > 0.98
    evaluated = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert evaluated[-1] < evaluated[0] < first
    after = weights_of(trainer.model)
    assert [name for name in before if torch.equal(before[name], after[name])] == []
    # Character 0 and with it a word that is not there stays zero.
    assert not after["elmo.token_encoder.characters.embedding.weight"][0].any()


def test_predictions(trained):
    trainer, _ = trained
    data = made_up_data(37, trainer.processing_class, seed=2)
    predicted = trainer.predict(data)
    longest = max(len(features["labels"]) for features in data)
    assert predicted.predictions.shape == (37, longest, len(LABELS)) and predicted.label_ids.shape == (37, longest)
    assert predicted.metrics["test_accuracy"] > 0.98
    # Batches do not change them.
    collate, model = DataCollatorForTokenClassification(trainer.processing_class), trainer.model.eval()
    for features, logits in zip(data, predicted.predictions):
        with torch.no_grad():
            alone = model(**collate([features])).logits[0].numpy()
        np.testing.assert_allclose(logits[: len(alone)], alone, atol=1e-5)


def test_saved_by_the_trainer_and_loaded_by_a_pipeline(trained, tmp_path):
    trainer, _ = trained
    trainer.save_model(str(tmp_path))
    tagger = pipeline("token-classification", str(tmp_path), aggregation_strategy="first")
    text = "the old Annalu Saro, met Lino in Turin Estora; and left."
    found = [(entity["entity_group"], text[entity["start"] : entity["end"]]) for entity in tagger(text)]
    assert found == [("PER", "Annalu Saro"), ("PER", "Lino"), ("LOC", "Turin Estora")]


def test_resumed(trained, tmp_path):
    """From the first of its checkpoints, training ends where it ended without the break."""
    trainer, _ = trained
    checkpoints = sorted(Path(trainer.args.output_dir).glob("checkpoint-*"), key=lambda path: int(path.name[11:]))
    assert len(checkpoints) == 3
    model, tokenizer = build(freeze_bilm=False)
    again = trainer_of(model, tokenizer, tmp_path, trainer.train_dataset, **WITH_CHECKPOINTS)
    again.train(resume_from_checkpoint=str(checkpoints[0]))
    assert again.state.global_step == trainer.state.global_step
    assert largest_difference(weights_of(again.model), weights_of(trainer.model)) == 0.0


def test_training_a_head_only(trained, tmp_path):
    """A new head on a trained, frozen biLM learns; the biLM stays as it is to the last bit."""
    trainer, _ = trained
    trainer.model.base_model.save_pretrained(tmp_path / "base")
    torch.manual_seed(0)
    options = {"num_labels": len(LABELS), "freeze_bilm": True}
    model = ElmoForTokenClassification.from_pretrained(tmp_path / "base", **options)
    before = weights_of(model)
    arguments = {"learning_rate": 5e-2, "num_train_epochs": 3, "per_device_train_batch_size": 16}
    head = trainer_of(model, trainer.processing_class, tmp_path / "head", trainer.train_dataset, **arguments)
    head.train()
    assert losses(head)[0] > 1.0 and np.mean(losses(head)[-10:]) < 0.2
    assert head.evaluate()["eval_accuracy"] > 0.98
    after = weights_of(model)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"elmo.mix.weights", "elmo.mix.gamma", "classifier.weight", "classifier.bias"}


# Different ways to the same step


def few_steps(folder, batch_size=16, accumulate=1, accepts_loss_kwargs=True, options=None, **arguments):
    """The weights after three steps over 16 sentences of 2 to 15 words each; plain gradient descent hides nothing."""
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
    trainer = trainer_of(model, tokenizer, folder, made_up_data(48, tokenizer), **arguments)
    trainer.train()
    return weights_of(trainer.model), losses(trainer)


@pytest.mark.parametrize("freeze_bilm", [False, True])
def test_accumulated_gradients(tmp_path, freeze_bilm):
    options = {"freeze_bilm": freeze_bilm}
    whole, whole_losses = few_steps(tmp_path, options=options)
    for batch_size, accumulate in ((4, 4), (1, 16)):
        parts, part_losses = few_steps(tmp_path, batch_size, accumulate, options=options)
        assert largest_difference(whole, parts) < 1e-6
        assert part_losses == pytest.approx(whole_losses, abs=1e-5)
    # A mean of means is something else: the sentences differ enough to tell.
    means, _ = few_steps(tmp_path, 4, 4, accepts_loss_kwargs=False, options=options)
    assert largest_difference(whole, means) > 1e-4


def test_gradient_checkpointing(tmp_path):
    options = {"dropout": 0.1, "classifier_dropout": 0.1}  # what is dropped is dropped again
    expected, _ = few_steps(tmp_path, options=options)
    found, _ = few_steps(tmp_path, options=options, gradient_checkpointing=True)
    assert largest_difference(expected, found) < 1e-6


def test_half_precision(tmp_path):
    expected, expected_losses = few_steps(tmp_path)
    found, found_losses = few_steps(tmp_path, bf16=True)
    assert all(weight.dtype == torch.float32 for weight in found.values())
    assert found_losses == pytest.approx(expected_losses, rel=0.02) and found_losses != expected_losses
    assert 0 < largest_difference(expected, found) < 0.02


# The example


def write_tagged(path: Path, number: int):
    """Made-up sentences in the manner of CoNLL: a word, a column that nobody reads, a tag."""
    draw = random.Random(0)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("-DOCSTART- - O\n\n")
        for _ in range(number):
            file.writelines(f"{word} - {tag}\n" for word, tag in zip(*made_up_sentence(draw)))
            file.write("\n")


def test_example(tmp_path, monkeypatch, capsys):
    """examples/train_tagger.py from random weights, and again from the checkpoint that gave."""
    spec = importlib.util.spec_from_file_location("train_tagger", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    write_tagged(tmp_path / "made_up.txt.gz", 400)
    assert len(example.read_sentences(str(tmp_path / "made_up.txt.gz"))) == 400
    sizes = build(freeze_bilm=False)[0].config
    for name in ("char_filters", "lstm_dim", "projection_dim", "num_hidden_layers", "dropout", "classifier_dropout"):
        monkeypatch.setitem(example.SIZES, name, getattr(sizes, name))
    monkeypatch.setitem(example.TRAINING, "num_train_epochs", 4)
    monkeypatch.setitem(example.TRAINING, "learning_rate", 1e-2)
    example.main(str(tmp_path / "made_up.txt.gz"), str(tmp_path / "tagger"))
    assert f1_of(capsys.readouterr().out) > 0.9
    monkeypatch.setattr(example, "MODEL", str(tmp_path / "tagger"))
    monkeypatch.setitem(example.TRAINING, "num_train_epochs", 1)
    example.main(str(tmp_path / "made_up.txt.gz"), str(tmp_path / "tagger again"))
    assert f1_of(capsys.readouterr().out) > 0.9


def f1_of(printed: str) -> float:
    """The last F1 of an evaluation that the example printed."""
    return float(re.findall(r"'eval_f1': '([0-9.e-]+)'", printed)[-1])


@pytest.mark.slow
def test_real_sentences(shared_folder, tmp_path):
    """The example on wikigold, 2 to 3 minutes; its tagger on the Hub, opened where the package is not installed."""
    data = shared_folder / "data" / "ner-wikigold" / "all.txt.gz"
    if not data.exists():
        pytest.skip(f"no file {data} with real sentences")
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(data), "tagger"],
        cwd=tmp_path,
        env=environment(tmp_path / "home"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    loss = [float(value) for value in re.findall(r"'loss': '([0-9.]+)'", done.stdout)]
    assert loss[-1] < loss[0] / 2
    assert f1_of(done.stdout) > 0.3

    push = """
        from transformers_elmo import ElmoForTokenClassification, ElmoTokenizer

        ElmoForTokenClassification.from_pretrained(given["path"]).push_to_hub("me/wikigold")
        ElmoTokenizer.from_pretrained(given["path"]).push_to_hub("me/wikigold")
    """
    tag = """
        from transformers import pipeline

        tagger = pipeline("token-classification", "me/wikigold", trust_remote_code=True, aggregation_strategy="simple")
        said["entities"] = [[[e["word"], e["start"], e["end"]] for e in found] for found in tagger(given["texts"])]
    """
    with gzip.open(data, "rt", encoding="utf-8") as file:
        blocks = [block.splitlines() for block in file.read().split("\n\n")[:200]]
    texts = [" ".join(line.split()[0] for line in block) for block in blocks if len(block) > 1]
    with LoopbackHub(tmp_path / "store") as hub:
        run(sys.executable, push, tmp_path / "push", hub, path=str(tmp_path / "tagger"))
        said = run(make_environment(tmp_path / "environment"), tag, tmp_path / "tag", hub, texts=texts)
    here = pipeline("token-classification", str(tmp_path / "tagger"), aggregation_strategy="simple")(texts)
    assert said["entities"] == [[[e["word"], e["start"], e["end"]] for e in found] for found in here]
    assert sum(map(len, said["entities"])) > len(texts) / 2
    for text, entities in zip(texts, said["entities"]):
        for word, start, end in entities:
            assert "".join(text[start:end].split()) == "".join(word.split())
