"""Compares stretto.attention with a table of relative positions to composed PyTorch, forward and backward:

    python benchmarks/relative_attention_torch.py [--threads 2] [--repeats 15]

Needs the Python package (docs/python.md) and PyTorch. Causal attention in f32, with a table of L rows per
head for the keys; gradients of q, k, v and the table. The implementations take turns; medians are printed.
"""

import argparse
import statistics
import time

import torch

import stretto


def skew(q, table):
    """Returns q_i · E[j − i] by the Music Transformer's pad, reshape and slice, for j <= i."""
    length = q.shape[2]
    products = torch.nn.functional.pad(q @ table.transpose(-1, -2), (1, 0))
    return products.reshape(*q.shape[:2], length + 1, length)[:, :, 1:]


def gather(q, table):
    """Returns the same by an index of each pair's row."""
    length = q.shape[2]
    position = torch.arange(length)
    row = (position[None, :] - position[:, None] + length - 1).clamp(max=length - 1)
    return (q @ table.transpose(-1, -2)).gather(-1, row.expand(*q.shape[:2], -1, -1))


def composed(terms):
    def attention(q, k, v, table):
        length = q.shape[2]
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(-1, -2) + terms(q, table)) * q.shape[-1] ** -0.5
        return torch.softmax(scores.masked_fill(later, -torch.inf), -1) @ v

    return attention


def fused(q, k, v, table):
    relative_keys = stretto.RelativeTable(table, q.shape[2] - 1)
    return stretto.attention(q, k, v, causal=True, relative_keys=relative_keys)


IMPLEMENTATIONS = {"stretto": fused, "skew": composed(skew), "gather": composed(gather)}


def measure(batch, length, repeats):
    torch.manual_seed(0)
    shapes = [(batch, 8, length, 64)] * 3 + [(8, length, 64)]
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    g = torch.randn(shapes[0])
    times, results = {name: [] for name in IMPLEMENTATIONS}, {}
    for _ in range(repeats + 1):
        for name, attention in IMPLEMENTATIONS.items():
            start = time.perf_counter()
            out = attention(*inputs)
            results[name] = torch.autograd.grad(out, inputs, g)
            times[name].append(1e3 * (time.perf_counter() - start))
            del out
    for name in IMPLEMENTATIONS:
        torch.testing.assert_close(results[name], results["gather"], rtol=1e-3, atol=1e-3)
    medians = [f"{statistics.median(times[name][1:]):8.1f}" for name in IMPLEMENTATIONS]
    print(f"B {batch}, L {length:5}:", *medians, "ms", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    stretto.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, {args.threads} threads:", *IMPLEMENTATIONS)
    for batch, length in [(1, 512), (2, 512), (1, 2048), (2, 2048)]:
        measure(batch, length, args.repeats)


main()
