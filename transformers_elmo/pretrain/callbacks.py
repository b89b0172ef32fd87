# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Callbacks of training: progress in the terminal, a clean stop on Ctrl-C, and learning curves."""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import TrainerCallback

from ..files import new_file


class Progress(TrainerCallback):
    """Show a progress bar of words with speed, loss and remaining time; outside a terminal, print one line per log.

    Also set `state.epoch` to the number of passes over the text, and the intervals of a resumed run.
    """

    METRICS = {"loss": "loss", "eval_perplexity": "perplexity"}  # key in the log: name that is shown

    def __init__(self, words_per_step: int, words_per_epoch: int):
        self.words_per_step, self.words_per_epoch = words_per_step, words_per_epoch
        self.bar: tqdm | None = None
        self.shown: dict[str, str] = {}
        self.first_step, self.start_time = 0, 0.0

    def on_train_begin(self, args, state, control, **kwargs):
        state.compute_steps(args, state.max_steps)  # the intervals of this run; a resumed state has its own
        self.first_step, self.start_time = state.global_step, time.monotonic()
        if state.is_world_process_zero:
            self.bar = tqdm(
                total=state.max_steps * self.words_per_step,
                initial=state.global_step * self.words_per_step,
                unit=" words",
                unit_scale=True,
                desc="training",
                disable=None,
                smoothing=0.05,
            )

    def on_step_end(self, args, state, control, **kwargs):
        state.epoch = state.global_step * self.words_per_step / self.words_per_epoch
        if self.bar is not None:
            self.bar.update(self.words_per_step)

    def on_log(self, args, state, control, logs=None, **kwargs):
        metrics = {name: f"{logs[key]:.4g}" for key, name in self.METRICS.items() if key in (logs or {})}
        if self.bar is None or not metrics:
            return
        self.shown |= metrics
        self.bar.set_postfix(self.shown)
        if self.bar.disable:
            shown = " ".join(f"{name} {value}" for name, value in metrics.items())
            steps, seconds = state.global_step - self.first_step, time.monotonic() - self.start_time
            left = tqdm.format_interval((state.max_steps - state.global_step) * seconds / max(steps, 1))
            speed = steps * self.words_per_step / max(seconds, 1e-9)
            print(
                f"step {state.global_step}/{state.max_steps} epoch {state.epoch:.3f} {shown} "
                f"{speed:,.0f} words/s {left} left",
                flush=True,
            )

    def on_train_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.close()


class StopOnSignal(TrainerCallback):
    """Save a checkpoint and stop after the current step on SIGINT (Ctrl-C) or SIGTERM; a second signal stops at once.

    torchrun forwards Ctrl-C to processes that already got it from the terminal, so a second signal within
    SAME_SIGNAL_SECONDS is ignored.
    """

    SAME_SIGNAL_SECONDS = 2.0

    def __init__(self):
        self.requested, self.requested_at = False, 0.0

    @contextlib.contextmanager
    def handle_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
            yield
            return
        previous = {number: signal.signal(number, self.on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def on_signal(self, number, frame):
        if not self.requested:
            self.requested, self.requested_at = True, time.monotonic()
            with contextlib.suppress(RuntimeError):  # the signal has interrupted another print, of the progress bar
                print("\nstopping after this step; press Ctrl-C again to stop at once", file=sys.stderr, flush=True)
        elif time.monotonic() - self.requested_at > self.SAME_SIGNAL_SECONDS:
            raise KeyboardInterrupt

    def on_step_end(self, args, state, control, **kwargs):
        requested = self.requested
        if args.world_size > 1:  # if one process has to stop, all stop
            total = torch.tensor(float(requested), device=args.device)
            torch.distributed.all_reduce(total)
            requested = bool(total)
        if requested:
            self.requested = control.should_save = control.should_training_stop = True


class Curves(TrainerCallback):
    """Plot loss and perplexity after each evaluation."""

    def __init__(self, path: Path):
        self.path = path

    def on_evaluate(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            plot_curves(state.log_history, self.path)

    on_train_end = on_evaluate


def plot_curves(history: list[dict], path: Path):
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return  # training does not depend on the plot
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes, names, title in (
        (left, {"loss": "training, sampled softmax", "eval_loss": "held out, full softmax"}, "loss"),
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
