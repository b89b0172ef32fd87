"""Test ElmoForPreTraining against plain autograd: one step and one word at a time, all logits at once."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from helpers.errors import assert_value_error
from helpers.models import random_batch, randomize, tiny_config
from transformers_elmo import ElmoForPreTraining, ElmoModel, modeling_elmo, softmax_elmo
from transformers_elmo.lstm_elmo import plain_lstm
from transformers_elmo.modeling_elmo import ElmoLayer, next_word_targets
from transformers_elmo.softmax_elmo import log_uniform, log_uniform_sample

OPTIONS = [
    {},
    {"inputs": "words"},
    {"inputs": "words+characters", "word_embedding_dim": 3},
    {"num_hidden_layers": 1, "num_highway_layers": 0, "char_activation": "tanh"},
    {"num_hidden_layers": 3},
    {"projection_dim": None},
    {"cell_clip": None, "projection_clip": None, "use_skip_connections": False, "forget_bias": 0.0},
]


def build(dtype=torch.float64, **options) -> ElmoForPreTraining:
    return randomize(ElmoForPreTraining(tiny_config(**{"dropout": 0.0, **options}))).to(dtype).train()


def random_windows(config, rows: int, window: int, seed: int = 0) -> dict:
    """Return the inputs of a training step: different words for each direction, a few of them without a target."""
    batch = random_batch(config, [window] * (2 * rows), seed)
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(1, config.vocab_size, (2, rows, window), generator=generator)
    targets[torch.rand(targets.shape, generator=generator) < 0.1] = -100
    shape = (2, rows, window)
    return {
        "input_ids": batch["input_ids"].view(shape),
        "char_ids": batch["char_ids"].view(*shape, -1),
        "targets": targets,
    }


def random_state(config, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    sizes = config.output_dim, config.lstm_dim
    h, c = [torch.randn(config.num_hidden_layers, 2, rows, size, generator=generator).double() for size in sizes]
    return 0.3 * h, 0.3 * c


def plain_word(model, word, chars):
    """Return the context-free vector (P,) of one word, convolved over its whole width."""
    encoder, x = model.elmo.token_encoder, []
    if encoder.word_embedding is not None:
        x.append(encoder.word_embedding.weight[word])
    if encoder.characters is not None:
        embedded = encoder.characters.embedding.weight[chars].t()[None]  # (1, D, W)
        pooled = torch.cat(
            [F.conv1d(embedded, conv.weight, conv.bias).max(-1).values for conv in encoder.characters.convolutions], 1
        )[0]
        pooled = encoder.characters.activation(pooled)
        for highway in encoder.characters.highways:
            g = torch.sigmoid(highway.carry(pooled))
            pooled = g * torch.relu(highway.transform(pooled)) + (1 - g) * pooled
        x.append(pooled)
    x = torch.cat(x)
    return x if encoder.projection is None else encoder.projection(x)


def plain_step(model, windows, state=None):
    """Return the losses of both directions and the state after the window, by autograd over a loop of steps."""
    config, targets = model.config, windows["targets"]
    _, rows, steps = targets.shape
    losses, last_h, last_c = [], [], []
    samples = None
    if model.num_samples:
        samples = [log_uniform_sample(model.num_samples, config.vocab_size - 1, "cpu") for _ in range(2)]
    for d, name in enumerate(("forward_lstm", "backward_lstm")):
        words, chars = windows["input_ids"][d], windows["char_ids"][d]
        x = torch.stack([plain_word(model, words[b, t], chars[b, t]) for t in range(steps) for b in range(rows)])
        for index, layer in enumerate(model.elmo.bilm.layers):
            h, c = torch.zeros(rows, config.output_dim).double(), torch.zeros(rows, config.lstm_dim).double()
            if state is not None:
                h, c = state[0][index, d], state[1][index, d]
            inputs = getattr(layer, name)(x, h, c)
            outputs, h, c = plain_lstm(*inputs, [rows] * steps, config.cell_clip, config.projection_clip)
            x = outputs + x if config.use_skip_connections and index else outputs  # (T * B, P)
            last_h.append(h)
            last_c.append(c)
        hidden = x.view(steps, rows, -1).transpose(0, 1)[targets[d] > 0]  # (n, P)
        rows_of_softmax = targets[d][targets[d] > 0] - 1
        losses.append(plain_loss(model, hidden, rows_of_softmax, samples and samples[d]))
    depth = config.num_hidden_layers
    state = [torch.stack(last).view(2, depth, rows, -1).transpose(0, 1) for last in (last_h, last_c)]
    return losses, state


def plain_loss(model, hidden, words, samples):
    weight, bias = model.lm_head.weight, model.lm_head.bias
    if samples is None:
        return F.cross_entropy(hidden @ weight.t() + bias, words)
    chosen, draws = samples

    def log_expected(ids):
        return torch.log(1 - (1 - log_uniform(ids, len(bias))) ** draws)

    right = (hidden * weight[words]).sum(1) + bias[words] - log_expected(words)
    others = hidden @ weight[chosen].t() + bias[chosen] - log_expected(chosen)
    others = others.masked_fill(words[:, None] == chosen, -1e300)
    return F.cross_entropy(torch.cat([right[:, None], others], 1), torch.zeros(len(words), dtype=torch.long))


def gradients_of(model, loss) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("samples", [None, 4])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "default")
def test_losses_states_and_gradients_match_plain_autograd(options, samples):
    model = build(num_negative_samples=samples, **options)
    windows, state = random_windows(model.config, 3, 6), random_state(model.config, 3)
    torch.manual_seed(5)
    got = model(**windows, state=state)
    torch.manual_seed(5)
    losses, last_state = plain_step(model, windows, state)
    torch.testing.assert_close([got.forward_loss, got.backward_loss], losses, rtol=0, atol=1e-12)
    torch.testing.assert_close(list(got.state), last_state, rtol=0, atol=1e-12)
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    for ours, plain in ((got.loss, sum(losses) / 2), (got.forward_loss, losses[0]), (got.backward_loss, losses[1])):
        found, expected = [
            torch.autograd.grad(loss, list(trained.values()), retain_graph=True, allow_unused=True)
            for loss in (ours, plain)
        ]
        for name, a, b in zip(trained, found, expected):
            if b is None:
                assert a is None or not a.any(), name
            else:
                torch.testing.assert_close(torch.zeros_like(b) if a is None else a, b, rtol=0, atol=1e-9, msg=name)


@given(rows=st.integers(1, 5), window=st.integers(1, 9), seed=st.integers(0, 99))
def test_windows_of_any_size_match_plain_autograd(rows, window, seed):
    model = build(num_negative_samples=None)
    windows = random_windows(model.config, rows, window, seed)
    windows["targets"][:, 0, 0] = 1
    losses, last_state = plain_step(model, windows)
    got = model(**windows)
    torch.testing.assert_close([got.forward_loss, got.backward_loss], losses, rtol=0, atol=1e-12)
    torch.testing.assert_close(list(got.state), last_state, rtol=0, atol=1e-12)


def test_two_windows_equal_one_long_window():
    model = build().eval()
    long = random_windows(model.config, 3, 10)
    long["targets"].clamp_(min=1)
    parts = [{name: ids[:, :, part] for name, ids in long.items()} for part in (slice(0, 4), slice(4, None))]
    first = model(**parts[0])
    second = model(**parts[1], state=first.state)
    assert not any(part.requires_grad for part in first.state)  # no gradient flows between windows
    whole = model(**long)
    torch.testing.assert_close(0.4 * first.loss + 0.6 * second.loss, whole.loss, rtol=0, atol=1e-12)
    torch.testing.assert_close(second.state, whole.state, rtol=0, atol=1e-12)


@pytest.mark.parametrize("inputs", ["characters", "words", "words+characters"])
@pytest.mark.parametrize("side", ["right", "left", "holes"])
def test_sentences_predict_their_own_words(inputs, side):
    model = build(inputs=inputs, num_negative_samples=None)
    batch = random_batch(model.config, [5, 1, 3])
    if side == "left":
        batch = {name: ids.flip(1) for name, ids in batch.items()}
    if side == "holes":
        batch["attention_mask"][0, 2] = 0
    got = model(**batch, labels=batch["input_ids"])
    logits = model(**batch)
    losses = []
    for row in range(3):
        positions = batch["attention_mask"][row].nonzero().squeeze(1)
        ids = batch["input_ids"][row, positions]
        forward, backward = [x[row, positions].log_softmax(-1) for x in (logits.forward_logits, logits.backward_logits)]
        losses += [(-forward[t, ids[t + 1]], -backward[t + 1, ids[t]]) for t in range(len(ids) - 1)]
    forward, backward = [torch.stack(part).mean() for part in zip(*losses)]
    torch.testing.assert_close(got.forward_loss, forward, rtol=0, atol=1e-12)
    torch.testing.assert_close(got.backward_loss, backward, rtol=0, atol=1e-12)
    torch.testing.assert_close(got.perplexity, torch.exp((forward + backward) / 2), rtol=0, atol=1e-9)
    assert got.forward_logits is None  # large, and not needed with labels


def test_hidden_states_are_returned_if_call_or_configuration_asks():
    model, batch = build(), random_batch(build().config, [3])
    assert model(**batch).hidden_states is None
    assert len(model(**batch, output_hidden_states=True).hidden_states) == model.config.num_hidden_layers + 1
    model.config.output_hidden_states = True
    assert len(model(**batch, labels=batch["input_ids"]).hidden_states) == model.config.num_hidden_layers + 1
    assert model(**batch, output_hidden_states=False).hidden_states is None
    assert [layer is None for layer in model(**batch, output_hidden_states=[1]).hidden_states] == [True, False, True]


def test_ignored_labels_and_sentences_of_one_word():
    labels, mask = torch.tensor([[3, 4, -100, 6]]), torch.ones(1, 4, dtype=torch.bool)
    assert next_word_targets(labels, mask).tolist() == [[[4, -100, 6, -100]], [[-100, 3, 4, -100]]]
    model = build().eval()
    batch = random_batch(model.config, [1, 1])
    assert float(model(**batch, labels=batch["input_ids"]).loss.detach()) == 0.0  # nothing comes after one word


def test_the_loss_does_not_depend_on_chunks(monkeypatch):
    model = build(num_negative_samples=4)
    windows = random_windows(model.config, 4, 7)

    def run():
        torch.manual_seed(0)
        output = model(**windows)
        return output.loss, gradients_of(model, output.loss)

    expected = run()
    monkeypatch.setattr(softmax_elmo, "LOGITS_BYTES", 1)
    monkeypatch.setattr(softmax_elmo, "LOGITS_ROWS", 3)
    torch.testing.assert_close(run(), expected, rtol=0, atol=1e-12)


def test_samples_are_drawn_by_frequency():
    torch.manual_seed(0)
    number, samples, rounds = 50, 8, 4000
    seen, draws = torch.zeros(number), []
    for _ in range(rounds):
        words, tries = log_uniform_sample(samples, number, "cpu")
        assert len(set(words.tolist())) == samples and words.min() >= 0 and words.max() < number
        seen[words] += 1
        draws.append(tries)
    probabilities = log_uniform(torch.arange(number), number)
    assert abs(float(probabilities.sum()) - 1) < 1e-12
    expected = sum(1 - (1 - probabilities) ** tries for tries in draws) / rounds
    # TensorFlow's estimate treats the number of draws as fixed; it is accurate to a few percent.
    assert (seen / rounds - expected).abs().max() < 0.03
    assert seen.argmax() == 0 and seen[-10:].max() < seen[:10].min()


def test_all_words_can_be_drawn():
    words, _ = log_uniform_sample(30, 30, "cpu")
    assert sorted(words.tolist()) == list(range(30))


def test_sampled_loss_approaches_the_full_loss():
    model = build(vocab_size=400)
    windows = random_windows(model.config, 8, 8)
    with torch.no_grad():
        full = float(model.eval()(**windows).loss)
        model.train()
        errors = []
        for samples in (10, 40, 160, 380):
            model.config.num_negative_samples = samples
            torch.manual_seed(0)
            means = [float(model(**windows).loss) for _ in range(30)]
            errors.append(abs(sum(means) / len(means) - full))
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[3] < errors[0] / 5
    model.config.num_negative_samples = 399  # all words: nothing is sampled
    assert abs(model(**windows).loss.item() - full) < 1e-12


@pytest.mark.parametrize("scale", [-1000.0, 1000.0])
def test_sampled_loss_of_extreme_logits_is_finite(scale):
    weight = torch.zeros(20, 3).index_fill_(0, torch.tensor([7]), scale).requires_grad_()
    hidden, targets = torch.ones(1, 3), torch.tensor([7])
    (loss,) = softmax_elmo.sampled_softmax_loss([hidden], weight, torch.zeros(20), [targets], 4, torch.float32)
    loss.backward()
    assert abs(loss.item() - max(-3 * scale, 0)) < 10
    assert torch.isfinite(weight.grad).all()


def test_sampled_losses_have_no_perplexity():
    model = build(num_negative_samples=4)
    windows = random_windows(model.config, 2, 3)
    assert model(**windows).perplexity is None
    output = model.eval()(**windows)
    losses = [output.loss, output.forward_loss, output.backward_loss]
    perplexities = [output.perplexity, output.forward_perplexity, output.backward_perplexity]
    torch.testing.assert_close(perplexities, [torch.exp(loss) for loss in losses])


def test_dropout_on_layer_inputs_and_top_outputs():
    model = build(dropout=0.5, num_hidden_layers=1)
    windows = random_windows(model.config, 2, 4)
    dropped = []
    original = F.dropout
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(F, "dropout", lambda x, p, training: dropped.append((p, training)) or original(x, p, training))
        model(**windows)
        assert dropped == [(0.5, True)] * 4  # the input and the top output of each direction
        dropped.clear()
        model.eval()(**windows)
        assert not any(training for _, training in dropped)


def test_skip_connections_add_the_input_after_its_dropout():
    """As in bilm-tf, whose DropoutWrapper is inside the ResidualWrapper's input: an LSTM of zeros returns its input."""
    layer = ElmoLayer(tiny_config(dropout=0.5), index=1).train()
    for weight in layer.parameters():
        weight.data.zero_()
    x = torch.rand(2, 6, 5) + 1
    torch.manual_seed(0)
    forward, backward, *_ = layer(*x, torch.zeros(2, 2, 5), torch.zeros(2, 2, 7), [2, 2, 2])
    torch.manual_seed(0)
    for output, each in zip((forward, backward), x):
        dropped = F.dropout(each, 0.5)
        assert torch.equal(output, dropped) and 0 < int((dropped == 0).sum()) < dropped.numel()


@pytest.mark.parametrize("samples", [None, 4])
def test_autocast_is_close_to_float32(samples):
    model = build(torch.float32, num_negative_samples=samples)
    windows = random_windows(model.config, 4, 6)
    torch.manual_seed(0)
    expected = model(**windows)
    exact = gradients_of(model, expected.loss)
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        output = model(**windows)
    assert output.loss.dtype == torch.float32
    assert abs(float((output.loss - expected.loss).detach())) < 0.05
    for name, grad in gradients_of(model, output.loss).items():
        assert grad.dtype == torch.float32
        assert (grad - exact[name]).norm() < 0.15 * exact[name].norm() + 1e-3, name


def test_gradient_checkpointing():
    model = build(num_negative_samples=None)
    windows = random_windows(model.config, 2, 4)
    expected = gradients_of(model, model(**windows).loss)
    model.gradient_checkpointing_enable()
    torch.testing.assert_close(gradients_of(model, model(**windows).loss), expected, rtol=0, atol=1e-12)


def test_bad_windows_raise_an_error():
    model = build()
    windows = random_windows(model.config, 2, 4)
    with pytest.raises(ValueError, match=r"must have the shape of their targets, \(2, 2, 3\), got 4 rows of 4 words"):
        model(**{**windows, "targets": windows["targets"][:, :, :-1]})
    with pytest.raises(ValueError, match="state of 2 sentences"):
        model(**windows, state=random_state(model.config, 3))
    with pytest.raises(ValueError, match="char_ids"):
        model(targets=windows["targets"])


TARGETS = torch.ones(2, 2, 4).long()
BAD_TARGETS = {
    "2-D": (TARGETS[:, 0], "must be a tensor of shape (2, rows, words), got (2, 4)"),
    "a list": (TARGETS.tolist(), "must be a tensor of shape (2, rows, words), got a list"),
    "three directions": (torch.ones(3, 2, 4).long(), "got (3, 2, 4)"),
    "floats": (TARGETS.float(), "targets must be integers, got torch.float32"),
    "above": (11 * TARGETS, "between 0 and 10, or -100 for none, got values from 11 to 11"),
    "below": (-TARGETS, "between 0 and 10, or -100 for none, got values from -1 to -1"),
}


@pytest.mark.parametrize("targets, message", BAD_TARGETS.values(), ids=BAD_TARGETS.keys())
def test_bad_targets_raise_an_error(targets, message):
    model = build()
    windows = random_windows(model.config, 2, 4)
    assert_value_error(lambda: model(**{**windows, "targets": targets}), message)


BAD_WINDOWS = {
    "a list": ({"char_ids": [[[1] * 12]]}, "char_ids must be a tensor, got a list"),
    "1-D": ({"char_ids": torch.ones(12).long()}, "got (12,)"),
    "floats": ({"char_ids": torch.ones(2, 2, 4, 12)}, "char_ids must be integers"),
}


@pytest.mark.parametrize("change, message", BAD_WINDOWS.values(), ids=BAD_WINDOWS.keys())
def test_bad_words_of_windows_raise_an_error(change, message):
    model = build()
    windows = random_windows(model.config, 2, 4)
    assert_value_error(lambda: model(**{**windows, **change}), message)


BAD_LABELS = {
    "floats": (torch.ones(2, 3), "labels must be integers, got torch.float32"),
    "bools": (torch.ones(2, 3).bool(), "labels must be integers, got torch.bool"),
    "a list": ([[1, 2, 3], [1, 2, 3]], "labels must be a tensor of shape (2, 3), got a list"),
    "longer": (torch.ones(2, 4).long(), "labels must be a tensor of shape (2, 3), got (2, 4)"),
    "more sentences": (torch.ones(3, 3).long(), "labels must be a tensor of shape (2, 3), got (3, 3)"),
    "1-D": (torch.ones(3).long(), "labels must be a tensor of shape (2, 3), got (3,)"),
    "above": (torch.full((2, 3), 11), "between 0 and 10, or -100 for none, got values from 11 to 11"),
    "below": (torch.full((2, 3), -1), "between 0 and 10, or -100 for none, got values from -1 to -1"),
}


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("labels, message", BAD_LABELS.values(), ids=BAD_LABELS.keys())
def test_bad_labels_raise_an_error(labels, message, masked):
    model = build()
    batch = random_batch(model.config, [3, 2])
    if not masked:
        del batch["attention_mask"]
    assert_value_error(lambda: model(**batch, labels=labels), message)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_labels_of_small_integer_types(dtype):
    model = build().eval()
    batch, windows = random_batch(model.config, [3, 2]), random_windows(model.config, 2, 4)
    windows["targets"].clamp_(min=1)
    labels, targets = batch["input_ids"], windows.pop("targets")
    assert torch.equal(model(**batch, labels=labels.to(dtype)).loss, model(**batch, labels=labels).loss)
    assert torch.equal(model(**windows, targets=targets.to(dtype)).loss, model(**windows, targets=targets).loss)


def test_inputs_are_checked_once(monkeypatch):
    model, calls = build(), []
    check = modeling_elmo.check_inputs
    monkeypatch.setattr(
        modeling_elmo, "check_inputs", lambda *args, **kwargs: calls.append(1) or check(*args, **kwargs)
    )
    batch = random_batch(model.config, [3, 2])
    model(**batch, labels=batch["input_ids"])
    assert len(calls) == 1


@pytest.mark.parametrize("inputs", ["characters", "words"])
@pytest.mark.parametrize("words", [7, 15])
def test_resized_vocabulary(inputs, words):
    model = build(inputs=inputs)
    old, batch = model.lm_head, random_batch(model.config, [3, 2])
    before = model(**batch).forward_logits
    model.resize_token_embeddings(words)
    assert model.config.vocab_size == words and model.lm_head.out_features == words - 1
    kept = min(words, 11)
    assert torch.equal(model.lm_head.weight[: kept - 1], old.weight[: kept - 1])
    batch["input_ids"] %= kept
    if inputs == "characters":
        torch.testing.assert_close(model(**batch).forward_logits[..., :kept], before[..., :kept])
    assert model(**batch, labels=batch["input_ids"]).loss.isfinite()


def test_checkpoint_without_lm_head_gets_a_new_one(tmp_path):
    plain = randomize(ElmoModel(tiny_config()))
    plain.save_pretrained(tmp_path)
    model = ElmoForPreTraining.from_pretrained(tmp_path)
    torch.testing.assert_close(model.elmo.state_dict(), plain.state_dict())
    assert model.lm_head.weight.std() > 0 and all(p.requires_grad for p in model.elmo.bilm.parameters())
