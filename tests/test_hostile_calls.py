"""The table of hostile calls: every verb and every public class gets what it cannot use, one line a case.

A case is a call and a part of its message. The call must fail with that one sentence, without a traceback, and must
write nothing: the folder that it runs in, which `world` fills, is compared before and after. To cover a new verb, add
lines to COMMANDS; for a new class or function, add it to NAMES and lines to CALLS.
"""

import json
import os
import runpy
import shlex
import sys
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pytest
import torch

from helpers.command import run
from helpers.models import randomize, tiny_config
from helpers.text_files import gzipped, write_parquet
from transformers_elmo import (
    ElmoConfig,
    ElmoForPreTraining,
    ElmoForTokenClassification,
    ElmoLanguageModel,
    ElmoModel,
    ElmoQuantizationConfig,
    ElmoTokenizer,
)
from transformers_elmo.command import VERBS
from transformers_elmo.convert.export import export_bilm
from transformers_elmo.convert.job import convert
from transformers_elmo.convert.onnx import export_onnx
from transformers_elmo.convert.push import push
from transformers_elmo.convert.releases import find_release
from transformers_elmo.embed.job import embed, read_sentences, write_npz
from transformers_elmo.pretrain.corpus import Corpus
from transformers_elmo.pretrain.job import InitialModel, Texts
from transformers_elmo.quantize import quantize_checkpoint
from transformers_elmo.text import find_files, read_lines

ROOT = Path(__file__).parents[1]
NAMES = [
    *(ElmoConfig, ElmoTokenizer, ElmoModel, ElmoForPreTraining, ElmoForTokenClassification, ElmoLanguageModel),
    *(embed, read_sentences, write_npz, find_files, read_lines),
    *(ElmoQuantizationConfig, quantize_checkpoint),
    *(convert, export_bilm, export_onnx, push, find_release, Corpus, InitialModel, Texts, Path),
]

# A command line, its exit code (2 for wrong usage, 1 for anything else), and a part of the message.
COMMANDS = [
    ("nonsense", 2, "unknown verb 'nonsense'"),
    ("EMBED", 2, "unknown verb 'EMBED'"),
    ("imbed", 2, "did you mean 'embed'?"),
    ("''", 2, "unknown verb ''"),
    (r"$'a\nb\x1b[31m'", 2, r"unknown verb '$a\\nb\\x1b[31m'"),
    ("--nonsense", 2, "unrecognized arguments: --nonsense; see elmo --help."),
    ("--nonsense info checkpoint", 2, "unrecognized arguments: --nonsense; see elmo --help."),
    # info
    ("info", 2, "the following arguments are required: CHECKPOINT; see elmo info --help."),
    ("info checkpoint checkpoint", 2, "unrecognized arguments: checkpoint"),
    ("info checkpoint --nonsense", 2, "unrecognized arguments: --nonsense"),
    ("info nowhere", 1, "nowhere is neither a folder with a checkpoint nor a model that can be reached on the Hub"),
    ("info no/where/at/all", 1, "no/where/at/all is neither a folder with a checkpoint nor"),
    ("info ''", 1, "neither a folder with a checkpoint nor"),
    ("info ../..", 1, "must be the folder of a checkpoint; it has no config.json"),
    ("info folder", 1, "folder must be the folder of a checkpoint; it has no config.json"),
    ("info text.txt", 1, "text.txt"),
    ("info bert", 1, "bert must be an ELMo checkpoint; its model type is 'bert'"),
    ("info no-weights", 1, "no-weights"),
    ("info cut-weights", 1, "is truncated"),
    ("info not-json", 1, "config.json"),
    ("info unreadable-config", 1, "A file of unreadable-config cannot be read: Input/output error."),
    ("info unreadable-tokenizer", 1, "A file of unreadable-tokenizer cannot be read: Input/output error."),
    ("info unreadable-weights", 1, "A file of unreadable-weights cannot be read: No such device."),
    # embed
    ("embed", 2, "required: -o/--output; see elmo embed --help."),
    ("embed checkpoint text.txt", 2, "required: -o/--output"),
    ("embed checkpoint text.txt text.txt -o x.npz", 2, "unrecognized arguments: text.txt"),
    ("embed checkpoint - - -o x.npz", 2, "unrecognized arguments: -"),
    ("embed checkpoint text.txt -o", 2, "argument -o/--output: expected one argument"),
    ("embed checkpoint text.txt -o x.npz --layer lstm_9", 2, "argument --layer: invalid choice: 'lstm_9'"),
    ("embed checkpoint text.txt -o x.npz --layer ''", 2, "argument --layer: invalid choice: ''"),
    ("embed checkpoint text.txt -o x.npz --batch-words 0", 2, "must be a whole number, at least 1 and below 2^31"),
    ("embed checkpoint text.txt -o x.npz --batch-words -1", 2, "must be a whole number, at least 1 and below 2^31"),
    ("embed checkpoint text.txt -o x.npz --batch-words 1e3", 2, "must be a whole number, at least 1 and below 2^31"),
    ("embed checkpoint text.txt -o x.npz --batch-words 2147483648", 2, "at least 1 and below 2^31, got 2147483648"),
    ("embed checkpoint text.txt -o x.npz --batch-words ''", 2, "at least 1 and below 2^31, got ;"),
    ("embed checkpoint text.txt -o x.npz --encoding-errors ignore", 2, "--encoding-errors: invalid choice: 'ignore'"),
    ("embed checkpoint text.txt -o x.npz --pretokenized=yes", 2, "--pretokenized: ignored explicit argument 'yes'"),
    ("embed nowhere text.txt -o x.npz", 1, "nowhere is neither a folder with a checkpoint nor"),
    ("embed folder text.txt -o x.npz", 1, "folder must be the folder of a checkpoint"),
    ("embed bert text.txt -o x.npz", 1, "bert must be an ELMo checkpoint"),
    ("embed checkpoint nowhere.txt -o x.npz", 1, "INPUT must be a file, or - for standard input; nowhere.txt does not"),
    ("embed checkpoint text.txt/x -o x.npz", 1, "text.txt/x does not exist"),
    ("embed checkpoint '' -o x.npz", 1, "does not exist"),
    ("embed checkpoint broken-link.txt -o x.npz", 1, "broken-link.txt does not exist"),
    ("embed checkpoint loop.txt -o x.npz", 1, "loop.txt: Too many levels of symbolic links"),
    ("embed checkpoint folder -o x.npz", 1, "folder is a folder"),
    ("embed checkpoint folder.txt -o x.npz", 1, "folder.txt is a folder"),
    (f"embed checkpoint {'a' * 300}.txt -o x.npz", 1, ".txt: File name too long"),
    ("embed checkpoint /proc/self/mem -o x.npz", 1, "/proc/self/mem: Input/output error"),
    ("embed checkpoint /dev/zero -o x.npz", 1, "/dev/zero must have lines of at most 67,108,864 bytes; line 1 is"),
    ("embed checkpoint /dev/null -o x.npz", 1, "must contain text, one sentence per line or row; /dev/null contains"),
    ("embed checkpoint empty.txt -o x.npz", 1, "empty.txt contains none"),
    ("embed checkpoint blank.txt -o x.npz", 1, "blank.txt contains none"),
    ("embed checkpoint bom.txt -o x.npz", 1, "bom.txt contains none"),
    ("embed checkpoint latin.txt -o x.npz", 1, "latin.txt must be UTF-8 text; line 2 holds the byte 0xef"),
    ("embed checkpoint utf16.txt -o x.npz", 1, "utf16.txt must be UTF-8 text; line 1 holds"),
    ("embed checkpoint binary.txt -o x.npz", 1, "binary.txt must be UTF-8 text; line 2 holds a zero byte"),
    ("embed checkpoint binary.txt -o x.npz --encoding-errors replace", 1, "line 2 holds a zero byte"),
    ("embed checkpoint cut.gz -o x.npz", 1, "cut.gz cannot be decompressed"),
    ("embed checkpoint not.xz -o x.npz", 1, "not.xz cannot be decompressed"),
    ("embed checkpoint not.jsonl -o x.npz", 1, "not.jsonl must hold one JSON object per line, got 'One two' in line 1"),
    ("embed checkpoint deep.jsonl -o x.npz", 1, "deep.jsonl must hold one JSON object per line"),
    ("embed checkpoint huge.jsonl -o x.npz", 1, "huge.jsonl must hold one JSON object per line"),
    ("embed checkpoint rows.jsonl -o x.npz --column body", 1, "rows.jsonl must have text in column 'body', line 1 has"),
    ("embed checkpoint rows.jsonl -o x.npz --column n", 1, "text in column 'n', line 1 has: text (str), n (int)"),
    ("embed checkpoint rows.jsonl -o x.npz --column ''", 1, "must have text in column ''"),
    ("embed checkpoint text.txt -o x.npz --column body", 1, "--column body needs a .jsonl or .parquet file"),
    ("embed checkpoint -o x.npz --column body", 1, "--column body needs a .jsonl or .parquet file"),
    ("embed checkpoint rows.parquet -o x.npz --column body", 1, "must have one column 'body', it has: text, n"),
    ("embed checkpoint rows.parquet -o x.npz --column n", 1, "must have text in column 'n', it has int64 values"),
    ("embed checkpoint not.parquet -o x.npz", 1, "not.parquet cannot be read as Parquet"),
    (r"embed checkpoint 'a\x1b[31m.txt' -o x.npz", 1, "does not exist"),
    ("embed checkpoint text.txt -o x.txt", 1, "--output must end in .npz, got x.txt"),
    ("embed checkpoint text.txt -o /dev/stdout", 1, "--output must end in .npz, got /dev/stdout"),
    ("embed checkpoint text.txt -o ''", 1, "--output must end in .npz, got "),
    ("embed checkpoint text.txt -o no/x.npz", 1, "The output must be in an existing folder; there is no folder"),
    ("embed checkpoint text.txt -o text.txt/x.npz", 1, "The output must be in an existing folder; there is no folder"),
    ("embed checkpoint text.txt -o folder.npz", 1, "The output must be a file; folder.npz is a folder"),
    ("embed checkpoint text.txt -o null.npz", 1, "The output must be a file; null.npz is a device or a pipe"),
    ("embed checkpoint text.txt -o /proc/x.npz", 1, "The folder /proc must be writable"),
    ("embed checkpoint text.npz -o text.npz", 1, "--output must be another file than INPUT; text.npz would be"),
    ("embed checkpoint text.npz -o hard-link.npz", 1, "--output must be another file than INPUT; hard-link.npz"),
    (f"embed checkpoint text.txt -o {'a' * 300}.npz", 1, ".npz: File name too long"),
    ("embed checkpoint text.txt -o x.npz --device nonsense", 1, "--device must be a torch device of this machine, got"),
    ("embed checkpoint text.txt -o x.npz --device cuda:99", 1, "--device must be a torch device of this machine, got"),
    ("embed checkpoint text.txt -o x.npz --device ''", 1, "--device must be a torch device of this machine, got"),
    ("embed checkpoint text.txt -o x.npz --device meta", 1, "--device must be a torch device of this machine, got"),
    ("embed checkpoint text.txt -o x.npz --device hpu", 1, "--device must be a torch device of this machine, got hpu"),
    ("embed checkpoint text.txt -o x.npz --device mkldnn", 1, "--device must be a torch device of this machine, got"),
    ("embed overflow text.txt -o x.npz", 1, "The vectors must be finite numbers; the model computes"),
    # pretrain
    ("pretrain", 2, "required: -o/--output; see elmo pretrain --help."),
    ("pretrain text.txt", 2, "required: -o/--output"),
    ("pretrain text.txt -o x --size huge", 2, "argument --size: invalid choice: 'huge'"),
    ("pretrain text.txt -o x --recipe best", 2, "argument --recipe: invalid choice: 'best'"),
    ("pretrain text.txt -o x --steps 0", 2, "argument --steps: must be a whole number, at least 1"),
    ("pretrain text.txt -o x --steps many", 2, "argument --steps: must be a whole number, at least 1"),
    ("pretrain text.txt -o x --rows -5", 2, "argument --rows: must be a whole number, at least 1"),
    ("pretrain text.txt -o x --window 1.5", 2, "argument --window: must be a whole number, at least 1"),
    ("pretrain text.txt -o x --dropout 1", 2, "argument --dropout: must be a number, at least 0 and below 1, got 1"),
    ("pretrain text.txt -o x --dropout nan", 2, "--dropout: must be a number, at least 0 and below 1, got nan"),
    ("pretrain text.txt -o x --learning-rate inf", 2, "argument --learning-rate: must be a number above 0, got inf"),
    ("pretrain text.txt -o x --epochs 0", 2, "argument --epochs: must be a number above 0, got 0"),
    ("pretrain text.txt -o x --seed one", 2, "argument --seed: invalid int value: 'one'"),
    ("pretrain nowhere.txt -o x --cache cache", 1, "nowhere.txt matches no file; pass text, .gz, .xz, .jsonl or"),
    ("pretrain 'no*.txt' -o x --cache cache", 1, "no*.txt matches no file"),
    ("pretrain folder -o x --cache cache", 1, "folder is a folder; pass the files in it, for example 'folder/*.txt'"),
    ("pretrain text.txt nowhere.txt -o x --cache cache", 1, "nowhere.txt matches no file"),
    ("pretrain broken-link.txt -o x --cache cache", 1, "broken-link.txt: No such file or directory"),
    ("pretrain latin.txt -o x --cache cache", 1, "latin.txt must be UTF-8 text; line 2 holds the byte 0xef"),
    ("pretrain binary.txt -o x --cache cache", 1, "binary.txt must be UTF-8 text; line 2 holds a zero byte"),
    ("pretrain cut.gz -o x --cache cache", 1, "cut.gz cannot be decompressed"),
    ("pretrain not.jsonl -o x --cache cache", 1, "not.jsonl must hold one JSON object per line"),
    ("pretrain rows.jsonl -o x --cache cache --column body", 1, "rows.jsonl must have text in column 'body'"),
    ("pretrain not.parquet -o x --cache cache", 1, "not.parquet cannot be read as Parquet"),
    ("pretrain /dev/zero -o x --cache cache", 1, "/dev/zero must have spaces between words; line 1 has none"),
    ("pretrain text.txt -o text.txt --cache cache", 1, "--output must be a new or empty folder; text.txt exists"),
    ("pretrain text.txt -o full --cache cache", 1, "--output must be a new or empty folder; full exists"),
    ("pretrain text.txt -o x --resume --cache cache", 1, "x contains no run to resume"),
    ("pretrain text.txt -o folder --resume --cache cache", 1, "folder contains no run to resume"),
    ("pretrain text.txt -o x --init checkpoint --size mini", 1, "--size and --config describe a new model"),
    ("pretrain text.txt -o x --init nowhere --cache cache", 1, "nowhere is neither a folder with a checkpoint nor"),
    ("pretrain text.txt -o x --init bert --cache cache", 1, "bert must be an ELMo checkpoint"),
    ("pretrain text.txt -o x --epochs 1 --steps 2", 2, "argument --steps: not allowed with argument --epochs"),
    ("pretrain text.txt -o ''", 2, "argument -o/--output: must be a path, got an empty one"),
    ("pretrain text.txt -o x --cache ''", 2, "argument --cache: must be a path, got an empty one"),
    ("pretrain text.txt -o x --config ''", 2, "argument --config: must be a path, got an empty one"),
    ("pretrain text.txt -o x --vocab ''", 2, "argument --vocab: must be a path, got an empty one"),
    ("pretrain text.txt -o x --language ''", 2, "argument --language: must be one name as the Hub spells it, got ''"),
    ("pretrain text.txt -o x --license 'a: b'", 2, "argument --license: must be one name as the Hub spells it, got"),
    ("pretrain text.txt -o x --drop-tokens the text.npz", 1, "but text.npz is a file: put TEXT before --drop-tokens"),
    ("pretrain text.txt -o x --cache cache --column body", 1, "--column body needs a .jsonl or .parquet file"),
    ("pretrain text.txt -o x --cache cache --held-out ./text.txt", 1, "Held-out text must not be trained on"),
    ("pretrain text.txt -o x --cache cache --vocab text.npz --vocab-size 9", 1, "leave out them or --vocab"),
    ("pretrain text.txt -o x --cache cache --report-to nonsense", 1, "--report-to must be one of none, all"),
    # convert
    ("convert", 1, "convert needs a SOURCE or the --name of a release; see elmo convert --list."),
    ("convert -o x", 1, "convert needs a SOURCE or the --name of a release"),
    ("convert folder", 1, "convert needs a folder to create; add --output DIR."),
    ("convert folder --name small -o x", 1, "convert takes a SOURCE or the --name of a release, not both"),
    ("convert --name nonsense -o x", 1, "nonsense"),
    ("convert folder -o x --private", 1, "--private, --revision and --message need --push-to-hub REPO"),
    ("convert folder folder -o x", 2, "unrecognized arguments: folder"),
    ("convert nowhere -o x", 1, "nowhere"),
    ("convert folder -o x", 1, "folder"),
    ("convert text.txt -o x", 1, "text.txt"),
    ("convert empty.txt -o x", 1, "empty.txt"),
    ("convert checkpoint -o x", 1, "checkpoint"),
    ("convert folder -o folder", 1, "The output must be a new folder; folder exists"),
    ("convert folder -o text.txt", 1, "The output must be a new folder; text.txt exists"),
    ("convert folder -o broken-link.txt", 1, "The output must be a new folder; broken-link.txt exists"),
    ("convert folder -o no/where", 1, "The output must be in an existing folder; there is no folder no"),
    ("convert not.hdf5 -o x", 1, "not.hdf5"),
    ("convert not.zip -o x", 1, "not.zip"),
    ("convert not.tar.gz -o x", 1, "not.tar.gz"),
    ("convert not.hdf5 --options nowhere.json -o x", 1, "not.hdf5 must be an HDF5 file"),
    # quantize
    ("quantize", 2, "required: -o/--output; see elmo quantize --help."),
    ("quantize checkpoint", 2, "required: -o/--output"),
    ("quantize checkpoint -o ''", 2, "must be a path, got an empty one"),
    ("quantize checkpoint -o x --bits 4", 2, "unrecognized arguments: --bits"),
    ("quantize nowhere -o x", 1, "nowhere is neither a folder with a checkpoint nor"),
    ("quantize folder -o x", 1, "folder must be the folder of a checkpoint"),
    ("quantize bert -o x", 1, "bert must be an ELMo checkpoint"),
    ("quantize no-weights -o x", 1, "no-weights"),
    ("quantize cut-weights -o x", 1, "is truncated"),
    ("quantize not-json -o x", 1, "config.json"),
    ("quantize unreadable-weights -o x", 1, "A file of unreadable-weights cannot be read: No such device."),
    ("quantize checkpoint -o folder", 1, "The output must be a new folder; folder exists"),
    ("quantize checkpoint -o checkpoint", 1, "The output must be a new folder; checkpoint exists"),
    ("quantize checkpoint -o no/where", 1, "The output must be in an existing folder; there is no folder no"),
    # export
    ("export", 2, "required: -o/--output; see elmo export --help."),
    ("export checkpoint", 2, "required: -o/--output"),
    ("export checkpoint -o x --format tf", 2, "argument --format: invalid choice: 'tf'"),
    ("export nowhere -o x", 1, "nowhere is neither a folder with a checkpoint nor"),
    ("export folder -o x", 1, "folder must be the folder of a checkpoint"),
    ("export bert -o x", 1, "bert must be an ELMo checkpoint"),
    ("export checkpoint -o folder", 1, "The output must be a new folder; folder exists"),
    ("export checkpoint -o text.txt", 1, "The output must be a new folder; text.txt exists"),
    ("export checkpoint -o x --format ONNX", 2, "argument --format: invalid choice: 'ONNX'"),
    ("export nowhere -o x --format onnx", 1, "nowhere is neither a folder with a checkpoint nor"),
    ("export bert -o x --format onnx", 1, "bert must be an ELMo checkpoint"),
    ("export cut-weights -o x --format onnx", 1, "is truncated"),
    ("export checkpoint -o folder --format onnx", 1, "The output must be a new folder; folder exists"),
    ("export checkpoint -o no/where --format onnx", 1, "The output must be in an existing folder"),
    ("export checkpoint -o no/where", 1, "The output must be in an existing folder; there is no folder no"),
    # push
    ("push", 2, "required: FOLDER, REPO; see elmo push --help."),
    ("push checkpoint", 2, "required: REPO"),
    ("push nowhere me/elmo", 1, "nowhere must be the folder of a checkpoint; it does not exist"),
    ("push text.txt me/elmo", 1, "text.txt must be the folder of a checkpoint; it is a file"),
    ("push folder me/elmo", 1, "folder must contain a saved model and its tokenizer; it lacks config.json"),
    ("push bert me/elmo", 1, "bert must contain a saved model and its tokenizer; it lacks"),
    ("push cut-weights me/elmo", 1, "must be a safetensors file; it is not, or it is truncated"),
    ("push no-weights me/elmo", 1, "no-weights must contain a saved model and its tokenizer; it lacks"),
    ("push checkpoint 'me/my elmo'", 1, "The repository must have a name like user/elmo; got 'me/my elmo'"),
    ("push checkpoint a/b/c", 1, "The repository must have a name like user/elmo; got 'a/b/c'"),
    ("push checkpoint ''", 1, "The repository must have a name like user/elmo; got ''"),
]

# A script and its arguments, and a part of the message that it exits with.
SCRIPTS = [
    ("examples/train_tagger.py", "usage: train_tagger.py FILE FOLDER"),
    ("examples/train_tagger.py nowhere.txt x", "No such file or directory: 'nowhere.txt'"),
    ("examples/train_tagger.py text.txt x", "text.txt must have at least two sentences"),
    ("examples/train_tagger.py latin.txt x", "latin.txt must be UTF-8 text; line 2 holds the byte 0xef"),
    ("examples/train_tagger.py cut.gz x", "cut.gz cannot be decompressed"),
    ("convert_scripts/convert_bilm_to_hf.py nowhere x", "nowhere"),
    ("convert_scripts/convert_bilm_to_hf.py folder folder", "The output must be a new folder; folder exists"),
    ("convert_scripts/convert_many_langs_to_hf.py text.txt x", "text.txt"),
    ("convert_scripts/export_hf_to_bilm.py bert x", "bert must be an ELMo checkpoint"),
    ("convert_scripts/export_hf_to_bilm.py checkpoint folder", "The output must be a new folder; folder exists"),
    ("convert_scripts/push_to_hub.py folder me/elmo", "folder must contain a saved model and its tokenizer"),
    ("convert_scripts/push_to_hub.py checkpoint a/b/c", "The repository must have a name like user/elmo"),
]

# A Python expression and a part of the ValueError or OSError that it raises. `model` and `lm` are tiny, `ids` are
# (1, 3) words, `chars` their characters; the files are those of COMMANDS.
CALLS = [
    ("ElmoConfig(lstm_dim=0)", "lstm_dim must be at least 1; got lstm_dim=0"),
    ("ElmoConfig(vocab_size=-1)", "vocab_size must be at least 1"),
    ("ElmoConfig(num_hidden_layers=0)", "num_hidden_layers must be at least 1"),
    ("ElmoConfig(num_highway_layers=-1)", "num_highway_layers must be at least 0"),
    ("ElmoConfig(projection_dim=0)", "projection_dim must be at least 1"),
    ("ElmoConfig(inputs='bytes')", "inputs must be one of"),
    ("ElmoConfig(char_activation='gelu')", "char_activation must be one of"),
    ("ElmoConfig(mix='mean')", "mix must be one of"),
    ("ElmoConfig(mix='fixed')", "mix_weights must be set if and only if"),
    ("ElmoConfig(mix_weights=[1.0, 1.0, 1.0])", "mix_weights must be set if and only if"),
    ("ElmoConfig(mix='fixed', mix_weights=[1.0])", "mix_weights must have num_hidden_layers + 1 = 3 numbers"),
    ("ElmoConfig(char_filters=[])", "char_filters must be a list of [width, number] pairs"),
    ("ElmoConfig(char_filters=[[0, 4]])", "char_filters must be a list of [width, number] pairs"),
    ("ElmoConfig(char_filters=[[1, 2, 3]])", "char_filters must be a list of [width, number] pairs"),
    ("ElmoConfig(char_filters=[[51, 4]])", "no filter may be wider than max_characters_per_token=50"),
    ("ElmoConfig(max_characters_per_token=2)", "max_characters_per_token must be at least 3"),
    ("ElmoConfig(cell_clip=0)", "cell_clip must be positive and finite, or None"),
    ("ElmoConfig(dropout=1)", "dropout must be at least 0 and below 1"),
    ("ElmoConfig(dropout=-0.1)", "dropout must be at least 0 and below 1"),
    ("ElmoConfig(id2label={0: 'A', 5: 'B'})", "id2label must be a dictionary from the integers 0, 1, 2 ... to labels"),
    ("ElmoForTokenClassification.from_pretrained('checkpoint', id2label=['A'])", "id2label must be a dictionary from"),
    ("ElmoConfig(quantization_config=8)", "quantization_config must be a dictionary; got quantization_config=8"),
    ("ElmoQuantizationConfig(bits=4)", 'quantized with bits=8 and quant_method="elmo_int8", got'),
    ("ElmoQuantizationConfig(quant_method='gptq')", "got {'bits': 8, 'quant_method': 'gptq'}"),
    ("ElmoQuantizationConfig(load_in_8bit=True)", "'load_in_8bit': True}"),
    ("model.dequantize()", "You need to first quantize your model"),
    ("quantize_checkpoint('checkpoint', Path('folder'))", "The output must be a new folder; folder exists"),
    ("ElmoConfig.from_bilm_options({})", "bilm-tf options must have the key 'lstm'"),
    ("ElmoConfig.from_bilm_options({'bidirectional': False})", "ELMo has two directions"),
    ("ElmoTokenizer(vocab='abc')", "vocab must be a list of words or a dictionary"),
    ("ElmoTokenizer(vocab=['a', 'a'])", "A vocabulary must not repeat a word, got 'a'"),
    ("ElmoTokenizer(vocab={'a': 0})", "A vocabulary must contain the special tokens"),
    ("ElmoTokenizer(max_characters_per_token=2)", "max_characters_per_token must be an integer, at least 3"),
    ("ElmoTokenizer(char_vocab={'a': 1})", "char_vocab must be a list of characters"),
    ("ElmoTokenizer(bos_token='</S>')", "The tokens for padding, begin, end and unknown words must differ, got"),
    ("ElmoTokenizer(tokenizer_file='nowhere.json')", "there is no file nowhere.json"),
    ("ElmoTokenizer.from_pretrained('checkpoint', vocab=['a'])", "a vocabulary or from a tokenizer.json, got both"),
    ("ElmoTokenizer(vocab_file='nowhere.txt')", "nowhere.txt"),
    ("ElmoTokenizer.from_pretrained('folder')", "A tokenizer needs a file tokenizer.json or vocab.txt; found neither"),
    ("tokenizer(5)", "A text must be a string, got 5"),
    ("tokenizer([5])", "A text must be a string, got 5"),
    ("tokenizer(None)", "You need to specify either `text`"),
    ("tokenizer(b'ab')", "A text must be a string, got b'ab'"),
    ("tokenizer([['a', 5]], is_split_into_words=True)", "a sentence must be a list of words, got ['a', 5]"),
    ("tokenizer('a b', truncation=True, max_length=1)", "max_length must leave room for 2 special tokens"),
    ("tokenizer('a', 'b', truncation=True, max_length=3)", "max_length must leave room for 4 special tokens"),
    ("tokenizer('a b c', truncation=True, max_length=4, stride=2)", "and more words than stride=2, got max_length=4"),
    ("tokenizer('a b', truncation=True, max_length=2, return_overflowing_tokens=True)", "more words than stride=0"),
    ("tokenizer('a b c', truncation='only_second', max_length=3)", "The texts cannot be truncated"),
    ("tokenizer.decode([-100])", "Ids must be integers, at least 0, got [-100]: replace -100"),
    ("tokenizer.decode([2**64])", "Ids must be integers, at least 0, got"),
    ("tokenizer.decode(torch.tensor([[1.0], [2.0]]))", "Ids must be integers, at least 0, got tensor([[1.], [2.]])"),
    ("tokenizer.convert_ids_to_tokens([1, -100])", "Ids must be integers, at least 0, got [1, -100]"),
    ("tokenizer.train_new_from_iterator('a b', 9)", "Texts and new special tokens must be lists, got a string"),
    ("tokenizer.train_new_from_iterator(['a'], 9, new_special_tokens='[X]')", "must be lists, got a string"),
    ("tokenizer.tokenize(['a', 'b', 'c'])", "tokenize expects one text, got a batch of 3"),
    ("model(ids)", "needs char_ids of shape"),
    ("model(char_ids=chars.tolist())", "char_ids must be a tensor, got a list"),
    ("model(char_ids=chars[0])", "char_ids must have shape"),
    ("model(char_ids=chars[..., :5])", "char_ids must have shape"),
    ("model(char_ids=chars.float())", "char_ids must be integers, got torch.float32"),
    ("model(char_ids=chars + 1000)", "char_ids must be between 0 and 261"),
    ("model(char_ids=-chars)", "char_ids must be between 0 and 261"),
    ("model(char_ids=chars, attention_mask=ids[:, :2])", "attention_mask must have the shape of the words, (1, 3)"),
    ("model(char_ids=chars, output_hidden_states=[9])", "a list of layers from 0 to 2, got [9]"),
    ("model(char_ids=chars, output_hidden_states=torch.tensor([0]))", "must be True, False or a list of layers from 0"),
    ("model(char_ids=chars, output_hidden_states={1})", "must be True, False or a list of layers from 0 to 2, got {1}"),
    ("model(char_ids=chars, attention_mask=ids * 1j)", "attention_mask must be 1 at words and 0 at padding, got"),
    ("model(char_ids=chars, attention_mask=ids.to('meta'))", "attention_mask must be a dense tensor on a CPU or GPU"),
    ("model(char_ids=chars.to_sparse())", "char_ids must be a dense tensor on a CPU or GPU"),
    ("model(char_ids=torch.nested.nested_tensor([chars[0]]))", "char_ids must be a dense tensor on a CPU or GPU"),
    ("model.resize_token_embeddings(0)", "new_num_tokens must be an integer, at least 1, got 0"),
    ("model.resize_token_embeddings(9, pad_to_multiple_of=1.5)", "pad_to_multiple_of must be an integer, at least 1"),
    ("ElmoModel(None)", "A model is made from an ElmoConfig, got None"),
    ("ElmoModel.from_pretrained('checkpoint/config.json')", "cannot be read (no weights)"),
    ("model(char_ids=chars, inputs_embeds=torch.zeros(1, 3, 5))", "inputs_embeds replaces char_ids; got char_ids too"),
    ("model(inputs_embeds=torch.zeros(1, 3, 4))", "inputs_embeds must have shape (sentences, words, 5)"),
    ("ElmoModel.from_pretrained('folder')", "folder"),
    ("ElmoModel.from_pretrained('cut-weights')", "truncated"),
    ("ElmoForPreTraining.from_pretrained('folder')", "folder"),
    ("pretraining(ids)", "needs char_ids of shape"),
    ("pretraining(input_ids=ids + 1000, char_ids=chars, labels=ids + 1000)", "labels must be between 0 and 5"),
    ("pretraining(char_ids=chars, output_hidden_states=[9])", "a list of layers from 0 to 2, got [9]"),
    ("pretraining(char_ids=chars, targets=ids, attention_mask=ids)", "take neither labels nor attention_mask"),
    ("pretraining(char_ids=chars, targets=ids, labels=ids)", "take neither labels nor attention_mask"),
    ("tagger(char_ids=chars, labels=ids.to(torch.uint8) * 0 + 156)", "labels must be between 0 and 1, or -100"),
    ("tagger(char_ids=chars, labels=ids.to('meta'))", "labels must be a dense tensor on a CPU or GPU"),
    ("tagger(ids)", "needs char_ids of shape"),
    ("ElmoLanguageModel.from_pretrained('checkpoint')", "must be a checkpoint of ElmoForPreTraining; it has"),
    ("ElmoLanguageModel(model, tokenizer)", "is made of an ElmoForPreTraining and an ElmoTokenizer, got ElmoModel"),
    (
        "ElmoLanguageModel.from_pretrained(device='nonsense')",
        "device must be a torch device of this machine",
    ),
    ("ElmoLanguageModel.from_pretrained('nowhere')", "nowhere is neither a folder with a checkpoint nor"),
    ("lm.perplexity('abc')", "A list of sentences is expected, got one string"),
    ("lm.perplexity([])", "perplexity needs at least one text"),
    ("lm.perplexity(['a'], batch_words=0)", "batch_words must be an integer, at least 1, got 0"),
    ("lm.score('abc')", "A list of sentences is expected, got one string"),
    ("lm.score(['a'], batch_words=-1)", "batch_words must be an integer, at least 1, got -1"),
    ("lm.substitutes('a b', 2)", "position must be the index of one of the sentence's 2 words, got 2"),
    ("lm.substitutes('', 0)", "position must be the index of one of the sentence's 0 words, got 0"),
    ("lm.next_words('a', direction='up')", 'direction must be "forward" or "backward"'),
    ("embed(model, tokenizer, 'abc')", "sentences must be a list of sentences, got the string 'abc'"),
    ("embed(model, tokenizer, None)", "sentences must be a list of sentences, got None"),
    ("embed(model, tokenizer, 5)", "sentences must be a list of sentences, got 5"),
    ("embed(model, tokenizer, ['a'], layer='lstm_1')", "layer must be one of mix, all, words, top; got 'lstm_1'"),
    ("embed(model, tokenizer, ['a'], layer=None)", "layer must be one of mix, all, words, top; got None"),
    ("embed(model, tokenizer, ['a'], batch_words=0)", "batch_words must be a whole number, at least 1; got 0"),
    ("embed(model, tokenizer, ['a'], batch_words=-1)", "batch_words must be a whole number, at least 1; got -1"),
    ("embed(model, tokenizer, ['a'], batch_words=1.5)", "batch_words must be a whole number, at least 1; got 1.5"),
    ("embed(model, tokenizer, ['a'], batch_words=None)", "batch_words must be a whole number, at least 1; got None"),
    ("embed(pretraining, tokenizer, ['a'])", "model must be an ElmoModel, got ElmoForPreTraining"),
    ("embed(tokenizer, model, ['a'])", "model must be an ElmoModel, got ElmoTokenizer"),
    ("embed(model, None, ['a'])", "tokenizer must be an ElmoTokenizer, got NoneType"),
    ("list(embed(model, tokenizer, [None]))", "a sentence must be a string or a list of words, got None"),
    ("list(embed(model, tokenizer, [['a', 5]]))", "a sentence must be a list of words, got ['a', 5]"),
    ("list(embed(model, tokenizer, b'ab'))", "a sentence must be a string or a list of words, got 97"),
    ("list(embed(overflow, tokenizer, ['One two three.']))", "The vectors must be finite numbers"),
    ("read_sentences('nowhere.txt')", "nowhere.txt"),
    ("read_sentences('empty.txt')", "empty.txt contains none"),
    ("write_npz('no/x.npz', [])", "no"),
    ("list(read_lines('folder'))", "folder"),
    ("find_files('text.txt')", "Files must be a list of paths and globs, got the string 'text.txt'"),
    ("find_files(['nowhere*'])", "nowhere* matches no file"),
    ("convert(Path('nowhere'), Path('x'))", "nowhere"),
    ("convert(Path('folder'), Path('folder'))", "The output must be a new folder; folder exists"),
    ("export_bilm(model, tokenizer, Path('folder'))", "The output must be a new folder; folder exists"),
    ("export_onnx(model, tokenizer, Path('folder'))", "The output must be a new folder; folder exists"),
    ("push(Path('nowhere'), 'me/elmo')", "nowhere must be the folder of a checkpoint"),
    ("push(Path('checkpoint'), 'a b')", "The repository must have a name like user/elmo"),
    ("find_release('nonsense')", "nonsense"),
    ("Corpus.build('abc', 'x', tokenizer)", "texts must be an iterable of strings, got a single string"),
    ("Corpus.build([5], 'x', tokenizer)", "A text must be a string, got 5"),
    ("Corpus.build(['a'], 'folder.txt/../full', tokenizer)", "must be a new folder or contain a corpus"),
    ("InitialModel(checkpoint='checkpoint', size='mini')", "--size and --config describe a new model"),
    ("Texts([], cache=Path('cache')).load(['nowhere.txt'], tokenizer)", "nowhere.txt matches no file"),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """Fill a folder with small checkpoints, whole and broken, and with files of every kind."""
    folder = tmp_path_factory.mktemp("world")
    model = randomize(ElmoModel(tiny_config(max_characters_per_token=50, char_vocab_size=262)))
    tokenizer = ElmoTokenizer()
    unreadable = {"config": "config.json", "tokenizer": "tokenizer.json", "weights": "model.safetensors"}
    names = [f"unreadable-{part}" for part in unreadable]
    for name in ("checkpoint", "no-weights", "cut-weights", "not-json", *names, "overflow"):
        if name == "overflow":
            torch.nn.init.constant_(model.mix.gamma, 3e38)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    for name in ("bert", "folder", "folder.txt", "folder.npz", "full", "cache"):
        (folder / name).mkdir()
    (folder / "no-weights" / "model.safetensors").unlink()
    os.truncate(folder / "cut-weights" / "model.safetensors", 1000)
    (folder / "not-json" / "config.json").write_text("{ not json")
    for part, name in unreadable.items():  # they open, but cannot be read, or be mapped into memory
        (folder / f"unreadable-{part}" / name).unlink()
        (folder / f"unreadable-{part}" / name).symlink_to("/proc/self/mem")
    (folder / "bert" / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (folder / "broken-link.txt").symlink_to("nowhere")
    (folder / "loop.txt").symlink_to("loop.txt")
    (folder / "null.npz").symlink_to("/dev/null")
    text = b"One two three.\nFour\n"
    for name, content in {
        "text.txt": text,
        "text.npz": text,
        "full/text.txt": text,
        "empty.txt": b"",
        "blank.txt": b"\n \r\n\n",
        "bom.txt": b"\xef\xbb\xbf\n",
        "latin.txt": b"fine\nna\xefve\n",
        "utf16.txt": "One\n".encode("utf-16"),
        "binary.txt": b"One\nT\0wo\n",
        "cut.gz": gzipped(text * 100)[:-10],
        "not.xz": text,
        "not.jsonl": b"One two\n",
        "not.parquet": text,
        "not.hdf5": text,
        "not.zip": text,
        "not.tar.gz": text,
        "deep.jsonl": b"[" * 100_000,
        "huge.jsonl": b'{"text": "One", "n": ' + b"9" * 5000 + b"}",
        "rows.jsonl": b'{"text": "One", "n": 1}\n',
    }.items():
        (folder / name).write_bytes(content)
    os.link(folder / "text.npz", folder / "hard-link.npz")
    write_parquet(folder / "rows.parquet", text=["One"], n=[1])
    return folder


@pytest.fixture
def in_world(world, monkeypatch):
    """Run a test in the folder, offline, and compare the folder before and after."""
    monkeypatch.chdir(world)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    before = contents(world)
    yield
    assert contents(world) == before


def contents(folder: Path) -> dict[str, object]:
    def content(path: Path):
        if path.is_symlink():
            return path.readlink()
        return None if path.is_dir() else path.read_bytes()

    return {str(path): content(path) for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def values(world) -> dict[str, object]:
    """What the expressions in CALLS can use."""
    tokenizer = ElmoTokenizer(vocab=["one", "two"])
    config = tiny_config(max_characters_per_token=50, char_vocab_size=262, vocab_size=len(tokenizer))
    pretraining = randomize(ElmoForPreTraining(config)).eval()
    inputs = tokenizer("one two three", add_special_tokens=False, return_tensors="pt")
    return {thing.__name__: thing for thing in NAMES} | {
        "torch": torch,
        "np": np,
        "tokenizer": tokenizer,
        "model": pretraining.elmo,
        "pretraining": pretraining,
        "tagger": ElmoForTokenClassification(config),
        "lm": ElmoLanguageModel(pretraining, tokenizer),
        "overflow": ElmoModel.from_pretrained(world / "overflow"),
        "ids": inputs["input_ids"],
        "chars": inputs["char_ids"],
    }


@pytest.mark.parametrize("command_line, code, part", COMMANDS, ids=lambda value: str(value)[:60])
def test_commands(in_world, capsys, command_line, code, part):
    found, out, err = run(capsys, *shlex.split(command_line))
    assert part in err and err.startswith("elmo: error: ") and err.count("\n") == 1 and err[:-1].isprintable()
    assert (found, out) == (code, "")


@pytest.mark.parametrize("expression, part", CALLS, ids=lambda value: value[:60])
def test_calls(in_world, values, expression, part):
    with pytest.raises((ValueError, OSError)) as caught:
        eval(expression, dict(values))
    assert part in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("command_line, part", SCRIPTS, ids=lambda value: value[:60])
def test_scripts(in_world, monkeypatch, capsys, command_line, part):
    pytest.importorskip("seqeval")
    script, *arguments = command_line.split()
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    assert part in stop.value.code and "\n" not in stop.value.code
    assert capsys.readouterr().out == ""


def test_every_verb_is_in_the_table():
    assert {shlex.split(command_line)[0] for command_line, *_ in COMMANDS} >= {*VERBS}
