#!/usr/bin/env bash
# Installs the Debian package with apt in a minimal Debian and uses it as a user would.
#   STRETTO_BARE_ROOT=DIR tests/package/bare_root_test.sh BUILD
# Creates a Debian 12 in DIR with debootstrap, or uses the one that exists there, and removes the
# package afterwards. Needs root and the network. Exit status 77 (skipped) without them or without DIR.
set -euo pipefail
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(cd "$1" && pwd)
root=${STRETTO_BARE_ROOT:-}
[[ -n $root ]] || { echo "skipped: STRETTO_BARE_ROOT is not set; it must name a directory for a Debian system"; exit 77; }
((EUID == 0)) || { echo "skipped: needs root"; exit 77; }
command -v debootstrap >/dev/null || { echo "skipped: debootstrap is not installed"; exit 77; }
if readelf --dynamic "$build/libstretto.so" | grep -q libcudart; then
  echo "skipped: this build needs the CUDA runtime, which Debian does not package; use STRETTO_CUDA=OFF"
  exit 77
fi

if [[ ! -e $root/usr/bin/apt-get ]]; then
  debootstrap --variant=minbase --include=ca-certificates bookworm "$root" http://deb.debian.org/debian >/dev/null
fi
cp /etc/resolv.conf "$root/etc/resolv.conf"
inside() { chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
unmount() { umount "$root/dev" "$root/proc"; }
trap unmount EXIT
mount -t proc none "$root/proc"
mount --bind /dev "$root/dev"

rm -rf "$root/trial" && mkdir "$root/trial"
(cd "$root/trial" && cpack --config "$build/CPackConfig.cmake" -B "$root/trial/out" >/dev/null)
cp -r "$tests/consumer" "$root/trial"
inside apt-get -qq update
inside sh -c 'apt-get -qq install -y --no-install-recommends /trial/out/*.deb' >/dev/null
inside stretto-train-chorales --version
inside stretto-train-chorales --steps 2 --out /trial/chorales | tail -n 3
[[ -s $root/trial/chorales/report.html ]]

inside apt-get -qq install -y --no-install-recommends g++ cmake make pkgconf man-db \
  libpcre2-dev libutf8proc-dev >/dev/null
# shellcheck disable=SC2016  # expanded inside
inside bash -euc '
  cd /trial
  version=$(pkg-config --modversion stretto)
  g++ -std=c++20 -O2 -D PACKAGE_VERSION="\"$version\"" consumer/main.cpp -o by_pkg_config $(pkg-config --cflags --libs stretto)
  ./by_pkg_config
  cmake -S consumer -B build >/dev/null && cmake --build build >/dev/null
  build/consumer && build/consumer_shared
  man -P cat stretto-train-lm | head -n 12'
inside apt-get -qq purge -y stretto >/dev/null
if inside sh -c 'ls -d /usr/include/stretto /usr/lib/libstretto* /usr/bin/stretto-*' 2>/dev/null; then
  echo "these files remain after the package is removed" >&2
  exit 1
fi
