"""The measurements of retention.cpp in PyTorch, eager mode: forward and backward.

Retention in the chunked form of Sun et al. 2023, eq. 7: products within a chunk, weighted by the
decays, and a state that passes from chunk to chunk.
    python retention_torch.py --threads 2 --lengths 2048,16384
"""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
for name, value in dict(d_model=512, heads=8, batch=1, threads=2, chunk=64).items():
    parser.add_argument("--" + name.replace("_", "-"), type=int, default=value)
parser.add_argument("--lengths", default="2048,16384")
parser.add_argument("--seconds", type=float, default=4)
o = parser.parse_args()
torch.set_num_threads(o.threads)
torch.set_flush_denormal(True)
torch.manual_seed(1)

log_decay = torch.log1p(-torch.exp2(-5 - torch.arange(o.heads, dtype=torch.float64)))
steps = torch.arange(o.chunk, dtype=torch.float64)
distance = (steps[:, None] - steps).clamp(min=0)
within = (log_decay[:, None, None] * distance).exp().tril().float()  # [H, C, C]
start = (log_decay[:, None] * (steps + 1)).exp().float()[..., None]  # [H, C, 1]
end = (log_decay[:, None] * (o.chunk - 1 - steps)).exp().float()[..., None]
whole = (log_decay * o.chunk).exp().float()[:, None, None]


def retention(q, k, v):  # [B, H, L, D], L a multiple of the chunk
    b, h, length, d = q.shape
    n = length // o.chunk
    q, k, v = (x.reshape(b, h, n, o.chunk, -1) for x in (q * d ** -0.5, k, v))
    sums = (k * end[:, None]).transpose(-1, -2) @ v
    state, states = torch.zeros_like(sums[:, :, 0]), []
    for more in sums.unbind(2):  # an index of each chunk would have a quadratic backward pass
        states.append(state)
        state = state * whole + more
    products = q @ k.transpose(-1, -2) * within[:, None]
    y = products @ v + (q * start[:, None]) @ torch.stack(states, 2)
    return y.reshape(b, h, length, -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        d = o.d_model
        self.q, self.k = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.v, self.gate = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False)
        self.out = nn.Linear(2 * d, d, bias=False)
        self.norm = nn.LayerNorm(2 * d // o.heads, bias=False)
        half = d // o.heads // 2
        self.register_buffer("rates", 10000 ** -(torch.arange(half) / half), persistent=False)

    def rotate(self, x):  # interleaved pairs
        angle = torch.arange(x.shape[2])[:, None] * self.rates
        cos, sin = angle.cos(), angle.sin()
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    def forward(self, x):
        b, l, _ = x.shape
        q, k, v = (f(x).view(b, l, o.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = self.norm(retention(self.rotate(q), self.rotate(k), v).transpose(1, 2))
        return self.out(y.reshape(b, l, -1) * F.silu(self.gate(x)))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        d = o.d_model
        self.attention, self.norm1, self.norm2 = Attention(), nn.LayerNorm(d), nn.LayerNorm(d)
        self.linear1 = nn.Linear(d, 2 * d, bias=False)
        self.linear2 = nn.Linear(2 * d, d, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.linear2(F.gelu(self.linear1(self.norm2(x))))


def measure(what, length, f):
    f()
    times, stop = [], time.perf_counter() + o.seconds
    while len(times) < 3 or time.perf_counter() < stop:
        begin = time.perf_counter()
        f()
        times.append((time.perf_counter() - begin) * 1e3)
    times.sort()
    print(f"pytorch {torch.__version__} {what}, L {length:6d}, {torch.get_num_threads()} threads: "
          f"{times[len(times) // 2]:.1f} ms (median of {len(times)}; least {times[0]:.1f})",
          flush=True)


layer = Layer()
for length in (int(n) for n in o.lengths.split(",")):
    def heads(d):
        return torch.randn(o.batch, length, o.heads, d).transpose(1, 2).requires_grad_()

    d_head = o.d_model // o.heads
    q, k, v, g = heads(d_head), heads(d_head), heads(2 * d_head), heads(2 * d_head).detach()

    def op():
        q.grad = k.grad = v.grad = None
        retention(q, k, v).backward(g)

    measure("retention", length, op)
    x = torch.randn(o.batch, length, o.d_model).requires_grad_()
    for what, f in (("multi-scale retention with projections", layer.attention),
                    ("RetNet layer", layer)):
        def step():
            x.grad = None
            layer.zero_grad(set_to_none=True)
            f(x).square().mean().backward()

        measure(what, length, step)
