# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""A Trainer for the two language models: LSTM states carried between windows, exact resume, and optimizers."""

import math
import shutil
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainerControl, TrainingArguments

from ..files import reason
from ..modeling_elmo import BiLMState, ElmoForPreTraining
from .output import SETTINGS_FILE, last_checkpoint, remove_old_checkpoints, write_checksums
from .recipe import Settings
from .windows import IGNORE_INDEX, Windows


class ElmoPretrainer(Trainer):
    """A Trainer that carries the LSTM states from window to window and resumes exactly from a checkpoint."""

    optimizer: torch.optim.Optimizer | None
    control: TrainerControl

    def __init__(
        self,
        model: ElmoForPreTraining,
        *,
        windows: Windows,
        held_out: Windows | None,
        settings: Settings,
        steps: int,
    ):
        recipe = settings.recipe
        arguments = TrainingArguments(
            settings.output,
            max_steps=steps,
            learning_rate=recipe.learning_rate,
            lr_scheduler_type=recipe.schedule,
            warmup_steps=round(recipe.warmup_ratio * steps),
            max_grad_norm=recipe.max_grad_norm,
            gradient_accumulation_steps=settings.gradient_accumulation,
            per_device_train_batch_size=recipe.rows,
            bf16=settings.bf16,
            use_cpu=uses_cpu(settings),
            seed=settings.seed,
            logging_steps=settings.log_every,
            logging_nan_inf_filter=False,
            eval_strategy="steps" if held_out is not None else "no",
            eval_steps=settings.eval_every,
            save_steps=settings.save_every,
            ignore_data_skip=True,  # the windows restore their own position
            disable_tqdm=True,
            report_to=settings.report_to,
            ddp_backend="gloo" if settings.processes > 1 and uses_cpu(settings) else None,
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

    @property
    def stopped(self) -> bool:
        """Whether training was stopped before its last step."""
        return self.state.global_step < self.args.max_steps

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        if self.optimizer is None:
            recipe = self.settings.recipe
            self.optimizer = OPTIMIZERS[recipe.optimizer](self.model, recipe.learning_rate)
        return self.optimizer

    def get_train_dataloader(self) -> torch.utils.data.DataLoader:
        # Not accelerate's wrapper: it prefetches a batch, so a saved position would be one batch too late. Without a
        # generator of its own, DataLoader would draw a seed from the global one, which has just been restored.
        return torch.utils.data.DataLoader(self.windows, batch_size=None, generator=torch.Generator())

    def compute_loss(self, model: nn.Module, inputs: dict, return_outputs: bool = False, num_items_in_batch=None):
        outputs = model(**inputs, state=self.lstm_state)
        self.lstm_state = outputs["state"]
        if not torch.isfinite(outputs["loss"]):
            raise RuntimeError(self._divergence_message("loss", outputs["loss"].detach(), self.state.global_step + 1))
        loss = outputs["loss"] * self.settings.recipe.loss_scale
        return (loss, outputs) if return_outputs else loss

    def _clip_grad_norm(self, model: nn.Module) -> torch.Tensor:
        norm = super()._clip_grad_norm(model)
        if not math.isfinite(float(norm)):
            raise RuntimeError(self._divergence_message("gradient norm", norm, self.state.global_step + 1))
        return norm

    def _divergence_message(self, what: str, value: torch.Tensor | float, step: int) -> str:
        ways = "from the beginning"
        if last := last_checkpoint(self.args.output_dir):
            ways += f" or from the last good weights (--init {last}, without other options of the model)"
        return (
            f"The {what} became {float(value)} at step {step}: train again in another --output with a "
            f"lower --learning-rate{' or without --bf16' * self.settings.bf16}, {ways}."
        )

    def check_weights(self):
        """Raise if training has diverged in its last step, whose effect no loss has shown yet."""
        for name, weight in self.model.named_parameters():
            if not torch.isfinite(weight).all():
                value = weight.detach()[~torch.isfinite(weight)][0]
                raise RuntimeError(self._divergence_message(f"weight {name}", value, self.state.global_step))

    def log(self, logs: dict[str, float], start_time: float | None = None):
        if "loss" in logs:
            logs["loss"] /= self.settings.recipe.loss_scale
        super().log(logs, start_time)

    @torch.no_grad()
    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix: str = "eval") -> dict[str, float]:
        """Compute the full-softmax perplexities of held-out text, carrying the LSTM states as in training."""
        windows = eval_dataset or self.held_out
        if windows is None:
            raise ValueError("Evaluation needs held-out text, and this run has none: pass eval_dataset.")
        self.model.eval()
        losses = held_out_losses(self.model, windows)  # (2, 2)
        if self.args.world_size > 1:
            losses = self.accelerator.reduce(losses.to(self.args.device)).cpu()
        forward, backward = (losses[:, 0] / losses[:, 1]).tolist()
        loss = (forward + backward) / 2
        if not math.isfinite(loss):
            raise RuntimeError(self._divergence_message("held-out loss", loss, self.state.global_step))
        metrics = {"loss": loss, "perplexity": perplexity(loss)}
        metrics |= {"forward_perplexity": perplexity(forward), "backward_perplexity": perplexity(backward)}
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in metrics.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _save_rng_state(self, output_dir: str):
        """Save, beside the random state, the position of this process in the text and its LSTM states."""
        super()._save_rng_state(output_dir)
        state = {"windows": self.windows.state_dict(), "lstm": self.lstm_state}
        torch.save(state, reader_state_file(output_dir, self.args.process_index))

    def _load_rng_state(self, checkpoint: str | None):
        super()._load_rng_state(checkpoint)
        if checkpoint is not None:
            path = reader_state_file(checkpoint, self.args.process_index)
            state = torch.load(path, map_location="cpu", weights_only=True)
            self.windows.load_state_dict(state["windows"])
            outputs, cells = state["lstm"]
            self.lstm_state = outputs.to(self.args.device), cells.to(self.args.device)

    def _save_checkpoint(self, model: nn.Module, trial):
        self.check_weights()
        output, step = Path(self.args.output_dir), self.state.global_step
        folder = output / f"checkpoint-{step}"
        is_main = self.is_world_process_zero()
        if is_main:
            shutil.rmtree(folder, ignore_errors=True)  # an incomplete or damaged one
        self.accelerator.wait_for_everyone()
        try:
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if is_main:
                shutil.copyfile(output / SETTINGS_FILE, folder / SETTINGS_FILE)
                write_checksums(folder)  # last: a checkpoint without them is incomplete
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, Exception):  # torch, safetensors and tokenizers raise errors of their own
                message = f"The checkpoint {folder} could not be written ({reason(error)}): is the disk full?"
                raise OSError(message) from error
            raise
        if is_main:
            remove_old_checkpoints(output, step)


def uses_cpu(settings: Settings) -> bool:
    return settings.cpu or not torch.accelerator.is_available()


def held_out_losses(model: ElmoForPreTraining, windows: Windows) -> torch.Tensor:
    """Return the sum of -log p and the number of words of each direction, (2, 2), carrying the LSTM states."""
    state, sums = None, torch.zeros(2, 2, dtype=torch.float64)
    for batch in windows:
        batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
        outputs = model(**batch, state=state)
        state = outputs.state
        counts = (batch["targets"] != IGNORE_INDEX).sum((1, 2)).cpu()  # (2,)
        losses = torch.stack([outputs.forward_loss, outputs.backward_loss]).double().cpu()
        sums += torch.stack([losses * counts, counts], 1)
    return sums


def perplexity(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf


def last_perplexities(history: list[dict]) -> tuple[float, float, float] | None:
    """Return the last held-out perplexities in a log: of both directions, forward and backward."""
    for row in reversed(history):
        if "eval_perplexity" in row:
            return row["eval_perplexity"], row["eval_forward_perplexity"], row["eval_backward_perplexity"]
    return None


def reader_state_file(checkpoint: str | Path, rank: int) -> Path:
    return Path(checkpoint) / f"reader_state-{rank}.pt"


class MuonAndAdamW(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024) for the matrices between hidden layers, AdamW for all other parameters:
    embeddings, the output layer, convolutions, biases. Trainer sees one optimizer with two parameter groups."""

    def __init__(self, model: nn.Module, lr: float):
        tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)} | {id(model.lm_head.weight)}
        matrices = [p for p in model.parameters() if p.dim() == 2 and id(p) not in tables]
        others = [p for p in model.parameters() if p.dim() != 2 or id(p) in tables]
        self.optimizers = (
            # Updates have the RMS of AdamW's, so that both can use the same learning rate.
            torch.optim.Muon(matrices, lr, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr, betas=(0.9, 0.99), weight_decay=0.0, fused=True),
        )
        super().__init__([group for optimizer in self.optimizers for group in optimizer.param_groups], {})
        self._share_state()

    def _share_state(self):
        """Let both optimizers use the parameter groups and the state that this optimizer saves and loads."""
        for optimizer, group in zip(self.optimizers, self.param_groups):
            optimizer.param_groups, optimizer.state = [group], self.state

    def load_state_dict(self, state_dict: dict):
        super().load_state_dict(state_dict)
        self._share_state()

    def step(self, closure=None):
        for optimizer in self.optimizers:
            optimizer.step()


OPTIMIZERS = {
    "muon": MuonAndAdamW,
    # bilm-tf's optimizer and its initial accumulator.
    "adagrad": lambda model, lr: torch.optim.Adagrad(model.parameters(), lr, initial_accumulator_value=1.0, fused=True),
}
