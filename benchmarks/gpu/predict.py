#!/usr/bin/env python3
"""Predicts the time of kernels on an H100 from counters of the PTX interpreter (`tests/cuda/ptx/`).

    export LD_LIBRARY_PATH=build/release/ptx STRETTO_NUM_THREADS=1
    KERNEL_COUNTS=counts.tsv KERNEL_ROWS=8192 build/release/tests/stretto_tests "[.counters]"
    PTX_DECODE=1 PTX_COUNTERS=all.tsv \\
        build/release/tests/stretto_tests "nothing is allocated for nothing"
    benchmarks/gpu/predict.py counts.tsv 8192 all.tsv > benchmarks/results/cuda-predicted-DATE.md

The time of a kernel is that of its busiest pipe, at the rates below, times a factor for
multiprocessors that are idle at its end (blocks start in order, as soon as an earlier one ends),
plus a launch. The prediction shows the bottleneck and which of two implementations is faster. On an
H200, whose memory is faster, kernels bound by DRAM took 0.9 times the predicted time in the median,
kernels bound by instruction issue 2.1 times (results/cuda-h200-2026-11-26.md).
"""
import csv
import heapq
import math
import sys
from collections import defaultdict

ROWS = 32768  # tokens per case in the table
PROCESSORS, CLOCK = 132, 1.7e9  # H100 SXM
DRAM = 3.0e12  # bytes per second, read and written, that copies reach
LAUNCH = 2.0  # microseconds from a launch to the observed end of an empty kernel
# Rates per multiprocessor and clock, for PTX instructions, which approximate those of the hardware.
# Negations and register copies ("folded") are not counted, because the hardware merges most of them
# into other instructions: 61 of 240 copies in the loop of linear attention are in its machine code.
ISSUE, INTEGER, FLOATING, DOUBLE, CONVERT, SPECIAL = 4, 2, 4, 2, 2, 0.5  # warp instructions
MATRIX = 4 / 6.5  # mma.sync of 16 x 8 x 16: 62 % of the rate of wgmma (arXiv:2501.12084)
L1_BYTES, L2_BYTES = 128, 24


def resident(k):
    """The number of blocks that a multiprocessor runs at a time."""
    warps = math.ceil(k["threads"] / 32)
    registers = max(8, math.ceil(k["registers"] / 8) * 8) * 32 * warps
    return max(1, int(min(32, 64 // warps, 65536 // registers, 233472 // (k["shared_bytes"] + 1024))))


def pipes(k, scale):
    """The microseconds for which each pipe is busy."""
    n = lambda *columns: sum(k[c] for c in columns) * scale
    kinds = ("integer", "floating", "f64", "convert", "special", "memory", "shared", "matrix", "warp", "control")
    # Data of cp.async passes the data stage only once, when written: counted in wavefronts.
    sectors = n("load_sectors", "store_sectors") - n("copied_sectors")
    clocks = {
        "issue": n(*kinds) / ISSUE,
        "integer": n("integer") / INTEGER,
        "fma": n("floating") / FLOATING,
        "f64": n("f64") / DOUBLE,
        "convert": n("convert") / CONVERT,
        "special": n("special") / SPECIAL,
        "matrix": n("matrix") / MATRIX,
        "lsu": max(n("load_requests", "store_requests"), sectors * 32 / L1_BYTES)
        + n("wavefronts", "warp"),
        "L2": n("load_missed", "store_sectors") * 32 / L2_BYTES,
    }
    time = {pipe: c / PROCESSORS / CLOCK * 1e6 for pipe, c in clocks.items()}
    time["DRAM"] = n("load_unique", "store_unique") / DRAM * 1e6
    return time


def idle(k, blocks, places):
    """The factor by which blocks take longer on `places` places, started in order, than without idling.

    The length of a block is its share of the instructions of its sixteenth of the grid.
    """
    shares = max(1, min(16, int(k["blocks"] / k["launches"])))
    work = [k.get(f"work_{i}", 0) for i in range(shares)]
    count = [-(-blocks * (i + 1) // shares) + (-blocks * i // shares) for i in range(shares)]
    if blocks <= places or not sum(work):
        return 1
    ends = [0.0] * places
    for length, times in zip(work, count):
        for _ in range(times):
            heapq.heapreplace(ends, ends[0] + length / times)
    return max(ends) * places / sum(work)


def predicted(k, scale):
    time = pipes(k, scale)
    pipe = max(time, key=time.get)
    blocks = min(k["blocks"] / k["launches"] * scale, max(4096, k["blocks"] / k["launches"]))
    return time[pipe] * idle(k, math.ceil(blocks), PROCESSORS * resident(k)) + LAUNCH * k["launches"], pipe


def read(path):
    rows = []
    with open(path, newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", restval=""):
            for column, value in row.items():
                try:
                    row[column] = float(value)
                except (TypeError, ValueError):
                    pass
            rows.append(row)
    return rows


def name(kernel):
    return kernel.replace("elementwise::", "").replace("unsigned ", "u").replace("|", "\\|")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    scale = ROWS / float(sys.argv[2])
    cases = defaultdict(list)
    for k in read(sys.argv[1]):
        cases[k["case"], k["dtype"]].append(k)

    print("# CUDA kernels on an H100: predicted, nothing here was run on hardware\n")
    print("Counted by the PTX interpreter (`tests/cuda/ptx/`) on the PTX of the test binary, at")
    print(f"{int(ROWS / scale):,} rows, and multiplied by {scale:g} (what a launch or a multiprocessor has once, too): the"
          f" sizes are")
    print(f"those of {ROWS:,} tokens. Elementwise functions of two tensors or one, fills, random numbers and"
          " dropout:")
    print(f"[{ROWS:,}, 2048]. Biases, copies, sums, norms, embedding (400 rows), optimizers: [{ROWS:,}, 512], or as many"
          " elements in")
    print(f"rows of the size in the case's name. Masks: scores [{ROWS // 8:,}, 64, 64]; skew:"
          f" [{ROWS // 128:,}, 256, 511]. Cross-entropy: {ROWS:,} rows of 400, or")
    print("as many elements in rows of 32,000. Attention of 2048: a causal head of dimension 64, of 16 batch entries"
          " (in f32 one),\n8 times (128 times).\n")
    print("`benchmarks/gpu/predict.py` states how times are computed from counters, at which rates, and the commands"
          " that")
    print("reproduce this page. Floor: the least memory traffic of a case (`tests/cuda/kernel_cases*.cpp`) at"
          f" {DRAM / 1e12:g} TB/s")
    print("(a table that stays in L2 may take less, as in embedding).\n")
    print("Moved: 32-byte sectors of loads that miss L1, and of stores. Sectors, in millions: all sectors that")
    print("loads and stores access. Wavefronts: of shared memory, relative to the ideal. Warps: resident per"
          " multiprocessor,")
    print("of 64. A kernel with less than 3 % of the time of its case has no row, but is included in the sum.\n")
    print("| case | type | kernel | moved MB | least MB | ratio | sectors | wavefronts | registers | warps | µs | binds"
          " | sum µs | floor µs |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: |")
    of_rows = ROWS / float(sys.argv[2])
    for (case, dtype), kernels in cases.items():
        scale = kernels[0]["times"] or of_rows
        # Batches of 16 share the partial sums of a table's gradient, which are added once per head.
        own = [min(scale, 8) if k["times"] and k["kernel"].startswith("sum_") else scale for k in kernels]
        times = [predicted(k, s) for k, s in zip(kernels, own)]
        total = sum(t for t, _ in times)
        least = kernels[0]["bytes"] * scale
        moved = [32 * (k["load_missed"] + k["store_sectors"]) * s for k, s in zip(kernels, own)]
        first = True
        for k, (time, pipe), bytes_moved in sorted(
                zip(kernels, times, moved), key=lambda row: -row[1][0]):
            if time < 0.03 * total:
                continue
            waves = k["wavefronts"] / k["wavefronts_ideal"] if k["wavefronts_ideal"] else 0
            warps = resident(k) * math.ceil(k["threads"] / 32)
            of_case = (f"{least / 1e6:.1f} | {sum(moved) / least:.2f}", f"{total:.0f} | "
                       f"{least / DRAM * 1e6:.0f}") if first else (" | ", " | ")
            sectors = (k["load_sectors"] + k["store_sectors"]) * scale / 1e6
            print(f"| {case if first else ''} | {dtype if first else ''} | `{name(k['kernel'])}` |"
                  f" {bytes_moved / 1e6:.1f} | {of_case[0]} | {sectors:.2f} | {f'{waves:.2f}' if waves else '–'} |"
                  f" {k['registers']:.0f} | {warps} | {time:.0f} | {pipe} | {of_case[1]} |")
            first = False

    kernels = [k for k in read(sys.argv[3]) if isinstance(k.get("registers"), float)]
    by_registers = defaultdict(list)
    for k in kernels:
        by_registers[int(math.ceil(k["registers"] / 8) * 8)].append(k["kernel"])
    print(f"\n## Registers\n\nPer thread, as allocated by ptxas, for all {len(kernels)} kernels of the"
          " binary. None uses local memory (an")
    print("error in the build), except sin and cos of f64. Warps: resident per multiprocessor, as limited by"
          " registers.\n")
    print("| registers | warps | kernels | for example |\n| ---: | ---: | ---: | --- |")
    for registers, names in sorted(by_registers.items()):
        warps = min(64, 65536 // max(8, registers) // 32)
        print(f"| ≤ {registers} | {warps} | {len(names)} | `{name(sorted(names)[0])[:90]}` |")


if __name__ == "__main__":
    main()
