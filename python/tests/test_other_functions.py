"""Linear attention and T5's bias next to their formulas in PyTorch."""

import pytest
import torch

import stretto


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def check_equal(found, expected, inputs):
    """Compares outputs, and the gradients of a random projection of them."""
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
    found, expected = ([x] if isinstance(x, torch.Tensor) else x for x in (found, expected))
    g = [torch.randn_like(x) for x in expected]
    a, b = (torch.autograd.grad(x, inputs, g, retain_graph=True) for x in (found, expected))
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("m", [1, 50])
def test_linear_attention(causal, m):
    torch.manual_seed(m)
    n = 50
    q, k, v = normal(2, 4, m, 6), normal(2, 2, n, 6), normal(2, 2, n, 5)
    padding = torch.rand(2, n) < 0.2
    o = {"causal": causal, "key_padding": padding, "eps": 0.1}
    w = q.exp() @ k.exp().repeat_interleave(2, 1).transpose(-1, -2)
    w = w.masked_fill(padding[:, None, None, :], 0)
    w = w.tril(n - m) if causal else w
    expected = (w @ v.repeat_interleave(2, 1)) / (w.sum(-1, keepdim=True) + 0.1)
    check_equal(stretto.linear_attention(q.exp(), k.exp(), v, **o), expected, [q, k, v])


def recurrence(q, k, v, log_decay, beta, scale):
    """Returns gated linear attention, step by step."""
    b, h, n, f = k.shape
    state, out = torch.zeros(b, h, f, v.shape[-1], dtype=q.dtype), []
    if log_decay is not None:  # [B, H, N, F or 1]
        shape = {1: (1, h, 1, 1), 3: (b, h, n, 1), 4: (b, h, n, f)}[log_decay.dim()]
        decay = log_decay.exp().reshape(shape).expand(b, h, n, -1)
    for t in range(n):
        if log_decay is not None:
            state = state * decay[:, :, t, :, None]
        value = v[:, :, t]
        if beta is not None:
            value = (value - torch.einsum("bhf,bhfd->bhd", k[:, :, t], state)) * beta[:, :, t, None]
        state = state + k[:, :, t, :, None] * value[:, :, None]
        out.append(torch.einsum("bhf,bhfd->bhd", q[:, :, t], state) * scale)
    return torch.stack(out, 2)


@pytest.mark.parametrize("shape", [None, (3,), (2, 3, 70), (2, 3, 70, 8)])
@pytest.mark.parametrize("delta", [False, True])
def test_gated_linear_attention(shape, delta):
    torch.manual_seed(1)
    q, v = normal(2, 3, 70, 8), normal(2, 3, 70, 5)
    x, y, z = normal(2, 3, 70, 8), normal(*shape or (1,)), normal(2, 3, 70)
    k = torch.nn.functional.normalize(x, dim=-1)
    log_decay = None if shape is None else -y.square() / 10
    beta = z.sigmoid() if delta else None
    inputs = [q, x, v] + [y] * (shape is not None) + [z] * delta
    found = stretto.gated_linear_attention(q, k, v, log_decay=log_decay, beta=beta)
    check_equal(found, recurrence(q, k, v, log_decay, beta, 8**-0.5), inputs)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_t5_bias(bidirectional):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    table = normal(32, 4)
    found = stretto.positions.t5_bias(table, 60, 300, max_distance=128, bidirectional=bidirectional)
    r = torch.arange(found.rows.shape[1]) - found.zero_row
    assert r[0] == -299 and r[-1] == 59
    bucket = t5.T5Attention._relative_position_bucket(r, bidirectional, 32, 128)
    check_equal(found.rows, table[bucket].T, [table])
