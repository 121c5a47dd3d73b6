#!/usr/bin/env python3
"""Predicts the time of kernels on an H200 from counters of the PTX interpreter (`tests/cuda/ptx/`).

    LD_LIBRARY_PATH=build/release/ptx STRETTO_NUM_THREADS=1 KERNEL_COUNTS=counts.tsv KERNEL_ROWS=2048 \\
        build/release/tests/stretto_tests "[.counters]"
    benchmarks/gpu/predict.py counts.tsv 2048 > benchmarks/results/cuda-predicted-DATE.md

The model's time of a kernel is that of its busiest pipe, at the rates below, times a factor for
multiprocessors that are idle at its end (blocks start in order, as soon as an earlier one ends),
plus a launch. It ignores latency, so that kernels take 0.6 to 5 times as long. The prediction is
therefore a range: the model's time, times the factors of the kernel's class in calibration.tsv.
They are the ratios of measured times to the model's: the median, and the quantiles of 10 and 90 %.

    benchmarks/gpu/predict.py counts.tsv 2048 --measured OUT/3/kernels.tsv OUT/3.md > PAGE.md

recalibrates: it writes calibration.tsv from the tables of a GPU, and the page then has the measured
times next to the model's. Tables are kernels.tsv of run.sh 3, and those of a page that have a
column "measured µs" or are gpu_speed's.
"""
import argparse
import csv
import heapq
import math
import pathlib
import re
import statistics
import sys
from collections import defaultdict

ROWS = 32768  # tokens per case in the table
PROCESSORS, CLOCK = 132, 1.7e9  # H100 and H200 SXM
DRAM = 3.9e12  # bytes per second, read and written, that copies reach on an H200 (H100: 3.0e12)
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


# ---- calibration

CALIBRATION = pathlib.Path(__file__).with_name("calibration.tsv")
# The class of a kernel is the first one whose pattern its name begins with.
CLASSES = {
    "attention, forward": "attention_forward",
    "attention, backward": "attention_(keys|queries|relative|parts|sinks)",
    "attention, decoding": "attention_decode",
    "linear attention": "(linear|gated)::",
    "random features": "feature_",
    "sineSPE": "(apply_sines|sine_|make_waves)",
    "convSPE": "noise::",
    "Fourier transforms": "(fft_|convolve_|make_|normal_|multiply_complex)",
    "sorts, sums by index": "(sort_runs|merge_runs|sum_segments|scatter_|take_first|reduce_scatter|broadcast)",
    "reductions": "(sum_|extreme_rows|logsumexp_rows|cumsum)",
    "softmax, norms, losses": "(softmax|norm_|loss_)",
    "transposed copies": "(copy_tiles|shift_rows)",
    "elementwise, random numbers, optimizers": "",
}
# gpu_speed's attention has 8 heads; the case with the same kernels has one, 8 times.
OPS = {
    "attention, plain": "attention of 2048",
    "attention, table": "attention of 2048 with positions",
    "attention, table, position queries": "attention of 2048 with position queries",
}


def class_of(kernel):
    return next(name for name, pattern in CLASSES.items() if re.match(pattern, kernel))


def measured_times(paths):
    """{(case, dtype): microseconds}, from kernels.tsv or the tables of pages."""
    times, ops = {}, {}
    for path in paths:
        if path.endswith(".tsv"):
            for row in read(path):
                if not row["times"]:  # else one head, which does not fill a GPU
                    times[row["case"], row["dtype"]] = row["microseconds"]
            continue
        column, to = None, times
        for line in open(path):
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            if "measured µs" in cells:
                column, to = cells.index("measured µs"), times
            elif cells[:3] == ["op", "size", "µs"]:
                column, to = 2, ops
            elif not cells:
                column = None
            elif column and re.fullmatch(r"[0-9.]+", cells[column] if column < len(cells) else ""):
                to.setdefault((cells[0], cells[1].split()[0]), float(cells[column]))
    for op, case in OPS.items():
        for dtype in ("f32", "bf16"):
            forward, all = (ops.get((op + more, dtype)) for more in ("", ", forward and backward"))
            if forward and all:
                times[case, dtype], times[f"{case} backward", dtype] = forward, all - forward
    return times


def quantile(values, q):
    values = sorted(values)
    at = q * (len(values) - 1)
    low = int(at)
    return values[low] + (at - low) * (values[min(low + 1, len(values) - 1)] - values[low])


def calibrate(cases, times, paths):
    """Writes calibration.tsv: for each class the ratios of measured to modeled times."""
    ratios = defaultdict(list)
    for key, case in cases.items():
        if key in times:
            ratios[case.name].append(times[key] / case.model)
    with open(CALIBRATION, "w") as file:
        file.write(f"# Measured: {' '.join(pathlib.Path(p).name for p in paths)}\n")
        file.write("class\tcases\tlow\tmedian\thigh\tleast\tmost\n")
        for name in CLASSES:
            r = ratios.get(name)
            if r:
                file.write(f"{name}\t{len(r)}\t{quantile(r, 0.1):.2f}\t{statistics.median(r):.2f}\t"
                           f"{quantile(r, 0.9):.2f}\t{min(r):.2f}\t{max(r):.2f}\n")


def factors():
    """{class: row of calibration.tsv}, and the comment on the first line."""
    with open(CALIBRATION) as file:
        source = file.readline().strip("# \n")
        rows = csv.DictReader(file, delimiter="\t")
        return {row["class"]: {c: float(x) for c, x in row.items() if c != "class"} for row in rows}, source


def span(low, high, digits=0):
    low, high = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return low if low == high else f"{low}–{high}"


# ---- the page

class Case:
    """The kernels of a case, scaled to ROWS, the slowest one first."""

    def __init__(self, kernels, of_rows):
        self.scale = kernels[0]["times"] or of_rows
        # Batches of 16 share the partial sums of a table's gradient, which are added once per head.
        scales = [min(self.scale, 8) if k["times"] and k["kernel"].startswith("sum_") else self.scale for k in kernels]
        parts = sorted(((*predicted(k, s), k, s) for k, s in zip(kernels, scales)), key=lambda part: -part[0])
        self.model = sum(time for time, *_ in parts)
        self.parts = parts
        self.pipe, self.slowest = parts[0][1:3]
        self.name = class_of(self.slowest["kernel"])
        self.least = kernels[0]["bytes"] * self.scale
        self.moved = sum(32 * (k["load_missed"] + k["store_sectors"]) * s for _, _, k, s in parts)

    def range(self, classes):
        """The sum of the kernels' times, each with the factors of its class."""
        of = [(time, classes[class_of(k["kernel"])]) for time, _, k, _ in self.parts]
        return tuple(sum(time * f[end] for time, f in of) for end in ("low", "high"))


def print_classes(classes, source):
    print("| class of kernels | cases | median | 10 to 90 % | least to most |\n| --- | ---: | ---: | ---: | ---: |")
    for name, f in classes.items():
        print(f"| {name} | {f['cases']:.0f} | {f['median']:.2f} | {span(f['low'], f['high'], 2)} |"
              f" {span(f['least'], f['most'], 2)} |")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("counts")
    arguments.add_argument("rows", type=float)
    arguments.add_argument("--measured", nargs="+", default=[])
    given = arguments.parse_args()
    by_case = defaultdict(list)
    for k in read(given.counts):
        by_case[k["case"], k["dtype"]].append(k)
    cases = {key: Case(kernels, ROWS / given.rows) for key, kernels in by_case.items()}
    times = measured_times(given.measured)
    if times:
        calibrate(cases, times, given.measured)
    classes, source = factors()

    print("# CUDA kernels on an H200: model, prediction and measurement\n")
    print("| column | where it comes from |\n| --- | --- |")
    print("| model µs | **computed** from counters of the PTX interpreter: the busiest pipe, no latency |")
    print("| predicted µs | **predicted**: the model's time, times the range of its class below |")
    print("| measured µs | **measured** on an H200; empty: not since the kernel changed, or left out |\n")
    print(f"Counted at {given.rows:,.0f} rows and scaled to {ROWS:,} tokens. `benchmarks/gpu/predict.py` has the rates,"
          " the method and\nthe commands.\n")
    print("## Calibration\n")
    print("Ratios of measured time to the model's. A case belongs to the class of its slowest kernel.\n")
    print_classes(classes, source)
    print(f"\nThe factors are in `benchmarks/gpu/calibration.tsv`. {source}.")
    if times:
        compared = [(*case.range(classes), times[key]) for key, case in cases.items() if key in times]
        inside = sum(low <= time <= high for low, high, time in compared)
        print(f"{inside} of the {len(compared)} cases below that were measured are within their range.")
    print("\n## Cases\n")
    print("Moved: 32-byte sectors of loads that miss L1 and of stores, relative to the least possible traffic\n"
          "(`tests/cuda/kernel_cases*.cpp`). Warps: resident per multiprocessor, at most 64. Bottleneck: the"
          " busiest pipe of the slowest kernel.\n")
    print("| case | dtype | slowest kernel | moved | registers | warps | bottleneck | model µs | predicted µs |"
          " measured µs |\n| --- | --- | --- | ---: | ---: | ---: | --- | ---: | ---: | ---: |")
    for (name, dtype), case in cases.items():
        k = case.slowest
        kernel = re.sub(r"<.*", "", k["kernel"].replace("elementwise::", ""))
        measured = f"{times[name, dtype]:.0f}" if (name, dtype) in times else ""
        print(f"| {name} | {dtype} | `{kernel}` | {case.moved / case.least:.2f} | {k['registers']:.0f} |"
              f" {resident(k) * math.ceil(k['threads'] / 32)} | {case.pipe} | {case.model:.0f} |"
              f" {span(*case.range(classes))} | {measured} |")


if __name__ == "__main__":
    main()
