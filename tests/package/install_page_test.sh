#!/usr/bin/env bash
# Checks that the commands in docs/install.md work exactly as written:
#   tests/package/install_page_test.sh SCRATCH COMPILER
# They run in a copy of this repository whose library is reduced to three small sources, as only
# building and packaging are tested. Exit status 77 (skipped) if a tool that they need is missing.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$1
export CXX=$2
for tool in ninja cpack pkg-config dpkg-deb dpkg-shlibdeps file; do
  command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
fail() { printf '%s\n' "$@" >&2; exit 1; }

rm -rf "$scratch"
mkdir -p "$scratch/home" "$scratch/project"
copy=$scratch/project/stretto
mkdir "$copy"
cd "$root"
cp -r CMakeLists.txt CMakePresets.json LICENSE README.md CHANGELOG.md stretto*.h cmake docs examples "$copy"
for folder in core autograd ops nn cuda music pretrained; do
  find $folder -name '*.h' -exec cp --parents -t "$copy" {} +
done
cp --parents -t "$copy" core/error.cpp core/dtype.cpp core/shape.cpp cuda/none.cpp
for source in cuda/none.cpp music/none.cpp pretrained/none.cpp; do echo >"$copy/$source"; done

cat >"$copy/mine.cpp" <<'END'
#include <stretto/core/shape.h>
#include <stretto/core/version.h>

#include <cstdio>
int main() {
  const stretto::Shape shape = stretto::broadcast_shapes("mine", {2, 1}, {3});
  std::printf("mine: %s\n", stretto::str(shape).c_str());
  return shape.numel() == 6 ? 0 : 1;
}
END
cp "$copy/mine.cpp" "$scratch/project"

# blocks LANGUAGE: all code blocks of the page in this language; block LANGUAGE N: the N-th block.
blocks() { awk -v fence="\`\`\`$1" '$0 == fence {on = 1; next} /^```/ {on = 0} on' docs/install.md; }
block() {
  awk -v fence="\`\`\`$1" -v n="$2" '$0 == fence {on = ++i == n; next} /^```/ {on = 0} on' docs/install.md
}

# All shell commands in their order. `sudo apt` must not change this machine: packages given by name
# are skipped, a .deb file is unpacked into the home directory.
sudo() {
  local file=${*: -1}
  [[ $file == *.deb ]] || return 0
  dpkg-deb --extract "$file" "$HOME/debian"
}
export -f sudo
export -n PKG_CONFIG_PATH CMAKE_PREFIX_PATH LD_LIBRARY_PATH
blocks sh >"$scratch/lines.sh"
(($(grep -cE '^(cmake|cpack|g\+\+|\./mine|sudo apt)' "$scratch/lines.sh") >= 8)) || fail "docs/install.md has too few commands"
(cd "$copy" && HOME=$scratch/home bash -euo pipefail "$scratch/lines.sh") >"$scratch/log" 2>&1 || {
  cat "$scratch/log"
  fail "a command of docs/install.md fails; the commands are:" "$(<"$scratch/lines.sh")"
}
grep -x 'mine: \[2, 3\]' "$scratch/log" || fail "./mine does not print the expected line"

# A package of only the library: without fonts, programs and headers of kernels.
packages=("$copy"/build/release/stretto_*.deb)
deb=${packages[0]}
fields=$(dpkg-deb --field "$deb" Depends Description)
grep -iE 'font|program' <<<"$fields" && fail "the package of only the library mentions fonts or programs"
usr=$scratch/home/debian/usr
find "$usr/include" -path '*/stretto/cuda/*' | grep . && fail "headers of CUDA kernels without CUDA"
for name in include/stretto/stretto{,_music,_pretrained}.h lib/libstretto{,_music,_pretrained}.so share/doc/stretto/{README.md,LICENSE,copyright,docs/install.md} \
  share/doc/stretto/examples/{CMakeLists.txt,melody.cpp,own_op.cpp}; do
  [[ -e $usr/$name ]] || fail "not in the package: $name"
done

# The three ways to use Stretto from CMake.
cd "$scratch/project"
project() {  # NAME, FILE to replace the line with add_subdirectory, OPTION...
  local name=$1 file=$2
  shift 2
  mkdir "$name"
  cp mine.cpp "$name"
  ln -s "$copy" "$name/stretto"
  sed -e "/^add_subdirectory/{r $file" -e 'd}' "$scratch/tree.cmake" >"$name/CMakeLists.txt"
  { cmake -S "$name" -B "$name/build" -G Ninja "$@" && cmake --build "$name/build" && "$name/build/mine"; } \
    >"$scratch/log" 2>&1 || { cat "$scratch/log" "$name/CMakeLists.txt"; fail "the project that uses $name fails"; }
}
(cd "$root" && block cmake 1) >"$scratch/tree.cmake"
(cd "$root" && block cmake 2) >"$scratch/fetch.cmake"
(cd "$root" && block cmake 3) >"$scratch/find.cmake"
grep '^add_subdirectory' "$scratch/tree.cmake" >"$scratch/add.cmake"
project add_subdirectory "$scratch/add.cmake"
project FetchContent "$scratch/fetch.cmake"
project find_package "$scratch/find.cmake" -D CMAKE_PREFIX_PATH="$scratch/home/stretto"

# Installation directories outside the prefix.
(cd "$copy" && cmake --preset release -D CMAKE_INSTALL_INCLUDEDIR="$scratch/include" \
  -D CMAKE_INSTALL_LIBDIR="$scratch/lib" && cmake --install build/release --prefix "$scratch/rest") >"$scratch/log" 2>&1 ||
  { cat "$scratch/log"; fail "installing to absolute directories fails"; }
project absolute "$scratch/find.cmake" -D stretto_DIR="$scratch/lib/cmake/stretto"
export PKG_CONFIG_PATH=$scratch/lib/pkgconfig
[[ $(pkg-config --variable=includedir stretto) == "$scratch/include" ]] || fail "pkg-config: $(pkg-config --cflags stretto)"
[[ $(pkg-config --variable=libdir stretto) == "$scratch/lib" ]] || fail "pkg-config: $(pkg-config --libs stretto)"
