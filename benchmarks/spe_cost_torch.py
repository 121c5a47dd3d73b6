"""The variants of spe_cost.cpp in PyTorch, eager mode, f32: SPE as its authors compute it.

The codes q̄, k̄ [1, L, H, D, R] are tensors, sampled once for all layers; with gates every layer
makes copies of both. Two details differ, to suit the CPU. The filters are applied by FFT, only to
the noise that affects the codes (on a CPU, conv1d with one group per channel takes minutes for a
short sequence). Attention, with 128 hyperbolic random features, is causal in chunks of 64, in plain
tensor operations; the authors use a custom kernel.

The peak memory is computed, not measured: it is the bytes of the parameters, the state of Adam, and
all storages that operations return in one untimed step, as long as they exist. Buffers inside an
operation and the tensors of other variants are not counted.

Run it in a virtual environment with PyTorch 2.x:
    python spe_cost_torch.py --layers 8 --length 2048 --batch 4 --rounds 5
    python spe_cost_torch.py --layers 24 --meta      # only the memory, of the whole model
"""
import argparse
import math
import statistics
import time
import weakref

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NAMES = ["ape", "sine", "sine-ungated", "conv", "conv-ungated"]
VOCABULARY, WIDTH, HEADS, HIDDEN, DROPOUT, CHUNK = 333, 512, 8, 2048, 0.1, 64
D = WIDTH // HEADS

parser = argparse.ArgumentParser()
for name, value in dict(layers=8, length=2048, batch=4, realizations=64, sines=5, taps=128,
                        rounds=5, threads=2).items():
    parser.add_argument("--" + name, type=int, default=value)
parser.add_argument("--meta", action="store_true", help="count the memory, compute nothing")
parser.add_argument("--ungated-taps", type=int, default=512)
parser.add_argument("--variants", type=lambda text: text.split(","), default=NAMES)
o = parser.parse_args()
if unknown := set(o.variants) - set(NAMES):
    parser.error(f"--variants: {', '.join(sorted(unknown))}; accepted are {', '.join(NAMES)}")
R = o.realizations
torch.set_num_threads(o.threads)
torch.set_flush_denormal(True)
torch.manual_seed(1)
if o.meta:
    torch.set_default_device("meta")


class Sines(nn.Module):
    def __init__(self):
        super().__init__()
        shape = (HEADS, D, o.sines)
        gains = torch.randn(shape)
        self.gains = nn.Parameter(2 * gains / gains.norm(dim=-1, keepdim=True).sqrt())
        self.freqs = nn.Parameter(torch.randn(shape) - 4)
        self.offsets = nn.Parameter(torch.randn(shape))

    def forward(self, length):
        n = torch.arange(length, dtype=torch.float32)[:, None]
        phase = 2 * math.pi * (torch.sigmoid(self.freqs) / 2)[:, :, None] * n  # [H, D, L, K]

        def waves(angle):
            return torch.stack([angle.cos(), angle.sin()], -1).flatten(-2)  # [H, D, L, 2K]

        z = torch.randn(HEADS, D, 2 * o.sines, R) / math.sqrt(2 * o.sines)
        z = z * F.softplus(self.gains).repeat_interleave(2, -1)[..., None]
        scale = (R * D) ** 0.25
        return tuple((waves(angle) @ z).permute(2, 0, 1, 3).contiguous()[None] / scale
                     for angle in (phase + self.offsets[:, :, None], phase))


class Filters(nn.Module):
    def __init__(self, taps):
        super().__init__()
        self.q, self.k = (nn.Parameter(torch.rand(HEADS * D, taps) * math.sqrt(2 / taps))
                          for _ in range(2))

    def forward(self, length):
        n = length + self.q.size(1) - 1
        z = torch.fft.rfft(torch.randn(R, HEADS * D, n))

        def code(filters):
            bar = torch.fft.irfft(z * torch.fft.rfft(filters, n).conj(), n)[..., :length]
            bar = bar.view(1, R, HEADS, D, length).permute(0, 4, 2, 3, 1).contiguous()
            return bar / (R * D) ** 0.25

        return code(self.q), code(self.k)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(HEADS, D))

    def forward(self, codes):
        delta = torch.sigmoid(self.gate)[..., None]
        noise = torch.randn(HEADS, D, R) / (R * D) ** 0.25
        return tuple((1 - delta).sqrt() * bar + delta.sqrt() * noise for bar in codes)


def causal(q, k, v):  # features [B, H, L, F], values [B, H, L, D]
    b, h, length, f = q.shape
    pad = -length % CHUNK
    q, k = (F.pad(x, (0, 0, 0, pad)).view(b, h, -1, CHUNK, f) for x in (q, k))
    v = F.pad(F.pad(v, (0, 1), value=1.0), (0, 0, 0, pad)).view(b, h, -1, CHUNK, v.size(-1) + 1)
    sums = k.transpose(-1, -2) @ v  # of each chunk; next line: of all earlier chunks
    sums = F.pad(sums.cumsum(2)[:, :, :-1], (0, 0, 0, 0, 1, 0))
    y = (q @ k.transpose(-1, -2)).tril() @ v + q @ sums
    y = (y[..., :-1] / (y[..., -1:] + 1e-6)).flatten(2, 3)
    return y[:, :, :length]


def orthogonal_rows(n, width):
    q, r = torch.linalg.qr(torch.randn(width, width))
    directions = (q * r.diagonal().sign()).T[:n]
    return directions * torch.randn(n, width).norm(dim=1, keepdim=True)


class Layer(nn.Module):
    def __init__(self, variant):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.linear1, self.linear2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.drop = nn.Dropout(DROPOUT)
        self.gate = Gate() if variant in ("sine", "conv") else None
        self.width = D if variant == "ape" else R
        blocks = [orthogonal_rows(min(64 - i, self.width), self.width)
                  for i in range(0, 64, self.width)]
        self.register_buffer("omega", torch.cat(blocks))

    def features(self, x):  # [B, H, L, width]
        x = x * self.width ** -0.25
        u = x @ self.omega.T
        offset = x.square().sum(-1, keepdim=True) / 2 + 0.5 * math.log(2 * len(self.omega))
        return torch.cat([u - offset, -u - offset], -1).exp()

    def attend(self, x, codes):
        b, length, _ = x.shape
        q, k, v = (f(x).view(b, length, HEADS, D) for f in (self.q, self.k, self.v))
        if codes is not None:
            if self.gate is not None:
                codes = self.gate(codes)
            q, k = (torch.einsum("blhd,lhdr->blhr", y, bar[0]) for y, bar in zip((q, k), codes))
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        y = causal(self.features(q), self.features(k), v)
        return self.out(y.transpose(1, 2).flatten(2))

    def forward(self, x, codes):
        x = self.norm1(x + self.drop(self.attend(x, codes)))
        return self.norm2(x + self.drop(self.linear2(self.drop(F.relu(self.linear1(x))))))


class Model(nn.Module):
    def __init__(self, variant):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer(variant) for _ in range(o.layers))
        self.out = nn.Linear(WIDTH, VOCABULARY)
        self.drop = nn.Dropout(DROPOUT)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, 0, 0.01)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
            if isinstance(module, nn.LayerNorm):
                nn.init.normal_(module.weight, 1, 0.01)
        self.codes = {"ape": lambda: None, "sine": Sines, "sine-ungated": Sines,
                      "conv": lambda: Filters(o.taps),
                      "conv-ungated": lambda: Filters(o.ungated_taps)}[variant]()
        t = torch.arange(o.length)[:, None] * 10000 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
        self.register_buffer("sinusoids", torch.stack([t.sin(), t.cos()], -1).flatten(1))

    def forward(self, tokens):
        x = self.drop(self.embedding(tokens) * math.sqrt(WIDTH))
        codes = None
        if self.codes is None:
            x = x + self.sinusoids
        else:
            codes = self.codes(tokens.size(1))
        for layer in self.layers:
            x = layer(x, codes)
        return self.out(x)


class Bytes(TorchDispatchMode):
    """Counts the bytes of the storages that operations return, as long as they exist."""

    def __init__(self):
        super().__init__()
        self.known, self.live, self.peak = {}, 0, 0

    def end(self, key):
        self.live -= self.known.pop(key)[1]

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        inputs = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs))
                  if isinstance(x, torch.Tensor)}
        result = function(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if not isinstance(x, torch.Tensor):
                continue
            storage = x.untyped_storage()
            key = storage._cdata
            if key in self.known or key in inputs:
                continue
            self.known[key] = (weakref.finalize(storage, self.end, key), storage.nbytes())
            self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        return result


class Run:
    def __init__(self, variant):
        self.variant = variant
        self.model = Model(variant)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.inputs = torch.randint(VOCABULARY, (o.batch, o.length))
        self.targets = torch.randint(VOCABULARY, (o.batch, o.length))
        self.times = []
        self.train()
        held = 4 * sum(x.numel() for x in self.model.buffers())
        held += 3 * 4 * self.parameters()  # parameters and the two moments of Adam
        with Bytes() as count:
            self.train()
        self.peak = held + count.peak

    def parameters(self):
        return sum(x.numel() for x in self.model.parameters())

    def train(self):
        logits = self.model(self.inputs)
        F.cross_entropy(logits.view(-1, VOCABULARY), self.targets.view(-1)).backward()
        del logits
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def step(self):
        begin = time.perf_counter()
        self.train()
        self.times.append(time.perf_counter() - begin)


runs = [Run(name) for name in NAMES if name in o.variants]
for _ in range(0 if o.meta else o.rounds):
    for run in runs:
        run.step()
print(f"pytorch {torch.__version__}: {o.layers} layers, L = {o.length}, B = {o.batch}, R = {R}, "
      f"{o.sines} sines, {o.taps} taps (ungated: {o.ungated_taps}), f32"
      + ("" if o.meta else f", {o.threads} threads; medians of {o.rounds} rounds") + "\n")
timed = ("", "") if o.meta else (" s/step | ratio |", "---:|---:|")
print("| variant | parameters | peak memory, MB | ratio |" + timed[0])
print("|---|---:|---:|---:|" + timed[1])
for run in runs:
    row = (f"| {run.variant} | {run.parameters()} | {run.peak / 1e6:.1f} | "
           f"{run.peak / runs[0].peak:.2f} |")
    if not o.meta:
        seconds = statistics.median(run.times)
        row += f" {seconds:.3f} | {seconds / statistics.median(runs[0].times):.2f} |"
    print(row)
