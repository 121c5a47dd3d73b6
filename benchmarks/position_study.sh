#!/usr/bin/env bash
# Trains one small language model with each of eight positions on the same text, the same number of
# steps, and prints a Markdown table of what each predicts: at the length it was trained on, and at
# four times it (xl: with the memory it was trained with, as long as a segment, and four times that).
#   benchmarks/position_study.sh BUILD DATA OUT [STEPS]
# BUILD is a release build, DATA a text (bytes), OUT a folder for the runs. A run that is there and
# finished is only read; one that was interrupted goes on. SEED (default 1) and OPTIONS (more of
# train_lm's, such as OPTIONS="--preset nano") may be set.
set -euo pipefail
if [ $# -lt 3 ]; then echo "usage: $0 BUILD DATA OUT [STEPS]" >&2; exit 2; fi
program=$1/examples/train_lm data=$2 out=$3 steps=${4:-3000} seed=${SEED:-1}
[ -x "$program" ] || { echo "$program: not built" >&2; exit 2; }
[ -f "$data" ] || { echo "$data: no such file" >&2; exit 2; }
read -r -a more <<<"${OPTIONS:-}"
model=(--preset small ${more[@]+"${more[@]}"} --data "$data")
length=128 long=512
mkdir -p "$out"

train() {  # name of the run, then options
  local folder=$out/$1-$seed resume=()
  shift
  [ -f "$folder/done" ] && return
  [ -f "$folder/checkpoint.safetensors" ] && resume=(--resume "$folder/checkpoint.safetensors")
  "$program" "${model[@]}" "$@" --length $length --steps "$steps" --seed "$seed" --out "$folder" \
    ${resume[@]+"${resume[@]}"} >"$folder.log" 2>&1 || { tail -n 1 "$folder.log" >&2; exit 1; }
  touch "$folder/done"
}

bits() {  # run, row of its evaluation.csv; in brackets the tokens that a layer sees on average
  awk -F, -v row="$2" 'NR == row + 1 {printf "%.3f (%.0f)", $6 / log(2), $4}' "$out/$1-$seed/evaluation.csv"
}
parameters() { "$program" "${model[@]}" "$@" --length $length --parameters | tail -n 1; }

row() {  # what it is called, run, options of the model
  local name=$1 run=$2
  shift 2
  echo "| $name | $(parameters "$@") | $(bits "$run" 1) | $(bits "$run" 2) |"
}

for position in none sinusoid shaw music t5 alibi rope; do
  train "$position" --position "$position" --memory 0 --eval-memory 0 --eval-length $length,$long
done
train xl --position xl --memory $length --eval-memory $length,$long --eval-length $length

echo "Bits per byte on all that is held out, and in brackets how many tokens a layer sees on average;"
echo "after $steps steps, segments of $length tokens, seed $seed."
echo
echo "| position | parameters | as trained | four times that |"
echo "| --- | ---: | ---: | ---: |"
for position in none sinusoid shaw music t5 alibi rope; do
  row "$position" "$position" --position "$position" --memory 0
done
row "xl, with memory" xl --position xl --memory $length
echo
awk '/^  (unigram|bigram) / {printf "%s %s  ", $1, $2} END {print "(bits, by counting alone)"}' \
  "$out/xl-$seed.log"
