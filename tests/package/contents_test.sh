#!/usr/bin/env bash
# Checks that the Debian package is complete and that its shared libraries export only namespace stretto:
#   tests/package/contents_test.sh BUILD
# Exit status 77 (skipped) if Debian's tools are missing.
set -euo pipefail
build=$(cd "$1" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for tool in cpack dpkg-deb dpkg-shlibdeps file help2man pkg-config; do
  command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done

fail() { printf '%s\n' "$@" >&2; exit 1; }

(cd "$scratch" && cpack --config "$build/CPackConfig.cmake" -D CPACK_DEBIAN_COMPRESSION_TYPE=none \
  -B "$scratch/out" >log 2>&1) || { cat "$scratch/log"; fail "cpack fails"; }
packages=("$scratch"/out/*.deb)
((${#packages[@]} == 1)) || fail "${#packages[@]} packages; expected one"
deb=${packages[0]}
root=$scratch/root
dpkg-deb --extract "$deb" "$root"
fields=$(dpkg-deb --field "$deb")
echo "$fields"
grep -q 'programs' <<<"$fields" || fail "its description does not mention the programs"
echo "installed: $(du -sk "$root" | cut -f 1) kB"

version=$(dpkg-deb --field "$deb" Version)
minor=${version%.*}
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=()
for file in "$source"/examples/programs/*.cpp; do
  name=$(basename "$file" .cpp)
  name=${name//_/-}
  programs+=("bin/stretto-${name#stretto-}")
done
for name in "${programs[@]}" include/stretto/stretto{,_music,_pretrained}.h include/stretto/{nn/transformer,music/remi,pretrained/pretrained}.h \
  share/doc/stretto/{copyright,LICENSE,README.md,docs/install.md,examples/melody.cpp} \
  lib/libstretto{,_music,_pretrained}{.a,.so,".so.$minor",".so.$version"} \
  lib/cmake/stretto/strettoConfig.cmake lib/pkgconfig/stretto{,_music,_pretrained}.pc; do
  [[ -e $root/usr/$name ]] || fail "not in the package: $name"
done
while read -r name; do
  fail "not below /usr, or a test: $name"
done < <(dpkg-deb --contents "$deb" | awk '$6 !~ /^\.\/(usr\/|$)/ || $6 ~ /test/ {print $6}')

if command -v doxygen >/dev/null; then
  [[ -e $root/usr/share/doc/stretto/reference/index.html ]] || fail "not in the package: the API reference"
fi

# Every header that an installed header includes is installed too, relative to it. Headers of CUDA
# kernels are installed only if the library has the kernels.
includes=0
while IFS=: read -r header line; do
  name=${line#*\"}
  [[ -e $(dirname "$header")/${name%\"*} ]] || fail "$header: not in the package: $line"
  includes=$((includes + 1))
done < <(grep -r '^ *# *include "' "$root/usr/include/stretto")
((includes > 200)) || fail "found only $includes includes"
if ! readelf --dynamic "$root/usr/lib/libstretto.so" | grep -q libcudart; then
  [[ ! -e $root/usr/include/stretto/cuda ]] || fail "headers of CUDA kernels without CUDA"
fi

# Each option of a program is in its manual page.
for program in "$root"/usr/bin/stretto-*; do
  page=$root/usr/share/man/man1/$(basename "$program").1
  [[ -e $page || -e $page.gz ]] || fail "no $(basename "$page")"
  [[ ! -e $page ]] || gzip -n "$page"
  text=$(zcat "$page.gz" | sed 's/\\fB//g; s/\\fR//g; s/\\-/-/g')
  options=0
  for option in $("$program" --help | grep -oE '^ +(-[a-z],)?--[a-z-]+' | grep -oE -- '--[a-z-]+'); do
    grep -qF -- "$option" <<<"$text" || fail "$(basename "$page") does not mention $option"
    options=$((options + 1))
  done
  ((options >= 2)) || fail "$(basename "$program") --help lists only $options options"
done

# The symbols that the shared libraries export; the framework has none of a component.
for stem in libstretto libstretto_music libstretto_pretrained; do
  library=$root/usr/lib/$stem.so.$version
  name=$(readelf --dynamic "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
  [[ $name == "$stem.so.$minor" ]] || fail "$stem: its SONAME is $name"
  nm --dynamic --defined-only "$library" | awk '{print $3}' >"$scratch/symbols"
  grep -vE '^_Z(N|NK|ZN|ZNK|GVN|GVZN|GVZNK|T.N|T[hv][n0-9_]*_NK?)7stretto' "$scratch/symbols" | c++filt |
    head >"$scratch/others" || true
  [[ ! -s $scratch/others ]] || fail "$stem exports symbols outside namespace stretto:" "$(<"$scratch/others")"
  (($(wc -l <"$scratch/symbols") > 100)) || fail "$stem exports only $(wc -l <"$scratch/symbols") symbols"
  [[ $stem != libstretto ]] || ! grep -E '7stretto5music|SubwordTokenizer|ChatTemplate|GgufFile' "$scratch/symbols" ||
    fail "the framework has symbols of a component"
done

# A program built with pkg-config, whose prefix is the directory of the unpacked package.
export PKG_CONFIG_PATH=$root/usr/lib/pkgconfig
read -ra flags < <(pkg-config --cflags --libs stretto)
"${CXX:-g++}" -std=c++20 -D PACKAGE_VERSION="\"$version\"" "$source/tests/consumer/main.cpp" -o "$scratch/consumer" "${flags[@]}"
LD_LIBRARY_PATH=$root/usr/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$scratch/consumer"
ldd "$scratch/consumer" >/dev/null
"$root/usr/bin/stretto-train-chorales" --version
