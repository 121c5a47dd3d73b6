#!/usr/bin/env bash
# Did a call of the library become slower? Counts the instructions of the calls of main.cpp with valgrind, on one
# thread, and compares them with counts.csv. Counts are equal in every run and on every processor that has AVX2;
# they know nothing of memory and of threads, and valgrind has no AVX-512.
#   instructions.sh PROGRAM COMPILER            fails if a count is more than 5 % off
#   instructions.sh PROGRAM COMPILER --renew    writes counts.csv; give the reason in docs/log.md
# COMPILER is a name and version, "GNU 12.2.0"; counts of other compilers differ.
set -euo pipefail
program=$1 compiler=$2 counts=$(dirname "${BASH_SOURCE[0]}")/counts.csv
skip() {
  echo "skipped: $1"
  exit 77
}
command -v valgrind >/dev/null || skip "valgrind is not installed"
grep -q '^flags.* avx2 .*fma\|^flags.* fma .*avx2' /proc/cpuinfo || skip "this processor has no AVX2"
if [[ ${3:-} != --renew ]]; then
  read -r stored <"$counts"
  [[ $stored == "# $compiler" ]] || skip "$compiler; counts.csv is of ${stored#\# }"
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$program" --names >"$scratch/names"
STRETTO_CPU=avx2 valgrind --tool=callgrind --collect-atstart=no --toggle-collect=counted_call \
  --dump-after=counted_call --callgrind-out-file="$scratch/out" "$program" >"$scratch/log" 2>&1 ||
  { cat "$scratch/log"; exit 1; }
for ((i = 1; i <= $(wc -l <"$scratch/names"); ++i)); do
  sed -n 's/^totals: //p' "$scratch/out.$i"
done >"$scratch/counts"
{
  echo "# $compiler"
  paste -d ';' "$scratch"/{names,counts}
} >"$scratch/new.csv"
if [[ ${3:-} == --renew ]]; then
  cp "$scratch/new.csv" "$counts"
  exit
fi
awk -F ';' '
  FNR == 1 { next }
  NR == FNR { stored[$1] = $2; ++expected; next }
  { ++found }
  !($1 in stored) { print $1 ": has no stored count"; bad = 1; next }
  { ratio = $2 / stored[$1] }
  ratio > worst { worst = ratio; name = $1 }
  ratio > 1.05 || ratio < 0.95 { printf "%s: %.3f of the stored count\n", $1, ratio; bad = 1 }
  END {
    if (found != expected) { print found " calls, " expected " stored"; bad = 1 }
    printf "%d calls; the largest ratio is %.4f (%s)\n", found, worst, name
    if (bad) print "If a count should change: instructions.sh PROGRAM COMPILER --renew"
    exit bad
  }' "$counts" "$scratch/new.csv"
