"""The layer of linear_attention.cpp in PyTorch, eager mode: forward, mean square, backward, AdamW.

Causal linear attention in chunks: sums over the keys of each chunk, prefix sums over the chunks,
and masked products within each chunk, batched over all chunks. Peak memory is that of the process
(VmHWM) minus its memory before the first step.
    python linear_attention_torch.py --threads 2 --lengths 1024,4096
"""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
for name, value in dict(d_model=512, heads=8, d_hidden=2048, features=128, batch=1, threads=2,
                        chunk=64).items():
    parser.add_argument("--" + name.replace("_", "-"), type=int, default=value)
parser.add_argument("--lengths", default="1024,2048,4096,8192,16384,32768")
parser.add_argument("--seconds", type=float, default=4)
o = parser.parse_args()
torch.set_num_threads(o.threads)
torch.set_flush_denormal(True)
torch.manual_seed(1)


def orthogonal_rows(rows, d):  # blocks of orthogonal rows, with the norms of Gaussian rows
    blocks = [torch.linalg.qr(torch.randn(d, d))[0] for _ in range(-(-rows // d))]
    return torch.cat(blocks)[:rows] * torch.randn(rows, d).norm(dim=1, keepdim=True)


def causal_linear_attention(q, k, v):  # [B, H, L, F], [B, H, L, F], [B, H, L, D]
    b, h, length, _ = q.shape
    c = min(o.chunk, length)
    q, k, v = (x.reshape(b, h, length // c, c, -1) for x in (q, k, F.pad(v, (0, 1), value=1.0)))
    sums = k.transpose(-1, -2) @ v
    earlier = sums.cumsum(2) - sums
    y = q @ earlier + (q @ k.transpose(-1, -2)).tril() @ v
    y = y[..., :-1] / y[..., -1:]
    return y.reshape(b, h, length, -1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        d = o.d_model
        self.q, self.k, self.v, self.out = (nn.Linear(d, d) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.linear1, self.linear2 = nn.Linear(d, o.d_hidden), nn.Linear(o.d_hidden, d)
        w = orthogonal_rows(o.features // 2, d // o.heads)
        self.register_buffer("w", w)
        self.bound = max(0.0, w.square().sum(1).max().item() / 2 - 60)

    def features(self, x, query):  # hyperbolic
        x = x * x.shape[-1] ** -0.25
        u = x @ self.w.t()
        offset = u.abs().amax(-1, keepdim=True) if query else (
            x.square().sum(-1, keepdim=True) * 0.5 + self.bound)
        offset = offset + math.log(o.features) / 2
        return torch.cat([u - offset, -u - offset], -1).exp()

    def attend(self, x):
        b, l, d = x.shape
        q, k, v = (f(x).view(b, l, o.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = causal_linear_attention(self.features(q, True), self.features(k, False), v)
        return self.out(y.transpose(1, 2).reshape(b, l, d))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.linear2(F.relu(self.linear1(self.norm2(x))))


def process_memory(field):  # bytes
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


layer = Layer()
optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-4)
before = process_memory("VmRSS")


def step(x):
    optimizer.zero_grad(set_to_none=True)
    below = x.detach().requires_grad_()
    layer(below).square().mean().backward()
    optimizer.step()


def print_fit(what, unit, lengths, values):
    x, y = (torch.tensor(v, dtype=torch.float64) for v in (lengths, values))
    slope = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()
    line = y.mean() + slope * (x - x.mean())
    r2 = 1 - (y - line).square().sum() / (y - y.mean()).square().sum()
    print(f"{what}: {y.mean() - slope * x.mean():.2f} + {slope * 1024:.3f} L/1024 {unit}, "
          f"R² {r2:.5f}, largest deviation {100 * (y / line - 1).abs().max():.1f} %")


lengths, times, cpu_times, peaks = [int(n) for n in o.lengths.split(",")], [], [], []
for length in lengths:
    x = torch.randn(o.batch, length, o.d_model)
    step(x)
    wall, cpu, end = [], [], time.perf_counter() + o.seconds
    while len(wall) < 3 or time.perf_counter() < end:
        begin, cpu_begin = time.perf_counter(), time.process_time()
        step(x)
        cpu.append((time.process_time() - cpu_begin) * 1e3)
        wall.append((time.perf_counter() - begin) * 1e3)
    wall.sort()
    times.append(wall[0])
    cpu_times.append(min(cpu))
    peaks.append((process_memory("VmHWM") - before) / 1e6)
    median = wall[len(wall) // 2]
    print(f"pytorch {torch.__version__} L {length:6d}, {torch.get_num_threads()} threads: "
          f"{median:.1f} ms/step (median of {len(wall)}; least {wall[0]:.1f}, CPU time "
          f"{cpu_times[-1]:.1f}), "
          f"{o.batch * length / median * 1e3:.0f} tokens/s, peak memory {peaks[-1]:.1f} MB",
          flush=True)
if len(lengths) > 1:
    print_fit("least time", "ms", lengths, times)
    print_fit("least CPU time", "ms", lengths, cpu_times)
    print_fit("peak memory", "MB", lengths, peaks)
