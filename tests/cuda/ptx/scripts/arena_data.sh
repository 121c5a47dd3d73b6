#!/usr/bin/env bash
# Prints 64 made-up examples of a task of the Long-Range Arena, in the format of lra's --data:
#   tests/cuda/ptx/scripts/arena_data.sh text|retrieval|image
set -euo pipefail
task=${1:?text, retrieval or image}
export LC_ALL=C  # bytes are characters
awk -v task="$task" '
  function drawn() { state = (75 * state + 74) % 65537; return state }
  function text(  s, i) {
    for (i = 0; i < 300; ++i) s = s sprintf("%c", 97 + drawn() % 26)
    return s
  }
  BEGIN {
    for (n = 0; n < 64; ++n) {
      if (task == "text") printf "%d\t5\treview\t%s\n", n % 2, text()
      if (task == "retrieval") printf "%d\tone\tother\t%s\t%s\n", n % 2, text(), text()
      if (task != "image") continue
      printf "%c", 1 + n % 9
      for (i = 0; i < 1024; ++i) printf "%c", 1 + drawn() % 255
    }
  }'
