"""Export a Hugging Face checkpoint to the files that bilm-tf and AllenNLP read.

    pip install -e '.[convert]'   # once
    python convert_scripts/export_hf_to_bilm.py my-elmo exported

Writes options.json, weights.hdf5 and, if the checkpoint has them, vocab.txt and softmax.hdf5.
"""

import argparse
import sys
from pathlib import Path

from transformers_elmo.checkpoints import load
from transformers_elmo.command import describe_error
from transformers_elmo.convert.export import export_bilm


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", help='folder, name on the Hub, or "default"')
    parser.add_argument("output", type=Path, help="folder to create")
    arguments = parser.parse_args()
    try:
        model, tokenizer = load(arguments.checkpoint, with_lm_head=True)
        export_bilm(model, tokenizer, arguments.output)
    except Exception as error:
        sys.exit(describe_error(error)[1])


if __name__ == "__main__":
    main()
