#!/usr/bin/env bash
# Makes the pictures of README.md again, from a training of 700 steps with a fixed seed (a minute on two
# cores):  bash docs/images.sh [BUILD]     (build/release)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build/release}
out=$(mktemp -d)
trap 'rm -r "$out"' EXIT
"$build/examples/train_chorales" --out "$out/run" --length 256 --batch 4 --steps 700 --seed 1
mkdir -p docs/images
cp "$out"/run/{loss,primed}.svg docs/images/
du -ck docs/images/*.svg | tail -n 1
