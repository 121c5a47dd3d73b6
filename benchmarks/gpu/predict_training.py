#!/usr/bin/env python3
"""Predicts the time and memory of the published trainings on an H200.

    benchmarks/gpu/predict_training.py BUILD [CASE...] >> benchmarks/results/cuda-predicted-DATE.md

CASEs: step-plain, step-relative, piano, piano-sine, piano-conv, groove, listops, text, retrieval, image; in f32 and bf16, or in one
of them with ":f32" or ":bf16". Each is trained on the PTX interpreter (`tests/cuda/ptx/`) at its published
width, for one step and for two, with one layer and with two, for three small batch shapes (image, which
has one length and one layer, for two). From these runs every counter of every kernel, of matrix products
and of memory is fitted, for the second step: a + b · tokens + c · length per layer; only the number of
launches depends on the layers alone. predict.py converts the counters at the published depth, length and
batch to times, and calibration.tsv these times to ranges. Matrix products do not run in the interpreter's
kernels; the rates of cuBLAS are below. A case takes ten minutes of one core, piano-conv forty.

step-plain and step-relative are the model of benchmarks/train_step.cpp. Its steps have been measured on an
H200 (results/cuda-h200-*.md), so that these two cases show how good the predictions are.
"""
import csv
import os
import pathlib
import subprocess
import sys
import tempfile

from predict import DRAM, LAUNCH, class_of, factors, predicted, span

# Multiply-adds per second. High: measured on an H200 for 8192³ in f32 and bf16. Low: assumed for smaller products.
RATE = {"f64": (15e12, 30e12), "f32": (12e12, 25e12), "bf16": (200e12, 400e12)}
OF_A_BLOCK = ("registers", "threads", "shared_bytes")

PIANO = "train_music --preset published --validation-windows 1 --eval-windows 1 --eval-length 16 --generate 0"
ARENA = "lra --position sine --held-out 0.02"
STEP = "train_step --d-model 512 --heads 8 --d-hidden 2048 --vocabulary 400 --seconds 0 --brief --threads 1"
STEPS = 9  # of that command
CASES = {  # command, option of the length ("": fixed), batch, published length, layers, steps
    "step-plain": (f"{STEP} --attention absolute", "--length", 8, 2048, 6, 0),
    "step-relative": (f"{STEP} --attention relative", "--length", 8, 2048, 6, 0),
    "piano": (f"{PIANO} --position sinusoid", "--length", 4, 2048, 24, 62_880),
    "piano-sine": (f"{PIANO} --position sine", "--length", 4, 2048, 24, 55_020),
    "piano-conv": (f"{PIANO} --position conv", "--length", 4, 2048, 24, 55_020),
    "groove": ("groove --published-model --published-eos --attention performer-hyperbolic --position sine --sines 8"
               " --features 128 --d-model 512 --heads 8 --d-hidden 2048 --continuations 0", "--length", 10, 512, 24, 13_272),
    "listops": ("lra --expressions 60 --held-out-expressions 2 --min-expression 8 --max-expression 24"
                " --attention performer --position sine", "--max-length", 8, 2000, 6, 10_000),
    "text": (f"{ARENA} --task text --attention performer", "--max-length", 8, 1000, 4, 30_000),
    "retrieval": (f"{ARENA} --task retrieval --attention performer", "--max-length", 8, 4000, 4, 15_000),
    "image": (f"{ARENA} --task image", "", 96, 1024, 1, 93_600),
}
DATA = pathlib.Path(__file__).resolve().parents[2] / "tests/cuda/ptx/scripts/arena_data.sh"
# (sequences, length). Chunks have length 64 and SPE tiles 4 sequences; column sums over 512 rows are
# split into chunks, as larger ones are.
SHAPES = ((8, 64), (16, 64), (8, 128))


def counted(build, words, folder):
    """The interpreter's counters of a run, including products and memory: {kernel: {column: value}}."""
    table = folder / "counters.tsv"
    environment = dict(os.environ, LD_LIBRARY_PATH=str(build / "ptx"), STRETTO_NUM_THREADS="1",
                       PTX_COUNTERS=str(table), PTX_MEMORY="6")
    command = [str(build / "benchmarks" / words[0]), *words[1:]]
    if words[0] != "train_step":
        command = [str(build / "examples" / words[0]), *words[1:], "--out", str(folder / "out"), "--overwrite"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}\n{done.stderr[-400:]}")
    rows = {}
    with open(table, newline="") as file:
        names = next(file).rstrip("\n").split("\t")[1:]
        for line in file:
            kernel, *cells = line.rstrip("\n").split("\t")
            if kernel.startswith("products of "):
                columns = ("calls", "multiply_adds", "bytes")
            else:
                columns = names if len(cells) == len(names) else (kernel,)
            rows[kernel] = dict(zip(columns, map(float, cells)))
    return rows


def second_step(build, words, folder):
    if words[0] == "train_step":  # without options of a trainer
        all = counted(build, words, folder)
        return {k: {c: x if c in OF_A_BLOCK or c == "memory" else x / STEPS for c, x in columns.items()}
                for k, columns in all.items()}
    words = [*words, "--evaluate-every", "1000", "--save-every", "1000"]
    one, two = (counted(build, [*words, "--steps", str(steps)], folder) for steps in (1, 2))
    step = {}
    for kernel, columns in two.items():
        before = one.get(kernel, {})
        step[kernel] = {c: x if c in OF_A_BLOCK or c == "memory" else x - before.get(c, 0) for c, x in columns.items()}
    return step


def extended(corners, shapes, layers, batch, length):
    """Extrapolates {(layers, shape): counters} of one and two layers, and three shapes (two: all of the
    given length), to the given layers, batch and length."""
    short = shapes[0][1]
    unit = short * shapes[0][0]  # tokens that the second and the third shape have more than the first
    by_length = (length - short) / (shapes[2][1] - short) if len(shapes) == 3 else 0
    by_tokens = (batch * length - unit) / unit - by_length
    of_shape = (1 - by_tokens - by_length, by_tokens, by_length)
    weight = {(l, i): of_shape[i] * (2 - layers if l == 1 else layers - 1) for l, i in corners}
    result = {}
    for kernel in set().union(*corners.values()):
        columns = set().union(*(c.get(kernel, {}) for c in corners.values()))
        result[kernel] = {}
        for column in columns:
            found = {at: c.get(kernel, {}).get(column, 0) for at, c in corners.items()}
            if column == "launches":
                one, two = (max([x for (l, i), x in found.items() if l == n], default=0) for n in (1, 2))
                result[kernel][column] = max(0, one + (layers - 1) * (two - one)) if layers > 1 else one
            else:
                result[kernel][column] = (max(found.values()) if column in OF_A_BLOCK else
                                          max(0, sum(weight[at] * x for at, x in found.items())))
    return result


def prediction(counters, classes):
    """Launches, the model's seconds, the low and the high end, and the same three of each kernel."""
    launches, total, of_kernel = 0, [0, 0, 0], {}
    for kernel, columns in counters.items():
        if kernel.startswith("products of "):
            slow, fast = RATE[kernel.split()[-1]]
            seconds = [max(columns["multiply_adds"] / rate, columns["bytes"] / DRAM) + columns["calls"] * LAUNCH * 1e-6
                       for rate in (fast, fast, slow)]
            launches += columns["calls"]
        elif columns.get("launches", 0) >= 1 and "threads" in columns:
            time, pipe = predicted(columns, 1)
            factor = classes[class_of(kernel)]
            seconds = [time * 1e-6 * f for f in (1, factor["low"], factor["high"])]
            of_kernel[kernel] = (seconds, pipe)
            launches += columns["launches"]
        else:
            continue
        total = [a + b for a, b in zip(total, seconds)]
    return launches, total, of_kernel


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    names = sys.argv[2:] or list(CASES)
    classes, _ = factors()
    print("\n## Training steps\n")
    print("Predicted by `benchmarks/gpu/predict_training.py`. A range takes the low or the high factor for all kernels,"
          " and 100 or\n50 % of the rate that was measured for large products.\n")
    print("| training | dtype | tokens per step | launches | model ms | predicted ms | steps | predicted hours | memory"
          " GB |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    most = []
    for name in names:
        name, _, only = name.partition(":")
        command, option, batch, length, layers, steps = CASES[name]
        for dtype in [only] if only else ["f32", "bf16"]:
            corners = {}
            shapes = SHAPES if option else ((4, length), (8, length))
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                words = [*command.split(), "--device", "cuda", "--dtype", dtype]
                if command.startswith(ARENA):
                    data = folder / "data"
                    data.write_bytes(subprocess.run([DATA, name], stdout=subprocess.PIPE, check=True).stdout)
                    words += ["--data", str(data)]
                for l in range(1, 1 + min(layers, 2)):
                    for at, (sequences, short) in enumerate(shapes):
                        of_shape = [option, str(short)] if option else []
                        corners[l, at] = second_step(
                            build, [*words, "--layers", str(l), *of_shape, "--batch", str(sequences)], folder)
            counters = extended(corners, shapes, layers, batch, length)
            launches, total, of_kernel = prediction(counters, classes)
            model, low, high = (1e3 * seconds for seconds in total)
            hours = span(*(end * steps / 3.6e6 for end in (low, high)), 1) if steps else ""
            print(f"| {name} | {dtype} | {batch * length:,} | {launches:,.0f} | {model:.1f} | {span(low, high, 1)} |"
                  f" {f'{steps:,}' if steps else ''} | {hours} | {counters['memory']['memory'] / 1e9:.1f} |", flush=True)
            most += [(name, dtype, k, *t) for k, t in sorted(of_kernel.items(), key=lambda x: -x[1][0][0])[:4]]
    print("\nThe slowest kernels of a step:\n\n| training | dtype | kernel | class | model ms | predicted ms |\n"
          "| --- | --- | --- | --- | ---: | ---: |")
    for name, dtype, kernel, (model, low, high), _ in most:
        print(f"| {name} | {dtype} | `{kernel.split('<')[0]}` | {class_of(kernel)} | {1e3 * model:.2f} |"
              f" {span(1e3 * low, 1e3 * high, 2)} |")


if __name__ == "__main__":
    main()
