# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Save the activations of a checkpoint; verification.py runs this script in a process of its own.

    python checkpoint_activations.py CHECKPOINT SENTENCES.json ACTIVATIONS.npz

It runs the code in the checkpoint instead of this package, as after loading it from the Hub.
"""

import json
import sys

import numpy as np
import torch
from transformers import AutoConfig, AutoModel, AutoModelForPreTraining, AutoTokenizer


@torch.no_grad()
def main(checkpoint: str, sentences_file: str, output: str):
    config = AutoConfig.from_pretrained(checkpoint, trust_remote_code=True)
    has_lm_head = config.architectures == ["ElmoForPreTraining"]
    auto_class = AutoModelForPreTraining if has_lm_head else AutoModel
    model = auto_class.from_pretrained(checkpoint, trust_remote_code=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=True)
    arrays = {}
    with open(sentences_file, encoding="utf-8") as file:
        sentences = json.load(file)
    for number, sentence in enumerate(sentences):
        inputs = tokenizer([sentence], is_split_into_words=True, return_tensors="pt")
        outputs = model.base_model(**inputs, output_hidden_states=True)
        arrays[f"layers_{number}"] = torch.cat(outputs.hidden_states).numpy()  # (L + 1, T, 2P)
        arrays[f"mix_{number}"] = outputs.last_hidden_state[0].numpy()  # (T, 2P)
        arrays[f"ids_{number}"] = inputs["input_ids"][0].numpy()  # (T,)
        if has_lm_head and number == 0:
            outputs = model(**inputs)
            logits = torch.cat([outputs.forward_logits, outputs.backward_logits])[..., 1:]  # (2, T, V)
            arrays["next_words"] = logits.double().log_softmax(-1).float().numpy()
    np.savez(output, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
