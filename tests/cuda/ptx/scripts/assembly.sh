#!/usr/bin/env bash
# Checks the machine code of the kernels of a finished build:  assembly.sh BUILD
#   - a kernel over packs (a template argument V > 1) has 16-byte accesses;
#   - kernels call only the functions in `allowed`, which has the reasons.
# Needs c++filt and cuobjdump, which not every CUDA Toolkit has (set CUOBJDUMP to its path; PyPI:
# nvidia-cuda-cuobjdump).
set -euo pipefail
build=$(cd "$1" && pwd)
tool=${CUOBJDUMP:-$(command -v cuobjdump || echo /usr/local/cuda/bin/cuobjdump)}
if [[ ! -x $tool ]]; then
  echo "skipped: no cuobjdump (PyPI: nvidia-cuda-cuobjdump); CUOBJDUMP names one"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# function | kernel | why it may be called, as extended regular expressions
cat >"$folder/allowed" <<'END'
div_rn_noftz_f32_slowpath|rcp_rn_f32_slowpath|sqrt_rn_f32_slowpath	.	exact f32, for operands near the ends of the range alone
.	<double|, double|double>|Entry<double>	f64
div_s64	extreme_rows|sort_runs	from an item to its row, once for each
div_rn_f64_full|dsqrt_rn_f64_mediumpath	make_roots|make_chirp|make_tables|update|loss	tables and scalars in f64
div_rn_f64_full|dsqrt_rn_f64_mediumpath	orthogonal_matrices	projections are drawn in f64
END

find "$build/CMakeFiles/stretto.dir/cuda" -name '*.cu.o' | while read -r object; do
  "$tool" -sass "$object" |
    awk '/Function :/ { name = $NF; wide[name] += 0 }
         /(LDG|STG)\.[A-Z0-9.]*128/ { ++wide[name] }
         END { for (name in wide) print "wide\t" wide[name] "\t" name }'
  # A kernel and what it calls are symbols of one section.
  "$tool" -elf "$object" |
    awk 'NF == 7 && $7 ~ /^_Z/ { kernel[$6] = $7 }
         NF == 7 && $7 ~ /^\$/ { sub(/.*\$/, "", $7); called[$6] = called[$6] " " $7 }
         END { for (section in called) {
                 n = split(called[section], names, " ")
                 for (i = 1; i <= n; ++i) print "call\t" names[i] "\t" kernel[section] } }'
done | c++filt >"$folder/found"

awk -F '\t' -v allowed="$folder/allowed" '
  BEGIN { while ((getline line < allowed) > 0) { split(line, part, "\t"); f[++rules] = part[1]; k[rules] = part[2] } }
  { kernel = $3
    gsub(/stretto::|cuda::|elementwise::|\(anonymous namespace\)::|^void /, "", kernel) }
  $1 == "wide" {
    ++kernels
    packs = match(kernel, /^map_kernel<[0-9]+/) ? substr(kernel, 12, RLENGTH - 11) : 1
    if (match(kernel, /RowShape<[0-9]+, [0-9]+/)) {
      packs = substr(kernel, RSTART, RLENGTH)
      sub(/.* /, "", packs)
    }
    if (packs > 1) ++over_packs
    if (packs > 1 && $2 == 0) { print "no access of 16 bytes: " kernel; failed = 1 }
  }
  $1 == "call" {
    ++calls
    for (i = 1; i <= rules && !($2 ~ f[i] && kernel ~ k[i]); ++i) ;
    if (i > rules) { print "calls " $2 ": " kernel; failed = 1 }
  }
  END { print kernels + 0 " kernels, " over_packs + 0 " of them over packs; " calls + 0 " functions called"
        exit failed || over_packs == 0 || calls == 0 }' "$folder/found"
