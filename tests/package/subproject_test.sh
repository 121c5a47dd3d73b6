#!/usr/bin/env bash
# Checks Stretto as a subproject: it is built correctly whatever the parent project sets, and it does
# not interfere with the headers, package and installation of the parent.
#   tests/package/subproject_test.sh SCRATCH COMPILER
# Checks the compile commands; only a few objects are built. Exit status 77 (skipped) without Ninja.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$1 compiler=$2
command -v ninja >/dev/null || { echo "skipped: ninja is not installed"; exit 77; }
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$scratch"

fail() { printf '%s\n' "$@" >&2; exit 1; }

cmake -D ROOT="$root" -D OWN_HEADERS="$scratch/own" -P "$root/tests/consumer/own_headers.cmake"
configure() {
  cmake -S "$root/tests/consumer/own_names" -B build -G Ninja -D CMAKE_CXX_COMPILER="$compiler" \
    -D OWN_HEADERS="$scratch/own" -D STRETTO_SOURCE="$root" -D STRETTO_CUDA=OFF \
    -D CMAKE_EXPORT_COMPILE_COMMANDS=ON "$@" >log 2>&1 || { cat log; fail "cmake $*"; }
}
# command_of SOURCE: its first compile command.
command_of() {
  sed -n 's/^ *"command": "\(.*\)",\{0,1\}$/\1/p' "$scratch/build/compile_commands.json" |
    grep -F -- "-c $1" | head -n 1 | sed 's/\\"/"/g' || true
}
last_of() { grep -oE -- "$1" <<<"$2" | tail -n 1; }

configure -D CMAKE_BUILD_TYPE= -D CMAKE_UNITY_BUILD=ON -D CMAKE_CXX_VISIBILITY_PRESET=hidden \
  -D CMAKE_VISIBILITY_INLINES_HIDDEN=ON -D CMAKE_COMPILE_WARNING_AS_ERROR=ON -D BUILD_SHARED_LIBS=ON \
  -D STRETTO_SHARED=ON

# Users get only the include directory; the library finds its own headers first.
library=$(command_of "$root/core/error.cpp")
user=$(command_of "$root/tests/consumer/own_names/main.cpp")
[[ -n $library ]] || fail "core/error.cpp has no compile command of its own (a unity build?)"
[[ -n $user ]] || fail "main.cpp is not compiled"
grep -qE -- "(-I|-isystem) *$root( |/( |\$))" <<<"$user" && fail "the include path of a user contains $root:" "$user"
for source in core/error.cpp core/shape.cpp autograd/engine.cpp ops/view.cpp nn/linear.cpp; do
  (cd build && eval "$(command_of "$root/$source") -O0 -fsyntax-only") || fail "$source does not compile"
done
(cd build && eval "$user -fsyntax-only") || fail "main.cpp does not compile"

# The library has its own optimization, warnings and visibility.
[[ $(last_of ' -O[0-9a-z]*' "$library") == " -O3" ]] || fail "not optimized without a build type:" "$library"
[[ $(last_of ' -W(no-)?error( |$)' "$library") == *-Wno-error* ]] || fail "warnings are errors:" "$library"
[[ $user != *" -O"* && $user != *-Wshadow* ]] || fail "the code of a user gets options of Stretto:" "$user"
(cd build && eval "$library")
[[ $library =~ " -o "([^ ]+) ]]
symbols=$(readelf --symbols --wide "build/${BASH_REMATCH[1]}")
grep -E ' HIDDEN .*7stretto' <<<"$symbols" && fail "core/error.cpp hides these symbols"
grep -qE ' DEFAULT +[0-9]+ _ZN7stretto' <<<"$symbols" || fail "core/error.cpp exports nothing"

# The parent's installation and package contain only files of the parent.
[[ ! -e build/CPackConfig.cmake ]] || fail "a package is configured that the parent did not request"
cmake --install build --prefix "$scratch/prefix" >log 2>&1 || { cat log; fail "cmake --install"; }
[[ $(cd prefix && find . -type f) == ./own/main.cpp ]] || fail "installed:" "$(cd prefix && find . -type f)"

# Settings of the parent are respected.
configure -U 'CMAKE_*VISIBILITY*' -D CMAKE_BUILD_TYPE=Debug -D STRETTO_INSTALL=ON
[[ $(command_of "$root/core/error.cpp") != *" -O"* ]] || fail "a debug build is optimized"
grep -q 'lib/pkgconfig' build/stretto/cmake_install.cmake || fail "STRETTO_INSTALL=ON installs nothing"
[[ ! -e build/CPackConfig.cmake ]] || fail "STRETTO_INSTALL=ON configures a package"
configure -D CMAKE_BUILD_TYPE= -D CMAKE_CXX_FLAGS=-O1
[[ $(command_of "$root/core/error.cpp") != *" -O3"* ]] || fail "the -O1 of the parent is overridden"

# The floating-point rules of the library hold whatever the parent sets; without them it cannot be
# compiled. The code of a user has the parent's.
for flags in -ffast-math -Ofast -ffinite-math-only "-fassociative-math -fno-signed-zeros -fno-trapping-math"; do
  configure -D CMAKE_BUILD_TYPE= -D "CMAKE_CXX_FLAGS=$flags"
  library=$(command_of "$root/core/cpu.cpp")
  user=$(command_of "$root/tests/consumer/own_names/main.cpp")
  macros=$(cd build && eval "$(sed 's/ -o [^ ]*//' <<<"$library") -w -dM -E")
  grep -E '__(FAST|ASSOCIATIVE)_MATH__|__FINITE_MATH_ONLY__ 1|__NO_SIGNED_ZEROS__' <<<"$macros" &&
    fail "the parent's $flags reaches the library:" "$library"
  (cd build && eval "$user -fsyntax-only") || fail "main.cpp does not compile with $flags"
done
(cd build && eval "$(sed 's/ -fno-fast-math / /' <<<"$library") -ffast-math -fsyntax-only" 2>log) &&
  fail "core/cpu.cpp can be compiled with -ffast-math"
grep -q 'add -fno-fast-math' build/log || { cat build/log; fail "core/cpu.cpp does not name -fno-fast-math"; }

# Without the components neither their sources nor the libraries that only they use are needed.
rm -rf build
configure -D CMAKE_BUILD_TYPE= -D STRETTO_MUSIC=OFF -D STRETTO_PRETRAINED=OFF
grep -E "$root/(music|pretrained)/" build/compile_commands.json && fail "components are built that the parent does not want"
grep -iE 'pcre2|utf8proc' build/CMakeCache.txt && fail "libraries of a component are searched for"
[[ -e build/stretto/include/stretto/stretto.h && ! -e build/stretto/include/stretto/pretrained ]] ||
  fail "the include directory has:" "$(ls build/stretto/include/stretto)"
echo "stretto works as a subproject"
