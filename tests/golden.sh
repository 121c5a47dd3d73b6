#!/usr/bin/env bash
# Trains every program for 30 steps with every positional encoding and attention kernel that it
# supports, and prints the losses with all digits, to compare two builds on the same machine:
#   tests/golden.sh PROGRAMS >FILE       PROGRAMS: a folder, e.g. build/release/examples
# One line per run: the program, its settings, and its training and validation losses from
# metrics.csv. A rejected combination gets a line with the error. About two minutes on two cores.
set -euo pipefail
programs=$(cd "$1" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export STRETTO_NUM_THREADS=1

positions=(none sinusoid learned music music-local shaw shaw-keys xl t5 alibi kerple kerple-power fire rope
  xpos bert deberta sine sine-ungated conv conv-ungated sinusoid+music)
kernels=(softmax performer performer-hyperbolic linear-elu linear-relu)
small="--layers 2 --d-model 16 --heads 2 --batch 2 --warmup 5 --steps 30 --evaluate-every 10 --d-hidden 32 \
--features 8 --realizations 4 --taps 8 --sines 3"
declare -A own
names=()
while read -r name options; do
  names+=("$name")
  own[$name]=$options
done < <(sed -n 's/^PROGRAM(\(.*\), "\(.*\)")$/\1 \2/p' "$(dirname "${BASH_SOURCE[0]}")/examples/programs.def")

one() {  # PROGRAM OPTION...
  local program=$1 out
  shift
  out=$(mktemp -d "$scratch/XXXXXX")
  printf '%s %s: ' "$program" "$*"
  # shellcheck disable=SC2086  # split the options into words
  if "$programs/$program" $small ${own[$program]} "$@" --out "$out/run" >"$out/log" 2>&1; then
    awk -F , 'NR == 1 { for (i = 1; i <= NF; ++i) column[$i] = i; next }
              { printf "%s %s; ", $column["train_loss"], $column["valid_loss"] }' "$out/run/metrics.csv"
  else
    tail -n 1 "$out/log" | tr -d '\n'
  fi
  echo
  rm -rf "$out"
}

runs() {
  local program kernel position
  for program in "${names[@]}"; do
    for kernel in "${kernels[@]}"; do
      for position in "${positions[@]}"; do echo "$program --attention $kernel --position $position"; done
    done
    for setting in "--dtype bf16" "--dropout 0.3 --attention-dropout 0.2" "--norm pre --rms-norm --gated" \
      "--micro-batches 2" "--kv-heads 1" "--seed 7 --max-grad-norm 0.01" "--activation silu --d-head 12"; do
      echo "$program $setting"
    done
  done
  echo "train_lm --position xl --memory 16 --untied-biases"
  echo "train_lm --tokens words --cutoffs 20,60 --div 2"
  echo "train_lm --position music --memory 8"
  echo "train_music --tokens remi"
}
n=0
while read -r line; do
  # shellcheck disable=SC2086
  one $line >"$scratch/$(printf '%05d' "$n").line" &
  n=$((n + 1))
  while (($(jobs -rp | wc -l) >= ${JOBS:-$(nproc)})); do wait -n; done
done < <(runs)
wait
cat "$scratch"/*.line
