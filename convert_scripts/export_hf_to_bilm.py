"""Export a Hugging Face checkpoint to the files that bilm-tf and AllenNLP read.

    pip install -e '.[convert]'   # once
    python convert_scripts/export_hf_to_bilm.py my-elmo exported

Writes options.json, weights.hdf5 and, if the checkpoint has them, vocab.txt and softmax.hdf5.
"""

import argparse
import sys
from pathlib import Path

from transformers_elmo.checkpoints import load
from transformers_elmo.convert.export import export_bilm


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", help='folder, name on the Hub, or "default"')
    parser.add_argument("output", type=Path, help="folder to create")
    arguments = parser.parse_args()
    try:
        model, tokenizer = load(arguments.checkpoint, with_lm_head=True)
        export_bilm(model, tokenizer, arguments.output)
    except (OSError, ValueError, RuntimeError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
