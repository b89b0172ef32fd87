"""The job behind `elmo pretrain`: text files to a checkpoint."""

import importlib.util
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import set_seed

from ..checkpoints import has_lm_head, load_config, load_model, load_tokenizer
from ..configuration_elmo import ElmoConfig
from ..modeling_elmo import ElmoForPreTraining
from ..text import find_files
from ..tokenization_elmo import ElmoTokenizer, read_vocabulary
from .corpus import Corpus, Splitting, corpus_of_files
from .recipe import Recipe
from .trainer import SETTINGS_FILE, Settings, last_perplexities, pretrain


@dataclass
class Texts:
    """What is read: files and globs, and how they are split."""

    files: list[str]
    held_out: list[str] | None
    splitting: Splitting
    column: str
    encoding_errors: str
    cache: Path

    def corpus(self, patterns: list[str], tokenizer: ElmoTokenizer) -> Corpus:
        files = find_files(patterns)
        corpus = corpus_of_files(files, self.cache, tokenizer, self.splitting, self.column, self.encoding_errors)
        if not len(corpus):
            raise ValueError(f"The text must hold words; {', '.join(map(str, files))} holds none.")
        return corpus


@dataclass
class Start:
    """What is trained: a checkpoint, or a new model of some size."""

    init: str | None = None
    size: str | None = None
    config: Path | None = None
    vocab: Path | None = None
    vocab_size: int = 40_000
    min_count: int = 2

    def __post_init__(self):
        if self.init and (self.size or self.config):
            raise ValueError(
                "--size and --config are for a new model, and --init has sizes of its own: leave them out."
            )

    def read(self) -> tuple[ElmoConfig, ElmoTokenizer]:
        """The sizes of the model, and a tokenizer that splits and spells words as it wants them."""
        if self.init:
            return load_config(self.init), load_tokenizer(self.init)
        fields = {}
        if self.config:
            try:
                fields = json.loads(self.config.read_text(encoding="utf-8"))
            except ValueError as error:
                raise ValueError(f"{self.config} must hold a JSON object of fields of ElmoConfig: {error}") from None
        config = getattr(ElmoConfig, self.size or "mini")(**fields)
        return config, ElmoTokenizer(max_characters_per_token=config.max_characters_per_token)

    def make(
        self, config: ElmoConfig, tokenizer: ElmoTokenizer, corpus: Corpus, recipe: Recipe
    ) -> tuple[ElmoForPreTraining, ElmoTokenizer]:
        """The model with its softmax, and its tokenizer with a vocabulary: the checkpoint's, one given or a new one."""
        config.dropout, config.num_negative_samples = recipe.dropout, recipe.negative_samples
        if self.init and (has_lm_head(config) or "words" in config.inputs):
            if self.vocab:
                raise ValueError(f"{self.init} has a vocabulary of its own; leave --vocab out.")
        else:
            if self.vocab:
                words = read_vocabulary(self.vocab)
                check_vocabulary(words, corpus, ["<S>", "</S>", "<UNK>"], str(self.vocab))
            else:
                words = corpus.vocabulary(self.min_count, self.vocab_size)
                if not words:
                    raise ValueError(f"No word occurs {self.min_count} times in the text; lower --min-count.")
            tokenizer = ElmoTokenizer(
                vocab=words,
                char_vocab=tokenizer.char_vocab,
                swap_word_marks=tokenizer.swap_word_marks,
                max_characters_per_token=tokenizer.max_characters_per_token,
            )
            config.vocab_size = len(tokenizer)
        if not self.init:
            return ElmoForPreTraining(config), tokenizer
        return load_model(self.init, config, with_lm_head=True, dtype=torch.float32), tokenizer


def pretrain_from_texts(texts: Texts, start: Start, settings: Settings, resume: bool) -> bool:
    """Text files to a checkpoint, as `elmo pretrain` does it; whether it came to its end."""
    if importlib.util.find_spec("accelerate") is None:
        raise ValueError("Training needs accelerate: pip install 'transformers-elmo[train]'.")
    output = Path(settings.output)
    if resume and not (output / SETTINGS_FILE).is_file():
        raise ValueError(f"There is nothing to resume in {output}; leave --resume out, or give the folder of the run.")
    if not resume and output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(f"{output} is there already; give --resume to go on with it, or another --output.")
    config, tokenizer = start.read()
    with main_process_first(settings.on_cpu):
        corpus = texts.corpus(texts.files, tokenizer)
        held_out = texts.corpus(texts.held_out, tokenizer) if texts.held_out else None
    set_seed(settings.seed)
    model, tokenizer = start.make(config, tokenizer, corpus, settings.recipe)
    settings.files = [path.name for path in find_files(texts.files)]
    settings.text = {"files": settings.files, **asdict(texts.splitting), "column": texts.column}
    trainer = pretrain(model, tokenizer, corpus, settings, held_out, resume)
    trainer.accelerator.end_training()  # gloo aborts now and then where several processes end without it
    if not trainer.is_world_process_zero():
        return not trainer.stopped
    if trainer.stopped:
        print(f"stopped at step {trainer.state.global_step}; go on with --resume")
        return False
    found = last_perplexities(trainer.state.log_history)
    held_out = ", held-out perplexity {:.2f} (forward {:.2f}, backward {:.2f})".format(*found) if found else ""
    print(f"{output}: {trainer.state.global_step:,} steps{held_out}")
    return True


@contextmanager
def main_process_first(cpu: bool) -> Iterator[None]:
    """Of several processes one does it, and the others find it done."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        yield
        return
    from accelerate import PartialState

    with PartialState(cpu=cpu).main_process_first():
        yield


def check_vocabulary(words: list[str], corpus: Corpus, specials: list[str], name: str):
    """Refuse a vocabulary that would be sampled wrongly: the special tokens first, then words by their frequency."""
    missing = [token for token in specials if token not in words[: len(specials)]]
    if missing:
        raise ValueError(
            f"{name} must begin with {', '.join(specials)}, a line each; it lacks {', '.join(missing)} there."
        )
    counts = dict(zip(corpus.words, corpus.counts.tolist()))
    found = np.array([counts.get(word, 0) for word in words[len(specials) :]], dtype=np.float64)
    if len(found) > 2 and found.std():
        # Spearman's: 1 if the most frequent words come first, about 0 for an alphabetical list.
        ranks = np.empty(len(found))
        ranks[np.argsort(-found, kind="stable")] = np.arange(len(found))
        if np.corrcoef(ranks, np.arange(len(found)))[0, 1] < 0.3:
            raise ValueError(
                f"{name} must be sorted by frequency, the most frequent words first, and in this text they are not: "
                "training draws its samples by that order. Sort it, or leave it out to have one counted."
            )
