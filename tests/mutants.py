"""Deliberate faults, and the tests that should notice each: `make mutants`, before a release.

    python tests/mutants.py [--jobs N] [WORD ...]

Every fault is one that a person could make, and would give wrong results or lose files without an error. Each is put
into a copy of the repository, never into the repository itself, and its tests are run there: without ELMO_SHARED, so
that a fault is caught only if the tests in the repository notice it.

    caught      a test failed
    SURVIVED    all tests passed: strengthen them
    stale       the old text is not in the file exactly once, or pytest could not run or hung: correct the mutant
"""

import argparse
import multiprocessing
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOT_COPIED = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info")
OUTSIDE = ("ELMO_SHARED", "ELMO_PEERS", "ELMO_PEERS_TF", "TRANSFORMERS_SOURCE")  # data that some tests use if present
# Every mutant has a process of its own, forked from one that has imported the libraries.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", "torch", "transformers.trainer"])
MAX_SECONDS = 600  # for the tests of a mutant


class Mutant(NamedTuple):
    file: str  # in transformers_elmo/
    tests: str  # arguments of pytest: files in tests/, options
    fault: str
    old: str
    new: str


def in_file(file: str, tests: str, *faults: tuple[str, str, str]) -> list[Mutant]:
    """Return mutants of one file, each given as fault, old and new text, that the same tests should notice."""
    return [Mutant(file, tests, *fault) for fault in faults]


MUTANTS = [
    # quantization
    *in_file(
        "quantization_elmo.py",
        "test_quantization.py -k 'not package'",
        ("int8: one scale for all outputs", "(1 - output_dim) / MAX_INT8", "(1 - output_dim).clamp(min=1) / MAX_INT8"),
        ("int8: truncation instead of rounding", ".round_().clamp_(", ".trunc_().clamp_("),
        ("int8: scales in half precision", "if converted.dtype != torch.float32:", "if False:"),
        ("int8: input weights of the first layer too", "if index > 0:", "if index >= 0:"),
        ("int8: bfloat16 weights not rounded until saved", "data.to(torch.bfloat16).to(", "data.to("),
        ("int8: bfloat16 weights stored as float32", "weight.detach().to(torch.bfloat16) if", "weight.detach() if"),
        ("int8: wrong shapes accepted", "if weight.shape != expected[name].shape:", "if False:"),
        ("int8: Trainer accepts a language model", 'trains_head = not hasattr(model, "lm_head")', "trains_head = True"),
        ("int8: a dequantized biLM stays frozen", "        model.requires_grad_(True)\n", ""),
    ),
    *in_file(
        "modeling_elmo.py",
        "test_quantization.py -k 'not package'",
        ("int8: float weights taken for int8", 'in int8 and dtype != "I8"', 'in int8 and dtype == "I32"'),
        ("int8: a quantized biLM can be unfrozen", "if not frozen and getattr(self", "if frozen and getattr(self"),
        ("int8: new model saved as quantized", 'self.config.__dict__.pop("quantization_config", None)', "pass"),
    ),
    # model
    *in_file(
        "modeling_elmo.py",
        "test_modeling.py -k outputs_match_reference",
        (
            "highway: transform and carry swapped",
            "gate * F.relu(self.transform(x)) + (1 - gate) * x",
            "(1 - gate) * F.relu(self.transform(x)) + gate * x",
        ),
        (
            "convolution: wide filters have one position too many",
            ")[:, None] >= num_positions",
            ")[:, None] > num_positions",
        ),
        ("convolution: words stay sorted by length", "torch.cat(maxima)[by_length.argsort()]", "torch.cat(maxima)"),
        ("character CNN: no activation", "x = self.activation(self.convolve(char_ids))", "x = self.convolve(char_ids)"),
        (
            "token encoder: characters before the word embedding",
            "x = torch.cat(parts, 1)",
            "x = torch.cat(parts[::-1], 1)",
        ),
        (
            "token encoder: words and characters of the right size are not projected",
            'if width != config.output_dim or config.inputs == "words+characters":',
            "if width != config.output_dim:",
        ),
        ("forget bias added to the output gate", "// cells == 1)", "// cells == 2)"),
        ("forget bias added twice", "bias = bias + self.forget_bias *", "bias = bias + 2 * self.forget_bias *"),
        ("residual in the first layer too", "config.use_skip_connections and index > 0", "config.use_skip_connections"),
        (
            "backward outputs in the forward order",
            "zip(pair, packing.inverse_orders)",
            "zip(pair, packing.inverse_orders[:1] * 2)",
        ),
        ("mix: weights without softmax", "list(torch.softmax(self.weights, 0))", "list(self.weights)"),
        ("mix: no gamma", "return mixed if self.gamma is None else self.gamma * mixed", "return mixed"),
    ),
    *in_file(
        "modeling_elmo.py",
        "test_modeling.py -k chunk_sizes",
        (
            "convolution: no window of padding after a short word",
            "torch.arange(1, width + 1, device=char_ids.device)",
            "torch.arange(width, device=char_ids.device)",
        ),
    ),
    *in_file(
        "modeling_elmo.py",
        "test_modeling.py -k gradients_match_reference",
        (
            "convolution: gradients of overlapping windows replace each other",
            "+= d_windows[..., start]",
            "= d_windows[..., start]",
        ),
    ),
    *in_file(
        "modeling_elmo.py",
        "test_modeling.py -k distinct_rows",
        (
            "distinct words: hash collisions are not noticed",
            "if not torch.equal(rows[index][inverse], rows):",
            "if False:",
        ),
    ),
    *in_file(
        "modeling_elmo.py",
        "test_modeling.py test_pretraining_head.py -k dropout",
        (
            "residual adds the input before its dropout",
            "for output, each in zip(outputs, x)]",
            "for output, each in zip(outputs, (forward_x, backward_x))]",
        ),
    ),
    *in_file(
        "modeling_elmo.py",
        "test_modeling.py -k dropout",
        ("dropout in a frozen biLM", "self.training and lstm.bias.requires_grad", "self.training"),
    ),
    *in_file(
        "modeling_elmo.py",
        "test_pretraining_head.py -k dropout",
        ("dropout on layer inputs forgotten", "F.dropout(each, self.dropout,", "F.dropout(each, 0.0,"),
        (
            "dropout on the top layer's outputs forgotten",
            "F.dropout(h[indices], self.config.dropout, self.training)",
            "h[indices]",
        ),
    ),
    *in_file(
        "modeling_elmo.py",
        "test_modeling.py -k state",
        (
            "state: not sorted as the sentences are",
            "state = tuple(part[:, :, packing.sentences] for part in state)",
            "state = tuple(state)",
        ),
        (
            "state: returned in the order of lengths",
            "return layers, (h[:, :, ranks], c[:, :, ranks])",
            "return layers, (h, c)",
        ),
    ),
    *in_file(
        "modeling_elmo.py",
        "test_modeling.py -k layer_norm",
        ("layer norm: variance includes padding", "(wide - wide.sum() / number) * mask", "wide - wide.sum() / number"),
        ("layer norm: padding is counted", "(mask.sum() * layer.shape[-1])", "torch.tensor(layer.numel())"),
    ),
    *in_file(
        "modeling_elmo.py",
        "test_modeling.py -k frozen",
        ("a loaded head trains the biLM", "        model._freeze()\n", ""),
    ),
    *in_file(
        "modeling_elmo.py",
        "test_modeling.py -k dropout",
        (
            "tagger: no dropout",
            "self.classifier(self.dropout(outputs.last_hidden_state))",
            "self.classifier(outputs.last_hidden_state)",
        ),
    ),
    *in_file(
        "modeling_elmo.py",
        "test_modeling.py -k accumulated",
        ("tagger: accumulated gradients are means of means", "self.config, **loss_kwargs)", "self.config)"),
    ),
    *in_file(
        "modeling_elmo.py",
        "test_modeling.py -k new_highway",
        (
            "initialization: a new highway passes no input through",
            "self.carry.initial_bias = -2.0",
            "self.carry.initial_bias = 2.0",
        ),
    ),
    *in_file(
        "modeling_elmo.py",
        "test_pretraining_head.py",
        (
            "language models: last word predicts the next sentence",
            "same = rows[1:] == rows[:-1]",
            "same = rows[1:] >= rows[:-1]",
        ),
        (
            "language models: backward predicts the next word",
            "targets[1][after] = labels[here]",
            "targets[1][here] = labels[after]",
        ),
        (
            "language models: ids taken for rows of lm_head",
            "[indices] - 1 for",
            "[indices] % self.lm_head.out_features for",
        ),
        (
            "language models: evaluation by the sampled softmax",
            "return number if self.training and number is not None",
            "return number if number is not None",
        ),
        (
            "language models: sum of the directions' losses",
            "loss = (losses[0] + losses[1]) / 2",
            "loss = losses[0] + losses[1]",
        ),
        (
            "windows: words row by row instead of step by step",
            "positions = positions.transpose(1, 2).flatten()",
            "positions = positions.flatten()",
        ),
        (
            "windows: targets row by row instead of step by step",
            ".transpose(1, 2).flatten(1))",
            ".flatten(1))",
        ),
        ("windows: the state keeps its graph", "tuple(part.detach() for part in last_state)", "tuple(last_state)"),
    ),
    *in_file(
        "modeling_elmo.py",
        "test_modeling.py -k logits",
        ("language models: logits one id too low", "F.pad(each, (1, 0),", "F.pad(each, (0, 1),"),
    ),
    *in_file(
        "modeling_elmo.py",
        "test_modeling.py test_pretraining_head.py -k resize",
        (
            "resized lm_head is initialized again",
            "self.lm_head._is_hf_initialized = True",
            "self.lm_head._is_hf_initialized = False",
        ),
    ),
    # lstm
    *in_file(
        "lstm_elmo.py",
        "test_lstm.py -k packing",
        (
            "packing: backward order of the padded sentence",
            "starts[lengths[sentence] - 1 - index]",
            "starts[longest - 1 - index]",
        ),
        (
            "packing: masked words inside a sentence are counted",
            "mask.cumsum(1).flatten()[positions] - 1",
            "positions % max(mask.shape[1], 1)",
        ),
    ),
    *in_file(
        "lstm_elmo.py",
        "test_lstm.py",
        (
            "cells clipped only from above",
            " cell.clamp_(-2 * cell_clip, 2 * cell_clip)",
            " cell.clamp_(min=-2 * cell_clip)",
        ),
        ("clip of the projection forgotten", "output.clamp_(-output_clip, output_clip)", "pass"),
        (
            "last state of short sentences is the initial one",
            "last_h[remaining:n], last_cell[remaining:n] = output[remaining:], cell[remaining:]",
            "last_h[:n], last_cell[:n] = (output, cell) if not remaining else (last_h[:n], last_cell[:n])",
        ),
        (
            "gradient flows through clipped cells",
            "clamp_backward(d_cell, cell, -cell_clip, cell_clip, grad_input=d_cell)",
            "pass",
        ),
        (
            "gradient flows through clipped outputs",
            "clamp_backward(d_out, out, -output_clip, output_clip, grad_input=d_out)",
            "pass",
        ),
        ("gradient of a cell not multiplied by its forget gate", "        d_cell.mul_(f)\n", ""),
        (
            "gradient of the forget gate from the new cell",
            "sigmoid_backward(before(c0, cells * -0.5), f)",
            "sigmoid_backward(cells * -0.5, f)",
        ),
        (
            "gradient ignores the initial cells",
            "before(c0, cells * -0.5)",
            "before(torch.zeros_like(c0), cells * -0.5)",
        ),
        ("gradient of the bias is a mean", "d_gates.sum(0)", "d_gates.mean(0)"),
    ),
    *in_file(
        "lstm_elmo.py",
        "test_lstm.py test_modeling.py -k 'clip or dtype or autocast or plain'",
        ("gradient of clipped bfloat16 values: limits not rounded", "torch.tensor(clip, dtype=x.dtype).item()", "clip"),
    ),
    *in_file(
        "lstm_elmo.py",
        "test_lstm.py -k threads",
        (
            "directions swapped when they run in threads",
            "return results[0].result(), results[1].result()",
            "return results[1].result(), results[0].result()",
        ),
    ),
    # inference
    *in_file(
        "modeling_elmo.py",
        "test_inference.py -k token_encoder",
        (
            "inference: half precision rounds the token encoder",
            "to(converted.device) if is_rounded else",
            "to(converted) if is_rounded else",
        ),
        ("inference: half precision rounds a loaded token encoder", '["token_encoder"]', "[]"),
        ("inference: words of half precision are float32", "return x.to(compute_dtype(self.bilm.bias, x))", "return x"),
    ),
    *in_file(
        "lstm_elmo.py",
        "test_lstm.py -k inference",
        (
            "inference: gates of the second chunk from the first words",
            "products.input(x[..., rows, :])",
            "products.input(x[..., : sum(chunk), :])",
        ),
        (
            "inference: bias of the new input not doubled",
            "PackedLinear(double_j(input_weight), double_j(bias))",
            "PackedLinear(double_j(input_weight), bias)",
        ),
        (
            "inference: int8 scales of the new input not doubled",
            "Int8Linear(weight, double_j(scale), output_bound)",
            "Int8Linear(weight, scale, output_bound)",
        ),
        ("inference: cells clipped at half", "minus_2c.clamp_(-2 * cell_clip, 2 *", "minus_2c.clamp_(-cell_clip,"),
        ("inference: a shared start reaches one sentence only", "minus_2c[..., 1:, :] = cells", "pass"),
        (
            "inference: last outputs of short sentences forgotten",
            "last_h[..., remaining:n, :] = h[..., remaining:n, :]",
            "pass",
        ),
        (
            "inference: last cells of short sentences overwritten",
            "last_minus_2c[..., remaining:n, :] = minus_2c[..., remaining:n, :]",
            "last_minus_2c = minus_2c[: len(last_h)]",
        ),
        (
            "inference: results of added rows returned",
            "outputs[word_rows] if is_padded",
            "outputs[: len(word_rows)] if is_padded",
        ),
        (
            "inference: words after an added row read too early",
            "is_word.cumsum(0) - 1",
            "(is_word.cumsum(0) - 1).roll(-1)",
        ),
    ),
    *in_file(
        "products_elmo.py",
        "test_products.py",
        ("products: a single row summed in another order", "2 if weight.shape[0] > 1024 else 1", "1"),
        ("products: a kernel for every number of rows", "if number <= 32:", "if True:"),
        (
            "products: rows padded with their first ones only",
            "torch.cat([x, x[: number - n]])",
            "torch.cat([x[: number - n], x])",
        ),
        ("products: half precision is never packed", "if is_half and can_pack", "if False and can_pack"),
        ("products: large weights are not packed on Intel", "weight.nbytes <= PLAIN_BYTES and ", ""),
        ("products: int8 numbers rounded down", "128.5]", "128.0]"),
        ("products: int8 numbers beyond the bound change their sign", ".clamp_(1, 255)", ""),
        (
            "products: int8 weights packed as a view",
            "qlinear_prepack(weight.t().contiguous(), None)",
            "qlinear_prepack(weight.t(), None)",
        ),
        ("prepared weights: versions not compared", "0 if weight.is_inference() else weight._version", "0"),
        ("prepared weights: elements not compared", " or not torch.equal(sample, self.sample)", ""),
        (
            "prepared weights: buffers not compared",
            "(*part._parameters.values(), *part._buffers.values())",
            "part._parameters.values()",
        ),
        ("prepared weights: kept when offloaded", 'any("_hf_hook" in vars(part) for part in parts)', "False"),
        ("prepared weights: pickled", "    def __reduce__(self):\n        return type(self), ()\n", ""),
    ),
    *in_file(
        "modeling_elmo.py",
        "test_inference.py -k 'autocast or cache or words or used or alike or modes or prepares or sums or windows'",
        ("recalled words: not bounded", "                known.clear()\n", "                pass\n"),
        (
            "inference: float32 copies of float32 weights used for bfloat16 ones",
            "self.prepared.get(dtype, lstms",
            "self.prepared.get(packed, lstms",
        ),
        ("recalled words: of another dtype", '("words", dtype), [self], dict', '("words", 0), [self], dict'),
        (
            "recalled words: kept while training",
            "        self.prepared.drop()\n        return self.encode(",
            "        return self.encode(",
        ),
        ("recalled words: in the order of first use", "vectors[number] = vector\n", "vectors[new[0]] = vector\n"),
        ("inference: one direction that starts alike is enough", "all(starts_alike(", "any(starts_alike("),
        (
            "inference: int8 inputs of upper layers bounded as one h",
            "input_bound=self.num_summed * bound",
            "input_bound=bound",
        ),
    ),
    # softmax
    *in_file(
        "softmax_elmo.py",
        "test_pretraining_head.py",
        (
            "correction of the target has the wrong sign",
            "biases[d] - log_expected_count(words)",
            "biases[d] + log_expected_count(words)",
        ),
        (
            "samples are not corrected",
            "biases[len(hidden) + d] - log_expected_count(samples)",
            "biases[len(hidden) + d]",
        ),
        ("a target competes with itself", ".masked_fill_(is_hit[rows], -torch.inf)", ""),
        ("Zipf's law: ranks from 2", "(ranks.double() + 1)", "(ranks.double() + 2)"),
        (
            "sampling: the most frequent word is never drawn",
            "math.log(vocab_size + 1)) - 1).long()",
            "math.log(vocab_size + 1))).long()",
        ),
        (
            "sampling: frequent words instead of those drawn first",
            "words[by_draw[:num_samples]]",
            "words[:num_samples]",
        ),
        ("sampling: draws after the last sample are counted", "int(first[num_samples - 1]) + 1", "len(draws)"),
        ("gradient of the target's logit", "torch.expm1(-losses[rows])", "torch.exp(-losses[rows])"),
        (
            "overflow where the target is much more probable than all samples",
            "top = torch.maximum(true, logits.amax(1))",
            "top = logits.amax(1)",
        ),
        ("gradient ignores the scale of the loss", "grad * grad_sum.to(grad.dtype)", "grad"),
    ),
    # configuration
    *in_file(
        "configuration_elmo.py",
        "test_configuration.py",
        ("bilm-tf: no row for padding", 'options["n_tokens_vocab"] + 1', 'options["n_tokens_vocab"]'),
        (
            "bilm-tf: projection to the same size",
            'if lstm["projection_dim"] < lstm["dim"] else None',
            'if lstm["projection_dim"] <= lstm["dim"] else None',
        ),
        (
            "bilm-tf: residual by default",
            'lstm.get("use_skip_connections", False)',
            'lstm.get("use_skip_connections", True)',
        ),
        ("bilm-tf: cells clipped as the projection", 'lstm.get("cell_clip")', 'lstm.get("proj_clip")'),
    ),
    # tokenizer
    *in_file(
        "tokenization_elmo.py",
        "test_tokenization.py -k char",
        (
            "begin and end swapped in words given as text",
            '{self.bos_token: "<bos>", self.eos_token: "<eos>"}',
            '{self.bos_token: "<eos>", self.eos_token: "<bos>"}',
        ),
        (
            "begin and end swapped in encoded text",
            '((self.bos_token_id, "<bos>"), (self.eos_token_id, "<eos>"))',
            '((self.bos_token_id, "<eos>"), (self.eos_token_id, "<bos>"))',
        ),
        (
            "long words truncated one byte too early",
            "max_length = self.max_characters_per_token - 2\n        lengths",
            "max_length = self.max_characters_per_token - 3\n        lengths",
        ),
        ("words padded with the padding of sentences", 'self._mark_ids["<pad>"])  # (words, W)', "0)  # (words, W)"),
        ("bytes not shifted", "np.arange(1, 257)", "np.arange(256)"),
        (
            "character vocabulary not shifted",
            "{symbol: index + 1 for index, symbol in enumerate(char_vocab)}",
            "{symbol: index for index, symbol in enumerate(char_vocab)}",
        ),
        ("swap_word_marks ignored", "        if swap_word_marks:\n", "        if False:\n"),
    ),
    *in_file(
        "tokenization_elmo.py",
        "test_tokenization.py -k 'long_words or pretokenized'",
        (
            "long words of the vocabulary are unknown",
            "max_input_chars_per_word=max(map(len, vocab))",
            "max_input_chars_per_word=100",
        ),
        (
            "long words looked up in full by a model of ELMoForManyLangs",
            "ids[index] = self._convert_token_to_id_with_added_voc(truncated_word)",
            "pass",
        ),
        (
            "empty pretokenized words are special tokens",
            "is_special = (starts == ends) & (offsets[:, 0] == offsets[:, 1])",
            "is_special = starts == ends",
        ),
    ),
    *in_file(
        "tokenization_elmo.py",
        "test_tokenization.py -k vocabulary",
        ("saved vocabulary sorted by word", "key=lambda item: item[1])", "key=lambda item: item[0])"),
        (
            "saved vocabulary includes padding",
            " for word, word_id in words if word_id != self.pad_token_id)",
            " for word, word_id in words)",
        ),
        ("words of a vocabulary with Windows line ends", 'line.rstrip("\\r\\n")', 'line.rstrip("\\n")'),
        ("bilm-tf's !!!MAXTERMID is a word", '[word for word in words if word != "!!!MAXTERMID"]', "words"),
    ),
    *in_file(
        "tokenization_elmo.py",
        "test_tokenization.py -k padding",
        ("padding_side ignored when encoding", "starts = starts + padded_to - lengths", "pass"),
    ),
    *in_file(
        "tokenization_elmo.py",
        "test_tokenization.py -k pad",
        (
            "padding_side ignored by pad()",
            'char_ids + padding if side == "right" else padding + char_ids',
            "char_ids + padding",
        ),
    ),
    *in_file(
        "tokenization_elmo.py",
        "test_tokenization.py -k pretokenized",
        ("empty pretokenized words are dropped", " or REPLACEMENT for word in text]", " for word in text]"),
    ),
    *in_file(
        "tokenization_elmo.py",
        "test_tokenization.py -k moses",
        ("commas before digits do not split", 'comma = rf"(?<=[{digit}]),(?=[{digit}])"', 'comma = rf",(?=[{digit}])"'),
    ),
    # language model
    *in_file(
        "language_model.py",
        "test_language_model.py",
        ("perplexity: <S> is not predicted", "known = ids > 0", "known = ids > 1"),
        (
            "perplexity: arithmetic mean of the directions",
            "math.exp((forward + backward) / 2)",
            "(math.exp(forward) + math.exp(backward)) / 2",
        ),
        ("score: prior counted twice", "forward + backward - prior", "forward + backward"),
        ("substitutes: the word itself is read", "forward[:-2], backward[2:]", "forward[1:-1], backward[1:-1]"),
        ("next words: after </S>", "hidden = forward[-2]", "hidden = forward[-1]"),
        (
            "next words: special tokens suggested instead of their neighbours",
            "special = [token_id - 1 for",
            "special = [token_id for",
        ),
        ("next words: rows taken for ids", "(rows + 1).tolist()", "rows.tolist()"),
    ),
    *in_file(
        "language_model.py",
        "test_language_model.py embed/test_job.py",
        ("dropout is on in a model that is being trained", "    model.eval()\n    try", "    try"),
    ),
    # embed
    *in_file(
        "embed/job.py",
        "embed/test_job.py command/test_embed.py",
        ("first vector dropped though it is no boundary", "layers[0][mask]", "layers[0][1 : 1 + len(sentence)]"),
        ("layers words and top swapped", '0 if layer == "words" else -1', '-1 if layer == "words" else 0'),
        (
            "raw text split at spaces only",
            "tokenizer.tokenize(sentence) if isinstance(sentence, str)",
            "sentence.split() if isinstance(sentence, str)",
        ),
        ("words of the npz file in the order of the alphabet", "json.dumps(sentence)", "json.dumps(sorted(sentence))"),
    ),
    *in_file(
        "embed/job.py",
        "command/test_embed.py",
        ("blank lines at the beginning dropped", 'itertools.repeat("", num_blank)', "[]"),
        (
            "blank lines dropped",
            "itertools.chain(itertools.repeat(",
            "itertools.chain(filter(None, lines)) if num_blank else itertools.chain(itertools.repeat(",
        ),
    ),
    *in_file(
        "embed/job.py",
        "embed/test_job.py",
        ("vectors that are NaN are written", "if not np.isfinite(rows).all():", "if False:"),
    ),
    # text
    *in_file(
        "text.py",
        "test_text.py",
        ("byte order mark becomes part of the first word", "line = line.removeprefix(codecs.BOM_UTF8)", "pass"),
        ("carriage returns stay in the text", 'text[:-2] if text.endswith("\\r\\n") else text[:-1]', "text[:-1]"),
        ("parts of a long line are counted as lines", "number += is_line_end", "number += 1"),
        ("text lost between the parts of a long line", "line, rest = part[0], line[part.end() :]", "line = part[0]"),
        (
            "bytes that are not UTF-8 are replaced without being asked",
            'line.decode("utf-8", encoding_errors)',
            'line.decode("utf-8", "replace")',
        ),
        (
            "truncated archive read as if complete",
            "                if file is raw:\n                    raise\n",
            "                return\n",
        ),
        ("a file named twice is read twice", "return list(dict.fromkeys(files))", "return files"),
        (
            "wrong column of a jsonl file",
            'row[column] or ""',
            'next(iter(row.values())) or ""',
        ),
    ),
    # corpus
    *in_file(
        "pretrain/corpus.py",
        "pretrain/test_corpus.py",
        ("rare words first", 'np.argsort(-counts, kind="stable")', 'np.argsort(counts, kind="stable")'),
        ("tokens numbered by the inverse permutation", "rank[order] = np.arange(len(order))", "rank[:] = order"),
        ("offsets restart with each batch of lines", "(total + ends).data", "ends.data"),
        (
            "vocabulary lacks words that occur exactly min_count times",
            "(self.counts >= min_count)",
            "(self.counts > min_count)",
        ),
        ("sentences end at the start of the next line", " & (last_end[:-1] >= line_starts[1:])", ""),
        (
            "an open quote of the line before closes a sentence",
            "(marks_before - marks_before[line_starts]) % 2",
            "marks_before % 2",
        ),
    ),
    *in_file(
        "pretrain/corpus.py",
        "pretrain/test_corpus.py -k cache",
        ("cache ignores that a file has changed", "[VERSION, stats, ", "[VERSION, "),
        ("cache ignores the splitting", "special_tokens, asdict(splitting), column", "special_tokens, column"),
    ),
    *in_file(
        "pretrain/corpus.py",
        "pretrain/test_corpus.py -k long",
        ("long line split inside words", "start = part.end()", "start += MAX_CHARACTERS"),
    ),
    # windows
    *in_file(
        "pretrain/windows.py",
        "pretrain/test_windows.py",
        (
            "a word is skipped where a window begins",
            "self.offset[row] += length",
            "self.offset[row] += length + (filled == self.window)",
        ),
        ("backward sentences are not reversed", "[end - last : end - first][::-1]", "[end - last : end - first]"),
        ("backward sentences begin with <S>", "self.first, self.last = self.last, self.first", "pass"),
        ("the same shuffle in every epoch", "[self.seed, self.epoch, self.backward]", "[self.seed, self.backward]"),
        ("the same shuffle in both directions", "[self.seed, self.epoch, self.backward]", "[self.seed, self.epoch]"),
        ("every process reads the whole text", "order[self.rank :: self.world_size]", "order"),
        (
            "resumed in the order of another epoch",
            'self.position, self.order = state["epoch"], state["position"], None',
            'self.position = state["epoch"], state["position"]',
        ),
        ("a saved position moves on", "torch.from_numpy(self.offset.copy())", "torch.from_numpy(self.offset)"),
        ("padding is a target", "            target_ids[targets == padding] = IGNORE_INDEX\n", ""),
        (
            "long words looked up in full with a character vocabulary",
            "vocabulary.get(word[:length],",
            "vocabulary.get(word,",
        ),
    ),
    # training
    *in_file(
        "pretrain/trainer.py",
        "pretrain/test_trainer.py",
        ("states are not carried in training", 'self.lstm_state = outputs["state"]', "self.lstm_state = None"),
        ("Trainer's own limit of the gradient norm", "max_grad_norm=recipe.max_grad_norm", "max_grad_norm=1.0"),
        ("loss not scaled", 'outputs["loss"] * self.settings.recipe.loss_scale', 'outputs["loss"]'),
        ("scaled loss in the log", 'logs["loss"] /= self.settings.recipe.loss_scale', "pass"),
        ("training goes on after NaN", 'if not torch.isfinite(outputs["loss"]):', "if False:"),
        ("Adagrad's accumulator starts as in torch", "initial_accumulator_value=1.0", "initial_accumulator_value=0.0"),
        ("Muon's updates have another size than AdamW's", ', adjust_lr_fn="match_rms_adamw"', ""),
    ),
    *in_file(
        "pretrain/trainer.py",
        "pretrain/test_trainer.py -k evaluation",
        ("states are not carried in evaluation", "        state = outputs.state\n", ""),
        ("evaluation weights all batches alike", "[losses * counts, counts]", "[losses, torch.ones(2)]"),
    ),
    *in_file(
        "pretrain/trainer.py",
        "pretrain/test_job.py",
        ("evaluation in training mode", "        self.model.eval()\n", ""),
    ),
    *in_file(
        "pretrain/trainer.py",
        "pretrain/test_resume.py",
        ("resumed at the beginning of the text", 'self.windows.load_state_dict(state["windows"])', "pass"),
        (
            "resumed without the LSTM states",
            "self.lstm_state = outputs.to(self.args.device), cells.to(self.args.device)",
            "pass",
        ),
        ("resumed with another random state", "        super()._load_rng_state(checkpoint)\n", ""),
    ),
    *in_file(
        "pretrain/trainer.py",
        "pretrain/test_resume.py pretrain/test_trainer.py",
        (
            "resumed with a new optimizer state",
            "super().load_state_dict(state_dict)\n        self._share_state()",
            "super().load_state_dict(state_dict)",
        ),
    ),
    *in_file(
        "pretrain/trainer.py",
        "pretrain/test_trainer.py -k learning_rates",
        ("no schedule of the learning rate", "lr_scheduler_type=recipe.schedule", 'lr_scheduler_type="constant"'),
        ("no warmup", "warmup_steps=round(recipe.warmup_ratio * steps)", "warmup_steps=0"),
    ),
    *in_file(
        "pretrain/job.py",
        "pretrain/test_job.py -k held_out",
        (
            "held-out sentences are trained on",
            "np.sort(order[number:]), np.sort(order[:number])",
            "np.sort(order), np.sort(order[:number])",
        ),
    ),
    *in_file(
        "pretrain/job.py",
        "pretrain/test_job.py",
        ("seed ignored", "    set_seed(settings.seed)\n", ""),
        (
            "min_count ignored",
            "corpus.vocabulary(min_count, ",
            "corpus.vocabulary(1, ",
        ),
        (
            "weights saved in half precision without being asked",
            "w.half() if settings.save_half else w for",
            "w.half() for",
        ),
        (
            "sentence ends are not counted as words of an epoch",
            "[train_sentences].sum()) + len(train_sentences)",
            "[train_sentences].sum())",
        ),
    ),
    *in_file(
        "pretrain/job.py",
        "pretrain/test_job.py -k start_from",
        (
            "weights of the initial checkpoint are not used",
            "load_model(self.checkpoint, config, with_lm_head=True, dtype=torch.float32)",
            "ElmoForPreTraining(config)",
        ),
    ),
    *in_file(
        "pretrain/job.py",
        "pretrain/test_resume.py",
        (
            "a stopped run is saved as if complete",
            "if not trainer.stopped and trainer.is_world_process_zero():",
            "if trainer.is_world_process_zero():",
        ),
    ),
    *in_file(
        "pretrain/recipe.py",
        "pretrain/test_job.py -k resume",
        (
            "resumed with other settings",
            'f.metadata.get("must_match_on_resume", True)',
            'f.metadata.get("must_match_on_resume", False)',
        ),
    ),
    *in_file(
        "pretrain/output.py",
        "pretrain/test_output.py",
        ("resumed from the first checkpoint", "reverse=True", "reverse=False"),
        ("resumed from a damaged checkpoint", "if sha256_of(folder / name) != checksum:", "if False:"),
        ("two runs write to one folder", "lock = try_lock(path)", "lock = os.open(path, os.O_RDONLY)"),
    ),
    *in_file(
        "pretrain/job.py",
        "pretrain/test_job.py -k same_files",
        ("resumed with another text", '{"sha256": corpus.sha256,', '{"sha256": "",'),
        (
            "resumed with another vocabulary",
            "settings.vocabulary_sha256 = vocabulary_sha256(tokenizer)",
            'settings.vocabulary_sha256 = "same"',
        ),
    ),
    *in_file(
        "pretrain/callbacks.py",
        "pretrain/test_resume.py",
        (
            "nothing saved on Ctrl-C",
            "self.requested = control.should_save = control.should_training_stop = True",
            "self.requested = control.should_training_stop = True",
        ),
    ),
    # conversion
    *in_file(
        "convert/weight_names.py",
        "convert/test_formats.py -k reference",
        (
            "TensorFlow's gates not reordered",
            "lambda a: reorder_gates(a, 0, 2, 3, 1).chunk(2)",
            "lambda a: reorder_gates(a, 0, 1, 2, 3).chunk(2)",
        ),
        (
            "TensorFlow's biases reordered the other way",
            "(reorder_gates(a, 0, 2, 3, 1),)",
            "(reorder_gates(a, 0, 3, 1, 2),)",
        ),
        (
            "square matrix of a highway not transposed",
            '"highways.{i}.carry.weight", TRANSPOSED',
            '"highways.{i}.carry.weight", SAME',
        ),
        (
            "padding row at the end",
            "torch.cat([torch.zeros_like(a[:1]), a])",
            "torch.cat([a, torch.zeros_like(a[:1])])",
        ),
        (
            "forward and backward swapped",
            'zip(directions, ("forward", "backward"))',
            'zip(directions, ("backward", "forward"))',
        ),
    ),
    *in_file(
        "convert/weight_names.py",
        "convert/test_formats.py -k 'reference and many-langs'",
        (
            "torch's gates in TensorFlow's order",
            "(reorder_gates(a.t(), 0, 1, 3, 2),)",
            "(reorder_gates(a.t(), 0, 2, 3, 1),)",
        ),
        (
            "carry of a torch highway has the wrong sign",
            "(a.chunk(2)[0], -a.chunk(2)[1])",
            "(a.chunk(2)[0], a.chunk(2)[1])",
        ),
    ),
    *in_file(
        "convert/sources/bilm.py",
        "convert/test_formats.py -k 262",
        (
            "hdf5: the padding row of 262 is not the one that is zero",
            "rows[1:] if not rows[0].any() else rows[:-1]",
            "rows[1:]",
        ),
    ),
    *in_file(
        "convert/sources/bilm.py",
        "convert/test_formats.py -k repeated",
        (
            "hdf5: a repeated word has the id of its first line",
            "last = {word: row for row, word in enumerate(words)}",
            "last = {word: row for row, word in reversed(list(enumerate(words)))}",
        ),
    ),
    *in_file(
        "convert/sources/bilm.py",
        "convert/test_bad_sources.py -k bad_sources",
        ("hdf5: a vocabulary of another size is accepted", "if number not in (None, rows):", "if False:"),
    ),
    *in_file(
        "convert/sources/bilm.py",
        "convert/test_hostile_sources.py",
        (
            "hdf5: a dataset stored in another file is read",
            "if dataset.is_virtual or dataset.external:",
            "if dataset.is_virtual:",
        ),
        (
            "hdf5: a dataset composed of other files is read",
            "if dataset.is_virtual or dataset.external:",
            "if dataset.external:",
        ),
        ("hdf5: links are followed", '.__name__ != "HardLink":', '.__name__ == "":'),
    ),
    *in_file(
        "convert/sources/allennlp.py",
        "convert/test_formats.py -k 'reference and allennlp'",
        ("AllenNLP: forget bias counted twice", "forget_bias=0.0", "forget_bias=1.0"),
        (
            "AllenNLP: weights of the mix in another order",
            "[weight.read() for weight in weights]",
            "[weight.read() for weight in weights[::-1]]",
        ),
        (
            "AllenNLP: layer norm ignored",
            'mix_layer_norm = settings.get("do_layer_norm", False)',
            "mix_layer_norm = False",
        ),
    ),
    *in_file(
        "convert/sources/many_langs.py",
        "convert/test_formats.py -k 'reference and many-langs'",
        ("ELMoForManyLangs: forget bias counted twice", '"forget_bias": 0.0', '"forget_bias": 1.0'),
        ("ELMoForManyLangs: word marks not swapped", "swap_word_marks=True", "swap_word_marks=False"),
    ),
    *in_file(
        "convert/sources/many_langs.py",
        "convert/test_formats.py -k dictionaries",
        (
            "ELMoForManyLangs: words in the order of their lines",
            "for key, row in entries.items():\n        ordered[row] = key",
            "for row, key in enumerate(entries):\n        ordered[row] = key",
        ),
    ),
    *in_file(
        "convert/sources/tensorflow.py",
        "convert/test_formats.py -k 'reference and last-step'",
        ("TensorFlow: step 900 taken for later than step 1000", "int(match[2] or 0)", 'match[2] or "0"'),
    ),
    *in_file(
        "convert/tensor_bundle.py",
        "convert/test_tensor_bundle.py",
        ("TensorFlow: checksum of a tensor not compared", "if masked(crc32c(data)) != entry.checksum:", "if False:"),
        (
            "TensorFlow: checksum of a block not compared",
            "if masked(crc32c(block + compression)) != little_endian(checksum):",
            "if False:",
        ),
        (
            "TensorFlow: bfloat16 read as float16",
            '(values.astype("<u4") << 16).view("<f4")',
            'values.view("<f2").astype("<f4")',
        ),
    ),
    *in_file(
        "convert/sources/pickles.py",
        "convert/test_bad_sources.py -k pickles",
        ("pickles may execute code", "weights_only=True", "weights_only=False"),
    ),
    *in_file(
        "convert/sources/__init__.py",
        "convert/test_bad_sources.py -k bad_sources",
        ("weights that are NaN are accepted", "if not np.isfinite(array).all():", "if False:"),
    ),
    *in_file(
        "convert/archives.py",
        "convert/test_archives.py",
        ("an archive writes outside of its folder", '".." in parts or ', ""),
    ),
    *in_file(
        "convert/job.py",
        "convert/test_bad_sources.py -k bad_sources",
        ("weights that the model lacks are dropped", "    if unmatched:\n", "    if False:\n"),
    ),
    # verification
    *in_file(
        "convert/verification.py",
        "convert/test_verification.py -k 'tolerance or noticed and not fresh'",
        ("infinite tolerance", "\nTOLERANCE = 1e-5", '\nTOLERANCE = float("inf")'),
        ("infinite relative tolerance", "\nRELATIVE_TOLERANCE = 1e-6", '\nRELATIVE_TOLERANCE = float("inf")'),
        (
            "infinite tolerance of logits",
            "\nRELATIVE_TOLERANCE_OF_LOGITS = 1e-5",
            '\nRELATIVE_TOLERANCE_OF_LOGITS = float("inf")',
        ),
        (
            "the source is compared with itself",
            "parity(name, part, actual_parts[name], largest_input)",
            "parity(name, part, part, largest_input)",
        ),
    ),
    *in_file(
        "convert/verification.py",
        "convert/test_verification.py -k tolerance",
        ("NaN is within the tolerance", "if not difference <= tolerance:", "if difference > tolerance:"),
    ),
    *in_file(
        "convert/verification.py",
        "convert/test_verification.py -k word_ids",
        ("word ids are not compared", "if expected.word_ids not in (None, actual.word_ids):", "if False:"),
    ),
    *in_file(
        "convert/numpy_elmo.py",
        "convert/test_formats.py -k reference",
        ("the reference lacks the forget bias", "sigmoid(f + 1.0)", "sigmoid(f)"),
    ),
    # padded path
    *in_file(
        "padded_elmo.py",
        "test_export.py -k padded",
        ("a masked step resets the state", "torch.where(is_word, new_c, c)", "zero_padding(new_c, is_word)"),
        ("a masked step changes the output", "torch.where(is_word, new_h, h)", "new_h"),
        ("backward direction reads forward", "reverse=lstm is layer.backward_lstm", "reverse=False"),
        ("residual in the first layer", "if layer.residual:", "if True:"),
        ("no forget bias", "lstm.bias + lstm.forget_bias *", "lstm.bias + 0 *"),
        (
            "ids at padding are looked up",
            "word_ids = zero_padding(input_ids, is_word.squeeze(-1))",
            "word_ids = input_ids",
        ),
        ("padding is encoded", "x = zero_padding(x, is_word).to(", "x = x.to("),
    ),
    *in_file(
        "convert/onnx.py",
        "convert/test_onnx.py",
        ("NaN passes the comparison", "if not difference <= TOLERANCE", "if difference > TOLERANCE"),
        ("training mode", "model.float().eval()", "model.float().train()"),
        ("fixed length", '{0: "batch", 1: "length"}', '{0: "batch"}'),
        (
            "architecture of the language model",
            "[type(model).__name__], torch.float32",
            "config.architectures, torch.float32",
        ),
    ),
    # export
    *in_file(
        "convert/weight_names.py",
        "convert/test_export.py",
        ("gates in our order", "reorder_gates(torch.cat([x, h]), 0, 3, 1, 2)", "torch.cat([x, h])"),
        (
            "recurrent weights before those of the input",
            "reorder_gates(torch.cat([x, h]), 0, 3, 1, 2)",
            "reorder_gates(torch.cat([h, x]), 0, 3, 1, 2)",
        ),
    ),
    *in_file(
        "convert/export.py",
        "convert/test_export.py",
        ("weights that are NaN are written", "            check_finite(name, array)\n", ""),
        ("forget bias subtracted from the output gate", "exact.chunk(4)[1]", "exact.chunk(4)[2]"),
        (
            "vocabulary with a row for padding",
            '"n_tokens_vocab": config.vocab_size - 1',
            '"n_tokens_vocab": config.vocab_size',
        ),
        ("cells clipped as the projection", '"cell_clip": config.cell_clip', '"cell_clip": config.projection_clip'),
        (
            "a character vocabulary is written as bytes",
            'if config.inputs == "words+characters" or own_char_vocab:',
            'if config.inputs == "words+characters":',
        ),
    ),
    # push
    *in_file(
        "convert/push.py",
        "convert/test_push.py -k link",
        ("links out of the folder are uploaded", "is_relative_to(folder.resolve()):", "exists():"),
    ),
    *in_file(
        "convert/push.py",
        "convert/test_push.py -k byte_for_byte",
        ("every file in the folder is uploaded", "if OPTIONAL_FILE.fullmatch(path.name)]", "if path.is_file()]"),
    ),
    *in_file(
        "convert/push.py",
        "convert/test_push.py -k private",
        ("--private ignored", "private=private or None", "private=None"),
        (
            "private weights pushed to a public repository",
            "if private and not api.model_info(repo).private:",
            "if False:",
        ),
    ),
    *in_file(
        "convert/push.py",
        "convert/test_push.py -k earlier",
        ("shards of an earlier push stay", "in sorted(old - ", "in sorted(set() - "),
    ),
    *in_file(
        "convert/push.py",
        "convert/test_push.py -k 'card or byte or pushed or usage'",
        ("README.md loads the folder instead of the repository", "rename_usage(card, repo).encode()", "card.encode()"),
    ),
    *in_file(
        "convert/push.py",
        "convert/test_push.py -k branch",
        ("--revision ignored", "commit_message=message, revision=revision)", "commit_message=message)"),
    ),
    *in_file(
        "convert/push.py",
        "convert/test_push.py -k ascii",
        (
            "the token is printed",
            'raise ValueError("The token must be plain ASCII text:',
            'raise ValueError(f"The token {error.object} must be plain ASCII text:',
        ),
    ),
    # download
    *in_file(
        "convert/download.py",
        "convert/test_download.py",
        ("the part of one mirror is completed by another", 'known = known if started == url else ""', "pass"),
        (
            "redirects from https to http are followed",
            'if urlsplit(request.full_url).scheme == "https" and urlsplit(url).scheme != "https":',
            "if False:",
        ),
        ("hash not compared", "if file.sha256 is not None and", "if False and"),
        (
            "hash of a cached file not compared",
            " == sha256_of(path)",
            "",
        ),
        ("the part of another version is continued", ' and version_of(headers) in ("", known)', ""),
        (
            "the part of an unknown version is continued",
            "start = output.seek(0, os.SEEK_END) if known else 0",
            "start = output.seek(0, os.SEEK_END)",
        ),
        ("If-Range not sent", ', "If-Range": version}', "}"),
        ("weak ETag taken for a version", 'tag if tag and not tag.startswith("W/") else', "tag if tag else"),
        ("truncated download taken for complete", "if disconnected or received < total:", "if False:"),
        ("login page saved as weights", ' == "text/html"', ' == "text/plain"'),
    ),
    *in_file(
        "convert/download.py",
        "convert/test_download.py -k concurrent",
        ("two processes write the same file", "            lock(file)\n", ""),
    ),
    # files
    *in_file(
        "files.py",
        "test_files.py",
        (
            "an unfinished file replaces the old one",
            "            yield unfinished\n",
            "            try:\n                yield unfinished\n"
            "            except BaseException:\n                unfinished.replace(path)\n                raise\n",
        ),
    ),
    *in_file(
        "files.py",
        "test_files.py -k replace",
        (
            "old folder removed before the new one is in place",
            "if replace and path.exists():",
            "if replace and path.exists() and shutil.rmtree(path):",
        ),
    ),
    *in_file(
        "files.py",
        "test_files.py -k leftovers",
        (
            "files of running processes removed",
            "lock = try_lock(path)\n            if lock",
            "lock = os.open(path, os.O_RDONLY)\n            if lock",
        ),
        ("files of other hosts removed", ' and match["host"] == host_name()', ""),
    ),
    *in_file(
        "files.py",
        "test_files.py -k check_new_folder",
        ("output written through a dangling link", " or path.is_symlink():", ":"),
    ),
    *in_file(
        "files.py",
        "test_files.py -k hash",
        ("only the first megabyte is hashed", "while block := file.read(1 << 20):", "if block := file.read(1 << 20):"),
    ),
    # checkpoints and cards
    *in_file(
        "modeling_elmo.py",
        "test_language_model.py -k lm_head",
        (
            "a checkpoint without its lm_head gets a random one",
            "if is_complete or BILM_WEIGHT.match(name)",
            "if BILM_WEIGHT.match(name)",
        ),
    ),
    *in_file(
        "checkpoints.py",
        "test_language_model.py -k from_pretrained",
        ("an lm_head is dropped", "ElmoForPreTraining if with_lm_head else", "ElmoModel if with_lm_head else"),
    ),
    *in_file(
        "model_card.py",
        "test_model_card.py",
        ("card: only the first name in the usage is replaced", "f'\"{name}{end}')", "f'\"{name}{end}', 1)"),
        ("card: license dropped", "        license=license,\n", ""),
        (
            "card: the user's README.md is overwritten",
            "if readme.exists() and EMPTY_TEMPLATE not in",
            "if readme.exists() and EMPTY_TEMPLATE in",
        ),
    ),
    # commands
    *in_file(
        "command/__init__.py",
        "command/test_command.py",
        (
            "errors are swallowed",
            "        if show_traceback:\n            traceback.print_exc()\n",
            "        return 0\n",
        ),
    ),
    *in_file(
        "command/__init__.py",
        "command/test_embed.py -k interrupted",
        ("exit code 0 after Ctrl-C", "return 130", "return 0"),
    ),
    *in_file(
        "command/__init__.py",
        "convert/test_job.py -k signals",
        ("SIGTERM leaves unfinished files", "        exit_on_termination_signals()\n", ""),
    ),
    *in_file(
        "command/embed.py",
        "command/test_embed.py",
        ("embed: --column ignored", "column=arguments.column", 'column="text"'),
        ("embed: --layer ignored", "layer=arguments.layer", 'layer="mix"'),
        ("embed: --pretokenized ignored", "pretokenized=arguments.pretokenized", "pretokenized=False"),
    ),
    *in_file(
        "command/pretrain.py",
        "command/test_pretrain.py",
        ("pretrain: exit code 0 after Ctrl-C", "return 0 if completed else 130", "return 0"),
        ("pretrain: --drop-tokens ignored", "drop_tokens=tuple(arguments.drop_tokens)", "drop_tokens=()"),
        ("pretrain: --seed ignored", "seed=arguments.seed", "seed=0"),
    ),
    *in_file(
        "command/convert.py",
        "convert/test_push.py -k converted_if",
        (
            "convert: access to the Hub tested after the conversion only",
            "        check_access(arguments.push_to_hub)\n",
            "        pass\n",
        ),
    ),
    *in_file(
        "command/convert.py",
        "command/test_convert.py",
        ("convert: --softmax ignored", "softmax=arguments.softmax", "softmax=None"),
    ),
    *in_file(
        "command/push.py",
        "command/test_convert.py",
        ("push: --private ignored", "private=arguments.private", "private=False"),
    ),
    *in_file(
        "command/export.py",
        "command/test_convert.py convert/test_export.py",
        ("export: lm_head dropped", "with_lm_head=True", "with_lm_head=False"),
    ),
]


def main() -> int:
    parser = argparse.ArgumentParser(description="Put deliberate faults into a copy of the code and run the tests.")
    parser.add_argument("words", metavar="WORD", nargs="*", help="run only mutants with one of these in file or fault")
    parser.add_argument(
        "--jobs", metavar="N", type=int, default=1, help="mutants to run at once (default: %(default)s)"
    )
    arguments = parser.parse_args()
    chosen = [m for m in MUTANTS if not arguments.words or any(w in f"{m.file}: {m.fault}" for w in arguments.words)]
    if not chosen:
        parser.error(f"no mutant has {' or '.join(arguments.words)} in its file or fault")
    print("running the tests without a fault", flush=True)
    code, output = run_tests(" ".join(sorted({part for m in chosen for part in m.tests.split() if ".py" in part})))
    if code != 0:
        print(f"{output}\nThe tests must pass without a fault: mend them first.")
        return 1
    results = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        try:
            for mutant, (result, seconds) in zip(chosen, pool.map(run, chosen)):
                results.append(result)
                print(f"{result:<9} {seconds:4.0f} s  {mutant.file}: {mutant.fault}", flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    print(", ".join(f"{results.count(result)} {result}" for result in ("caught", "SURVIVED", "stale")))
    return 0 if set(results) == {"caught"} else 1


def run(mutant: Mutant) -> tuple[str, float]:
    """Return what becomes of a mutant, caught, SURVIVED or stale, and the seconds that it took."""
    start, result = time.monotonic(), "stale"
    if (ROOT / "transformers_elmo" / mutant.file).read_text(encoding="utf-8").count(mutant.old) == 1:
        code, _ = run_tests(mutant.tests, mutant)
        # pytest's exit codes: 0 if all tests passed, 1 if one failed, others if it could not run or collect them.
        result = {0: "SURVIVED", 1: "caught"}.get(code, "stale")
    return result, time.monotonic() - start


def run_tests(tests: str, mutant: Mutant | None = None) -> tuple[int, str]:
    """Run tests in a copy of the repository, with a mutant in it or without; return pytest's exit code and output."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy, output = Path(folder) / "repository", Path(folder) / "output.txt"
        shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
        if mutant is not None:
            file = copy / "transformers_elmo" / mutant.file
            file.write_text(file.read_text(encoding="utf-8").replace(mutant.old, mutant.new), encoding="utf-8")
        process = PROCESSES.Process(target=run_pytest, args=(copy, output, tests))
        process.start()
        try:
            process.join(None if mutant is None else MAX_SECONDS)
        finally:
            process.kill()
        process.join()
        return process.exitcode, output.read_text(encoding="utf-8", errors="replace")


def run_pytest(copy: Path, output: Path, tests: str):
    """Run tests in this process, which has imported the libraries, but neither the package nor the tests."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT)
    os.dup2(file, sys.stdout.fileno())
    os.dup2(file, sys.stderr.fileno())
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background, also by the tests' processes
    for name in OUTSIDE:
        os.environ.pop(name, None)
    os.environ |= {"PYTHONPATH": str(copy), "TMPDIR": str(copy.parent)}
    os.chdir(copy)
    sys.path[0] = str(copy)
    arguments = [f"tests/{part}" if ".py" in part else part for part in shlex.split(tests)]
    sys.exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--timeout=120", *arguments]))


if __name__ == "__main__":
    sys.exit(main())
