#!/usr/bin/env bash
# Makes a program's manual page from its --help text:  cmake/manual.sh HELP2MAN VERSION PROGRAM NAME.1
set -euo pipefail
help2man=$1 version=$2 program=$3 page=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

name=$(basename "$page" .1)
ln -s "$(realpath "$program")" "$scratch/$name"  # the name that --help prints
help=$("$scratch/$name" --help)
about=${help%%$'\n'*}
mkdir -p "$(dirname "$page")"
"$help2man" --no-info --section 1 --source "Stretto $version" --version-string "$version" --name "${about%.}" \
  --output "$page" "$scratch/$name"
