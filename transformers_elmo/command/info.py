# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""`elmo info`: describe a checkpoint."""

import argparse

from .arguments import add_checkpoint_argument


def add_arguments(parser: argparse.ArgumentParser):
    parser.description = "Describe a checkpoint: inputs, sizes, mix of layers, vocabulary, parameters."
    parser.epilog = """\
examples:
  elmo info default
  elmo info path/to/checkpoint
"""
    add_checkpoint_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    from ..checkpoints import is_quantized, load

    model, tokenizer = load(arguments.checkpoint)
    config = model.config
    inputs = [config.inputs]
    if "characters" in config.inputs:
        filters = " ".join(f"{width}x{number}" for width, number in config.char_filters)
        inputs += [
            f"{config.char_vocab_size - 1} characters, embedding dimension {config.char_embedding_dim}, "
            f"at most {config.max_characters_per_token} per word",
            f"filters {filters} ({config.num_filters}), {config.char_activation}",
            f"highway layers {config.num_highway_layers}",
        ]
    clips = [
        f"{name} {clip:g}" for name, clip in (("cells", config.cell_clip), ("outputs", config.projection_clip)) if clip
    ]
    lstm = (
        f"{config.num_hidden_layers} layers x 2 directions, {config.lstm_dim} cells"
        + (f" projected to {config.projection_dim}" if config.projection_dim is not None else "")
        + (", skip connections" if config.use_skip_connections else "")
        + (f", clipped ({', '.join(clips)})" if clips else "")
    )
    words = tokenizer.vocab_size - len(tokenizer.all_special_tokens)
    vocabulary = f"{words:,} words and {len(tokenizer.all_special_tokens)} special tokens" if words > 0 else "none"
    weights = ", ".join(f"{name} {weight:.3f}" for name, weight in model.layer_weights().items())
    dtypes = ["int8"] * is_quantized(config) + [str(model.dtype).removeprefix("torch.")]
    table = [
        ("checkpoint", [arguments.checkpoint]),
        ("architecture", config.architectures or ["ElmoModel"]),
        ("input", inputs),
        ("biLM", [lstm]),
        ("vectors", [f"{config.hidden_size} dimensions, {config.num_hidden_layers + 1} layers"]),
        ("mix", [f"{config.mix}: {weights}" + (", layer norm" if config.mix_layer_norm else "")]),
        ("vocabulary", [vocabulary]),
        ("parameters", [f"{model.num_parameters():,} ({' and '.join(dtypes)})"]),
        ("memory", [describe_memory(model, tokenizer)]),
    ]
    for name, lines in table:
        for line in lines:
            print(f"{name:<13} {line}")
            name = ""
    return 0


def describe_memory(model, tokenizer) -> str:
    """Return the memory of the weights, and of the copies of them that a model makes when it is first used."""
    import torch

    from ..products_elmo import PreparedWeights

    with torch.inference_mode():
        for batch_size in (1, 32):  # few sentences and many can use different copies
            model(**tokenizer(["a"] * batch_size, return_tensors="pt"))
    prepared = [
        each for module in model.modules() for each in vars(module).values() if isinstance(each, PreparedWeights)
    ]
    weights = sum(weight.nbytes for weight in (*model.parameters(), *model.buffers()))
    copies = sum(each.nbytes for each in prepared)
    return f"weights {weights / 1e6:,.1f} MB, packed copies for inference {copies / 1e6:,.1f} MB"
