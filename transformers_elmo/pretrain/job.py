# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""The job behind `elmo pretrain`: text files to a checkpoint.

`pretrain_from_texts` is the front door; `pretrain` trains a given model on a given corpus.
"""

import difflib
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from transformers import TrainerCallback, set_seed
from transformers.integrations import get_available_reporting_integrations
from transformers.trainer_callback import PrinterCallback, TrainerState

from ..checkpoints import has_lm_head, is_quantized, load_config, load_model, load_tokenizer
from ..configuration_elmo import ElmoConfig
from ..files import new_file, new_files, one_line, read_json
from ..memory import keep_freed_memory
from ..model_card import model_card
from ..modeling_elmo import ElmoForPreTraining
from ..text import BOM, check_column, display_name, find_files
from ..tokenization_elmo import ElmoTokenizer, read_vocabulary
from .callbacks import Curves, Progress, StopOnSignal
from .card import training_section
from .corpus import Corpus, Splitting, corpus_from_files
from .output import CHECKSUMS_FILE, SETTINGS_FILE, checkpoints, find_damage, locked_output, rank
from .recipe import CACHE, MAX_NUMBER, Recipe, Settings, check_initial_model, check_number
from .trainer import ElmoPretrainer, last_perplexities, uses_cpu
from .windows import Windows

CURVES_FILE = "curves.png"
# Fields of ElmoConfig that a file of sizes and options cannot set, and what sets them.
SET_ELSEWHERE = {
    "vocab_size": "the vocabulary (--vocab-size or --vocab)",
    "dropout": "--dropout",
    "num_negative_samples": "--negative-samples",
    **dict.fromkeys(("char_vocab_size", "pad_token_id", "bos_token_id", "eos_token_id"), "the tokenizer"),
}
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
# Variables by which accelerate changes a run, and their defaults.
ACCELERATE = {
    "ACCELERATE_MIXED_PRECISION": "no",
    "ACCELERATE_DYNAMO_BACKEND": "no",
    "ACCELERATE_USE_DEEPSPEED": "false",
    "ACCELERATE_USE_FSDP": "false",
    "ACCELERATE_TORCH_DEVICE": "cpu",
}
MIN_VOCAB_SIZE = 4  # the special tokens
BYTES_PER_PARAMETER = 12  # at least: the parameter, its gradient and one number of the optimizer, in float32


def pretrain_from_texts(
    texts: "Texts", initial_model: "InitialModel", settings: Settings, resume: bool = False
) -> bool:
    """Train on text files as `elmo pretrain` does. Return whether training was completed rather than stopped."""
    if importlib.util.find_spec("accelerate") is None:
        raise ValueError("Training needs accelerate: pip install 'transformers-elmo[train]'.")
    check_environment(settings)
    texts.check()
    with locked_output(Path(settings.output), resume):
        config, tokenizer = initial_model.load_config(settings.recipe)
        with main_process_first(settings):
            corpus = texts.load(texts.files, tokenizer)
            held_out = texts.load(texts.held_out, tokenizer) if texts.held_out else None
        set_seed(settings.seed)
        model, tokenizer = initial_model.load_model(config, tokenizer, corpus, settings.recipe)
        files = [path.name for path in find_files(texts.files)]
        settings.text = {"files": files, **asdict(texts.splitting), "column": texts.column}
        if initial_model.checkpoint:
            settings.initial_weights_sha256 = weights_sha256(model.elmo)
        trainer = run(model, tokenizer, corpus, settings, held_out=held_out, resume=resume)
    trainer.accelerator.end_training()  # without it, gloo sometimes aborts when several processes exit
    if trainer.is_world_process_zero():
        steps = f"{trainer.state.global_step:,}"
        perplexities = last_perplexities(trainer.state.log_history)
        if trainer.stopped:
            print(f"stopped at step {steps}; continue with --resume")
        elif perplexities:
            both, forward, backward = perplexities
            print(
                f"{settings.output}: {steps} steps, "
                f"held-out perplexity {both:.2f} (forward {forward:.2f}, backward {backward:.2f})"
            )
        else:
            print(f"{settings.output}: {steps} steps")
    return not trainer.stopped


@contextmanager
def main_process_first(settings: Settings) -> Iterator[None]:
    """Let the main process run the block first, so that the others find its results in the cache."""
    if world_size() == 1:
        yield
        return
    from accelerate import PartialState

    with PartialState(cpu=uses_cpu(settings)).main_process_first():
        yield


def check_environment(settings: Settings):
    """Raise if environment variables would change the run, or if it is to be reported to what is not installed."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    numbers = {name: os.environ.get(name, default) for name, default in alone.items()}
    by_torchrun = all(name in os.environ for name in TORCHRUN) and all(map(str.isdecimal, numbers.values()))
    if by_torchrun:
        by_torchrun = int(numbers["RANK"]) < int(numbers["WORLD_SIZE"])
    if not by_torchrun and (numbers != alone or "LOCAL_RANK" in os.environ):
        found = ", ".join(f"{name}={os.environ[name]!r}" for name in TORCHRUN if name in os.environ)
        raise ValueError(
            f"The environment variables {', '.join(TORCHRUN)} must be those that torchrun sets, got {found}: "
            "unset them, or start with torchrun."
        )
    for name, value in ACCELERATE.items():
        if (found := os.environ.get(name, value)).lower() != value:
            raise ValueError(f"The environment variable {name} must be {value!r} or unset, got {found!r}: unset it.")
    if settings.report_to not in (reporters := ["none", "all", *get_available_reporting_integrations()]):
        raise ValueError(
            f"--report-to must be one of {', '.join(reporters)}, of which the Python packages are installed; "
            f"got {settings.report_to!r}: install its package."
        )


def world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", 1))  # set by torchrun


@dataclass
class Texts:
    """The text to train on: files and globs, and how to read and split them."""

    files: list[str]
    held_out: list[str] | None = None  # to evaluate on; None holds out a part of `files`
    splitting: Splitting = field(default_factory=Splitting)
    column: str = "text"  # of .jsonl and .parquet files
    encoding_errors: str = "strict"
    cache: Path = CACHE

    def __post_init__(self):
        for files in (self.files, self.held_out):
            if isinstance(files, (str, Path)):
                raise ValueError(f"Text files must be a list of paths, got {str(files)!r}: wrap it in a list.")
        if self.encoding_errors not in ("strict", "replace"):
            raise ValueError(f"encoding_errors must be strict or replace; got {self.encoding_errors!r}.")
        self.cache = Path(self.cache)

    def check(self):
        """Raise if held-out text is also trained on, or if no file has columns to choose from."""
        files, held_out = find_files(map(str, self.files)), find_files(map(str, self.held_out or []))
        if both := {path.resolve() for path in files} & {path.resolve() for path in held_out}:
            raise ValueError(
                f"Held-out text must not be trained on; {display_name(min(both))} is in both: leave it out of one."
            )
        check_column(self.column, [*files, *held_out])

    def load(self, patterns: list[str], tokenizer: ElmoTokenizer) -> Corpus:
        files = find_files(map(str, patterns))
        corpus = corpus_from_files(
            files,
            cache=self.cache,
            tokenizer=tokenizer,
            splitting=self.splitting,
            column=self.column,
            encoding_errors=self.encoding_errors,
        )
        if not len(corpus):
            raise ValueError(f"The text must contain words; there are none in {', '.join(map(str, files))}.")
        return corpus


@dataclass
class InitialModel:
    """The model that training starts from: a checkpoint, or new weights."""

    checkpoint: str | None = None
    # For a new model: a constructor of ElmoConfig, and a JSON file of fields that override it.
    size: str | None = None
    config_file: Path | None = None
    # For a new output layer: its vocabulary, or how to select one from the words of the text.
    vocab_file: Path | None = None
    vocab_size: int | None = None  # 40,000 if None
    min_count: int | None = None  # 2 if None

    def __post_init__(self):
        check_initial_model(self.checkpoint, self.size, self.config_file)
        for name in ("vocab_size", "min_count"):
            if getattr(self, name) is not None:
                check_number(self, name, 1, MAX_NUMBER)
                if self.vocab_file:
                    raise ValueError(
                        "--vocab-size and --min-count select words of the text; leave out them or --vocab."
                    )

    def load_config(self, recipe: Recipe) -> tuple[ElmoConfig, ElmoTokenizer]:
        """Return the configuration, and a tokenizer that splits and spells words as the model expects."""
        if self.checkpoint:
            config, tokenizer = load_config(self.checkpoint), load_tokenizer(self.checkpoint)
        else:
            fields = read_config_fields(Path(self.config_file)) if self.config_file else {}
            try:
                # The size of the vocabulary is known when the text has been read.
                config = getattr(ElmoConfig, self.size or "mini")(vocab_size=MIN_VOCAB_SIZE, **fields)
            except (ValueError, TypeError) as error:
                raise ValueError(
                    f"{self.config_file} must be a JSON object of ElmoConfig fields: {one_line(error)}."
                ) from None
            tokenizer = ElmoTokenizer(max_characters_per_token=config.max_characters_per_token)
        check_memory(config, recipe)
        return config, tokenizer

    def load_model(
        self, config: ElmoConfig, tokenizer: ElmoTokenizer, corpus: Corpus, recipe: Recipe
    ) -> tuple[ElmoForPreTraining, ElmoTokenizer]:
        """Return the model with an output layer, and its tokenizer with a vocabulary."""
        config.dropout, config.num_negative_samples = recipe.dropout, recipe.negative_samples
        if self.checkpoint and (has_lm_head(config) or "words" in config.inputs):
            if self.vocab_file or self.vocab_size or self.min_count:
                raise ValueError(
                    f"{self.checkpoint} has a vocabulary already; leave out --vocab, --vocab-size and --min-count."
                )
        else:
            tokenizer = ElmoTokenizer(
                vocab=self.select_vocabulary(corpus),
                char_vocab=tokenizer.char_vocab,
                swap_word_marks=tokenizer.swap_word_marks,
                max_characters_per_token=tokenizer.max_characters_per_token,
            )
            config.vocab_size = len(tokenizer)
            check_memory(config, recipe)
        if not self.checkpoint:
            return ElmoForPreTraining(config), tokenizer
        model = load_model(self.checkpoint, config, with_lm_head=True, dtype=torch.float32)
        return model.dequantize() if is_quantized(config) else model, tokenizer

    def select_vocabulary(self, corpus: Corpus) -> list[str]:
        if self.vocab_file:
            try:
                words = read_vocabulary(self.vocab_file)
            except UnicodeDecodeError as error:
                raise ValueError(f"{self.vocab_file} must be UTF-8 text, one word per line ({error}).") from None
            words[:1] = [word.removeprefix(BOM) for word in words[:1]]
            check_vocabulary(words, corpus, str(self.vocab_file))
            return words
        min_count = self.min_count or 2
        words = corpus.vocabulary(min_count, self.vocab_size or 40_000)
        if not words:
            raise ValueError(f"No word occurs {min_count} times in the text; lower --min-count.")
        return words


def read_config_fields(path: Path) -> dict:
    """Read a JSON object of sizes and options of a new model, named as in ElmoConfig."""
    names = [name for name in ElmoConfig.__annotations__ if name not in (*SET_ELSEWHERE, "tie_word_embeddings")]
    content = read_json(path)
    for name in content:
        if name in SET_ELSEWHERE:
            raise ValueError(f"{path} must not set {name!r}, which is set by {SET_ELSEWHERE[name]}: remove it.")
        if name not in names:
            similar = difflib.get_close_matches(name, names, n=1)
            suggestion = f"did you mean {similar[0]!r}?" if similar else f"the fields are {', '.join(names)}."
            raise ValueError(f"{path} must be a JSON object of ElmoConfig fields; {name!r} is not one: {suggestion}")
    return content


def check_memory(config: ElmoConfig, recipe: Recipe):
    """Raise if the machine has too little memory to train a model of this size."""
    import psutil

    available = psutil.virtual_memory().available
    try:
        with torch.device("meta"):  # where weights take no memory
            parameters = ElmoForPreTraining(config).num_parameters()
        characters = 2 * recipe.rows * recipe.window * config.max_characters_per_token
        needed = parameters * BYTES_PER_PARAMETER + 8 * characters
        if needed > available:
            raise ValueError(f"{parameters:,} parameters and {characters:,} characters per step need {needed:,} bytes")
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        size = one_line(error) if isinstance(error, ValueError) else "more weights than can be counted"
        raise ValueError(
            f"The model is too large to be trained here: {size}, and {available:,} bytes of memory are free."
        ) from error


def weights_sha256(model: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def vocabulary_sha256(tokenizer: ElmoTokenizer) -> str:
    """Hash what decides about the ids of words and characters."""
    words = sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0]))
    content = [words, tokenizer.char_vocab, tokenizer.swap_word_marks, tokenizer.max_characters_per_token]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def check_tokenizer(tokenizer: ElmoTokenizer, config: ElmoConfig):
    """Raise if the model cannot read the words and characters of this tokenizer."""
    sizes = [("words", config.vocab_size, len(tokenizer))]
    if "characters" in config.inputs:
        sizes.append(("characters per word", config.max_characters_per_token, tokenizer.max_characters_per_token))
    for what, expected, found in sizes:
        if found != expected:
            raise ValueError(f"The model needs a tokenizer of {expected:,} {what}, got one of {found:,}.")
    for name in ("pad_token", "bos_token", "eos_token", "unk_token"):
        if getattr(tokenizer, name) is None:
            raise ValueError(f"The tokenizer must have a {name}, and has none.")


def check_vocabulary(words: list[str], corpus: Corpus, name: str):
    """Raise if negative sampling would go wrong: special tokens come first, then words by decreasing frequency."""
    specials = ["<S>", "</S>", "<UNK>"]
    missing = [token for token in specials if token not in words[: len(specials)]]
    if missing:
        raise ValueError(f"{name} must begin with {', '.join(specials)}, one per line; missing: {', '.join(missing)}.")
    for number, word in enumerate(words, start=1):
        if word.split() != [word]:
            raise ValueError(f"{name} must have one word per line, without spaces; line {number} is {word[:60]!r}.")
    counts = dict(zip(corpus.words, corpus.counts.tolist()))
    frequencies = np.array([counts.get(word, 0) for word in words[len(specials) :]], dtype=np.float64)
    if not frequencies.any():
        raise ValueError(f"{name} must have words of the text; none of them occurs in it.")
    if len(frequencies) > 2 and frequencies.std():
        # Spearman's rank correlation: 1 for words sorted by frequency, about 0 for an alphabetical list.
        ranks = np.empty(len(frequencies))
        ranks[np.argsort(-frequencies, kind="stable")] = np.arange(len(frequencies))
        if np.corrcoef(ranks, np.arange(len(frequencies)))[0, 1] < 0.3:
            raise ValueError(
                f"{name} must be sorted by frequency in the text, the most frequent words first, and is not: "
                "negative samples are drawn by rank. Sort it, or leave out --vocab to select words from the text."
            )


def pretrain(
    model: ElmoForPreTraining,
    tokenizer: ElmoTokenizer,
    corpus: Corpus,
    settings: Settings,
    *,
    held_out: Corpus | None = None,
    resume: bool = False,
    callbacks: list[TrainerCallback] | None = None,
) -> ElmoPretrainer:
    """Train a model and save it to `settings.output`, with a model card and learning curves.

    Without a held-out corpus, sentences of the corpus are held out. Return the trainer; if its `stopped` is
    true, a signal stopped training, and only a checkpoint to resume from has been saved.
    """
    check_environment(settings)
    with locked_output(Path(settings.output), resume):
        return run(model, tokenizer, corpus, settings, held_out=held_out, resume=resume, callbacks=callbacks)


def run(
    model: ElmoForPreTraining,
    tokenizer: ElmoTokenizer,
    corpus: Corpus,
    settings: Settings,
    *,
    held_out: Corpus | None,
    resume: bool,
    callbacks: list[TrainerCallback] | None = None,
) -> ElmoPretrainer:
    """Do the work of `pretrain` in an output folder that is locked."""
    keep_freed_memory()
    output, recipe = Path(settings.output), settings.recipe
    settings.text |= {"sha256": corpus.sha256, "held_out_sha256": None if held_out is None else held_out.sha256}
    settings.vocabulary_sha256 = vocabulary_sha256(tokenizer)
    check_tokenizer(tokenizer, model.config)
    if held_out is None:
        train_sentences, held_out_sentences = hold_out(corpus, settings.held_out_words, settings.seed)
        held_out = corpus
    else:
        train_sentences, held_out_sentences = np.arange(len(corpus)), np.arange(len(held_out))
        if not len(held_out):
            raise ValueError("The held-out text must contain words; there are none.")
    words = int(np.diff(corpus.offsets)[train_sentences].sum()) + len(train_sentences)  # with sentence ends
    settings.processes = world_size()
    if words < settings.words_per_step:
        raise ValueError(
            f"The text has {words:,} words to train on, and a step reads {settings.words_per_step:,}: "
            "use more text, fewer --rows or a shorter --window."
        )
    settings.text |= {"words": words, "sentences": len(train_sentences), "held_out": len(held_out_sentences)}
    settings.model = model.config.to_diff_dict()
    settings.model.pop("transformers_version", None)
    steps = settings.steps or recipe.epochs * words / settings.words_per_step
    if steps > MAX_NUMBER:
        raise ValueError(f"A run must have at most {MAX_NUMBER:,} steps; {recipe.epochs:g} epochs have {steps:.3g}.")
    steps = max(round(steps), 1)

    shape = {"rows": recipe.rows, "window": recipe.window}
    process = {"rank": rank(), "world_size": settings.processes}
    windows = Windows(corpus, tokenizer, train_sentences, seed=settings.seed, **shape, **process)
    held_out_windows = None
    if len(held_out_sentences):
        held_out_windows = Windows(held_out, tokenizer, held_out_sentences, epochs=1, **shape, **process)
    trainer = ElmoPretrainer(model, windows=windows, held_out=held_out_windows, settings=settings, steps=steps)
    stop = StopOnSignal()
    trainer.remove_callback(PrinterCallback)
    for callback in (
        *(callbacks or []),
        Progress(settings.words_per_step, words),
        stop,
        Curves(output / CURVES_FILE),
    ):
        trainer.add_callback(callback)

    checkpoint = checkpoint_to_resume(settings) if resume else None
    if trainer.is_world_process_zero():
        with new_file(output / SETTINGS_FILE) as unfinished:
            unfinished.write_text(json.dumps(asdict(settings), indent=2) + "\n", encoding="utf-8")
        print(
            f"{words:,} words in {len(train_sentences):,} sentences, vocabulary of {len(tokenizer):,}; "
            f"{model.num_parameters():,} parameters; {steps:,} steps of {settings.words_per_step:,} words, "
            f"{steps * settings.words_per_step / words:.2f} epochs",
            flush=True,
        )
    saved_state = checkpoint and TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    if saved_state and saved_state.global_step >= steps:  # killed between the last step and the final save
        trainer.state = saved_state
        trainer._load_from_checkpoint(str(checkpoint))
    else:
        with stop.handle_signals():
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if not trainer.stopped and trainer.is_world_process_zero():
        save(trainer, corpus, settings)
    trainer.accelerator.wait_for_everyone()  # if a process fails meanwhile, torchrun kills the one that saves
    return trainer


def hold_out(corpus: Corpus, words: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Split the sentences at random into those to train on and those to hold out: `words` words, at most 5%."""
    words = min(words, len(corpus.tokens) // 20)
    order = np.random.default_rng([seed, 0x5EED]).permutation(len(corpus))
    lengths = np.diff(corpus.offsets)[order]
    number = int(np.searchsorted(np.cumsum(lengths), words, side="right"))
    return np.sort(order[number:]), np.sort(order[:number])


def checkpoint_to_resume(settings: Settings) -> Path | None:
    """Return the last undamaged checkpoint of the run, None to start from the beginning.

    Raise if the run has other settings, or if all of its complete checkpoints are damaged.
    """
    output = Path(settings.output)
    check_same_run(settings, output)
    last, problems, damaged = None, [], False
    for _, path in checkpoints(output):
        problem = find_damage(path)
        if problem is None:
            check_same_run(settings, path)
            last = path
            break
        problems.append(f"{path} cannot be used ({problem})")
        damaged |= (path / CHECKSUMS_FILE).exists()  # else it is incomplete: the run was killed while it was written
    if last is None and damaged:
        raise ValueError(
            f"{output} has no undamaged checkpoint; {'; '.join(problems)}: restore one from a copy, or remove them "
            "to train from the beginning."
        )
    if problems and rank() == 0:
        where = f"continues from {last.name}" if last else "starts from the beginning"
        print(f"{'; '.join(problems)}: training {where}.", file=sys.stderr)
    return last


def check_same_run(settings: Settings, folder: Path):
    """Raise if the settings in a folder are not those of this run."""
    saved = read_json(folder / SETTINGS_FILE)
    if "vocabulary_sha256" not in saved:
        raise ValueError(
            f"{folder} was written by an older version of transformers-elmo, whose runs cannot be resumed: "
            "start a new run in another --output."
        )
    differences = settings.differences(saved)
    if differences:
        raise ValueError(
            f"A run must be resumed with its own settings, but in {folder} {'; '.join(differences)}: "
            "restore them, or start a new run in another --output."
        )


def save(trainer: ElmoPretrainer, corpus: Corpus, settings: Settings):
    """Save the model, its tokenizer and its card; move them into the output folder when all are complete."""
    model, output = trainer.model, Path(settings.output)
    weights = {name: w.half() if settings.save_half else w for name, w in model.state_dict().items()}
    for name, weight in weights.items():
        if not torch.isfinite(weight).all():
            raise ValueError(f"{name} has numbers beyond float16: leave out --half, and continue with --resume.")
    with new_files(output, last="config.json") as unfinished:
        # The configuration says float32 even if the weights are stored in float16: the model computes in float32.
        model.save_pretrained(unfinished, state_dict=weights)
        trainer.processing_class.save_pretrained(unfinished)
        section = training_section(
            model.config,
            corpus=corpus,
            settings=settings,
            steps=trainer.state.global_step,
            perplexities=last_perplexities(trainer.state.log_history),
        )
        card = model_card(
            model.config,
            name=output.name,
            num_parameters=model.num_parameters(),
            language=settings.language,
            license=settings.license,
            sections=[section],
        )
        (unfinished / "README.md").write_text(card, encoding="utf-8")
