#!/usr/bin/env python3
"""Compares measured times of kernels on a GPU with the predicted ones: a table in Markdown.

    benchmarks/gpu/measured.py kernels.tsv cuda-predicted-DATE.md

kernels.tsv is written by `stretto_tests "[.times]"` (run.sh 3). A row is a case of
tests/cuda/kernel_cases.h in one dtype; ratio: measured / predicted; GB/s counts the least memory
traffic. Attention with a single head of length 2048 is omitted, because it does not fill a GPU;
gpu_speed measures the whole batch. A second table has the median ratio per predicted bottleneck.
"""
import csv
import statistics
import sys
from collections import defaultdict

predicted = {}
for line in open(sys.argv[2]):
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    if len(cells) == 14 and cells[0] and cells[12].isdigit():
        predicted[cells[0], cells[1]] = float(cells[12]), cells[11]
print("| case | type | predicted µs | measured µs | ratio | GB/s |\n| --- | --- | ---: | ---: | ---: | ---: |")
ratios = defaultdict(list)
for row in csv.DictReader(open(sys.argv[1]), delimiter="\t"):
    if int(row["times"]):
        continue
    measured = float(row["microseconds"])
    rate = float(row["bytes"]) / measured * 1e-3
    guess, binds = predicted.get((row["case"], row["dtype"]), (None, None))
    ratio = ""
    if guess:
        ratios[binds].append(measured / guess)
        ratio = f"{measured / guess:.2f}"
    print(f"| {row['case']} | {row['dtype']} | {guess or '':.0f} | {measured:.0f} | {ratio} | {rate:.0f} |"
          if guess else f"| {row['case']} | {row['dtype']} | | {measured:.0f} | | {rate:.0f} |")
print("\n| predicted bottleneck | cases | median ratio | least | most |\n| --- | ---: | ---: | ---: | ---: |")
for binds, all in sorted(ratios.items()):
    print(f"| {binds} | {len(all)} | {statistics.median(all):.2f} | {min(all):.2f} | {max(all):.2f} |")
