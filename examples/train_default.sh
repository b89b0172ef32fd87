#!/usr/bin/env bash
# How the checkpoint in the package was trained: a hundred minutes of two cores. What its card tells of the data, of their
# licences and of the 5-gram (benchmarks/perplexity.py) was added by hand.
#
#     examples/train_default.sh TEXT_FOLDER OUTPUT
#
# TEXT_FOLDER holds novels/train-*.txt.gz, common-voice-en.txt.gz and wikitext-2/train.txt.gz.
set -euo pipefail
text=$1 output=$2
# WikiText-2 is tokenized, and its rare words are <unk>: joined again, headings and <unk> left out.
zcat "$text/wikitext-2/train.txt.gz" |
    sed -e "s/ @\(.\)@ /\1/g; s/<unk> //g; s/ '\(s\|t\|re\|ve\|ll\|d\|m\) /'\1 /g; /^ *=.*= *$/d" >"$output.wikitext-2.txt"
# Large pages: fresh memory costs more here than what is computed in it.
THP_MEM_ALLOC_ENABLE=1 elmo pretrain \
    "$text/novels/train-*.txt.gz" "$text/common-voice-en.txt.gz" "$output.wikitext-2.txt" --output "$output" \
    --bf16 --rows 256 --steps 6000 --eval-every 500 --save-every 500 \
    --half --language en --license apache-2.0 "${@:3}"
