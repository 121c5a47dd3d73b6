"""Compares training and decoding on this CPU with PyTorch and OpenBLAS: a table in Markdown.

    python benchmarks/cpu_speed.py [--build build/release] [--threads 2] [--rows products,layers]

Run it in a virtual environment with PyTorch 2.x and NumPy; it starts `cpu_speed` of the build.
Each case runs a few rounds that alternate between the libraries; a cell is the median of the
rounds' medians. "before" is that of the build given by --before; "ratio" the time of the fastest
peer divided by Stretto's. Errors are relative to f64 with the same rounded inputs: the largest of
the result and the gradients. "of ceiling", measured with the same number of threads in the same
rounds: the speed relative to that of fused multiply-adds of f32, or of AVX-512's dot products of
bf16, in registers (blank with AMX); for decoding, the time to read once the bytes that a token
needs, divided by Stretto's time. work() says which operations are counted.
"""
import argparse
import ctypes
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

# PyTorch is fastest next to other programs with these: no spinning, freed memory is reused.
BEST = dict(OMP_WAIT_POLICY="passive", MALLOC_MMAP_THRESHOLD_="8589934592",
            MALLOC_TRIM_THRESHOLD_="17179869184", MALLOC_TOP_PAD_="268435456")
if any(os.environ.get(name) != value for name, value in BEST.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | BEST)

import torch
import torch.nn as nn
import torch.nn.functional as F

root = Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser()
parser.add_argument("--build", type=Path, default=root / "build/release")
parser.add_argument("--before", type=Path, help="an earlier build, timed in the same rounds")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--seconds", type=float, default=0.2, help="time per case, round and library; at least one run")
parser.add_argument("--rows", default="", help="comma-separated parts of case names (default: all)")
parser.add_argument("--eager", action="store_true", help="compare layers and gpt steps without torch.compile")
o = parser.parse_args()
torch.set_num_threads(o.threads)
torch.set_flush_denormal(True)
torch.manual_seed(1)

PACKED = 8  # documents of equal length in a packed sequence
FORMS = [(m, n, k, form, 1) for form in ("NN", "NT", "TN")
         for m, n, k in ((1024, 512, 512), (1024, 2048, 512), (1024, 512, 2048), (1024, 2048, 2048))]
FORMS += [(4096, n, k, form, 1) for form in ("NT", "NN") for n, k in ((128, 128), (512, 128), (128, 512))]
FORMS += [(128, 128, 4096, "TN", 1), (512, 128, 4096, "TN", 1), (64, 512, 32, "NT", 64), (64, 512, 64, "NT", 64),
          (64, 64, 512, "NN", 64), (64, 32, 512, "NN", 64), (512, 64, 64, "TN", 64), (128, 128, 128, "NN", 64),
          *((m, n, k, "NT", 1) for m in (1, 2, 4, 8, 16) for n, k in ((512, 512), (2048, 512), (512, 2048)))]
CASES = [f"product {form} {m} {n} {k} {batch} {t}" for t in ("f32", "bf16") for m, n, k, form, batch in FORMS]
CASES += [f"core {kind} {L} {B} {t}" for t in ("f32", "bf16") for L, B in ((512, 4), (2048, 1))
          for kind in ("plain", "packed", "music", "xl", "shaw", "shaw-values", "shaw-16", "t5", "bias")
          if t == "f32" or kind in ("plain", "packed", "music", "shaw-16", "bias")]
CASES += [f"core {kind} 2048 1 {t}" for t in ("f32", "bf16") for kind in ("plain-128", "inkling")]
CASES += [f"layer {kind} 512 4 {t}" for t in ("f32", "bf16") for kind in ("plain", "relative")]
CASES += [f"layer {kind} 2048 2 {t}" for t in ("f32", "bf16") for kind in ("linear", "performer")]
CASES += [f"{kind} {L} 1 f32" for L in (2048, 16384) for kind in ("retention", "layer retnet")]
CASES += [f"gpt {name} f32" for name in ("nano", "char", "music")]
CASES += [f"conv {L} f32" for L in (1024, 2048, 4096)]
CASES += [f"decode music {kind} {t}" for kind in ("plain", "relative") for t in ("f32", "bf16")]


SIZES = {"plain-128": 128, "inkling": 128}  # head dimensions; others 64


def work(case):  # counted operations of a run in GFLOP; 0 if only the time matters
    """Products with weights, and those of attention with every key that a query sees: scores, sums
    of values, the scores again in the backward pass, and one for each gradient. Linear attention: the
    recurrent form's two products of features and values forward, five backward."""
    w = case.split()
    if w[0] == "product":
        return 2e-9 * math.prod(map(int, w[2:6]))

    def softmax(kind, L, B, heads, size):
        products = {"plain": 7, "packed": 7 / PACKED, "t5": 7, "bias": 7, "shaw-16": 7, "shaw-values": 13}.get(kind, 10)
        if kind == "inkling":  # the table has 1,024 distances of 16 features
            seen = L**2 - max(L - 1024, 0)**2
            return 1e-9 * B * heads * (7 * L**2 * size + 4 * seen * 16)
        return products * 1e-9 * B * heads * L**2 * size

    def linear(kind, tokens, heads, size):
        features = 128 if kind == "performer" else size
        values = 2 * size if kind in ("retention", "retnet") else size
        projections = 8 * size * features if kind == "performer" else 0
        return 1e-9 * tokens * heads * (14 * features * values + projections)

    if w[0] == "core":
        return softmax(w[1].split("-128")[0], int(w[2]), int(w[3]), 8, SIZES.get(w[1], 64))
    if w[0] == "retention":
        return linear("retention", int(w[1]) * int(w[2]), 8, 64)
    if w[0] == "layer":
        kind, L, B = w[1], int(w[2]), int(w[3])
        core = softmax(kind, L, B, 8, 64) if kind in ("plain", "relative") else linear(kind, L * B, 8, 64)
        return 72e-9 * L * B * 512**2 + core
    if w[0] == "gpt":
        layers, heads, d, L, B, vocabulary = PRESETS[w[1]]
        return 6e-9 * L * B * d * (12 * layers * d + vocabulary) + layers * softmax("plain", L, B, heads, d // heads)
    return 0


# ---- peers: each returns (run, results or None), with the results of cpu_speed.cpp


def inputs_of(dtype, exact):
    generator = torch.Generator().manual_seed(7)

    def make(*shape, scale=1.0, grad=False):
        x = (torch.randn(*shape, generator=generator) * scale).to(dtype)
        return (x.double() if exact else x).requires_grad_(grad)

    return make


def trained(f, g, leaves):
    def run():
        for x in leaves:
            x.grad = None
        y = f()
        y.backward(g)
        return y

    return run, lambda: [run().detach()] + [x.grad for x in leaves]


def product(w, make, dtype):
    form, (m, n, k, batch) = w[1], map(int, w[2:6])

    def operand(transposed, rows, columns):
        shape = (columns, rows) if transposed else (rows, columns)
        x = make(*((batch,) if batch > 1 else ()), *shape)
        return x.transpose(-1, -2) if transposed else x

    a, b = operand(form[0] == "T", m, k), operand(form[1] == "T", k, n)
    return (lambda: a @ b), (lambda: [a @ b])


def skew(x):  # [B, H, L, L], column c = distance L - 1 - c
    b, h, l, _ = x.shape
    return F.pad(x, (1, 0)).reshape(b, h, l + 1, l)[:, :, 1:]


def core(w, make, dtype):
    kind, L, B, H, D = w[1], int(w[2]), int(w[3]), 8, SIZES.get(w[1], 64)
    q, k, v = (make(B, H, L, D, grad=True) for _ in range(3))
    g = make(B, H, L, D)
    leaves = [q, k, v]
    if kind in ("plain", "plain-128"):
        return trained(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), g, leaves)
    future = torch.ones(L, L, dtype=torch.bool).triu(1)
    if kind == "packed":
        document = torch.arange(L) // (L // PACKED)
        seen = (document[:, None] == document) & ~future
        return trained(lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=seen), g, leaves)
    distance = (torch.arange(L)[:, None] - torch.arange(L)).clamp(min=0)

    def attend(scores):
        return torch.softmax(scores.masked_fill(future, float("-inf")), -1) @ v

    if kind.startswith("shaw"):
        if kind == "shaw-16":
            distance = distance.clamp(max=16)
        tables = [make(17 if kind == "shaw-16" else L, D, scale=0.1, grad=True)  # row: distance
                  for _ in range(1 if kind == "shaw" else 2)]

        def f():
            scores = (q @ k.mT + torch.einsum("bhid,ijd->bhij", q, tables[0][distance])) * D**-0.5
            weights = torch.softmax(scores.masked_fill(future, float("-inf")), -1)
            return weights @ v + sum(torch.einsum("bhij,ijd->bhid", weights, t[distance]) for t in tables[1:])

        return trained(f, g, leaves + tables)
    if kind == "inkling":  # the eager form of Hugging Face's transformers
        p, table = make(B, H, L, 16, grad=True), make(1, 1024, 16, scale=0.1, grad=True)
        index = distance.clamp(max=1023).expand(B, H, L, L)

        def f():
            terms = (p @ table[0].flip(0).mT * D**-0.5).gather(-1, index).masked_fill(distance >= 1024, 0)
            scores = (q @ k.mT * D**-0.5 + terms).masked_fill(future, float("-inf"))
            return torch.softmax(scores, -1, dtype=torch.float32).to(v.dtype) @ v

        return trained(f, g, leaves + [p, table])
    if kind == "bias":
        bias = make(H, L, L, scale=0.1, grad=True)
        return trained(lambda: attend(q @ k.mT * D**-0.5 + bias), g, leaves + [bias])
    if kind == "t5":
        table = make(L, H, scale=0.1, grad=True)
        return trained(lambda: attend(q @ k.mT * D**-0.5 + table[distance].permute(2, 0, 1)), g, leaves + [table])
    table = make(H, L, D, scale=0.1, grad=True)
    if kind == "music":
        return trained(lambda: attend((q @ k.mT + skew(q @ table.mT)) * D**-0.5), g, leaves + [table])
    u, r = (make(H, 1, D, scale=0.1, grad=True) for _ in range(2))
    f = lambda: attend(((q + u) @ k.mT + skew((q + r) @ table.mT)) * D**-0.5)
    return trained(f, g, leaves + [table, u, r])


def conv(w, make, dtype):
    L = int(w[1])
    x, filters, g = make(512, L, grad=True), make(512, L, grad=True), make(512, L)
    f = lambda: torch.fft.irfft(torch.fft.rfft(x, n=2 * L) * torch.fft.rfft(filters, n=2 * L), n=2 * L)[:, :L]
    return trained(f, g, [x, filters])


CHUNK = 64  # steps that the chunked forms of linear attention compute at once


def retained(q, k, v):  # Sun et al. 2023, eq. 7: products within a chunk, a state from chunk to chunk
    b, h, length, d = q.shape
    log_decay = torch.log1p(-torch.exp2(-5 - torch.arange(h, dtype=torch.float64)))
    steps = torch.arange(CHUNK, dtype=torch.float64)
    within = (log_decay[:, None, None] * (steps[:, None] - steps).clamp(min=0)).exp().tril().to(q.dtype)
    start = (log_decay[:, None] * (steps + 1)).exp().to(q.dtype)[..., None]
    end = (log_decay[:, None] * (CHUNK - 1 - steps)).exp().to(q.dtype)[..., None]
    whole = (log_decay * CHUNK).exp().to(q.dtype)[:, None, None]
    q, k, v = (x.reshape(b, h, length // CHUNK, CHUNK, -1) for x in (q * d**-0.5, k, v))
    sums = (k * end[:, None]).mT @ v
    state, states = torch.zeros_like(sums[:, :, 0]), []
    for more in sums.unbind(2):  # an index of each chunk would have a quadratic backward pass
        states.append(state)
        state = state * whole + more
    y = (q @ k.mT * within[:, None]) @ v + (q * start[:, None]) @ torch.stack(states, 2)
    return y.reshape(b, h, length, -1)


def retention(w, make, dtype):
    L, B, H, D = int(w[1]), int(w[2]), 8, 64
    q, k, v = make(B, H, L, D, grad=True), make(B, H, L, D, grad=True), make(B, H, L, 2 * D, grad=True)
    return trained(lambda: retained(q, k, v), make(B, H, L, 2 * D), [q, k, v])


class RetNetLayer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2, self.norm = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(2 * d // heads, bias=False)
        self.q, self.k = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.v, self.gate, self.linear1 = (nn.Linear(d, 2 * d, bias=False) for _ in range(3))
        self.out, self.linear2 = nn.Linear(2 * d, d, bias=False), nn.Linear(2 * d, d, bias=False)
        half = d // heads // 2
        self.register_buffer("rates", 10000 ** -(torch.arange(half) / half))

    def rotate(self, x):  # interleaved pairs
        angle = torch.arange(x.shape[2])[:, None] * self.rates
        cos, sin = angle.cos(), angle.sin()
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    def forward(self, x):
        y = self.norm1(x)
        q, k, v = (f(y).view(*y.shape[:2], self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        of_heads = self.norm(retained(self.rotate(q), self.rotate(k), v).transpose(1, 2))
        x = x + self.out(of_heads.flatten(2) * F.silu(self.gate(y)))
        return x + self.linear2(F.gelu(self.linear1(self.norm2(x))))


class Layer(nn.Module):
    def __init__(self, kind, L, d, heads):
        super().__init__()
        self.kind, self.heads = kind, heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.linear1, self.linear2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        size = d // heads
        if kind == "relative":
            self.table = nn.Parameter(torch.randn(heads, L, size) / math.sqrt(size))
            self.register_buffer("future", torch.ones(L, L, dtype=torch.bool).triu(1))
        if kind == "performer":
            self.register_buffer("w", torch.randn(128, size))

    def attend(self, q, k, v):
        size = q.shape[-1]
        if self.kind == "plain":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        if self.kind == "relative":
            scores = (q @ k.mT + skew(q @ self.table.to(q.dtype).mT)) * size**-0.5
            return torch.softmax(scores.masked_fill(self.future, float("-inf")), -1) @ v
        if self.kind == "linear":
            q, k = F.elu(q) + 1, F.elu(k) + 1
        else:
            def features(x):
                x = x * size**-0.25
                u = x @ self.w.t()
                return torch.exp(u - (x * x).sum(-1, keepdim=True) / 2 - u.amax((-1, -2), keepdim=True).detach()) + 1e-4
            q, k = features(q), features(k)
        b, h, length, _ = q.shape
        q, k, v = (x.reshape(b, h, length // CHUNK, CHUNK, -1) for x in (q, k, F.pad(v, (0, 1), value=1.0)))
        sums = k.mT @ v
        y = q @ (sums.cumsum(2) - sums) + (q @ k.mT).tril() @ v
        return (y[..., :-1] / y[..., -1:]).reshape(b, h, length, -1)

    def forward(self, x):
        b, l, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, l, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).reshape(b, l, d))
        return x + self.linear2(F.gelu(self.linear1(self.norm2(x))))

    def step(self, x, cache):  # one token, or the prompt
        q, k, v = self.qkv(self.norm1(x)).view(1, -1, 3, self.heads, x.shape[-1] // self.heads).permute(2, 0, 3, 1, 4)
        at = cache[2]
        cache[0][:, :, at:at + k.shape[2]], cache[1][:, :, at:at + v.shape[2]] = k, v
        cache[2] = at + k.shape[2]
        k, v = cache[0][:, :, :cache[2]], cache[1][:, :, :cache[2]]
        if self.kind == "plain":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=at == 0)
        else:
            table = q @ self.table[:, -cache[2]:].mT
            scores = q @ k.mT + (skew(table) if at == 0 else table)
            if at == 0:
                scores = scores.masked_fill(self.future[:at + q.shape[2], :cache[2]], float("-inf"))
            y = torch.softmax(scores * q.shape[-1]**-0.5, -1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.linear2(F.gelu(self.linear1(self.norm2(x))))


def layer(w, make, dtype, compiled=False):
    kind, L, B = w[1], int(w[2]), int(w[3])
    model = RetNetLayer(512, 8) if kind == "retnet" else Layer(kind, L, 512, 8)
    called = torch.compile(model) if compiled else model
    x, g = torch.randn(B, L, 512, requires_grad=True), torch.randn(B, L, 512)

    def run():
        model.zero_grad(set_to_none=True)
        x.grad = None
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            y = called(x)
        y.backward(g.to(y.dtype))

    return run, None


PRESETS = dict(nano=(4, 4, 128, 64, 12, 65), char=(6, 6, 384, 256, 8, 65), music=(6, 8, 512, 512, 2, 400))


class Gpt(nn.Module):
    def __init__(self, layers, heads, d, length, batch, vocabulary, kind="plain"):
        super().__init__()
        self.kind = kind
        self.tokens, self.places = nn.Embedding(vocabulary, d), nn.Embedding(length, d)
        self.layers = nn.ModuleList(Layer(kind, length, d, heads) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, vocabulary, bias=False)

    def forward(self, x):
        x = self.tokens(x) + self.places.weight
        for one in self.layers:
            x = one(x)
        return self.out(self.norm(x))

    def step(self, tokens, caches):
        at = caches[0][2]
        x = self.tokens(tokens)
        if self.kind == "plain":
            x = x + self.places.weight[at:at + tokens.shape[1]]
        for one, cache in zip(self.layers, caches):
            x = one.step(x, cache)
        return self.out(self.norm(x))


def gpt(w, make, dtype, compiled=False):
    preset = PRESETS[w[1]]
    _, _, _, length, batch, vocabulary = preset
    model = Gpt(*preset)
    called = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = (torch.randint(vocabulary, (batch, length)) for _ in range(2))

    def run():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(called(x).view(-1, vocabulary), y.view(-1)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return run, None


def decode(w, make, dtype):
    preset = PRESETS[w[1]]
    layers, heads, d, length, _, vocabulary = preset
    model = Gpt(*preset, kind=w[2]).to(dtype)
    prompt = torch.randint(vocabulary, (1, length - 64))

    caches = []

    @torch.inference_mode()
    def prepare():
        caches[:] = [[torch.empty(1, heads, length, d // heads, dtype=dtype) for _ in range(2)] + [0]
                     for _ in range(layers)]
        model.step(prompt, caches)

    @torch.inference_mode()
    def run():
        for i in range(32):
            model.step(torch.tensor([[i]]), caches)

    run.prepare = prepare
    return run, None


KINDS = dict(product=product, core=core, retention=retention, conv=conv, layer=layer, gpt=gpt, decode=decode)


def openblas():  # the system's library, with the same number of threads
    for name in "libopenblas.so.0", "libopenblas.so":
        try:
            library = ctypes.CDLL(name)
            library.openblas_set_num_threads(o.threads)
            return library
        except OSError:
            pass
    return None


blas = openblas()


def blas_product(w):
    form, (m, n, k, batch) = w[1], map(int, w[2:6])
    a, b, c = (torch.randn(batch, rows * columns) for rows, columns in ((m, k), (k, n), (m, n)))
    pointer = lambda x: ctypes.c_void_p(x.data_ptr())
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    transposed = [112 if letter == "T" else 111 for letter in form]  # CblasTrans, CblasNoTrans

    def run():
        for i in range(batch):
            blas.cblas_sgemm(101, *transposed, m, n, k, one, pointer(a[i]), m if form[0] == "T" else k, pointer(b[i]),
                             k if form[1] == "T" else n, zero, pointer(c[i]), n)

    return run


def timed(run, seconds):
    prepare = getattr(run, "prepare", lambda: None)
    times = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        prepare()
        begin = time.perf_counter()
        run()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def error(case, dtype):
    w = case.split()
    y, exact = (KINDS[w[0]](w, inputs_of(dtype, e), dtype)[1]() for e in (False, True))
    off = lambda a, b: ((a.double() - b).square().sum() / b.square().sum()).sqrt().item()
    return max(off(a, b) for a, b in zip(y, exact))


def peers_of(case):
    w = case.split()
    dtype = torch.bfloat16 if w[-1] == "bf16" else torch.float32
    run, results = KINDS[w[0]](w, inputs_of(dtype, False), dtype)
    peers = {"PyTorch": run}
    if w[0] == "product" and dtype == torch.float32 and blas:
        peers["OpenBLAS"] = blas_product(w)
    if w[0] in ("gpt", "layer") and w[1] != "retnet" and not o.eager:  # retnet: compiling unrolls all chunks
        peers["compiled"] = KINDS[w[0]](w, None, dtype, compiled=True)[0]
    return peers, error(case, dtype) if results else math.nan


def main():
    program = o.build / "benchmarks/cpu_speed"
    about = subprocess.run([program, "--about"], capture_output=True, text=True, check=True).stdout.strip()
    start = lambda path: subprocess.Popen([path, "--threads", str(o.threads)], stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, text=True)
    main_program, floor = start(program), start(program)
    before = o.before and start(o.before / "benchmarks/cpu_speed")

    def ask(seconds, case, program=main_program):
        program.stdin.write(f"{seconds} {case}\n")
        program.stdin.flush()
        answer = program.stdout.readline().split()
        return float(answer[0]), float(answer[2])

    processor = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    print(f"{processor}, {o.threads} threads; products with {about}; PyTorch {torch.__version__}"
          + (", OpenBLAS with the same number of threads" if blas else "") + f"; {time.strftime('%Y-%m-%d', time.gmtime())}\n")
    print(f"| case |{' before |' if before else ''} ms | GFLOP/s | error | best peer | ms | its error | ratio | of ceiling |")
    print(f"| --- |{' ---: |' if before else ''} ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: |", flush=True)
    for case in CASES:
        if o.rows and not any(part in case for part in o.rows.split(",")):
            continue
        peers, peer_error = peers_of(case)
        for run in list(peers.values()) * 2:
            timed(run, 0)
        own_times, earlier, floors, peaks, peer_times = [], [], [], [], {name: [] for name in peers}
        for _ in range(o.rounds):
            if before:
                earlier.append(ask(o.seconds, case, before)[0])
            ms, off = ask(o.seconds, case)
            own_times.append(ms)
            if case.startswith("decode"):
                floors.append(ask(o.seconds, case.replace("decode", "floor"), floor)[0])
            if work(case):
                dtype = case.split()[-1]
                ms = ask(0.02, f"peak {dtype}", floor)[0]
                if ms > 1e-2:
                    peaks.append({"f32": 0.0256, "bf16": 0.0512}[dtype] * o.threads / ms * 1e3)
            for name, run in peers.items():
                peer_times[name].append(timed(run, o.seconds))
        ms = statistics.median(own_times)
        name, peer = min(((n, statistics.median(t)) for n, t in peer_times.items()), key=lambda pair: pair[1])
        speed, shown = work(case) / ms * 1e3, lambda x: "" if math.isnan(x) else f"{x:.1e}"
        share = (statistics.median(floors) / ms if floors else speed / statistics.median(peaks) if peaks else 0)
        print(f"| {case} | {f'{statistics.median(earlier):.4g} | ' if before else ''}{ms:.4g} | {f'{speed:.0f}' if speed else ''} | {shown(off)} | {name} | {peer:.4g} | "
              f"{shown(peer_error)} | {peer / ms:.2f} | {f'{share:.2f}' if share else ''} |",
              flush=True)


main()
