"""How the two language models are trained: recipes, and a Trainer that goes on exactly where it was stopped."""

import ctypes
import json
import math
import os
import shutil
import signal
import sys
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
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback, TrainerState

from ..files import new_file, scratch_folder
from ..model_card import model_card
from ..modeling_elmo import BiLMState, ElmoForPreTraining
from .card import Training
from .corpus import Corpus
from .recipe import Recipe
from .windows import IGNORED, Windows

SETTINGS_FILE, CURVES_FILE = "pretraining.json", "curves.png"


class MuonAndAdamW(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024) for the matrices between hidden vectors, AdamW for what it is not made for: tables of
    characters and words, convolutions, biases. To Trainer it is one optimizer with two groups of parameters."""

    def __init__(self, model: nn.Module, lr: float):
        tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)} | {id(model.lm_head.weight)}
        matrices = [p for p in model.parameters() if p.dim() == 2 and id(p) not in tables]
        others = [p for p in model.parameters() if p.dim() != 2 or id(p) in tables]
        self.parts = (
            # Scaled so that a weight moves as far as it would with AdamW at the same rate.
            torch.optim.Muon(matrices, lr, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr, betas=(0.9, 0.99), weight_decay=0.0, fused=True),
        )
        super().__init__([group for part in self.parts for group in part.param_groups], {})
        self._share()

    def _share(self):
        """The parts work on the groups and the state that this optimizer saves and loads."""
        for part, group in zip(self.parts, self.param_groups):
            part.param_groups, part.state = [group], self.state

    def load_state_dict(self, state_dict: dict):
        super().load_state_dict(state_dict)
        self._share()

    def step(self, closure=None):
        for part in self.parts:
            part.step()


OPTIMIZERS = {
    "muon": MuonAndAdamW,
    # bilm-tf's.
    "adagrad": lambda model, lr: torch.optim.Adagrad(model.parameters(), lr, initial_accumulator_value=1.0, fused=True),
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

    @property
    def on_cpu(self) -> bool:
        return self.cpu or not torch.accelerator.is_available()

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
            use_cpu=settings.on_cpu,
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
            ddp_backend="gloo" if several and settings.on_cpu else None,
            ddp_find_unused_parameters=False,
        )
        super().__init__(
            model=model,
            args=arguments,
            train_dataset=windows,
            eval_dataset=held_out,
            processing_class=windows.tokenizer,
        )
        self.windows, self.held_out, self.settings = windows, held_out, settings
        self.lstm_state: BiLMState | None = None
        self.words_of_a_step = recipe.rows * recipe.window * settings.gradient_accumulation * arguments.world_size

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        if self.optimizer is None:
            recipe = self.settings.recipe
            self.optimizer = OPTIMIZERS[recipe.optimizer](self.model, recipe.learning_rate)
        return self.optimizer

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
            reading = torch.load(self._reading_file(checkpoint), map_location="cpu", weights_only=True)
            self.windows.load_state_dict(reading["windows"])
            self.lstm_state = tuple(part.to(self.args.device) for part in reading["lstm"])

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
    """Ctrl-C, or a signal that ends programs, saves a checkpoint after the step and stops; a later one stops at once.

    torchrun passes a Ctrl-C on to processes that have it from the terminal already: what comes with the first one is
    not a second one.
    """

    TOGETHER = 2.0  # seconds

    def __init__(self):
        self.asked, self.asked_at = False, 0.0

    @contextmanager
    def listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(number, _):
            if self.asked:
                if time.monotonic() - self.asked_at > self.TOGETHER:
                    raise KeyboardInterrupt
                return
            self.asked, self.asked_at = True, time.monotonic()
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
        (left, {"loss": "training, among samples", "eval_loss": "held out, exact"}, "loss"),
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
    with new_file(path) as unfinished:
        figure.savefig(unfinished, dpi=120, format="png")


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
    found = {int(path.name.split("-")[1]): path for path in Path(folder).glob("checkpoint-[0-9]*")}
    for _, path in sorted(found.items(), reverse=True):
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
    trainer.accelerator.wait_for_everyone()  # torchrun would end the process that saves if another one failed meanwhile
    return trainer


def save(trainer: ElmoPretrainer, corpus: Corpus, settings: Settings):
    """The checkpoint with its model card, written beside and moved into the output when it is whole."""
    model, output = trainer.model, Path(settings.output)
    weights = {name: w.half() if settings.half else w for name, w in model.state_dict().items()}
    with scratch_folder(output) as unfinished:
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
            model.config,
            output.name,
            model.num_parameters(),
            settings.language,
            settings.license,
            sections=[training.section(model.config)],
        )
        (unfinished / "README.md").write_text(card, encoding="utf-8")
        for file in unfinished.iterdir():
            file.replace(output / file.name)


def last_perplexities(history: list[dict]) -> tuple[float, float, float] | None:
    """Of both directions, of the forward and of the backward one, on held-out text"""
    row = next((row for row in reversed(history) if "eval_perplexity" in row), None)
    return row and tuple(row[f"eval_{name}perplexity"] for name in ("", "forward_", "backward_"))


def write_json(path: Path, content: dict):
    with new_file(path) as unfinished:
        unfinished.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
