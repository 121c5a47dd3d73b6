"""The ops of gpu_speed.cpp in PyTorch, with the same sizes, events and flushed cache."""
import torch
import torch.nn.functional as F

T, d, V, n, heads, L = 32768, 512, 400, 8192, 8, 1024
half = dict(dtype=torch.bfloat16, device="cuda")
flush = torch.zeros(64 << 20, device="cuda")


def row(name, size, nbytes, operations, f):
    times = []
    for i in range(23):
        flush.add_(1)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        f()
        end.record()
        end.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end) * 1e-3)
    s = sorted(times)[len(times) // 2]
    print(f"| {name} | {size} | {s * 1e6:.1f} | {nbytes / s * 1e-9:.0f} | {operations / s * 1e-12:.1f} |", flush=True)


print(f"| op, torch {torch.__version__} | size | µs | GB/s | TFLOP/s |\n| --- | --- | ---: | ---: | ---: |")
with torch.no_grad():
    big = torch.randn(128 << 20, device="cuda")
    row("copy", "f32, 512 MiB", 8 * big.numel(), 0, big.clone)
    for t, size in (torch.bfloat16, "bf16, 8192"), (torch.float32, "f32, 8192"):
        a, b = (torch.randn(n, n, dtype=t, device="cuda") for _ in range(2))
        row("matmul", size, 3 * a.numel() * a.element_size(), 2 * n**3, lambda: a @ b)
    wide, x, g = torch.randn(T, 4 * d, **half), torch.randn(T, d, **half), torch.randn(T, d, **half)
    weight, bias = torch.ones(d, **half), torch.randn(4 * d, **half)
    wide_bytes, nbytes = 2 * wide.numel(), 2 * x.numel()
    row("gelu", "bf16 [32768, 2048]", 2 * wide_bytes, 0, lambda: F.gelu(wide))
    row("add of a bias", "bf16 [32768, 2048]", 2 * wide_bytes, 0, lambda: wide + bias)
    row("add", "bf16 [32768, 512]", 3 * nbytes, 0, lambda: x + g)
    row("transposed copy", "bf16 [32768, 512]", 2 * nbytes, 0, lambda: x.t().contiguous())
    row("dropout", "bf16 [32768, 512]", 2 * nbytes, 0, lambda: F.dropout(x, 0.1))
    row("randn", "f32 [32768, 512]", 2 * nbytes, 0, lambda: torch.randn(T, d, device="cuda"))
    row("sum of columns", "bf16 [32768, 512]", nbytes, 0, lambda: x.sum(0))
    row("sum of rows", "bf16 [32768, 512]", nbytes, 0, lambda: x.sum(1))
    row("layer_norm", "bf16 [32768, 512]", 2 * nbytes, 0, lambda: F.layer_norm(x, (d,), weight, weight))
    row("softmax", "bf16 [32768, 512]", 2 * nbytes, 0, lambda: torch.softmax(x, -1))
    logits, ids = torch.randn(T, V, **half), torch.randint(V, (T,), device="cuda")
    row("cross_entropy", "bf16 [32768, 400]", 2 * logits.numel(), 0, lambda: F.cross_entropy(logits, ids))
    rows = torch.randn(V, d, **half)
    row("embedding", "bf16 [400, 512] at 32768", nbytes, 0, lambda: F.embedding(ids, rows))
    keys = torch.rand(1 << 20, device="cuda")
    row("sort", "f32 [1048576]", 8 * keys.numel(), 0, keys.sort)
    q, k, v = (torch.randn(T // L, heads, L, d // heads, **half) for _ in range(3))
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for backend in SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION:
        try:
            with sdpa_kernel(backend):
                row(f"attention, causal, {backend.name}", "bf16 [32, 8, 1024, 64]", 4 * nbytes,
                    4 * q.numel() * L / 2, lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
        except RuntimeError as error:
            print(f"| attention, {backend.name} | {error} | | | |")

# Forward and backward at the sizes of gpu_speed's attentions(): without positions with PyTorch's
# own kernel; with a table by pad, reshape and slice, and with FlexAttention over the materialized
# product of queries and table.
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

B, H, L, D = 16, 8, 2048, 64


def leaf(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, dtype=dtype, device="cuda", requires_grad=True)


def both(name, size, f, leaves, g):
    nbytes, product = 4 * g.numel() * g.element_size(), g.numel() * L
    with torch.no_grad():
        row(name, size, nbytes, 2 * product, f)

    def trained():
        f().backward(g)
        for x in leaves:
            x.grad = None

    row(f"{name}, forward and backward", size, 2 * nbytes, 7 * product, trained)


def skewed(q, k, v, rows, future):
    r = F.pad(q @ rows.mT, (1, 0)).view(B, H, L + 1, L)[:, :, 1:]
    scores = ((q @ k.mT + r) * D**-0.5).masked_fill(future, float("-inf"))
    return torch.softmax(scores, -1) @ v


for t, short in (torch.bfloat16, "bf16"), (torch.float32, "f32"):
    size = f"{short} [16, 8, 2048, 64]"
    q, k, v = (leaf(B, H, L, D, dtype=t) for _ in range(3))
    rows, g = leaf(H, L, D, dtype=t), torch.randn(B, H, L, D, dtype=t, device="cuda")
    both("attention, plain", size, lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), [q, k, v], g)
    future = torch.ones(L, L, dtype=torch.bool, device="cuda").triu(1)
    both("attention, table, skewed", size, lambda: skewed(q, k, v, rows, future), [q, k, v, rows], g)
    if t == torch.bfloat16:
        try:
            block = create_block_mask(lambda b, h, i, j: i >= j, None, None, L, L, device="cuda")

            def flexed(q, k, v, rows):
                r = q @ rows.mT * D**-0.5
                return flex_attention(q, k, v, lambda s, b, h, i, j: s + r[b, h, i, torch.clamp(L - 1 - i + j, max=L - 1)],
                                      block_mask=block)

            compiled = torch.compile(flexed, dynamic=False)
            both("attention, table, FlexAttention", size, lambda: compiled(q, k, v, rows), [q, k, v, rows], g)
        except Exception as error:
            print(f"| attention, table, FlexAttention | {str(error).splitlines()[0][:100]} | | | |")
    torch.cuda.empty_cache()
x, w = (torch.randn(*s, 2048, device="cuda") for s in ((64, 768), (768,)))
with torch.no_grad():
    row("convolution", "f32 [64, 768, 2048]", 8 * x.numel(), 0,
        lambda: torch.fft.irfft(torch.fft.rfft(x, 4096) * torch.fft.rfft(w, 4096), 4096)[..., :2048].contiguous())
