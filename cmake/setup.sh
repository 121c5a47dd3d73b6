# shellcheck shell=bash disable=SC2034,SC2154
# Bash functions for the scripts that users run: they install missing packages and check tools. The
# caller sets `log`, the path of a log file.

readonly build_packages=(build-essential cmake ninja-build nlohmann-json3-dev libxxhash-dev
  libpcre2-dev libutf8proc-dev)
readonly example_packages=(libcli11-dev)
readonly test_packages=('catch2|libcatch2-dev')
readonly full_test_packages=(openmpi-bin iproute2 help2man file dpkg-dev pkg-config valgrind)
readonly check_packages=(clang clang-format-14 clang-tidy-14 libc++-dev libc++abi-dev doxygen)
readonly arm64_packages=(g++-aarch64-linux-gnu qemu-user-static)

jobs=${JOBS:-$(nproc)}

fail() {
  printf '%s\n' "$@" >&2
  exit 2
}

is_installed() {
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# need_packages PACKAGE...: installs missing packages. 'a|b' accepts either; a is installed.
need_packages() {
  if ! command -v apt-get >/dev/null; then
    need_tools "$@"
    return
  fi
  local package name missing=()
  for package; do
    for name in ${package//|/ }; do
      is_installed "$name" && continue 2
    done
    missing+=("${package%%|*}")
  done
  if ((${#missing[@]} == 0)); then return; fi

  local root=()
  if ((EUID != 0)); then
    if ! sudo -n true 2>/dev/null; then
      fail "These packages are missing, and installing them needs root:" \
        "  sudo apt-get install ${missing[*]}"
    fi
    root=(sudo -n)
  fi
  echo "Installing ${missing[*]}"
  local apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120)
  if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } \
      </dev/null >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "Could not install ${missing[*]}; the whole output is in $log"
  fi
}

# Without apt-get: checks for the compiler, CMake and ninja. CMake itself checks for libraries.
need_tools() {
  local tool missing=()
  for tool in cmake ninja g++; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  if ((${#missing[@]} > 0)); then
    fail "Not found: ${missing[*]}. Please install them and the equivalents of these Debian packages: $*"
  fi
}

# The presets need CMake 3.25, which is in Debian 12 and Ubuntu 23.04 and newer.
need_cmake() {
  local version
  version=$(cmake --version | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')
  if [[ $(printf '%s\n' 3.25 "$version" | sort -V | head -n 1) != 3.25 ]]; then
    fail "CMake 3.25 or newer is needed, found $version (newer: pip install cmake)."
  fi
}
