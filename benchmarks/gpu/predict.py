#!/usr/bin/env python3
"""Predicts what kernels take on an H100, from what they do on the PTX interpreter (`tests/cuda/ptx/`).

    export LD_LIBRARY_PATH=build/release/ptx STRETTO_NUM_THREADS=1
    KERNEL_COUNTS=counts.tsv KERNEL_ROWS=8192 build/release/tests/stretto_tests "[.counters]"
    PTX_DECODE=1 PTX_COUNTERS=all.tsv \\
        build/release/tests/stretto_tests "nothing is allocated for nothing"
    benchmarks/gpu/predict.py counts.tsv 8192 all.tsv > benchmarks/results/cuda-predicted-DATE.md

A kernel takes as long as the pipe that it keeps busy longest, at the rates below, times what blocks
leave idle at its end, each begun in its order where one before has ended, and a launch. Nobody has
held this against hardware: it says which pipe binds and which of two implementations is better, and 40 % off
would not be a surprise.
"""
import csv
import heapq
import math
import sys
from collections import defaultdict

ROWS = 32768  # tokens that the table is for
PROCESSORS, CLOCK = 132, 1.7e9  # H100 SXM
DRAM = 3.0e12  # bytes a second, read and written, that copies reach
LAUNCH = 2.0  # microseconds until a kernel runs and its end is seen
# Per multiprocessor and clock. PTX instructions, which are not quite those of the hardware: but a
# number's negation and copies of registers ("folded") are counted nowhere. They are in the
# instructions that use them: of 240 copies in the loop of linear attention 61 are in its machine code.
ISSUE, INTEGER, FLOATING, DOUBLE, CONVERT, SPECIAL = 4, 2, 4, 2, 2, 0.5  # warp instructions
MATRIX = 4 / 6.5  # mma.sync of 16 x 8 x 16: 62 % of what tensor cores give to wgmma (arXiv:2501.12084)
L1_BYTES, L2_BYTES = 128, 24


def resident(k):
    """Blocks that a multiprocessor has at a time."""
    warps = math.ceil(k["threads"] / 32)
    registers = max(8, math.ceil(k["registers"] / 8) * 8) * 32 * warps
    return max(1, int(min(32, 64 // warps, 65536 // registers, 233472 // (k["shared_bytes"] + 1024))))


def pipes(k, scale):
    """Microseconds that each pipe is busy."""
    n = lambda *columns: sum(k[c] for c in columns) * scale
    kinds = ("integer", "floating", "f64", "convert", "special", "memory", "shared", "matrix", "warp", "control")
    # What cp.async copies passes the data stage once, when it is written: as wavefronts.
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
    """How much longer blocks take, begun in order at so many places, than if none were ever idle.

    Their lengths: the instructions of each sixteenth of the grid, shared out evenly.
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
    print(f"[{ROWS:,}, 2048]. Biases, copies, sums, norms, embedding (400 rows), optimisers: [{ROWS:,}, 512], or as many"
          " numbers in")
    print(f"rows \"of\" what the case says. Masks: scores [{ROWS // 8:,}, 64, 64]; skew:"
          f" [{ROWS // 128:,}, 256, 511]. Cross-entropy: {ROWS:,} rows of 400, or")
    print("as many numbers in rows of 32,000. Attention of 2048: a causal head of 64 dimensions, of 16 batch entries"
          " (in f32 one),\n8 times (128 times).\n")
    print("How a time is made of counters, and at which rates, says `benchmarks/gpu/predict.py`, with the commands"
          " that")
    print("make this page again. The floor: what `tests/cuda/kernel_cases*.cpp` call the least that must move, at"
          f" {DRAM / 1e12:g} TB/s")
    print("(a table that stays in the second cache may take less, as in embedding).\n")
    print("Moved: 32-byte sectors of loads that the first cache does not hold, and of stores; sectors, in millions:"
          " all that")
    print("loads and stores touch. Wavefronts: of shared memory, over the ideal. Warps: those that a multiprocessor"
          " has at a")
    print("time, of 64. A kernel of less than 3 % of its case has no row, but its time is in the sum.\n")
    print("| case | type | kernel | moved MB | least MB | ratio | sectors | wavefronts | registers | warps | µs | binds"
          " | sum µs | floor µs |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: |")
    of_rows = ROWS / float(sys.argv[2])
    for (case, dtype), kernels in cases.items():
        scale = kernels[0]["times"] or of_rows
        # The entries of a batch of 16 share the parts of a table's gradient, whose sum is one of each head.
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
    print(f"\n## Registers\n\nOf a thread, as ptxas gave them, of all {len(kernels)} kernels of the"
          " binary; none has local memory (the")
    print("build fails on it) but sines of f64. Warps of a multiprocessor: as registers allow.\n")
    print("| registers | warps | kernels | among them |\n| ---: | ---: | ---: | --- |")
    for registers, names in sorted(by_registers.items()):
        warps = min(64, 65536 // max(8, registers) // 32)
        print(f"| ≤ {registers} | {warps} | {len(names)} | `{name(sorted(names)[0])[:90]}` |")


if __name__ == "__main__":
    main()
