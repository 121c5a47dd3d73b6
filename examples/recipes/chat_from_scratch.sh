#!/usr/bin/env bash
# A chat model from nothing but text and conversations, in under ten minutes on two cores:
#
#   bash examples/recipes/chat_from_scratch.sh [FOLDER]     (default out/chat_from_scratch)
#
# It makes a tokenizer and a small model of LLaMA's architecture, trains the model on sentences about
# the people of a village, then on questions and answers, and asks it: what it remembers of them, and
# what a question itself tells. For data of your own, take the commands that it prints.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=$(realpath -m "${1:-out/chat_from_scratch}")
programs=${PROGRAMS:-build/quickstart/examples}  # PROGRAMS: their folder, if they are built already
if [[ -z ${PROGRAMS:-} ]]; then bash examples/build.sh new_model finetune chat; fi
mkdir -p "$out"

step() {
  printf '\n%s\n$ %s\n' "$1" "${*:2}"
  "${@:2}"
}

# Asks the questions of a file and counts the answers that are as expected.
ask() {  # NAME DESCRIPTION
  "$programs/chat" "$out/model" --file "$out/$1.txt" --max-tokens 40 --quiet >"$out/$1-model.txt"
  right=$(paste -d '\n' "$out/$1-model.txt" "$out/$1-answers.txt" | awk 'NR % 2 { a = $0; next } a == $0 { ++n } END { print n + 0 }')
  printf '%3d of %3d answers are right: %s\n' "$right" "$(wc -l <"$out/$1.txt")" "$2"
}

awk -v out="$out" -f examples/recipes/village.awk
rm -rf "$out/new"
step "A tokenizer and a new model" \
  "$programs/new_model" --data "$out/text.txt" --vocabulary 512 --layers 4 --d-model 128 --length 128 --out "$out/new"
step "Training on the text" \
  "$programs/finetune" "$out/new" --full --data "$out/text.txt" --batch 16 --length 64 \
  --learning-rate 0.004 --warmup 50 --steps "${STEPS:-1000}" --evaluate-every 250 --out "$out/base" --overwrite
step "Training on the conversations" \
  "$programs/finetune" "$out/base" --full --conversations "$out/chats.jsonl" --batch 32 --length 128 \
  --learning-rate 0.001 --warmup 20 --steps "${CHAT_STEPS:-1200}" --evaluate-every 250 --out "$out/model" --overwrite
echo
ask village "from memory, about people of the text"
ask guests "from a sentence in the question, about others"
step "A question" "$programs/chat" "$out/model" --prompt "Where does Mira live?" --quiet
echo
echo "Talk with it:  $programs/chat $out/model"
