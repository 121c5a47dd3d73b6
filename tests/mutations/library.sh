#!/usr/bin/env bash
# Would the tests fail if the CPU code of the library had a fault?
#   tests/mutations/library.sh [BUILD]
# Plants each fault of tests/mutations/library.txt in a copy of the sources, compiles the objects that read
# the changed file, links the shared library with them, and runs the entries of ctest that the list names. Prints one
# line per fault. Exit status: 1 if a fault was not detected.
#   ONLY=TEXT    only entries with TEXT in their file or replaced text
#   SAMPLE=N     only N entries, others each day
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "${1:-$root/build/release}" && pwd)
cd "$root"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
directories=(core autograd ops cuda nn pretrained music)

# Prints the objects of the library that are compiled from FILE or include it.
objects_of() {
  ninja -C "$build" -t deps | awk -v file="$root/$1" '
    /^[^ ]/ { object = $1; sub(/:$/, "", object) }
    $1 == file && object ~ /^CMakeFiles\/stretto[a-z_]*\.dir\// && object !~ /cmake_pch/ { print object }' | sort -u
}

# Prints the command that makes TARGET.
command_for() { ninja -C "$build" -t commands "$1" | tail -n 1; }

# Plants a fault and runs tests, separated by commas. Prints "detected" or what happened instead.
planted() {
  local file=$1 from=$2 to=$3 tests=$4 text object compile source link library soname status=0
  local -a made=()
  for directory in "${directories[@]}"; do
    rm -rf "${scratch:?}/$directory" && cp -r "$directory" "$scratch/"
  done
  text=$(<"$scratch/$file")
  [[ $text == *"$from"* ]] || { echo "is not found in the source"; return; }
  printf '%s\n' "${text/"$from"/"$to"}" >"$scratch/$file"
  while read -r object; do
    source=${object#CMakeFiles/*.dir/} source=${source%.o}
    compile=$(command_for "$object")
    compile=${compile%% -MD *}
    compile=$(sed -E 's/ -Winvalid-pch -include [^ ]+//; s/ -Werror//' <<<"$compile")
    compile=${compile/ -I/ -I$scratch -I}
    (cd "$build" && eval "$compile -c '$scratch/$source' -o '$scratch/${#made[@]}.o'") >"$scratch/log" 2>&1 ||
      { echo "does not compile"; cat "$scratch/log" >&2; return; }
    made+=("$object")
  done < <(objects_of "$file")
  ((${#made[@]} > 0)) || { echo "is compiled into no object"; return; }
  library=${made[0]#CMakeFiles/} library=lib${library%%.dir/*}.so
  library=$(basename "$(realpath "$build/$library")") soname=${library%.*}
  link=$(command_for "$library")
  link=${link/-o $library/-o $scratch/$soname}
  for i in "${!made[@]}"; do link=${link/${made[i]}/$scratch/$i.o}; done
  (cd "$build" && eval "$link") >"$scratch/log" 2>&1 || { echo "does not link"; cat "$scratch/log" >&2; return; }
  LD_LIBRARY_PATH=$scratch ctest --test-dir "$build" --timeout 300 --no-tests=error \
    -R "^(${tests//,/|})\$" >"$scratch/log" 2>&1 || status=$?
  rm -f "$scratch/$soname" "$scratch"/*.o
  if ((status == 0)); then echo "NOT DETECTED"; else echo "detected"; fi
}

number=0 missed=0 step=1
total=$(grep -c '^- ' tests/mutations/library.txt)
if [[ -n ${SAMPLE:-} ]]; then step=$(((total + SAMPLE - 1) / SAMPLE)); fi
while read -r file tests needs; do
  [[ -z $file || $file == '#'* ]] && continue
  IFS= read -r from && IFS= read -r to
  from=${from#- } to=${to#+} to=${to# }
  ((number++ % step == $(date +%-j) % step)) || continue
  [[ "$file $from" == *"${ONLY:-}"* ]] || continue
  grep -q "^flags.* $needs" /proc/cpuinfo || { echo "not possible without $needs: $file: $from"; continue; }
  outcome=$(planted "$file" "$from" "$to" "$tests")
  printf '%s: %s: %s\n' "$outcome" "$file" "$from"
  [[ $outcome == detected ]] || missed=$((missed + 1))
done <tests/mutations/library.txt
echo "$missed not detected, $SECONDS s"
((missed == 0))
