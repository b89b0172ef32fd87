#!/usr/bin/env bash
# Train the checkpoint that comes with the package: 100 minutes on two cores. What its model card says about the data,
# its licences and the 5-gram (benchmarks/perplexity.py) was added by hand.
#
#     examples/train_default.sh TEXT_FOLDER OUTPUT [options of elmo pretrain]
#
# TEXT_FOLDER contains novels/train-*.txt.gz, common-voice-en.txt.gz and wikitext-2/train.txt.gz.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: train_default.sh TEXT_FOLDER OUTPUT [options of elmo pretrain]" >&2; exit 2; }
text=$1 output=$2
# WikiText-2 is tokenized, and its rare words are <unk>: detokenize it, and drop headings and <unk>.
zcat "$text/wikitext-2/train.txt.gz" |
    sed -e "s/ @\(.\)@ /\1/g; s/<unk> //g; s/ '\(s\|t\|re\|ve\|ll\|d\|m\) /'\1 /g; /^ *=.*= *$/d" >"$output.wikitext-2.txt"
# Large pages: on virtual machines, new pages cost more than computing on them.
THP_MEM_ALLOC_ENABLE=1 elmo pretrain \
    "$text/novels/train-*.txt.gz" "$text/common-voice-en.txt.gz" "$output.wikitext-2.txt" --output "$output" \
    --bf16 --rows 256 --steps 6000 --eval-every 500 --save-every 500 \
    --half --language en --license apache-2.0 "${@:3}"
