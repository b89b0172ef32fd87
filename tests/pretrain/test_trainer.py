"""The trainer: its recipes and optimizers against plain steps, and training that fails."""

import copy
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from transformers import TrainerCallback

from helpers.models import tiny_config
from helpers.pretraining import logged_losses, train
from transformers_elmo import ElmoForPreTraining, ElmoTokenizer
from transformers_elmo.pretrain.job import hold_out
from transformers_elmo.pretrain.output import last_checkpoint
from transformers_elmo.pretrain.recipe import RECIPES
from transformers_elmo.pretrain.trainer import ElmoPretrainer, MuonAndAdamW, held_out_losses
from transformers_elmo.pretrain.windows import IGNORE_INDEX, Windows


def test_gradient_accumulation_carries_states(corpus, tmp_path):
    """Two windows per step, the LSTM states carried between them: the gradient is the mean of theirs."""
    options = {"gradient_accumulation": 2, "dropout": 0.0, "negative_samples": None, "max_grad_norm": 1e9}
    trainer = train(corpus, tmp_path, steps=1, **options)
    tokenizer = ElmoTokenizer(vocab=corpus.vocabulary())
    torch.manual_seed(0)
    model = ElmoForPreTraining(trainer.model.config)
    sentences, _ = hold_out(corpus, 50_000, 0)
    windows = iter(Windows(corpus, tokenizer, sentences, rows=4, window=5, seed=0))
    first = model(**next(windows))
    second = model(**next(windows), state=first.state)
    loss = (first.loss + second.loss) / 2
    assert trainer.state.log_history[0]["loss"] == pytest.approx(float(loss.detach()), rel=1e-6)
    loss.backward()
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    assert trainer.state.log_history[0]["grad_norm"] == pytest.approx(float(norm), rel=1e-5)


def test_recipe_of_the_paper(corpus, tmp_path):
    """Adagrad with initial accumulator 1, on the gradient of loss * window, its global norm clipped to 10."""
    paper = RECIPES["paper"]
    assert (paper.rows, paper.window, paper.negative_samples, paper.dropout, paper.epochs) == (128, 20, 8192, 0.1, 10)
    names = ("optimizer", "learning_rate", "schedule", "warmup_ratio", "max_grad_norm")
    options = {name: getattr(paper, name) for name in names}
    trainer = train(corpus, tmp_path, steps=1, loss_scale=5.0, dropout=0.0, negative_samples=None, **options)
    torch.manual_seed(0)
    model = ElmoForPreTraining(trainer.model.config)
    sentences, _ = hold_out(corpus, 50_000, 0)
    windows = Windows(corpus, ElmoTokenizer(vocab=corpus.vocabulary()), sentences, rows=4, window=5, seed=0)
    loss = model(**next(iter(windows))).loss
    (5 * loss).backward()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(float(loss.detach()), rel=1e-6)  # logged unscaled
    norm = float(torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm())
    for (name, before), after in zip(model.named_parameters(), trainer.model.parameters()):
        if before.grad is not None:
            gradient = before.grad * min(1.0, 10.0 / norm)
            expected = before - 0.2 * gradient / (1 + gradient**2).sqrt()
            torch.testing.assert_close(after, expected, rtol=1e-5, atol=1e-6, msg=name)


def test_muon_and_adamw():
    """Each updates its own parameters as if it were alone, also after its state was saved and loaded."""

    def new_model() -> ElmoForPreTraining:
        torch.manual_seed(0)
        return ElmoForPreTraining(tiny_config(inputs="words+characters", num_highway_layers=1))

    def set_gradients(model):
        torch.manual_seed(1)
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)

    model, expected, reloaded = new_model(), new_model(), new_model()
    by_adamw = {name for name, p in model.named_parameters() if p.dim() != 2 or "embedding" in name}
    by_adamw |= {"lm_head.weight"}
    parts = [[p for name, p in expected.named_parameters() if (name in by_adamw) == adamw] for adamw in (False, True)]
    both = MuonAndAdamW(model, 0.1)
    assert [len(group["params"]) for group in both.param_groups] == list(map(len, parts)) and min(map(len, parts)) > 5
    alone = [
        torch.optim.Muon(parts[0], 0.1, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(parts[1], 0.1, betas=(0.9, 0.99), weight_decay=0.0, fused=True),
    ]
    for step in range(4):
        rate = 0.1 / (step + 1)  # as a schedule sets it
        for optimizer in (both, *alone):
            for group in optimizer.param_groups:
                group["lr"] = rate
        set_gradients(model)
        set_gradients(expected)
        both.step()
        alone[0].step()
        alone[1].step()
        for (name, found), parameter in zip(model.named_parameters(), expected.parameters()):
            assert torch.equal(found, parameter), name
        if step == 1:
            saved = copy.deepcopy(both.state_dict())
            reloaded.load_state_dict(model.state_dict())
            both, model = MuonAndAdamW(reloaded, 0.5), reloaded
            both.load_state_dict(saved)
    assert not torch.equal(model.lm_head.weight, new_model().lm_head.weight)


@pytest.mark.parametrize("schedule, rates", [("linear", [0, 1, 2, 1.5, 1, 0.5]), ("constant", [2] * 6)])
def test_learning_rates(corpus, tmp_path, schedule, rates):
    """The first two of six steps warm up; a linear schedule would reach zero after the last."""
    trainer = train(corpus, tmp_path, steps=6, schedule=schedule, warmup_ratio=0.34, learning_rate=2e-3)
    logged = [row["learning_rate"] for row in trainer.state.log_history if "learning_rate" in row]
    assert logged == pytest.approx([1e-3 * rate for rate in rates])


def test_evaluation_is_a_mean_over_words():
    """Not over batches: the last ones are partly padding."""
    whole = torch.ones(2, 3, 4, dtype=torch.long)
    partly_padding = whole.clone()
    partly_padding[:, 1:] = IGNORE_INDEX
    losses = [(1.0, 2.0), (5.0, 6.0)]
    outputs = [
        SimpleNamespace(forward_loss=torch.tensor(f), backward_loss=torch.tensor(b), state=None) for f, b in losses
    ]
    model = Mock(side_effect=outputs, device="cpu")
    sums = held_out_losses(model, [{"targets": whole}, {"targets": partly_padding}])
    assert sums.tolist() == [[12 * 1 + 4 * 5, 16], [12 * 2 + 4 * 6, 16]]


def test_evaluation_carries_states(corpus, tmp_path):
    """Short windows have the perplexity of one window with the whole text, where no state is lost."""
    trainer = train(corpus, tmp_path, steps=1, window=2, rows=1)
    model, windows = trainer.model, trainer.held_out
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)  # with the small weights of a new model, states hardly matter
    sentences = windows.directions[0].sentences
    whole = Windows(corpus, windows.tokenizer, sentences, rows=1, window=1000, epochs=1)
    model.eval()
    with torch.no_grad():
        (batch,) = whole
        expected = model(**batch)
    metrics = trainer.evaluate()
    for name in ("forward", "backward"):
        perplexity = float(getattr(expected, f"{name}_perplexity"))
        assert metrics[f"eval_{name}_perplexity"] == pytest.approx(perplexity, rel=1e-5)


def test_perplexity_beyond_the_largest_float(corpus, tmp_path):
    trainer = train(corpus, tmp_path, steps=1)
    trainer.model.lm_head.bias.data[0] = 1e6
    assert trainer.evaluate()["eval_perplexity"] == float("inf")
    trainer.model.lm_head.bias.data[0] = float("nan")
    with pytest.raises(RuntimeError, match="held-out loss became nan at step 1"):
        trainer.evaluate()


def test_bf16(corpus, tmp_path):
    trainer = train(corpus, tmp_path, steps=60, bf16=True)
    assert all(p.dtype == torch.float32 for p in trainer.model.parameters())
    losses = logged_losses(trainer)
    assert sum(losses[-10:]) < sum(losses[:10]) - 1


def test_loss_becomes_nan(corpus, tmp_path):
    class SetNan(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **kwargs):
            if state.global_step == 5:
                model.lm_head.bias.data.fill_(float("nan"))

    with pytest.raises(RuntimeError, match=r"loss became nan at step 6: .* last good weights \(--init .*checkpoint-4"):
        train(corpus, tmp_path, callbacks=[SetNan()])


def test_gradient_becomes_infinite(corpus, tmp_path):
    class SetInfinity(TrainerCallback):
        def on_step_begin(self, args, state, control, model=None, **kwargs):
            if state.global_step == 5:
                model.lm_head.bias.register_hook(lambda gradient: gradient * float("inf"))

    with pytest.raises(RuntimeError, match=r"gradient norm became .* at step 6: .*checkpoint-4"):
        train(corpus, tmp_path, callbacks=[SetInfinity()])


def test_full_disk(corpus, tmp_path, monkeypatch):
    original = ElmoPretrainer._save_optimizer_and_scheduler

    def fail_at_step_4(self, folder):
        if folder.endswith("-4"):
            raise RuntimeError("PytorchStreamWriter failed writing file data/3: file write failed")
        original(self, folder)

    monkeypatch.setattr(ElmoPretrainer, "_save_optimizer_and_scheduler", fail_at_step_4)
    with pytest.raises(OSError, match=r"checkpoint-4 could not be written .* is the disk full"):
        train(corpus, tmp_path)
    assert last_checkpoint(tmp_path).name == "checkpoint-2" and not (tmp_path / "checkpoint-4").exists()
