#!/usr/bin/env bash
# Runs the contents of pack.sh's archive on a machine with a GPU:  run.sh STAGE OUT
#   1 truth  the system; every CUDA test file in its own process; conformance cases and programs,
#            each twice, with bit-identical output
#   2 proof  the tests with exact allocation, then under compute-sanitizer, which must also find
#            planted faults
#   3 speed  a copy, matrix products and other ops timed by CUDA events, counters, PyTorch
# Each stage ends within 540 seconds and writes OUT/STAGE.md while it runs; logs are in OUT/STAGE/.
# Tools that are not installed are reported and skipped.
#   LIMIT    seconds per stage (default: 540)            JOBS     processes at a time
#   SELECT   a regular expression: runs only the steps whose names match
# Exit status: 0 if all steps passed, 77 if there is no GPU, else 1.
set -uo pipefail
[[ $# -eq 2 && $1 =~ ^[123]$ ]] || { sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$2/$1"
out=$(cd "$2" && pwd)
logs=$out/$1 page=$out/$1.md
deadline=$((SECONDS + ${LIMIT:-540}))
cores=$(nproc)
jobs=${JOBS:-$((cores < 8 ? cores : 8))}
cd "$here" || exit 2
: >"$page"
: >"$logs/failures"
export STRETTO_BIN_DIR=$here STRETTO_NUM_THREADS=${STRETTO_NUM_THREADS:-2}
for folder in "$here/lib" /usr/local/cuda/lib64 \
    "$(python3 -c 'import nvidia.cu13 as m; print(list(m.__path__)[0] + "/lib")' 2>/dev/null)"; do
  [[ -d $folder ]] && export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
done

say() { printf '%s\n' "$@" >>"$page"; }
table() { say "" "## $1" "" "| step | result | seconds | first error |" "| --- | --- | ---: | --- |"; }
# Prints the path of a tool, or reports that it is missing.
tool() {
  command -v "$1" || ls "/usr/local/cuda/bin/$1" 2>/dev/null || { say "- $1: not found, left out"; return 1; }
}
tests_of() { printf '[#%s]%s' "$1" "${2:-}"; }

# The first error in a log: a verdict of interpreter or sanitizer, an exception, a failed check.
first_error() {
  grep -m 1 -E '^ptx: |^========= (Invalid|Error|Race|Uninit|Barrier|Program hit)|what\(\)|loading shared' "$1" ||
    awk '/FAILED:/ { getline; gsub(/^ +/, ""); print; exit }' "$1"
}

# job NAME SECONDS COMMAND...: runs the command and adds a row to the table. The log is NAME.log.
job() {
  local name=$1 seconds=$2 status=0 start=$SECONDS left=$((deadline - SECONDS)) what error=
  local log=$logs/${name//[^A-Za-z0-9_]/_}.log
  shift 2
  if ((left < 3)); then
    say "| $name | not run: the stage's time limit is reached | | |"
    echo "$name" >>"$logs/failures"
    return
  fi
  timeout --kill-after=3 "$((seconds < left - 2 ? seconds : left - 2))" "$@" >"$log" 2>&1 || status=$?
  case $status in
    0) what=passed ;;
    77) what="skipped: $(sed -n 's/^SKIPPED: //p' "$log" | head -n 1)" ;;
    124 | 137) what="**stopped**" ;;
    86) what="**verdict**" ;;
    *) if ((status > 128)); then what="**crash**, signal $((status - 128))"; else what="**failed**, status $status"; fi ;;
  esac
  if ((status != 0 && status != 77)); then
    echo "$name" >>"$logs/failures"
    error=$(first_error "$log" | tr '|' '/' | cut -c 1-160)
  fi
  say "| $name | $what | $((SECONDS - start)) | $error |"
}
# queue PLACES NAME SECONDS COMMAND...: runs jobs in parallel, PLACES at a time.
running=0
queue() {
  local places=$1
  shift
  [[ $1 =~ ${SELECT:-.} ]] || return 0
  if ((running >= places)); then
    wait -n
    running=$((running - 1))
  fi
  job "$@" &
  running=$((running + 1))
}
join() { wait; running=0; }

# Runs a command twice; fails if its standard output differs.
twice() {
  "$@" >"$LOG.first" && "$@" >"$LOG.second" || return
  cat "$LOG.first"
  cmp "$LOG.first" "$LOG.second" || { echo "what(): two runs differ"; return 1; }
}
export -f twice
queue_twice() {
  local name=$1 seconds=$2
  shift 2
  queue "$jobs" "$name" "$seconds" env LOG="$logs/$name" bash -c 'twice "$@"' twice "$@"
}

identify() {
  local smi nvcc
  say "# Stage $1" "" "- date: $(date -u +%Y-%m-%dT%H:%M:%SZ)" "- commit: $(cat COMMIT)" \
    "- system: $(uname -sr), $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release)" \
    "- cpu: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $cores threads"
  smi=$(tool nvidia-smi) && say "- gpu: $("$smi" --format=csv,noheader \
    --query-gpu=name,memory.total,driver_version,compute_cap,clocks.max.sm,power.limit | head -n 1)"
  nvcc=$(tool nvcc) && say "- nvcc: $("$nvcc" --version | sed -n 's/^Cuda compilation tools, //p')"
  ldd ./stretto_tests >"$logs/libraries.log"
  say "- libraries: $(awk '/libcud|libcub/ && /=> \// { print $1, $3 }' "$logs/libraries.log" | sort -u | paste -sd';')"
  if grep -q 'not found' "$logs/libraries.log"; then
    say "- **missing**: $(awk '/not found/ { print $1 }' "$logs/libraries.log" | sort -u | paste -sd' ')"
    cat "$page"
    exit 1
  fi
}

truth() {
  local name
  table "Test files, one process each"
  while read -r name; do
    queue "$jobs" "$name" 120 ./stretto_tests --filenames-as-tags "$(tests_of "$name")"
  done <TESTS
  join
  table "Conformance cases, run twice: identical output"
  for name in f32 bf16 f64; do
    queue_twice "conformance_$name" 120 ./conformance --device cuda --dtype "$name" cases/*.safetensors
  done
  join
  table "Programs, run twice: identical output"
  for name in melody chorales character_model translation classifier; do
    [[ -x $name ]] && queue_twice "$name" 120 "./$name" --device cuda
  done
  join
  table "Test files of ops and models, with all tensors on the GPU"
  while read -r name; do
    queue "$jobs" "there_$name" 120 env STRETTO_TEST_DEVICE=cuda ./stretto_tests --filenames-as-tags "$(tests_of "$name")"
  done <TESTS_THERE
  join
}

proof() {
  local name sanitizer check verdict
  export STRETTO_ALLOC=exact
  table "Blocks of exact size"
  while read -r name; do
    queue "$jobs" "exact_$name" 120 ./stretto_tests --filenames-as-tags "$(tests_of "$name" '~[large]')"
  done <TESTS
  join
  if grep -q '/ptx/libcudart' "$logs/libraries.log"; then
    table "Planted faults, found by the PTX interpreter"
    queue "$jobs" faults 120 ./ptx_faults
    join
  fi
  table "compute-sanitizer"
  sanitizer=$(tool compute-sanitizer) || return
  for check in memcheck racecheck synccheck initcheck; do
    while read -r name; do
      queue 4 "${check}_$name" 120 "$sanitizer" --tool "$check" --report-api-errors no --error-exitcode 9 \
        ./stretto_tests --filenames-as-tags "$(tests_of "$name" '[cuda]~[large]')"
    done <TESTS
  done
  join
  table "Planted faults (passed: found by compute-sanitizer)"
  while IFS=$'\t' read -r verdict name; do
    case $verdict in
      'out of bounds'* | misaligned*) check=memcheck ;;
      race*) check=racecheck ;;
      unwritten*) check=initcheck ;;
      barrier* | diverged*) check=synccheck ;;
      *) continue ;;
    esac
    queue 4 "fault_$check: $name" 30 bash -c '"$@"; [[ $? == 9 ]]' fault \
      "$sanitizer" --tool "$check" --error-exitcode 9 ./ptx_faults "$name"
  done < <(./ptx_faults --list)
  join
}

speed() {
  local ncu
  table "Ops, kernels and training steps (results below)"
  queue 1 ops 240 ./gpu_speed
  queue 1 kernels 120 env KERNEL_ROWS=32768 KERNEL_TIMES="$logs/kernels.tsv" ./stretto_tests "[.times]"
  local attention dtype graph
  for attention in relative absolute; do
    for dtype in bf16 f32; do
      for graph in "" --cuda-graph; do
        queue 1 "step_${attention}_$dtype$graph" 60 ./train_step --device cuda --dtype "$dtype" $graph --attention "$attention" \
          --layers 6 --d-model 512 --heads 8 --d-hidden 2048 --length 2048 --batch 8 --vocabulary 400 --seconds 3 --brief
      done
    done
  done
  join
  say "" "$(cat "$logs"/step_*.log 2>/dev/null | grep ms/step | sed 's/^/- /')"
  grep '^|' "$logs/ops.log" | { say "" "Medians of CUDA events:" ""; cat >>"$page"; }
  if python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    table "PyTorch"
    queue 1 torch 120 python3 peers.py
    for attention in relative absolute; do
      queue 1 "torch_step_$attention" 40 python3 train_step.py --device cuda --dtype bf16 --attention "$attention" \
        --layers 6 --d-model 512 --heads 8 --d-hidden 2048 --length 2048 --batch 8 --vocabulary 400 --seconds 3
    done
    join
    say "" "$(cat "$logs"/torch_step_*.log | grep ms/step | sed 's/^/- /')"
    grep '^|' "$logs/torch.log" | { say ""; cat >>"$page"; }
  else
    say "" "- python3 with torch and a GPU: not found, left out"
  fi
  table "Counters of ncu"
  ncu=$(tool ncu) || return
  queue 1 ncu 150 "$ncu" --csv --metrics "$(paste -sd, <<'METRICS'
gpu__time_duration.sum
dram__bytes.sum
l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum
l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum
sm__inst_executed.sum
METRICS
  )" ./gpu_speed --once
  join
}

identify "$1"
start=$SECONDS
status=0
./stretto_tests --filenames-as-tags "$(tests_of cuda_test)" >"$logs/smoke.log" 2>&1 || status=$?
if ((status == 77)) || grep -q '^SKIPPED.*no CUDA GPU' "$logs/smoke.log"; then
  say "" "No GPU: $(sed -n 's/^SKIPPED: //p' "$logs/smoke.log" | head -n 1)"
  exit 77
fi
case $1 in
  1) truth ;;
  2) proof ;;
  3) speed ;;
esac
say "" "$((SECONDS - start)) seconds, $(wc -l <"$logs/failures") steps failed or did not run."
cat "$page"
[[ ! -s $logs/failures ]]
