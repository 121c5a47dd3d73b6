"""stretto.attention() next to composed PyTorch: random crossings of options, dtypes, a training."""

import pytest
import reference
import torch
from torch.nn.functional import cross_entropy

import stretto
from stretto import RelativeTable

TABLES = ("relative_keys", "relative_values", "relative_bias")


def random_case(seed):
    """Returns q, k, v in f64 and random options of attention()."""
    g = torch.Generator().manual_seed(seed)

    def integer(low, high):  # both included
        return int(torch.randint(low, high + 1, (), generator=g))

    def chance(probability):
        return float(torch.rand((), generator=g)) < probability

    def normal(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64).requires_grad_()

    def boolean(*shape):
        return torch.rand(*shape, generator=g) < 0.3

    def broadcast():
        return [size if chance(0.6) else 1 for size in (b, h, m, n)]

    def table(*width):
        rows, heads = integer(1, 2 * n), h if chance(0.5) else 1
        mode = "clip" if chance(0.5) else "zero"
        return RelativeTable(normal(heads, rows, *width), integer(0, rows - 1), mode)

    b, n_kv, n = integer(1, 3), integer(1, 2), integer(1, 40)
    h, m = n_kv * integer(1, 3), n if chance(0.6) else integer(1, 48)
    d, dv, p = integer(1, 20), integer(1, 20), integer(1, 9)
    q, k, v = normal(b, h, m, d), normal(b, n_kv, n, d), normal(b, n_kv, n, dv)
    narrow, blocks, causal = chance(0.3), chance(0.2), chance(0.5)
    makers = {
        "relative_keys": lambda: table(p if narrow else d),
        "relative_values": lambda: table(dv),
        "relative_bias": table,
        "bias": lambda: normal(*broadcast()),
        "sinks": lambda: normal(h),
        "scale": lambda: 0.7,
        "soft_cap": lambda: 3.0,
        "key_padding": lambda: boolean(b, n),
        "hidden": lambda: boolean(*broadcast()),
    }
    if not blocks:
        makers.update({"window": lambda: integer(1, n), "window_after": lambda: integer(1, n)})
    if causal and not blocks:
        makers["prefix_lengths"] = lambda: torch.randint(0, n + 1, (b,), generator=g)
    if m <= n:
        makers["segments"] = lambda: torch.randint(0, 3, (b, n), generator=g).sort(-1).values
    o = {name: make() for name, make in makers.items() if chance(0.35)}
    o.update({"causal": causal, **({"block": integer(1, n)} if blocks else {})})
    if narrow and "relative_keys" in o:
        o["relative_query"] = normal(b, h, m, p)
    if m <= n and "window" in o and chance(0.5):
        o["global_tokens"] = boolean(b, n)
    return (q, k, v), o


def differentiable(qkv, o):
    values = [*qkv, *(x.rows if isinstance(x, RelativeTable) else x for x in o.values())]
    return [x for x in values if isinstance(x, torch.Tensor) and x.requires_grad]


def converted(qkv, o, dtype):
    """Returns new leaves with values of another dtype."""

    def leaf(x):
        if isinstance(x, RelativeTable):
            return x._replace(rows=leaf(x.rows))
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        return x.detach().to(dtype).requires_grad_()

    return tuple(leaf(x) for x in qkv), {name: leaf(x) for name, x in o.items()}


def output_and_gradients(f, qkv, o, g):
    out = f(*qkv, **o)
    return [out, *torch.autograd.grad(out, differentiable(qkv, o), g.to(out.dtype))]


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.parametrize("implementation", ["fused", "composed"])
def test_random_options_in_f64(seed, implementation):
    qkv, o = random_case(seed)
    g = torch.randn(qkv[0].shape[:3] + qkv[2].shape[3:], dtype=torch.float64)
    expected = output_and_gradients(reference.attention, qkv, o, g)
    found = output_and_gradients(stretto.attention, qkv, {**o, "implementation": implementation}, g)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found[1:], expected[1:], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("seed", range(40))
def test_narrow_dtypes_are_as_exact_as_composed_pytorch(seed, dtype):
    """The inputs are exact; the error is at most that of PyTorch's ops plus roundings of results."""
    qkv, o = converted(*random_case(seed), dtype)
    g = torch.randn(qkv[0].shape[:3] + qkv[2].shape[3:]).to(dtype)
    exact = output_and_gradients(reference.attention, *converted(qkv, o, torch.float64), g)
    composed = output_and_gradients(reference.attention, qkv, o, g)
    found = output_and_gradients(stretto.attention, qkv, o, g)
    for right, torch_result, result in zip(exact, composed, found):
        assert result.dtype == dtype
        if right.numel() == 0:
            continue
        bound = 2 * (torch_result - right).abs().max()
        bound += 8 * torch.finfo(dtype).eps * right.abs().max().clamp(min=1)
        assert (result - right).abs().max() <= bound


def test_layouts_of_views():
    x = torch.randn(2, 9, 3, 2, 8, dtype=torch.float64, requires_grad=True)  # [B, L, 3, H, D]
    q, k, v = x.permute(2, 0, 3, 1, 4)
    rows = torch.randn(9, 2, 8, dtype=torch.float64).transpose(0, 1)
    o = {"causal": True, "relative_keys": RelativeTable(rows, 8)}
    found, expected = stretto.attention(q, k, v, **o), reference.attention(q, k, v, **o)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    g = torch.randn(2, 2, 1, 1, dtype=torch.float64).expand_as(found)  # strides of 0
    a, b = (torch.autograd.grad(out, x, g)[0] for out in (found, expected))
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_lse_weights_and_scores():
    (q, k, v), o = random_case(3)
    o.pop("sinks", None)
    out, lse = stretto.attention_with_lse(q, k, v, **o)
    s = reference.scores(q, k, **o)
    torch.testing.assert_close(lse, torch.logsumexp(s, -1), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(stretto.attention_scores(q, k, **o), s, rtol=1e-12, atol=1e-12)
    o.pop("relative_values", None)
    w = stretto.attention_weights(q, k, **o)
    expected = w @ v.repeat_interleave(w.shape[1] // v.shape[1], 1)
    torch.testing.assert_close(stretto.attention(q, k, v, **o), expected, rtol=1e-12, atol=1e-12)
    (a,) = torch.autograd.grad(lse.sum(), q)
    (b,) = torch.autograd.grad(torch.logsumexp(s, -1).sum(), q)
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_dropout_has_a_key():
    qkv = [torch.randn(1, 2, 40, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]

    def results(**o):
        out = stretto.attention(*qkv, dropout=0.5, **o)
        return [out, *torch.autograd.grad(out.square().sum(), qkv)]

    fused = results(dropout_key=(7, 1), implementation="fused")
    composed = results(dropout_key=(7, 1), implementation="composed")
    torch.testing.assert_close(fused, composed, rtol=1e-10, atol=1e-10)
    assert not torch.equal(fused[0], results(dropout_key=(7, 2))[0])
    stretto.manual_seed(5)
    first = results()[0]
    assert not torch.equal(first, results()[0])
    stretto.manual_seed(5)
    assert torch.equal(first, results()[0])


class Model(torch.nn.Module):
    """Two layers with tables for keys and values and a bias, on tokens."""

    def __init__(self, attention, d=16, heads=2, rows=9):
        super().__init__()
        self.attention, self.heads = attention, heads
        self.embedding = torch.nn.Embedding(11, d)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(d, 3 * d) for _ in range(2))
        self.keys = torch.nn.Parameter(torch.randn(heads, rows, d // heads) / 4)
        self.values = torch.nn.Parameter(torch.randn(1, rows, d // heads) / 4)
        self.bias = torch.nn.Parameter(torch.zeros(heads, rows))
        self.out = torch.nn.Linear(d, 11)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            q, k, v = layer(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            tables = [RelativeTable(t, 8, "clip") for t in (self.keys, self.values, self.bias)]
            o = {"causal": True, **dict(zip(TABLES, tables))}
            x = x + self.attention(q, k, v, **o).transpose(1, 2).flatten(2)
        return self.out(x)


def trained(attention, wrap=lambda model: model):
    torch.manual_seed(0)
    model = Model(attention).double()
    call = wrap(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(30):
        tokens = torch.randint(0, 11, (4, 24))
        optimizer.zero_grad()
        loss = cross_entropy(call(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def test_a_transformer_trains_to_the_same_weights():
    expected = trained(reference.attention)
    torch.testing.assert_close(trained(stretto.attention), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_activation_checkpointing(use_reentrant):
    from torch.utils.checkpoint import checkpoint

    def checkpointed(q, k, v, **o):
        return checkpoint(lambda *x: stretto.attention(*x, **o), q, k, v, use_reentrant=use_reentrant)

    expected = trained(stretto.attention)
    assert all(torch.equal(a, b) for a, b in zip(trained(checkpointed), expected))


def test_graphs_of_pytorch():
    x = torch.randn(1, 1, 5, 4, dtype=torch.float64, requires_grad=True)
    out = stretto.attention(x, x, x)
    first = torch.autograd.grad(out.sum(), x, retain_graph=True)
    assert torch.equal(first[0], torch.autograd.grad(out.sum(), x)[0])
    with pytest.raises(RuntimeError, match="second time"):
        out.sum().backward()
    out = stretto.attention(x, x, x)
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="inplace"):
        out.sum().backward()
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(stretto.attention(x, x, x).sum(), x, create_graph=True)
    assert not stretto.attention(x.detach(), x.detach(), x.detach()).requires_grad
    with torch.no_grad():
        assert not stretto.attention(x, x, x).requires_grad
