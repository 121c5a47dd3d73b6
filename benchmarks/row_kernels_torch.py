"""Compares the ops of row_kernels.cpp in PyTorch, eager mode, with copies of the same bytes.

Run it in a virtual environment with PyTorch 2.x; the settings with which it is fastest are
    OMP_WAIT_POLICY=passive MALLOC_MMAP_THRESHOLD_=8589934592 MALLOC_TRIM_THRESHOLD_=17179869184 \
        MALLOC_TOP_PAD_=268435456 python row_kernels_torch.py --threads 2
"""
import argparse
import statistics
import time

import torch
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--shapes", default="2048x512,2048x2048,8192x512,8192x2048")
parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
parser.add_argument("--parameters", type=int, default=10_000_000)
parser.add_argument("--only", default="")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--rounds", type=int, default=15)
parser.add_argument("--processor", action="store_true")
o = parser.parse_args()
torch.set_num_threads(o.threads)
torch.set_flush_denormal(True)
torch.manual_seed(1)
dtype = torch.float32 if o.dtype == "f32" else torch.bfloat16
now = time.process_time if o.processor else time.perf_counter


def timed(f, times):
    begin = now()
    for _ in range(times):
        f()
    return (now() - begin) / times


def measure(name, shape, f, copy):
    f(), copy()
    times = max(1, min(1000, int(1e-2 / max(timed(f, 1), 1e-6))))
    op_times, copies = [], []
    for _ in range(o.rounds):
        op_times.append(timed(f, times))
        copies.append(timed(copy, times))
    a, b = statistics.median(op_times), statistics.median(copies)
    print(f"{name:22} {shape:10} {a * 1e3:9.3f} {b * 1e3:9.3f} {b / a:8.2f} "
          f"{min(op_times) * 1e3:9.3f} {min(copies) * 1e3:9.3f} {min(copies) / min(op_times):8.2f}",
          flush=True)


def both(name, shape, f, inputs, reads):
    if o.only not in name:
        return
    x = inputs[0].detach()
    with torch.no_grad():
        measure(name, shape, f, (lambda: x.clone()))
    y = f()
    g = torch.randn_like(y)
    a = {"x": x, "y": y.detach(), "": None}[reads]
    copy = (lambda: torch.add(a, g)) if a is not None and g.dim() else (lambda: x.clone())
    measure(name + " backward", shape,
            lambda: torch.autograd.grad(y, inputs, g, retain_graph=True), copy)


print(f"pytorch {torch.__version__} {o.dtype}, {torch.get_num_threads()} threads, {o.rounds} rounds")
for shape in o.shapes.split(","):
    m, n = map(int, shape.split("x"))
    leaf = lambda *s: torch.randn(*s, dtype=dtype).requires_grad_()
    x, w, b = leaf(m, n), leaf(n), leaf(n)
    ids = torch.randint(n, (m,))
    both("layer_norm", shape, lambda: F.layer_norm(x, (n,), w, b), (x, w, b), "x")
    both("rms_norm", shape, lambda: F.rms_norm(x, (n,), w), (x, w), "x")
    both("gelu", shape, lambda: F.gelu(x), (x,), "x")
    both("gelu_tanh", shape, lambda: F.gelu(x, approximate="tanh"), (x,), "x")
    both("relu", shape, lambda: F.relu(x), (x,), "y")
    both("silu", shape, lambda: F.silu(x), (x,), "x")
    both("exp", shape, lambda: torch.exp(x), (x,), "y")
    both("tanh", shape, lambda: torch.tanh(x), (x,), "y")
    both("sigmoid", shape, lambda: torch.sigmoid(x), (x,), "y")
    both("softmax", shape, lambda: F.softmax(x, -1), (x,), "y")
    both("log_softmax", shape, lambda: F.log_softmax(x, -1), (x,), "y")
    both("cross_entropy", shape, lambda: F.cross_entropy(x, ids), (x,), "x")
    both("dropout", shape, lambda: F.dropout(x, 0.1), (x,), "")

if o.only in "AdamW":
    w = torch.randn(o.parameters, dtype=dtype).requires_grad_()
    w.grad = torch.randn_like(w)
    adam = torch.optim.AdamW([w], lr=1e-3, fused=True)
    adam.step()
    bytes_moved = o.parameters * (28 if o.dtype == "f32" else 14)
    flat = torch.empty(bytes_moved // 2, dtype=torch.uint8)
    measure("AdamW", str(o.parameters), adam.step, lambda: flat.clone())

    def clipped():
        torch.nn.utils.clip_grad_norm_([w], float(o.parameters))
        adam.step()
    measure("clip, AdamW", str(o.parameters), clipped, lambda: flat.clone())
