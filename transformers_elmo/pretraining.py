"""The job behind `elmo pretrain`: train the two language models on windows of text with the transformers Trainer."""

import ctypes
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from torch import nn
from tqdm import tqdm
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback, TrainerState

from .checkpoints import has_softmax, load_config, load_model, load_tokenizer
from .configuration_elmo import ElmoConfig
from .convert_scripts.model_card import Training, model_card
from .corpus import Corpus, Splitting, corpus_of_files, find_files
from .modeling_elmo import BiLMState, ElmoForPreTraining
from .tokenization_elmo import ElmoTokenizer, read_vocabulary
from .windows import IGNORED, Windows

SETTINGS_FILE, CURVES_FILE = "pretraining.json", "curves.png"


@dataclass
class Recipe:
    """How the weights are moved. The defaults are those for a small machine; `RECIPES` has the paper's."""

    optimizer: str = "adamw"
    learning_rate: float = 4e-3
    schedule: str = "linear"  # down to zero at the last step
    warmup: float = 0.05  # share of the steps in which the rate rises
    max_norm: float = 1.0  # of all gradients together
    loss_scale: float = 1.0  # what the loss is multiplied by before its gradient is taken
    dropout: float = 0.0
    negative_samples: int = 2048
    rows: int = 64  # of text that a process reads at once
    window: int = 20  # words of each row in a step, through which gradients flow
    epochs: float = 1.0


RECIPES = {
    "default": Recipe(),
    # bilm-tf's train_elmo.py: its loss is multiplied by the window's length, and it clips what comes of that.
    "paper": Recipe("adagrad", 0.2, "constant", 0.0, 10.0, 20.0, 0.1, 8192, 128, 20, 10.0),
}
SIZES = {name: getattr(ElmoConfig, name) for name in ("mini", "small", "medium", "original")}
OPTIMIZERS = {
    "adamw": (torch.optim.AdamW, {"betas": (0.9, 0.99), "weight_decay": 0.0, "fused": True}),
    "adagrad": (torch.optim.Adagrad, {"initial_accumulator_value": 1.0, "fused": True}),
}


@dataclass
class Settings:
    """A training run. What matters to its result must be the same when it is resumed."""

    output: str = field(metadata={"matters": False})
    recipe: Recipe = field(default_factory=Recipe)
    steps: int = 0  # 0 for the recipe's epochs
    gradient_accumulation: int = 1
    bf16: bool = False
    seed: int = 0
    held_out: int = 50_000  # words that are held out of the text, at most a twentieth of it, where no text is given
    # What is read and trained, and by how many processes; filled in by `pretrain`.
    text: dict = field(default_factory=dict)
    model: dict = field(default_factory=dict)
    processes: int = 1
    log_every: int = field(default=50, metadata={"matters": False})
    save_every: int = field(default=1000, metadata={"matters": False})
    eval_every: int = field(default=1000, metadata={"matters": False})
    report_to: str = field(default="none", metadata={"matters": False})
    cpu: bool = field(default=False, metadata={"matters": False})
    half: bool = field(default=False, metadata={"matters": False})  # the final weights in half precision
    # What the model card tells.
    language: str | None = field(default=None, metadata={"matters": False})
    license: str | None = field(default=None, metadata={"matters": False})
    command: str = field(default="", metadata={"matters": False})
    files: list[str] = field(default_factory=list, metadata={"matters": False})

    def differences(self, other: dict) -> list[str]:
        """What would not be the same in a run with the other settings, by name."""

        def flat(settings: dict) -> dict:
            found = {}
            for name in (f.name for f in fields(self) if f.metadata.get("matters", True)):
                value = settings.get(name)
                found |= {f"{name}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
            return found

        # As JSON, in which a tuple is a list.
        mine, theirs = flat(json.loads(json.dumps(asdict(self)))), flat(other)
        return [
            f"{name} is {mine.get(name)}, was {theirs.get(name)}"
            for name in sorted(mine.keys() | theirs.keys())
            if mine.get(name) != theirs.get(name)
        ]


class ElmoPretrainer(Trainer):
    """A Trainer that carries the LSTM states from window to window and goes on exactly where a checkpoint was made."""

    def __init__(
        self, model: ElmoForPreTraining, windows: Windows, held_out: Windows | None, settings: Settings, steps: int
    ):
        recipe, several = settings.recipe, int(os.environ.get("WORLD_SIZE", 1)) > 1
        arguments = TrainingArguments(
            settings.output,
            max_steps=steps,
            learning_rate=recipe.learning_rate,
            lr_scheduler_type=recipe.schedule,
            warmup_steps=round(recipe.warmup * steps),
            max_grad_norm=recipe.max_norm,
            gradient_accumulation_steps=settings.gradient_accumulation,
            per_device_train_batch_size=recipe.rows,
            bf16=settings.bf16,
            use_cpu=settings.cpu,
            seed=settings.seed,
            logging_steps=settings.log_every,
            logging_nan_inf_filter=False,
            eval_strategy="steps" if held_out is not None else "no",
            eval_steps=settings.eval_every,
            save_steps=settings.save_every,
            save_total_limit=2,
            ignore_data_skip=True,  # the windows know where they are
            disable_tqdm=True,
            report_to=settings.report_to,
            ddp_backend="gloo" if several and (settings.cpu or not torch.cuda.is_available()) else None,
            ddp_find_unused_parameters=True,  # the mix is not trained
        )
        name, options = recipe.optimizer, dict(OPTIMIZERS[recipe.optimizer][1])
        super().__init__(
            model=model,
            args=arguments,
            train_dataset=windows,
            eval_dataset=held_out,
            processing_class=windows.tokenizer,
            optimizer_cls_and_kwargs=(OPTIMIZERS[name][0], {**options, "lr": recipe.learning_rate}),
        )
        self.windows, self.held_out, self.settings = windows, held_out, settings
        self.lstm_state: BiLMState | None = None
        self.words_of_a_step = recipe.rows * recipe.window * settings.gradient_accumulation * arguments.world_size

    def get_train_dataloader(self) -> torch.utils.data.DataLoader:
        # Without accelerate's wrapper, which would read a batch ahead of what the state tells; with a generator, as it
        # would draw a number from the common one, which has just been restored.
        return torch.utils.data.DataLoader(self.windows, batch_size=None, generator=torch.Generator())

    def compute_loss(self, model: nn.Module, inputs: dict, return_outputs: bool = False, num_items_in_batch=None):
        outputs = model(**inputs, state=self.lstm_state)
        self.lstm_state = outputs["state"]
        if not torch.isfinite(outputs["loss"]):
            raise RuntimeError(self._broken("loss", float(outputs["loss"].detach())))
        loss = outputs["loss"] * self.settings.recipe.loss_scale
        return (loss, outputs) if return_outputs else loss

    def _clip_grad_norm(self, model: nn.Module) -> torch.Tensor:
        norm = super()._clip_grad_norm(model)
        if not math.isfinite(float(norm)):
            raise RuntimeError(self._broken("gradient's norm", float(norm)))
        return norm

    def _broken(self, what: str, value: float) -> str:
        last = last_checkpoint(self.args.output_dir)
        kept = f"the last good checkpoint is {last}" if last else "there is no checkpoint yet"
        return (
            f"The {what} became {value} at step {self.state.global_step + 1}; {kept}. "
            "Try a lower --learning-rate, or float32 if it was bf16."
        )

    def log(self, logs: dict[str, float], start_time: float | None = None):
        if "loss" in logs:
            logs["loss"] /= self.settings.recipe.loss_scale
        super().log(logs, start_time)

    @torch.no_grad()
    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix: str = "eval") -> dict[str, float]:
        """Perplexities of the full softmax on held-out text, the states carried as in training."""
        self.model.eval()
        losses = held_out_losses(self.model, eval_dataset or self.held_out)  # (2, 2)
        if self.args.world_size > 1:
            losses = self.accelerator.reduce(losses.to(self.args.device)).cpu()
        forward, backward = (losses[:, 0] / losses[:, 1]).tolist()
        loss = (forward + backward) / 2
        metrics = {"loss": loss, "perplexity": math.exp(loss)}
        metrics |= {"forward_perplexity": math.exp(forward), "backward_perplexity": math.exp(backward)}
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in metrics.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _reading_file(self, folder: str) -> str:
        return os.path.join(folder, f"reading-{self.args.process_index}.pt")

    def _save_rng_state(self, output_dir: str):
        """Beside the random state, where each process is in the text and what its LSTMs hold."""
        super()._save_rng_state(output_dir)
        torch.save({"windows": self.windows.state_dict(), "lstm": self.lstm_state}, self._reading_file(output_dir))

    def _load_rng_state(self, checkpoint: str | None):
        super()._load_rng_state(checkpoint)
        if checkpoint is not None:
            reading = torch.load(self._reading_file(checkpoint), map_location=self.args.device, weights_only=True)
            self.windows.load_state_dict(reading["windows"])
            self.lstm_state = reading["lstm"]

    def _save_checkpoint(self, model: nn.Module, trial):
        try:
            super()._save_checkpoint(model, trial)
        except (OSError, RuntimeError, SafetensorError) as error:
            folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            shutil.rmtree(folder, ignore_errors=True)
            raise OSError(f"The checkpoint {folder} could not be written ({error}): is the disk full?") from error


def held_out_losses(model: ElmoForPreTraining, windows: Windows) -> torch.Tensor:
    """For each direction the sum of -log p and the number of words, (2, 2), the states carried from window to window"""
    state, sums = None, torch.zeros(2, 2, dtype=torch.float64)
    for batch in windows:
        batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
        outputs = model(**batch, state=state)
        state = outputs.state
        counts = (batch["targets"] != IGNORED).sum((1, 2)).cpu()  # (2,)
        losses = torch.stack([outputs.forward_loss, outputs.backward_loss]).double().cpu()
        sums += torch.stack([losses * counts, counts], 1)
    return sums


class Progress(TrainerCallback):
    """A bar of the words read, with their rate, the loss and the time left; a line for each log where there is no
    terminal. The epoch is that of the text."""

    def __init__(self, words_of_a_step: int, words_of_an_epoch: int):
        self.words_of_a_step, self.words_of_an_epoch = words_of_a_step, words_of_an_epoch
        self.bar, self.shown = None, {}
        self.first_step, self.began = 0, 0.0

    def on_train_begin(self, args, state, control, **kwargs):
        self.first_step, self.began = state.global_step, time.monotonic()
        if state.is_world_process_zero:
            self.bar = tqdm(
                total=state.max_steps * self.words_of_a_step,
                initial=state.global_step * self.words_of_a_step,
                unit=" words",
                unit_scale=True,
                desc="training",
                disable=None,
                smoothing=0.05,
            )

    def on_step_end(self, args, state, control, **kwargs):
        state.epoch = state.global_step * self.words_of_a_step / self.words_of_an_epoch
        if self.bar is not None:
            self.bar.update(self.words_of_a_step)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.bar is None or not logs:
            return
        names = {"loss": "loss", "eval_perplexity": "perplexity"}
        self.shown |= {names[name]: f"{value:.4g}" for name, value in logs.items() if name in names}
        self.bar.set_postfix(self.shown)
        if self.bar.disable and any(name in names for name in logs):
            shown = " ".join(f"{name} {logs[key]:.4g}" for key, name in names.items() if key in logs)
            steps, seconds = state.global_step - self.first_step, time.monotonic() - self.began
            left = tqdm.format_interval((state.max_steps - state.global_step) * seconds / max(steps, 1))
            rate = steps * self.words_of_a_step / max(seconds, 1e-9)
            print(
                f"step {state.global_step}/{state.max_steps} epoch {state.epoch:.3f} {shown} "
                f"{rate:,.0f} words/s {left} left",
                flush=True,
            )

    def on_train_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.close()


class StopWhenAsked(TrainerCallback):
    """Ctrl-C, or a signal that ends programs, saves a checkpoint after the step and stops; the second one stops."""

    def __init__(self):
        self.asked = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(number, _):
            if self.asked:
                raise KeyboardInterrupt
            self.asked = True
            print("\nstopping after this step; once more to stop at once", file=sys.stderr, flush=True)

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def on_step_end(self, args, state, control, **kwargs):
        asked = self.asked
        if args.world_size > 1:  # all of them stop, or none
            asked = torch.tensor(float(asked), device=args.device)
            torch.distributed.all_reduce(asked)
        if asked:
            self.asked = control.should_save = control.should_training_stop = True


class Curves(TrainerCallback):
    """Loss and perplexity as a picture beside the checkpoint, drawn anew at each evaluation."""

    def __init__(self, path: Path):
        self.path = path

    def on_evaluate(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            draw_curves(state.log_history, self.path)

    on_train_end = on_evaluate


def draw_curves(history: list[dict], path: Path):
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return  # a picture is no reason to stop
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes, names, title in (
        (left, {"loss": "training", "eval_loss": "held out"}, "loss"),
        (right, {"eval_forward_perplexity": "forward", "eval_backward_perplexity": "backward"}, "held-out perplexity"),
    ):
        for name, label in names.items():
            points = [(row["step"], row[name]) for row in history if name in row]
            if points:
                axes.plot(*zip(*points), label=label, linewidth=1.2, marker="." if name.startswith("eval") else None)
        axes.set(title=title, xlabel="steps")
        if title != "loss":
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("{x:g}")
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend()
    beside = path.with_name(f".{path.name}")
    figure.savefig(beside, dpi=120, format="png")
    beside.replace(path)


def keep_freed_memory():
    """Have the C library keep what is freed, where it is glibc.

    A step frees and takes the same large tensors again and again, and fresh pages cost more than what is computed in
    them: a sixth of the step's time on a virtual machine.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(-4, 0)  # M_MMAP_MAX: no tensor gets pages of its own
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: nothing is given back


def last_checkpoint(folder: str | Path) -> Path | None:
    """The last checkpoint that is whole."""
    found = sorted(Path(folder).glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[-1]), reverse=True)
    for path in found:
        try:
            json.loads((path / "trainer_state.json").read_text())  # written last
            processes = len(list(path.glob("rng_state*.pth")))
            if processes and all((path / f"reading-{rank}.pt").is_file() for rank in range(processes)):
                return path
        except (OSError, ValueError):
            continue
    return None


def hold_out(corpus: Corpus, words: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sentences to train on and sentences to hold out: so many words of them, and no more than a twentieth of all."""
    words = min(words, len(corpus.tokens) // 20)
    order = np.random.default_rng([seed, 0x5EED]).permutation(len(corpus))
    sizes = np.diff(corpus.offsets)[order]
    number = int(np.searchsorted(np.cumsum(sizes), words, side="right"))
    return np.sort(order[number:]), np.sort(order[:number])


def pretrain(
    model: ElmoForPreTraining,
    tokenizer,
    corpus: Corpus,
    settings: Settings,
    held_out: Corpus | None = None,
    resume: bool = False,
    callbacks: list[TrainerCallback] | None = None,
) -> ElmoPretrainer:
    """Train, and leave a checkpoint that `from_pretrained` loads in `settings.output`, with its curves beside it.

    Without a corpus of held-out text, sentences of the corpus are held out. Returns the trainer; its `state` tells
    whether it came to the end.
    """
    keep_freed_memory()
    output, recipe = Path(settings.output), settings.recipe
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if held_out is None:
        train_sentences, other = hold_out(corpus, settings.held_out, settings.seed)
        held_out = corpus
    else:
        train_sentences, other = np.arange(len(corpus)), np.arange(len(held_out))
    words = int(np.diff(corpus.offsets)[train_sentences].sum()) + len(train_sentences)
    words_of_a_step = recipe.rows * recipe.window * settings.gradient_accumulation * world
    if words < words_of_a_step:
        raise ValueError(
            f"The text has {words:,} words to train on, and a step reads {words_of_a_step:,}: "
            "give more text, or fewer --rows or a shorter --window."
        )
    settings.text |= {"words": words, "sentences": len(train_sentences), "held out": len(other)}
    settings.model, settings.processes = model.config.to_diff_dict(), world
    settings.model.pop("transformers_version", None)
    steps = settings.steps or max(round(recipe.epochs * words / words_of_a_step), 1)
    windows = Windows(
        corpus, tokenizer, train_sentences, recipe.rows, recipe.window, seed=settings.seed, rank=rank, world=world
    )
    evaluated = None
    if len(other):
        evaluated = Windows(held_out, tokenizer, other, recipe.rows, recipe.window, epochs=1, rank=rank, world=world)
    trainer = ElmoPretrainer(model, windows, evaluated, settings, steps)
    trainer.remove_callback(PrinterCallback)
    stop = StopWhenAsked()
    for callback in (*(callbacks or []), Progress(words_of_a_step, words), stop, Curves(output / CURVES_FILE)):
        trainer.add_callback(callback)
    checkpoint = None
    if resume:
        checkpoint = last_checkpoint(output)
        different = settings.differences(json.loads((output / SETTINGS_FILE).read_text(encoding="utf-8")))
        if different:
            raise ValueError(f"A run is resumed with the settings it was started with, and {'; '.join(different)}.")
    if trainer.is_world_process_zero():
        output.mkdir(parents=True, exist_ok=True)
        write_json(output / SETTINGS_FILE, asdict(settings))
        print(
            f"{words:,} words in {len(train_sentences):,} sentences, a vocabulary of {len(tokenizer):,}; "
            f"{model.num_parameters():,} parameters; {steps:,} steps of {words_of_a_step:,} words, "
            f"{steps * words_of_a_step / words:.2f} epochs",
            flush=True,
        )
    before = checkpoint and TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    if before and before.global_step >= steps:  # nothing is left but to save it
        trainer.state = before
        trainer._load_from_checkpoint(str(checkpoint))
    else:
        with stop.listening():
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    trainer.stopped = trainer.state.global_step < steps
    if not trainer.stopped and trainer.is_world_process_zero():
        save(trainer, corpus, settings)
    return trainer


def save(trainer: ElmoPretrainer, corpus: Corpus, settings: Settings):
    """The checkpoint with its model card, written beside and moved into the output when it is whole."""
    model, output = trainer.model, Path(settings.output)
    weights = {name: w.half() if settings.half else w for name, w in model.state_dict().items()}
    unfinished = Path(tempfile.mkdtemp(dir=output, prefix=".unfinished-"))
    try:
        # In half precision too, the configuration says float32: that is what is computed in.
        model.save_pretrained(unfinished, state_dict=weights)
        trainer.processing_class.save_pretrained(unfinished)
        training = Training(
            len(corpus.tokens),
            len(corpus),
            len(corpus.words),
            trainer.state.global_step,
            trainer.words_of_a_step,
            settings.files,
            settings.command,
            last_perplexities(trainer.state.log_history),
        )
        card = model_card(
            model.config, output.name, model.num_parameters(), settings.language, settings.license, training=training
        )
        (unfinished / "README.md").write_text(card, encoding="utf-8")
        for file in unfinished.iterdir():
            file.replace(output / file.name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def last_perplexities(history: list[dict]) -> tuple[float, float, float] | None:
    """Of both directions, of the forward and of the backward one, on held-out text"""
    row = next((row for row in reversed(history) if "eval_perplexity" in row), None)
    return row and tuple(row[f"eval_{name}perplexity"] for name in ("", "forward_", "backward_"))


def write_json(path: Path, content: dict):
    beside = path.with_name(f".{path.name}")
    beside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    beside.replace(path)


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
        config = SIZES[self.size or "mini"](**fields)
        return config, ElmoTokenizer(max_characters_per_token=config.max_characters_per_token)

    def make(
        self, config: ElmoConfig, tokenizer: ElmoTokenizer, corpus: Corpus, recipe: Recipe
    ) -> tuple[ElmoForPreTraining, ElmoTokenizer]:
        """The model with its softmax, and its tokenizer with a vocabulary: the checkpoint's, one given or a new one."""
        config.dropout, config.num_negative_samples = recipe.dropout, recipe.negative_samples
        if self.init and (has_softmax(config) or "words" in config.inputs):
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
        return load_model(self.init, config, with_softmax=True, dtype=torch.float32), tokenizer


def pretrain_from_texts(texts: Texts, start: Start, settings: Settings, resume: bool) -> bool:
    """Text files to a checkpoint, as `elmo pretrain` does it; whether it came to its end."""
    output = Path(settings.output)
    before = output / SETTINGS_FILE
    if resume and not before.is_file():
        raise ValueError(f"There is nothing to resume in {output}; leave --resume out, or give the folder of the run.")
    if not resume and output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(f"{output} is there already; give --resume to go on with it, or another --output.")
    config, tokenizer = start.read()
    with main_process_first(settings.cpu):
        corpus = texts.corpus(texts.files, tokenizer)
        held_out = texts.corpus(texts.held_out, tokenizer) if texts.held_out else None
    set_seed(settings.seed)
    model, tokenizer = start.make(config, tokenizer, corpus, settings.recipe)
    settings.files = [path.name for path in find_files(texts.files)]
    settings.text = {"files": settings.files, **asdict(texts.splitting), "column": texts.column}
    trainer = pretrain(model, tokenizer, corpus, settings, held_out, resume)
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

    with PartialState(cpu=cpu or not torch.cuda.is_available()).main_process_first():
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
