#!/usr/bin/env bash
# Do the published models train on the interpreter as on the CPU?  tests/cuda/ptx/scripts/published.sh [BUILD [CASE...]]
# Ten steps of each published configuration, at its own width and depth, on short sequences and small
# batches: training and validation losses of every second step agree within 1e-5. Takes an hour of one
# core and 8 GB of memory for all CASEs: piano, piano-sine, piano-conv, groove, listops, text, retrieval, image.
# An image keeps its 1,024 pixels, and exact attention, as in the published runs.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "${1:-$here/../../../../build/release}" && pwd)
shift || true
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export LD_LIBRARY_PATH=$build/ptx STRETTO_NUM_THREADS=1 PTX_MEMORY=4

piano=(train_music --preset published --length 24 --batch 1 --validation-windows 1 --eval-windows 1 --eval-length 24
  --generate 0 --picture-length 8)
command_of() {  # CASE
  case $1 in
    piano) words=("${piano[@]}" --position sinusoid) ;;
    piano-sine) words=("${piano[@]}" --position sine) ;;
    piano-conv) words=("${piano[@]}" --position conv) ;;
    groove) words=(groove --published-model --published-eos --attention performer-hyperbolic --position sine
      --sines 8 --features 128 --layers 24 --d-model 512 --heads 8 --d-hidden 2048 --length 24 --batch 1 --continuations 0) ;;
    listops) words=(lra --expressions 60 --held-out-expressions 10 --min-expression 8 --max-expression 24
      --max-length 24 --batch 2 --attention performer --position sine) ;;
    text | retrieval | image)
      "$here/arena_data.sh" "$1" >"$scratch/data"
      words=(lra --task "$1" --data "$scratch/data" --batch 2 --position sine)
      if [[ $1 != image ]]; then words+=(--max-length 24 --attention performer); fi ;;
    *) echo "no case $1" >&2; exit 2 ;;
  esac
}
losses() { awk -F, 'NR > 1 {print $3, $4}' "$1/metrics.csv"; }  # train_loss, valid_loss

status=0
if (($# == 0)); then set -- piano piano-sine piano-conv groove listops text retrieval image; fi
for name in "$@"; do
  command_of "$name"
  for device in cpu cuda; do
    if ! "$build/examples/${words[0]}" "${words[@]:1}" --steps 10 --evaluate-every 2 --save-every 1000 \
      --device "$device" --out "$scratch/$name-$device" >"$scratch/log" 2>&1; then
      tail -n 3 "$scratch/log" >&2
      status=1
      continue 2
    fi
  done
  paste <(losses "$scratch/$name-cpu") <(losses "$scratch/$name-cuda") | awk -v name="$name" '
    { for (i = 1; i <= 2; ++i) { d = $i - $(i + 2); if (d < 0) d = -d; if (d > most) most = d } }
    END { printf "%-11s %d losses, the last %s; CPU and interpreter differ by %.1e\n", name, 2 * NR, $1, most
          exit !(NR == 5 && most <= 1e-5) }' || status=1
  rm -rf "$scratch/$name-cpu" "$scratch/$name-cuda"
done
exit "$status"
