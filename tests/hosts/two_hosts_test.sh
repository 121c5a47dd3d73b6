#!/usr/bin/env bash
# Checks that training on two hosts equals training on one:  tests/hosts/two_hosts_test.sh BUILD
# The hosts are two network namespaces on this machine with a TCP link between them. 2 and 4 processes
# exchange gradients over the link; their checkpoint must be byte-identical to that of one process.
# STRETTO_ALL_PROGRAMS=1 tests all programs for 30 steps, otherwise one for 10. Exit status 77
# (skipped) if namespaces cannot be created or Open MPI is missing.
set -euo pipefail
programs=$(cd "$1/examples" && pwd)
skip() { echo "skipped: $1"; exit 77; }
for tool in ip nsenter unshare mpirun; do command -v "$tool" >/dev/null || skip "$tool is not installed"; done

scratch=$(mktemp -d)
hosts=("stretto-a-$$" "stretto-b-$$")
clean() {
  for host in "${hosts[@]}"; do ip netns delete "$host" 2>/dev/null || true; done
  rm -rf "$scratch"
}
trap clean EXIT
for host in "${hosts[@]}"; do
  ip netns add "$host" 2>"$scratch/error" || skip "no network namespaces: $(<"$scratch/error")"
done
ip link add link0 netns "${hosts[0]}" type veth peer name link0 netns "${hosts[1]}" \
  2>"$scratch/error" || skip "no link between namespaces: $(<"$scratch/error")"
# Not `ip -n`: it also remounts /, which fails inside a chroot.
on() { nsenter --net="/run/netns/$1" "${@:2}"; }
for i in 0 1; do
  on "${hosts[i]}" ip address add "10.213.7.$((i + 1))/24" dev link0
  on "${hosts[i]}" ip link set link0 up
  on "${hosts[i]}" ip link set lo up
done

# Open MPI starts its daemon on each host with this script instead of ssh.
agent=$scratch/agent
cat >"$agent" <<'END'
#!/usr/bin/env bash
host=$1
shift
exec nsenter --net="/run/netns/$host" unshare --uts bash -c "hostname $host; $*"
END
chmod +x "$agent"

on_two_hosts() {  # PROCESSES COMMAND...
  local n=$1 each=$(($1 / 2))
  shift
  STRETTO_NUM_THREADS=1 "$agent" "${hosts[0]}" mpirun --allow-run-as-root --oversubscribe -n "$n" \
    --host "${hosts[0]}:$each,${hosts[1]}:$each" --map-by "ppr:$each:node" \
    --mca plm_rsh_agent "$agent" --mca btl tcp,self --mca btl_tcp_if_include link0 \
    --mca oob_tcp_if_include link0 "$@" >"$scratch/log" 2>&1
}
received() { on "${hosts[1]}" grep link0: /proc/net/dev | awk '{print $2}'; }

tiny=(--layers 1 --d-model 32 --heads 2 --d-hidden 64 --batch 8 --evaluate-every 5)
list=$(dirname "${BASH_SOURCE[0]}")/../examples/programs.def steps=10
if [[ ${STRETTO_ALL_PROGRAMS:-} ]]; then steps=30; fi
sed -n 's/^PROGRAM(\(.*\), "\(.*\)")$/\1 \2/p' "$list" >"$scratch/list"
while read -r program options; do
  if [[ $program != train_lm && ! ${STRETTO_ALL_PROGRAMS:-} ]]; then continue; fi
  read -ra words <<<"$options"
  command=("$programs/$program" "${tiny[@]}" "${words[@]}" --steps "$steps")
  STRETTO_NUM_THREADS=1 "${command[@]}" --micro-batches 8 --out "$scratch/one" >"$scratch/log" 2>&1 || {
    cat "$scratch/log" >&2
    exit 1
  }
  for n in 2 4; do
    for more in "" --shard-optimizer; do
      before=$(received)
      on_two_hosts "$n" "${command[@]}" $more --out "$scratch/two" || { cat "$scratch/log" >&2; exit 1; }
      bytes=$(($(received) - before))
      sent=$(awk '/gradient communication/ {print int($9 * 1e6)}' "$scratch/log")
      echo "$program, $n processes on two hosts $more: $bytes bytes over the link, $steps steps of $sent"
      cmp "$scratch/one/checkpoint.safetensors" "$scratch/two/checkpoint.safetensors"
      # Each process exchanges 2(n − 1)/n of the gradients; at least 1/n must cross the link.
      ((sent > 0 && bytes > steps * sent / n)) || { echo "fewer bytes than the gradients need" >&2; exit 1; }
      rm -rf "$scratch/two"
    done
  done
  rm -rf "$scratch/one"
done <"$scratch/list"
