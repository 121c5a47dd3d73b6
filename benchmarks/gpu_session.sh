#!/usr/bin/env bash
# One full call for a machine with a GPU: what the machine is, then every CUDA test, then the same
# under compute-sanitizer where that is installed. All that is needed to record a result is printed.
#   benchmarks/gpu_session.sh [FOLDER]
# FOLDER holds a finished build (stretto_tests in it or in its tests/); without one the preset `cuda`
# is built here. SANITIZE=0 leaves compute-sanitizer out. COMMIT names the source where git cannot.
# Exit status: 0 when the tests passed, 77 when there was no GPU to test, else 1.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

line() { printf '%-9s %s\n' "$1" "$2"; }
first() { "$@" 2>/dev/null | head -n 1 || true; }

commit=${COMMIT:-$(git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)}
line date "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
line commit "$commit"
line system "$(uname -sr), $( (. /etc/os-release && echo "$PRETTY_NAME") 2>/dev/null || echo unknown)"
line cpu "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) threads"
line gpu "$(first nvidia-smi --query-gpu=name,memory.total,driver_version,compute_cap,clocks.max.sm,power.limit --format=csv,noheader)"
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
line nvcc "${nvcc:+$("$nvcc" --version | sed -n 's/^Cuda compilation tools, //p')}"

if [[ -n ${1:-} ]]; then
  build=$(cd "$1" && pwd)
else
  build=$root/build/cuda
  log=$build/gpu_session.log
  mkdir -p "$build"
  start=$SECONDS
  if ! { cmake --preset cuda -D STRETTO_TESTS=ON -D STRETTO_EXAMPLES=OFF -D STRETTO_BENCHMARKS=OFF &&
         cmake --build --preset cuda --target stretto_tests --parallel "${JOBS:-$(nproc)}"; } \
      >"$log" 2>&1; then
    tail -n 40 "$log"
    echo "The build failed; the whole output is in $log" >&2
    exit 1
  fi
  line build "$((SECONDS - start)) s"
fi
tests=$build/stretto_tests
[[ -x $tests ]] || tests=$build/tests/stretto_tests
[[ -x $tests ]] || { echo "No stretto_tests in $build" >&2; exit 1; }
line tests "$tests, $(sha256sum "$tests" | cut -c 1-16)"

# A carried binary finds the toolkit's libraries, or the ones that Python packages bring.
for folder in /usr/local/cuda/lib64 \
    "$(python3 -c 'import nvidia.cu13 as m; print(list(m.__path__)[0] + "/lib")' 2>/dev/null || true)"; do
  [[ -d $folder ]] && export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
done
if missing=$(ldd "$tests" | grep 'not found'); then
  echo "Libraries are missing:" "$missing" >&2
  exit 1
fi

echo
echo "== CUDA tests =="
start=$SECONDS
status=0
timeout "${LIMIT:-300}" "$tests" -d yes '[cuda]' || status=$?
line result "status $status, $((SECONDS - start)) s, commit $commit"
if ((status == 77)) || ! nvidia-smi >/dev/null 2>&1; then
  echo "No GPU: nothing was tested on one."
  exit $((status == 0 ? 77 : status))
fi

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
if [[ ${SANITIZE:-1} != 0 && -n $sanitizer ]]; then
  for tool in memcheck racecheck synccheck initcheck; do
    echo
    echo "== compute-sanitizer $tool =="
    this=0
    # The large cases take minutes there and show nothing new; some tests provoke API errors.
    timeout "${LIMIT:-300}" "$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 9 \
      "$tests" '[cuda]~[large]' || this=$?
    case $this in
      0) line "$tool" "nothing found" ;;
      124) line "$tool" "stopped at ${LIMIT:-300} s, not finished" ;;
      *) line "$tool" "status $this"; status=1 ;;
    esac
  done
fi
exit "$((status == 0 ? 0 : 1))"
