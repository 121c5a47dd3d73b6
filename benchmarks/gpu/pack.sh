#!/usr/bin/env bash
# Makes an archive for a machine with a GPU; needs no GPU itself. Unpack it there and run
# run.sh 1 OUT, run.sh 2 OUT and run.sh 3 OUT in it; nothing is built or downloaded there.
#   benchmarks/gpu/pack.sh [ARCHIVE]
# Builds the preset `cuda` in build/gpu: machine code for compute capability 9.0 only, compressed, in
# one shared library, which programs find in $ORIGIN/lib. Fails if the archive exceeds 40 MiB.
#   BUILD=FOLDER benchmarks/gpu/pack.sh [ARCHIVE]
# packs the finished build FOLDER instead, at most 56 MiB: a normal build also has PTX, uncompressed.
# The suffix of ARCHIVE chooses the compression; a bare Ubuntu can unpack .tar.gz, but not .tar.xz.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
commit=${COMMIT:-$(git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)}
archive=$(realpath -m "${1:-build/stretto-gpu-$commit.tar.gz}")
build=${BUILD:+$(realpath "$BUILD")} limit=56

if [[ -z $build ]]; then
  build=$root/build/gpu limit=40
  mkdir -p "$build"
  if ! { cmake --preset cuda -B "$build" -D STRETTO_TESTS=ON -D STRETTO_EXAMPLES=ON \
           -D STRETTO_BENCHMARKS=ON -D STRETTO_WERROR=ON \
           -D CMAKE_CUDA_ARCHITECTURES=90-real -D CMAKE_BUILD_RPATH="\$ORIGIN/lib" \
           -D CMAKE_SKIP_BUILD_RPATH=OFF \
           -D CMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags &&
         cmake --build "$build" --parallel "${JOBS:-$(nproc)}"; } >"$build/pack.log" 2>&1; then
    tail -n 40 "$build/pack.log" >&2
    echo "The build failed; the whole output is in $build/pack.log" >&2
    exit 1
  fi
fi
layout=$(mktemp -d)/stretto-gpu
trap 'rm -rf "$(dirname "$layout")"' EXIT
mkdir -p "$layout/lib" "$layout/cases"

programs=()
for program in tests/stretto_tests tests/conformance tests/ptx_faults benchmarks/gpu_speed \
    benchmarks/train_step; do
  [[ -x $build/$program ]] && programs+=("$build/$program")
done
for source in examples/*.cpp examples/programs/*.cpp; do
  program=$build/examples/$(basename "$source" .cpp)
  [[ -x $program ]] && programs+=("$program")
done
for program in "${programs[@]}"; do cp -L "$program" "$layout/$(basename "$program")"; done

# The libraries that the programs need, except the C, C++ and CUDA libraries.
needed() {
  LD_LIBRARY_PATH=$build ldd "$@" 2>/dev/null | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
    grep -Ev '/(ld-linux|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so|lib(cud|cub|curand|nv))[^/]*$'
}
for library in $(needed "${programs[@]}"); do
  cp -L "$library" "$layout/lib/$(basename "$library")"
done

cp benchmarks/gpu/run.sh "$layout/run.sh"
cp benchmarks/gpu/peers.py "$layout/peers.py"
cp benchmarks/train_step.py "$layout/train_step.py"
for case in tests/conformance/cases/*; do cp -L "$case" "$layout/cases/$(basename "$case")"; done
echo "$commit" >"$layout/COMMIT"
# Test files for the GPU.
grep -rlE '\[cuda\]|NEEDS_GPU' tests --include='*_test.cpp' | xargs -n 1 basename -s .cpp | sort >"$layout/TESTS"
# Test files of ops, models, references and conformance, which also run with all tensors on the GPU.
for folder in nn nn/attention nn/data nn/files nn/models nn/optim nn/positions nn/training \
    ops/attention ops/spe pretrained/published reference conformance; do
  ls "tests/$folder" 2>/dev/null | sed -n 's/_test\.cpp$/_test/p'
done | grep -vxE 'registry_test|program_test' | sort -u >"$layout/TESTS_THERE"

for file in "$layout"/*; do
  [[ ! -f $file || ! -x $file || $file == *.sh ]] || strip "$file"
done
strip "$layout"/lib/libstretto.so*
mkdir -p "$(dirname "$archive")"
tar -C "$(dirname "$layout")" -caf "$archive" stretto-gpu
size=$(($(stat -c %s "$archive") >> 20))
echo "$archive, $size MiB"
((size < limit)) || { echo "$limit MiB or more" >&2; exit 1; }
