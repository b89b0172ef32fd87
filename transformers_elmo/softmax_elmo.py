# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""The losses of ELMo's language models: -log p of the target words, by the full or a sampled softmax.

Rows of the softmax are sorted by frequency, the most frequent word first, as in bilm-tf: samples are drawn by rank.

Shapes: N words to predict, hidden states of size P, V words, S samples.
"""

import math

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

# Logits that are computed at once: as many as fit into a cache, but enough rows for a fast product.
LOGITS_BYTES = 1 << 21
LOGITS_ROWS = 128


def log_uniform(ranks: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """log(1 + 1 / (r + 1)) / log(V + 1): the probability of the word of rank r by Zipf's law."""
    return torch.log1p(1 / (ranks.double() + 1)) / math.log(vocab_size + 1)


def log_uniform_sample(num_samples: int, vocab_size: int, device: torch.device) -> tuple[torch.Tensor, int]:
    """Draw `num_samples` distinct words (S,) from `log_uniform`; return them and the number of draws it took."""
    draws = torch.empty(0, dtype=torch.long, device=device)
    while True:
        uniform = torch.rand(max(2 * num_samples, len(draws)), dtype=torch.float64, device=device)
        more = (torch.exp(uniform * math.log(vocab_size + 1)) - 1).long().clamp_(0, vocab_size - 1)
        draws = torch.cat([draws, more])
        words, word_of_draw = torch.unique(draws, return_inverse=True)
        if len(words) >= num_samples:
            break
    order = torch.arange(len(draws), device=device)
    first = torch.full((len(words),), len(draws), device=device).scatter_reduce_(0, word_of_draw, order, "amin")
    first, by_draw = first.sort()
    return words[by_draw[:num_samples]], int(first[num_samples - 1]) + 1


@torch.compiler.disable  # custom autograd function
def full_softmax_loss(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, targets: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return -log p of the targets by the full softmax: their sum, and each of them (N,) without a gradient.

    hidden (N, P), weight (V, P), bias (V,), targets (N,); products are computed in `dtype`, sums in that of the bias.
    """
    return softmax_loss(hidden, weight, bias, targets=targets, dtype=dtype)


@torch.compiler.disable  # custom autograd function
def sampled_softmax_loss(
    hidden: list[torch.Tensor],
    weight: torch.Tensor,
    bias: torch.Tensor,
    targets: list[torch.Tensor],
    num_samples: int,
    dtype: torch.dtype,
) -> list[torch.Tensor]:
    """Return the sum of -log p of the targets by a sampled softmax, for each direction.

    A target competes with negative samples drawn by frequency; from each logit the log of the expected count of its
    word is subtracted (Jean et al. 2015, as TensorFlow's sampled_softmax_loss). hidden (N, P) and targets (N,) of each
    direction, weight (V, P), bias (V,).
    """
    drawn = [log_uniform_sample(num_samples, len(bias), weight.device) for _ in hidden]
    # All rows that either direction needs are gathered at once: each gather has a gradient as large as the softmax.
    needed = torch.cat([*targets, *(samples for samples, _ in drawn)])
    sizes = [*map(len, targets), *(len(samples) for samples, _ in drawn)]
    weights, biases = F.embedding(needed, weight).split(sizes), bias.index_select(0, needed).split(sizes)
    sums = []
    for d, (h, words, (samples, num_draws)) in enumerate(zip(hidden, targets, drawn)):

        def log_expected_count(words, num_draws=num_draws):
            return torch.log(-torch.expm1(num_draws * torch.log1p(-log_uniform(words, len(bias))))).to(bias.dtype)

        true_logits = (h * weights[d]).sum(1, dtype=bias.dtype) + biases[d] - log_expected_count(words)
        sample_bias = biases[len(hidden) + d] - log_expected_count(samples)
        total, _ = softmax_loss(
            h,
            weights[len(hidden) + d],
            sample_bias,
            targets=words,
            true_logits=true_logits,
            samples=samples,
            dtype=dtype,
        )
        sums.append(total)
    return sums


def softmax_loss(hidden, weight, bias, *, targets, true_logits=None, samples=None, dtype):
    hidden, weight = hidden.to(dtype), weight.to(dtype)
    save = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (hidden, weight, bias))
    with torch.autocast(hidden.device.type, enabled=False):
        return SoftmaxLoss.apply(hidden, weight, bias, true_logits, targets, samples, save)


class SoftmaxLoss(torch.autograd.Function):
    """-log p of the targets, summed.

    Each chunk of logits is turned into its gradient in place, so neither the logits nor the probabilities of all words
    are ever saved for the backward pass.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, true_logits, targets, samples, save):
        """hidden (N, P), weight (V, P), bias (V,), targets (N,) -> the sum, and the loss of each word (N,)

        With samples (S,): weight (S, P) and bias (S,) are theirs, true_logits (N,) those of the targets.
        """
        losses = hidden.new_empty(len(hidden), dtype=bias.dtype)
        d_hidden, d_true = torch.empty_like(hidden), torch.empty_like(losses)
        d_weight = torch.zeros_like(weight if save else weight[:0], dtype=bias.dtype)
        d_bias = torch.zeros_like(bias)
        size = min(max(LOGITS_BYTES // (len(weight) * bias.element_size()), LOGITS_ROWS), max(len(hidden), 1))
        products = hidden.new_empty(size, len(weight))
        if samples is not None:  # accidental hits: a target may be among the samples
            ordered, order = samples.sort()  # (S,)
            column = torch.searchsorted(ordered, targets).clamp_(max=len(samples) - 1)[:, None]  # (N, 1)
            column, is_hit = order[column], ordered[column] == targets[:, None]
        for start in range(0, len(hidden), size):
            rows = slice(start, start + size)
            logits = torch.mm(hidden[rows], weight.t(), out=products[: len(hidden[rows])])  # (n, V or S)
            logits = logits.to(bias.dtype).add_(bias)
            if samples is None:
                true = logits.gather(1, targets[rows, None]).squeeze(1)  # (n,)
                top = logits.amax(1)
            else:
                true = true_logits[rows]
                without_hits = logits.gather(1, column[rows]).masked_fill_(is_hit[rows], -torch.inf)
                logits.scatter_(1, column[rows], without_hits)
                top = torch.maximum(true, logits.amax(1))
            exponentials = logits.sub_(top[:, None]).exp_()
            total = exponentials.sum(1) if samples is None else exponentials.sum(1) + torch.exp(true - top)
            losses[rows] = total.log() + top - true
            if save:
                probabilities = exponentials.div_(total[:, None])
                if samples is None:
                    probabilities.scatter_add_(1, targets[rows, None], probabilities.new_full((len(true), 1), -1.0))
                d_true[rows] = torch.expm1(-losses[rows])
                d_bias += probabilities.sum(0)
                probabilities = probabilities.to(hidden.dtype)
                d_hidden[rows] = probabilities @ weight
                if weight.dtype == d_weight.dtype:
                    d_weight.addmm_(probabilities.t(), hidden[rows])
                else:
                    d_weight += probabilities.t() @ hidden[rows]
        if save:
            ctx.save_for_backward(d_hidden, d_weight.to(weight.dtype), d_bias, None if samples is None else d_true)
        ctx.mark_non_differentiable(losses)
        return losses.sum(), losses

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_sum, _):
        grads = [None if grad is None else grad * grad_sum.to(grad.dtype) for grad in ctx.saved_tensors]
        return *grads, None, None, None
