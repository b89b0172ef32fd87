"""Train a tagger with the stock Trainer, evaluate it with seqeval, and use the saved checkpoint in a pipeline.

The file, plain or .gz, has a word and its tag on each line (first and last column) and a blank line after each
sentence. Every tenth sentence is held out. Training from random weights takes three minutes on one busy core; more
threads than idle cores make it slower, hence OMP_NUM_THREADS.

    $ OMP_NUM_THREADS=1 python examples/train_tagger.py ../shared/data/ner-wikigold/all.txt.gz tagger
    {'loss': '0.7686', 'grad_norm': '0.6976', 'learning_rate': '0.002468', 'epoch': '1'}
    ...
    {'loss': '0.08988', 'grad_norm': '0.5506', 'learning_rate': '2.894e-06', 'epoch': '16'}
                  precision    recall  f1-score   support

             LOC      0.632     0.713     0.670       101
            MISC      0.405     0.492     0.444        61
             ORG      0.495     0.580     0.534        88
             PER      0.756     0.812     0.783        80

       micro avg      0.578     0.661     0.617       330
    ...
    PER Ann Lee
    LOC London
    MISC Bo
    MISC Rome
"""

import sys
from itertools import groupby

from seqeval.metrics import classification_report, f1_score
from transformers import DataCollatorForTokenClassification, Trainer, TrainingArguments, pipeline, set_seed

from transformers_elmo import ElmoConfig, ElmoForTokenClassification, ElmoTokenizer
from transformers_elmo.text import read_lines

MODEL = None  # name or folder of a checkpoint; None trains all weights from random initial values
SIZES = {
    "char_filters": [[1, 16], [2, 32], [3, 64]],
    "num_highway_layers": 1,
    "lstm_dim": 128,
    "projection_dim": 64,
    "num_hidden_layers": 1,
    "dropout": 0.3,
    "freeze_bilm": False,
}
TRAINING = {"num_train_epochs": 16, "per_device_train_batch_size": 16, "learning_rate": 4e-3, "weight_decay": 0.01}
TRAINING |= {"warmup_steps": 0.1, "eval_strategy": "epoch", "logging_strategy": "epoch", "save_strategy": "no"}
TRAINING |= {"report_to": "none", "disable_tqdm": True}


def read_sentences(path: str) -> list[tuple[list[str], list[str]]]:
    """Return the words and the tags of each sentence."""
    blocks = groupby(read_lines(path), key=lambda line: bool(line.strip()))
    rows = [[line.split() for line in lines] for has_words, lines in blocks if has_words]
    sentences = [
        ([columns[0] for columns in sentence], [columns[-1] for columns in sentence])
        for sentence in rows
        if sentence[0][0] != "-DOCSTART-"
    ]
    if len(sentences) < 2:
        raise ValueError(f"{path} must have at least two sentences, one to train on and one to hold out.")
    return sentences


def main(path: str, folder: str):
    set_seed(0)
    sentences = read_sentences(path)
    labels = sorted({tag for _, tags in sentences for tag in tags})
    label_maps = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    if MODEL is None:
        tokenizer = ElmoTokenizer()
        model = ElmoForTokenClassification(ElmoConfig(vocab_size=len(tokenizer), **SIZES, **label_maps))
    else:
        tokenizer = ElmoTokenizer.from_pretrained(MODEL)
        model = ElmoForTokenClassification.from_pretrained(MODEL, **label_maps)

    def encode(words, tags):
        """Tokenize a sentence; special tokens get the label -100, which the loss ignores."""
        features = tokenizer(words, is_split_into_words=True)
        return {**features, "labels": [-100 if i is None else labels.index(tags[i]) for i in features.word_ids()]}

    def gold_and_predicted_tags(prediction):
        gold, predicted = prediction.label_ids, prediction.predictions.argmax(-1)
        return [[[labels[i] for i in row[mask]] for row, mask in zip(ids, gold != -100)] for ids in (gold, predicted)]

    data = [encode(*sentence) for sentence in sentences]
    held_out = data[::10]
    trainer = Trainer(
        model=model,
        args=TrainingArguments(folder, **TRAINING),
        train_dataset=[example for i, example in enumerate(data) if i % 10],
        eval_dataset=held_out,
        data_collator=DataCollatorForTokenClassification(tokenizer),
        processing_class=tokenizer,
        compute_metrics=lambda prediction: {"f1": f1_score(*gold_and_predicted_tags(prediction))},
    )
    trainer.train()
    print(classification_report(*gold_and_predicted_tags(trainer.predict(held_out)), digits=3))
    trainer.save_model(folder)
    text = "Ann Lee, of London, met Bo in Rome."
    for entity in pipeline("token-classification", folder, aggregation_strategy="simple")(text):
        print(entity["entity_group"], text[entity["start"] : entity["end"]])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: train_tagger.py FILE FOLDER")
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
