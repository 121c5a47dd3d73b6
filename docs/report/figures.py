#!/usr/bin/env python3
"""Makes the figures and the numbers of report.md from files of the repository:

    python3 docs/report/figures.py           writes images/*.svg and, in report.md, tables and numbers
    python3 docs/report/figures.py --check   writes nothing; fails if a file is not current

In report.md a table follows a line <!-- table NAME -->, and a number precedes <!--NAME-->. A name without a
number here, or a number here without a use, is an error. Only the standard library is needed.
"""

import csv
import math
import pathlib
import re
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = "benchmarks/results/"
BLUE, ORANGE, GREEN, INK, PALE = "#0072b2", "#d55e00", "#009e73", "#282c34", "#e6e8ec"


# ---------------------------------------------------------------------------------------- reading

def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def tables(path, heading):
    """The tables of a section, each a list of rows, each a list of cells; without heads."""
    section = text(path).split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", section + "\n", re.M):
        found.append([[cell.strip().replace("**", "") for cell in line.strip("|").split("|")]
                      for line in block.splitlines()][2:])
    return found


def row(table, *cells):
    """The only row that begins with `cells`."""
    [found] = [r for r in table if tuple(r[:len(cells)]) == cells]
    return found


def number(cell):
    """The first number of a cell."""
    return float(re.search(r"\d[\d,]*\.?\d*", cell)[0].replace(",", ""))


def stated(path, pattern):
    """What a sentence states: the group of the only match, with one space for each white space."""
    [found] = re.findall(pattern, " ".join(text(path).split()))
    return found


def study(task):
    with open(ROOT / RESULTS / f"position-study/{task}.csv", encoding="utf-8") as file:
        return list(csv.DictReader(file))


TASKS = ("text", "chorales", "piano", "copy")
POSITIONS = ("inkling", "xl", "kerple-power", "shaw", "alibi", "rope", "t5", "learned", "none")
RUNS = {task: study(task) for task in (*TASKS, "reviews")}
CPU = tables(RESULTS + "cpu-2026-11-27-speed.md", "Attention")[0]
AMX = tables(RESULTS + "cpu-2026-11-30-amx.md", "bf16")[0]
NARROW = tables("docs/relative-attention-2026.md", "What it costs")
NARROW_AMX = tables(RESULTS + "cpu-2026-11-30-amx.md", "Inkling's attention")[0]
H200 = tables(RESULTS + "cuda-h200-2026-11-26.md", "Ops beside PyTorch's")[0]
KERNELS = tables(RESULTS + "cuda-h200-2026-11-28.md", "Attention: how a block divides its work")[0]
STEPS = tables(RESULTS + "cuda-h200-2026-11-28.md", "Training steps")[0]
STEPS_BEFORE = tables(RESULTS + "cuda-h200-2026-11-26.md", "Training steps")[0]
MEMORY = tables("docs/results.md", "Memory of relative attention")[0]


def of_seeds(task, position, length):
    """The results of the seeds with softmax: bits per token, in copying the share of right answers in percent."""
    column, factor = ("accuracy", 100) if task == "copy" else ("bits", 1)
    return [factor * float(r[f"{column}_{length}x"]) for r in RUNS[task]
            if (r["position"], r["kernel"]) == (position, "softmax")]


def mean(task, position, length):
    return statistics.mean(of_seeds(task, position, length))


def h200(case, dtype="bf16"):
    """Microseconds: Stretto, and those of PyTorch by name ('' without one)."""
    cells = row(H200, case, f"{dtype} [16, 8, 2048, 64]")
    return number(cells[2]), {name.strip(): float(us) for name, us in re.findall(r"([A-Za-z ]*)([\d.]+)", cells[5])}


# ---------------------------------------------------------------------------------------- drawing

class Picture:
    def __init__(self, width, height, title):
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                      f'height="{height}" font-family="sans-serif">', f"<title>{title}</title>"]

    def text(self, x, y, words, size=12, anchor="start", color=INK, more=""):
        words = str(words).replace("&", "&amp;").replace("<", "&lt;")
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{color}"'
                          f"{more}>{words}</text>")

    def box(self, x, y, width, height, color, more=""):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
                          f'fill="{color}"{more}/>')

    def line(self, x1, y1, x2, y2, color=PALE, more=""):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"{more}/>')

    def dot(self, x, y, color, filled):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" stroke="{color}" stroke-width="1.3" '
                          f'fill="{color if filled else "#ffffff"}"/>')

    def svg(self):
        return "\n".join([*self.parts, "</svg>"]) + "\n"


def shear():
    """How a block of four queries reads its strip of relative logits."""
    rows, keys, cell = 4, 8, 26
    picture = Picture(760, 178, "Strip of relative logits, and the strip of scores that reads it at offsets")
    for left, width, title in ((0, rows + keys - 1, "P = Qp Rᵀ: a column per relative position"),
                               (430, keys, "S: a column per key")):
        picture.text(left + 30, 16, title, 13)
        for i in range(rows):
            picture.text(left + 22, 45 + i * cell, f"i+{i}" if i else "i", 11, "end")
            for c in range(width):
                used = left or rows - 1 - i <= c < rows - 1 - i + keys
                key = c if left else c - (rows - 1 - i)
                color = "#ffffff" if not used else "#cfe5f2" if key % 2 else "#f7ddc8"
                picture.box(left + 30 + c * cell, 28 + i * cell, cell, cell, color, f' stroke="{PALE}"')
                if used:
                    picture.text(left + 30 + (c + 0.5) * cell, 45 + i * cell, f"j{key}", 10, "middle")
    picture.text(375, 84, "→", 24, "middle")
    picture.text(30, 156, "a white cell belongs to no pair of the block", 12)
    picture.text(460, 156, "S[i, j] += P[i, j − i + rows − 1]", 12)
    return picture.svg()


def bars(title, unit, groups, ticks, label_width):
    """Groups (label, [(name, value, color)]) of horizontal bars on a logarithmic axis."""
    height = 44 + sum(8 + 15 * len(g) for _, g in groups) + 22
    picture = Picture(760, height, title)
    low, high, left, width = ticks[0], ticks[-1], label_width, 700 - label_width

    def at(value):
        return left + width * math.log2(value / low) / math.log2(high / low)

    seen = {}
    for _, group in groups:
        for name, _, color in group:
            seen.setdefault(name, color)
    x = left
    for name, color in seen.items():
        picture.box(x, 8, 11, 11, color)
        picture.text(x + 16, 18, name, 12)
        x += 34 + 7 * len(name)
    for tick in ticks:
        picture.line(at(tick), 28, at(tick), height - 22)
        picture.text(at(tick), height - 7, f"{tick:,}", 11, "middle")
    picture.text(758, height - 7, unit, 11, "end")
    y = 34
    for label, group in groups:
        picture.text(left - 8, y + 7.5 * len(group) + 4, label, 12, "end")
        for _, value, color in group:
            picture.box(left, y, at(value) - left, 13, color)
            picture.text(at(value) + 4, y + 11, f"{value:,.0f}", 11)
            y += 15
        y += 8
    return picture.svg()


CPU_CASES = (("plain", "no positions"), ("t5", "T5's bias"), ("bias", "dense bias"),
             ("music", "table (Music Transformer)"), ("xl", "Transformer-XL"), ("shaw", "Shaw, a row per distance"),
             ("shaw-16", "Shaw, distances to 16"), ("shaw-values", "Shaw, keys and values"))


def cpu_figure():
    groups = []
    for kind, label in CPU_CASES:
        cells = row(CPU, f"core {kind} 2048 1 f32")
        groups.append((label, [("Stretto", number(cells[1]), BLUE), ("PyTorch, eager", number(cells[4]), ORANGE)]))
    ticks = (64, 128, 256, 512, 1024, 2048, 4096)
    return bars("Attention on a CPU, f32, forward and backward", "ms", groups, ticks, 180)


def h200_figure():
    names = {"": ("PyTorch, SDPA", "#56b4e9"), "FlexAttention": ("FlexAttention", GREEN),
             "skewed": ("PyTorch, skewed", ORANGE)}
    groups = []
    for case, label in (("attention, plain", "no positions"), ("attention, table", "table")):
        for tail, passes in (("", "forward"), (", forward and backward", "both passes")):
            ours, peers = h200(case + tail)
            groups.append((f"{label}, {passes}", [("Stretto", ours, BLUE)] + [
                (names[peer][0], us, names[peer][1]) for peer, us in sorted(peers.items())]))
    ticks = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
    return bars("Attention on an H200, bf16", "µs", groups, ticks, 180)


def study_figure():
    """A panel per task, a line per position: each seed at L (filled) and at 4 L (empty)."""
    picture = Picture(760, 256, "Position study: every seed at the trained length L and at 4 L")
    for panel, task in enumerate(TASKS):
        left, width = 96 + panel * 168, 138
        low, high = {"text": (2.9, 4.0), "chorales": (0.8, 4.2), "piano": (2.7, 3.8), "copy": (0, 100)}[task]
        unit = "right answers, %" if task == "copy" else "bits per token"
        picture.text(left + width / 2, 16, {"copy": "copying"}.get(task, task), 13, "middle")
        for share in (0, 0.5, 1):
            x = left + share * width
            picture.line(x, 24, x, 222)
            picture.text(x, 236, f"{low + share * (high - low):.{0 if task == 'copy' else 2}f}", 10, "middle")
        picture.text(left + width / 2, 251, unit, 10, "middle")
        for at, position in enumerate(POSITIONS):
            y = 36 + at * 22
            if panel == 0:
                picture.text(left - 10, y + 4, position, 12, "end")
            picture.line(left, y, left + width, y)
            for length, color in ((4, ORANGE), (1, BLUE)):
                for value in of_seeds(task, position, length):
                    assert low <= value <= high, (task, position, value)
                    picture.dot(left + width * (value - low) / (high - low), y, color, length == 1)
    return picture.svg()


PICTURES = {"shear.svg": shear, "cpu.svg": cpu_figure, "h200.svg": h200_figure, "study.svg": study_figure}


# ---------------------------------------------------------------------------------------- tables

def markdown(head, rows):
    return "\n".join("| " + " | ".join(cells) + " |"
                     for cells in [head, ["---"] + ["---:"] * (len(head) - 1), *rows]) + "\n"


def memory_table():
    return markdown(["L", "Shaw's gather", "skew", "logits, both", "fused attention, peak"],
                    [[re.sub(r" \(.*", "", cell) for cell in r] for r in MEMORY])


def h200_table():
    rows = []
    for dtype in ("bf16", "f32"):
        for case, label in (("attention, plain", "no positions"), ("attention, table", "table")):
            for tail, passes in (("", "forward"), (", forward and backward", "both passes")):
                ours, peers = h200(case + tail, dtype)
                plain, _ = h200("attention, plain" + tail, dtype)
                fused = peers.get("") or peers.get("FlexAttention")
                skewed = peers.get("skewed")
                rows.append([f"{label}, {passes}, {dtype}", f"{ours:,.0f}", f"{ours / plain:.2f}",
                             f"{fused:,.0f}" if fused else "–", f"{skewed:,.0f}" if skewed else "–",
                             f"{min(us for us in (fused, skewed) if us) / ours:.2f}"])
    return markdown(["case", "Stretto, µs", "over plain", "SDPA, FlexAttention", "skewed", "best over Stretto"], rows)


def narrow_table():
    first = {r[0]: r for r in NARROW[0]}
    plain, narrow = first["without positions"], first["with Inkling's term, P = 16, 1,024 distances"]
    eager = first["the same in PyTorch 2.15, in the eager form of transformers"]
    rows = []
    for at, dtype in ((1, "f32"), (2, "bf16")):
        a, b, c = number(plain[at]), number(narrow[at]), number(eager[at])
        rows.append([f"AVX-512 with bf16, {dtype}", f"{a:.0f}", f"{b:.0f}", f"{b / a:.2f}", f"{c:.0f}", f"{c / b:.1f}"])
    for dtype in ("f32", "bf16"):
        _, a, b, _, c, _ = row(NARROW_AMX, dtype)
        a, b, c = number(a), number(b), number(c)
        rows.append([f"with AMX, {dtype}", f"{a:.0f}", f"{b:.0f}", f"{b / a:.2f}", f"{c:.0f}", f"{c / b:.1f}"])
    return markdown(["Xeon", "no positions, ms", "narrow queries", "over plain", "eager PyTorch", "over Stretto"], rows)


def study_table():
    best = {}
    for task in TASKS:
        positions = {r["position"] for r in RUNS[task] if r["kernel"] == "softmax"}
        for length in (1, 4):
            means = [mean(task, position, length) for position in positions]
            best[task, length] = max(means) if task == "copy" else min(means)
    rows = []
    for position in POSITIONS:
        cells = []
        for task in TASKS:
            for length in (1, 4):
                digits = 1 if task == "copy" else 2 if task == "piano" else 3
                value = f"{mean(task, position, length):.{digits}f}"
                spread = f"{statistics.stdev(of_seeds(task, position, length)):.{digits}f}"
                if mean(task, position, length) == best[task, length]:
                    value = f"**{value}**"
                cells.append(f"{value} ({spread})")
        rows.append([position, *cells])
    return markdown(["", *(f"{t}, {n}" for t in TASKS for n in ("L", "4\u00a0L"))], rows)


TABLES = {"memory": memory_table, "h200": h200_table, "narrow": narrow_table, "study": study_table}


# ---------------------------------------------------------------------------------------- numbers

def numbers():
    cpu = {kind: (number((c := row(CPU, f"core {kind} 2048 1 f32"))[1]), number(c[4])) for kind, _ in CPU_CASES}
    amx = {kind: number(row(AMX, f"core {kind} 2048 1")[1]) for kind in ("plain", "music")}
    flex, both = h200("attention, table"), h200("attention, table, forward and backward")
    plain, plain_both = h200("attention, plain"), h200("attention, plain, forward and backward")
    kernel = {r[0]: number(r[2]) for r in KERNELS}
    backward = {p: kernel[f"queries, {p}"] + kernel[f"keys, {p}"] for p in ("plain", "table")}
    backward["table"] += kernel["table"]
    ratios = [peer / ours for ours, peer in cpu.values()]
    longest = stated("docs/results.md", r"at L = ([\d,]+) it is ([\d.]+) MB. These are ([\d,]+) bytes per position")
    relative, sinusoids = (r[1:4] for r in STEPS)
    [settings] = {tuple(r[c] for c in ("layers", "d_model", "heads")) for runs in RUNS.values() for r in runs}
    lengths = {task: {r["length"] for r in runs} for task, runs in RUNS.items()}
    steps = sorted({int(r["steps"]) for runs in RUNS.values() for r in runs})
    amx_page, narrow_page = RESULTS + "cpu-2026-11-30-amx.md", "docs/relative-attention-2026.md"
    pair = {n: [float(r[f"bits_{n}x"]) for r in RUNS["text"] if (r["position"], r["kernel"]) == ("rope", "retention")]
            for n in (1, 4)}
    spread = max(statistics.stdev(of_seeds("piano", "inkling", n)) for n in (1, 4))
    return {
        "runs": str(sum(map(len, RUNS.values()))),
        "seeds": str(len({r["seed"] for r in RUNS["text"]})),
        "positions": str(len({r["position"] for r in RUNS["text"]})),
        "repeated": stated(RESULTS + "position-study/README.md", r"the same results to the last digit \((\d+) runs"),
        "layers": settings[0], "d_model": settings[1], "heads": settings[2],
        "length": "".join(lengths["text"] | lengths["chorales"] | lengths["piano"] | lengths["reviews"]),
        "copy_length": "".join(lengths["copy"]), "least_steps": f"{steps[0]:,}", "most_steps": f"{steps[-1]:,}",
        "reviews_least": stated("docs/positions.md", r"128 bytes of a review: (\d+) to \d+ %"),
        "reviews_most": stated("docs/positions.md", r"128 bytes of a review: \d+ to (\d+) %"),
        "tolerance": stated("docs/determinism.md", r"a cache and one full pass \| (\S+) in f64"),
        "scatter": stated(RESULTS + "cpu-2026-11-27-speed.md", r"Single cells scatter by (\d+) %"),
        "width_bf16": stated("docs/gpu.md", r"divisible by 8, ≤ (\d+) \(bf16\)"),
        "width_f32": stated("docs/gpu.md", r"\(bf16\) or ≤ (\d+) \(f32, from 256 keys\)"),
        "shared_kb": stated("docs/gpu.md", r"less than (\d+) KB of shared memory"),
        "products_share": stated(amx_page, r"(\d+) % of its time is in matrix products"),
        "products_speed": stated(amx_page, r"at (\d+) GFLOP/s where large f32"),
        "products_large": stated(amx_page, r"where large f32 products reach (\d+)\."),
        "longest": longest[0], "longest_mb": longest[1], "bytes_per_position": longest[2],
        "memory_gather": re.sub(r" .*", "", row(MEMORY, "2,048")[1]), "memory_fused": row(MEMORY, "2,048")[4],
        "cpu_least": f"{min(ratios):.1f}", "cpu_most": f"{max(ratios):.0f}",
        "cpu_music": f"{cpu['music'][1] / cpu['music'][0]:.1f}",
        "cpu_music_cost": f"{cpu['music'][0] / cpu['plain'][0]:.2f}",
        "amx_music_cost": f"{amx['music'] / amx['plain']:.2f}",
        "cpu_shaw_16_cost": f"{cpu['shaw-16'][0] / cpu['plain'][0]:.2f}",
        "flex_forward": f"{flex[1]['FlexAttention'] / flex[0]:.1f}",
        "flex_both": f"{both[1]['FlexAttention'] / both[0]:.1f}",
        "sdpa_forward": f"{plain[0] / plain[1]['']:.2f}", "sdpa_both": f"{plain_both[0] / plain_both[1]['']:.2f}",
        "kernel_forward": f"{kernel['forward, table'] / kernel['forward, plain']:.2f}",
        "kernel_backward": f"{backward['table'] / backward['plain']:.2f}",
        "kernel_queries": f"{kernel['queries, table'] / kernel['queries, plain']:.2f}",
        "kernel_keys": f"{kernel['keys, table'] / kernel['keys, plain']:.2f}",
        "kernel_table_us": f"{kernel['table']:.0f}",
        "kernel_table_share": f"{100 * kernel['table'] / (backward['table'] + kernel['forward, table']):.0f}",
        "step_music": relative[2], "step_plain": sinusoids[2],
        "step_music_torch": STEPS_BEFORE[0][4], "step_plain_torch": re.sub(r" .*", "", STEPS_BEFORE[1][4]),
        "steps_tested": stated(RESULTS + "cuda-h200-2026-11-28.md", r"all (\d+) steps passed or skipped"),
        "narrow_interpreter": stated(narrow_page, r"need ([\d.]+ to [\d.]+) times the matrix instructions"),
        "narrow_sum": stated(narrow_page, r"the sum is ([\d.]+) times as many"),
        "wide_sum": stated(narrow_page, r"times as many, and ([\d.]+) times with P = 128"),
        **{f"{t}_{p}_{n}".replace("-", "_"): f"{mean(t, p, n):.{1 if t == 'copy' else 3}f}" for t, p, n in (
            ("text", "rope", 1), ("text", "rope", 4), ("text", "inkling", 1), ("text", "inkling", 4),
            ("text", "xl", 1), ("text", "xl", 4), ("chorales", "inkling", 1), ("chorales", "rope", 4),
            ("copy", "xl", 4), ("copy", "shaw", 4), ("copy", "kerple-power", 4), ("copy", "inkling", 4))},
        **{f"text_retention_rope_{n}": f"{statistics.mean(pair[n]):.3f}" for n in (1, 4)},
        "text_best_1": f"{min(mean('text', p, 1) for p in {r['position'] for r in RUNS['text']}):.3f}",
        "piano_inkling_spread": f"{spread:.2f}",
        **{f"longer_{r['position']}".replace("-", "_"): f"{float(r['bits_1x']):.3f}" for r in study("longer/text")
           if r["position"] in ("t5", "alibi", "rope", "kerple-power")},
    }


def current_report(report):
    values, used = numbers(), set()

    def value(match):
        used.add(match[2])
        return f"{values[match[2]]}<!--{match[2]}-->"

    def table(match):
        used.add("table " + match[1])
        return f"<!-- table {match[1]} -->\n\n{TABLES[match[1]]()}\n"

    report = re.sub(r"(\d[\d.,]*(?:e-\d+)?(?:\s+to\s+[\d.]+)?|\?)<!--(\w+)-->", value, report)
    report = re.sub(r"<!-- table (\w+) -->\n+(?:\|.*\n)*\n*", table, report)
    used |= set(re.findall(r"\]\(images/([\w.]+)\)", report))
    if idle := {*values, *(f"table {name}" for name in TABLES), *PICTURES} - used:
        sys.exit(f"report.md does not use: {', '.join(sorted(idle))}")
    return report


def main():
    files = {HERE / "images" / name: draw() for name, draw in PICTURES.items()}
    files[HERE / "report.md"] = current_report((HERE / "report.md").read_text(encoding="utf-8"))
    stale = [path for path in files if not path.exists() or path.read_text(encoding="utf-8") != files[path]]
    if sys.argv[1:] == ["--check"]:
        if stale:
            sys.exit("Not current; run python3 docs/report/figures.py: " + ", ".join(path.name for path in stale))
        return
    for path in stale:
        path.write_text(files[path], encoding="utf-8")
        print(path.relative_to(ROOT))


main()
