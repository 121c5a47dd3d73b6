#!/usr/bin/env bash
# From a fresh checkout to a first piece of music: installs the required packages, builds
# train_chorales and runs it. It learns generated chorales, or those of --data FILE. Arguments are
# passed to the program: examples/quickstart.sh --help. Run again, it replaces its results; with
# --resume FILE it resumes a training.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
build=$root/build/quickstart
out=$root/out/chorales
for ((i = 1; i < $#; ++i)); do
  if [[ ${!i} == --out ]]; then j=$((i + 1)) && out=$(realpath -m "${!j}"); fi
done
mkdir -p "$out"

bash examples/build.sh train_chorales

# Many small steps: the n-gram baseline is beaten within a minute, even on slow or busy cores.
settings=(--length 256 --batch 4)
if [[ " $* " != *" --steps"* ]]; then settings+=(--minutes 3); fi
echo "Training; all results go to $out"
"$build/examples/train_chorales" --out "$out" --overwrite "${settings[@]}" "$@"
echo
echo "Done. Open the results in a browser:  file://$out/report.html"
echo "Your results are in $out:"
ls -1 "$out"
echo "To continue a MIDI file of yours with a trained piano model: bash examples/build.sh continue_music, then"
echo "  $build/examples/continue_music $root/examples/models/piano.safetensors --prompt FILE.mid"
echo "To run it again with other settings:  $build/examples/train_chorales --help"
