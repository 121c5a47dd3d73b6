#!/usr/bin/env bash
# Would the CUDA tests fail if a barrier, a bounds test or an alignment test were missing, or if a
# kernel had a planted fault?
#   tests/cuda/ptx/scripts/mutations.sh [BUILD [TABLE]]
# Removes barriers and tests one by one from the kernels of a finished build (see mutations.h). Replaces
# text in sources, which are compiled again: tests in launchers (mutations/host.txt) and faults of
# kernels and library calls (mutations/kernels.txt). Runs the tests on the interpreter, and writes the
# results to TABLE, in Markdown. The mutations in mutations/without_effect.txt, which has the reasons,
# need not be detected. Exit status: 1 if any other mutation was not.
#   KIND=barriers, host or kernels   only barriers, or only one of the lists
#   ONLY=TEXT       of the lists only the entries with TEXT in their file or replaced text
#   TESTS=...       test files of tests/cuda, e.g. "row_kernels_test,norm_kernels_test"
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../.." && pwd)
build=$(cd "${1:-$root/build/release}" && pwd)
table=$(realpath "${2:-$build/mutations.md}")
lists=$root/tests/cuda/ptx/mutations
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$root"

# Without the tests that only count and examine no result.
all=$(cd tests/cuda && printf '%s\n' *_test.cpp | grep -v budgets_test | sed 's/\.cpp$//' | paste -sd,),op_table_test
names=${TESTS:-$all}
selection() {  # for Catch2, from comma-separated names
  local all
  IFS=, read -ra all <<<"$1"
  printf '[#%s]\n' "${all[@]}" | paste -sd,
}
export LD_LIBRARY_PATH=$build/ptx STRETTO_NUM_THREADS=1 STRETTO_ALLOC=exact
start=$SECONDS

run() {
  "$build/tests/stretto_tests" --abort --filenames-as-tags "$(selection "$names")" >"$scratch/log" 2>&1
}
export PTX_REMOVE_PLAN=$scratch/plan PTX_REMOVE_KIND=${KIND:-all}
: >"$scratch/kernels"
if [[ ! ${KIND:-} =~ ^(host|kernels)$ ]] && { ! run || ! PTX_REMOVE=$scratch/kernels run; }; then
  tail -n 30 "$scratch/log" >&2
  echo "The tests do not even pass with everything there." >&2
  exit 2
fi
unset PTX_REMOVE_PLAN

# Changes a copy of a source, compiles one object (PTX only), and links the shared library with it.
library=$(realpath "$build/libstretto.so")
soname=$(basename "${library%.*}")
planted() {
  local file=$1 from=$2 to=$3 unit=$4 tests=$5 text compile link source status=0
  rm -rf "$scratch"/{core,cuda,ops} && cp -r "$root"/{core,cuda,ops} "$scratch/"
  source=$(find "${file%%/*}" -name "$unit.cu" -o -name "$unit.cpp")
  text=$(<"$scratch/$file")
  [[ $text == *"$from"* ]] || { echo "! not found in the source"; return; }
  printf '%s\n' "${text/"$from"/"$to"}" >"$scratch/$file"
  compile=$(ninja -C "$build" -t commands "CMakeFiles/stretto.dir/$source.o" | tail -n 1)
  compile=${compile%% -MD *}
  compile=${compile/ -I/ -I$scratch -I}
  compile=${compile/,sm_90]/]}
  compile=${compile/-Werror=all-warnings/} compile=${compile//,-Werror/} compile=${compile// -Werror/}
  [[ $source == *.cpp ]] || compile+=" -diag-suppress=177 -x cu"
  (cd "$build" && eval "$compile -c '$scratch/$source' -o '$scratch/unit.o'") \
    >"$scratch/log" 2>&1 || { echo "! does not compile"; cat "$scratch/log" >&2; return; }
  link=$(ninja -C "$build" -t commands "$(basename "$library")" | tail -n 1)
  link=${link/-o $(basename "$library")/-o $scratch/$soname}
  link=${link/CMakeFiles\/stretto.dir\/${source//\//\\/}.o/$scratch/unit.o}
  (cd "$build" && eval "$link") >"$scratch/log" 2>&1 || { echo "! does not link"; cat "$scratch/log" >&2; return; }
  LD_LIBRARY_PATH=$scratch:$LD_LIBRARY_PATH PTX_STREAMS=lazy timeout 300 "$build/tests/stretto_tests" \
    --abort --filenames-as-tags "$(selection "$tests")" >"$scratch/log" 2>&1 || status=$?
  [[ $status != 0 ]] || return 0
  [[ $status != 124 ]] || { echo "! no verdict within 300 s"; return; }
  sed -n 's/^ptx: //p' "$scratch/log" | grep . | head -n 1 || echo "the test fails"
}
: >"$scratch/planted"
for list in host kernels; do
  [[ ${KIND:-$list} == "$list" && -z ${TESTS:-} ]] || continue
  while read -r file unit tests; do
    [[ -z $file || $file == '#'* ]] && continue
    IFS= read -r from && IFS= read -r to
    from=${from#- } to=${to#+} to=${to# }
    [[ "$file $from" == *"${ONLY:-}"* ]] || continue
    printf '%s\t%s\t%s\t%s\t%s\n' "$list" "$file" "$from" "$to" \
      "$(planted "$file" "$from" "$to" "$unit" "$tests")" | tee -a "$scratch/planted" >&2
  done <"$lists/$list.txt"
done

status=0
awk -v kernels="$scratch/kernels" -v planted="$scratch/planted" -v reasons="$lists/without_effect.txt" \
  -v made="$(date -u +%Y-%m-%d), commit $(git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)" \
  -f tests/cuda/ptx/scripts/mutations.awk >"$table" || status=$?
echo "$table, $((SECONDS - start)) s"
sed -n '/^Of /p; /^## Not detected/,/^## /p' "$table" | sed '/^## [^N]/d'
exit "$status"
