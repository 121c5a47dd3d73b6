"""The model of train_step.cpp in PyTorch, eager mode: forward, loss, backward, clipping, AdamW.

The relative term is computed as in the paper, by pad, reshape and slice. The absolute model uses
scaled_dot_product_attention. Run it in a virtual environment with PyTorch 2.x:
    python train_step.py --threads 2 --attention relative
"""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
for name, value in dict(layers=4, d_model=128, heads=4, d_hidden=512, length=512, batch=8,
                        vocabulary=131, threads=2).items():
    parser.add_argument("--" + name.replace("_", "-"), type=int, default=value)
parser.add_argument("--dropout", type=float, default=0.1)
parser.add_argument("--seconds", type=float, default=8)
parser.add_argument("--device", default="cpu")
parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--attention", choices=["relative", "absolute"], default="relative")
o = parser.parse_args()
torch.set_num_threads(o.threads)
torch.set_flush_denormal(True)
torch.manual_seed(1)


def skew(x):  # [B, H, L, L], column c = distance L - 1 - c
    b, h, l, _ = x.shape
    return F.pad(x, (1, 0)).reshape(b, h, l + 1, l)[:, :, 1:]


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        d = o.d_model
        self.q, self.k, self.v, self.out = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.linear1, self.linear2 = nn.Linear(d, o.d_hidden), nn.Linear(o.d_hidden, d)
        size = d // o.heads
        self.table = nn.Parameter(torch.randn(o.heads, o.length, size) / math.sqrt(size))
        self.drop = nn.Dropout(o.dropout)
        self.register_buffer("future", torch.ones(o.length, o.length, dtype=torch.bool).triu(1))

    def attend(self, x):
        b, l, d = x.shape
        q, k, v = (f(x).view(b, l, o.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        if o.attention == "absolute":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-1, -2) + skew(q @ self.table.transpose(-1, -2))
            scores = (scores * (d // o.heads) ** -0.5).masked_fill(self.future, float("-inf"))
            y = torch.softmax(scores, -1) @ v
        return self.out(y.transpose(1, 2).reshape(b, l, d))

    def forward(self, x):
        x = x + self.drop(self.attend(self.norm1(x)))
        return x + self.drop(self.linear2(self.drop(F.relu(self.linear1(self.norm2(x))))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(o.vocabulary, o.d_model)
        self.layers = nn.ModuleList(Layer() for _ in range(o.layers))
        self.norm = nn.LayerNorm(o.d_model)
        self.out = nn.Linear(o.d_model, o.vocabulary, bias=False)
        self.drop = nn.Dropout(o.dropout)
        t = torch.arange(o.length)[:, None] * 10000 ** (-torch.arange(0, o.d_model, 2) / o.d_model)
        self.register_buffer("sinusoids", torch.stack([t.sin(), t.cos()], -1).flatten(1))

    def forward(self, tokens):
        x = self.embedding(tokens) * math.sqrt(o.d_model)
        if o.attention == "absolute":
            x = x + self.sinusoids
        x = self.drop(x)
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norm(x))


dtype = dict(f32=torch.float32, bf16=torch.bfloat16)[o.dtype]
model = Model().to(device=o.device, dtype=dtype)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
inputs, targets = (torch.randint(o.vocabulary, (o.batch, o.length)).to(o.device) for _ in range(2))
forward = torch.compile(model) if o.compile else model


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = F.cross_entropy(forward(inputs).view(-1, o.vocabulary), targets.view(-1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if o.device != "cpu":
        torch.cuda.synchronize()


for _ in range(3):
    step()
times = []
end = time.perf_counter() + o.seconds
while len(times) < 5 or time.perf_counter() < end:
    begin = time.perf_counter()
    step()
    times.append((time.perf_counter() - begin) * 1e3)
times.sort()
median = times[len(times) // 2]
print(f"pytorch {torch.__version__} {o.attention}, {o.device} {o.dtype}{' compiled' if o.compile else ''}, {torch.get_num_threads()} threads: "
      f"{median:.2f} ms/step (median of {len(times)}; least {times[0]:.1f}), "
      f"{o.batch * o.length / median * 1e3:.0f} tokens/s")
