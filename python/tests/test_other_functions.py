"""Linear attention, T5's bias and SPE next to their formulas in PyTorch."""

import math

import numpy
import pytest
import torch

import stretto
from stretto import ConvCode, SineCode


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


def sine_codes(code, z, n):
    """Returns the codes [H, D, N, R] of queries and keys (20, 21 of Liutkus et al., 2021)."""
    angle = torch.pi * code.freqs.sigmoid()[:, :, None] * torch.arange(n)[:, None]  # [H, D, N, K]
    gains = torch.nn.functional.softplus(code.gains).repeat_interleave(2, -1)[..., None]

    def made(phase):
        waves = torch.stack([phase.cos(), phase.sin()], -1).flatten(-2)
        return waves @ (gains * z) / math.sqrt(2 * code.gains.shape[-1])

    return made(angle + code.offsets[:, :, None]), made(angle)


def conv_codes(code, z, n):
    """Returns the codes [H, D, N, R] of queries and keys (22): white noise, convolved with filters."""
    width = code.shape[1] if code.shape else n

    def made(filters):
        w, noise = (x if code.shape else x.unsqueeze(-2) for x in (filters, z))
        (rows, taps), values = w.shape[2:], 0
        y, x = torch.arange(n) // width + rows - 1, torch.arange(n) % width + taps - 1
        for i in range(rows):
            for j in range(taps):
                values = values + w[:, :, i, j, None, None] * noise[:, :, :, y - i, x - j]
        return values.transpose(-1, -2)

    return made(code.filter_q), made(code.filter_k)


@pytest.mark.parametrize("implementation", ["fused", "composed"])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("kind", ["sine", "conv", "plane"])
def test_spe(kind, gated, implementation):
    torch.manual_seed(3)
    h, d, m, n, first, r = 2, 5, 4, 7, 3, 6
    end = first + n  # of the positions
    q, k = normal(3, h, m, d), normal(3, h, n, d)
    if kind == "sine":
        code, z = SineCode(*(normal(h, d, 3) for _ in range(3))), normal(h, d, 6, r).detach()
    elif kind == "conv":
        code, z = ConvCode(normal(h, d, 4), normal(h, d, 4)), normal(h, d, r, end + 3).detach()
    else:
        code = ConvCode(normal(h, d, 2, 3), normal(h, d, 2, 3), (2, 5))
        z = normal(h, d, r, 3, 7).detach()
    codes = (sine_codes if kind == "sine" else conv_codes)(code, z, end)
    o = {"noise": z, "first": first, "implementation": implementation}
    inputs = [q, k, *(x for x in code if isinstance(x, torch.Tensor))]
    if gated:
        o.update(gate=normal(h, d), gate_noise=normal(h, d, r).detach())
        inputs.append(o["gate"])
        share = o["gate"].sigmoid()[:, :, None, None]
        still = share.sqrt() * o["gate_noise"][:, :, None]
        codes = [(1 - share).sqrt() * x + still for x in codes]
    expected = [
        torch.einsum("bhnd,hdnr->bhnr", x, c[:, :, -x.shape[2] :]) / (d * r) ** 0.25
        for x, c in zip((q, k), codes)
    ]
    check_equal(stretto.spe(q, k, code, **o), expected, inputs)


def test_noise_of_spe():
    q, k = normal(1, 2, 9, 4), normal(1, 2, 9, 4)
    code, gate = SineCode(*(normal(2, 4, 3) for _ in range(3))), normal(2, 4)

    def results(**o):
        return torch.cat(stretto.spe(q, k, code, **o))

    with_key = results(key=(7, 1), realizations=5)
    assert with_key.shape == (2, 2, 9, 5)
    assert torch.equal(with_key, results(key=(7, 1), realizations=5))
    assert not torch.equal(with_key, results(key=(7, 2), realizations=5))
    fixed = results(key=(7, 1), gate=gate, gate_key=(7, 2))
    assert fixed.shape[-1] == 64
    assert torch.equal(fixed, results(key=(7, 1), gate=gate, gate_key=(7, 2)))
    assert not torch.equal(fixed, results(key=(7, 1), gate=gate, gate_key=(7, 3)))
    stretto.manual_seed(5)
    first = results(gate=gate)
    assert not torch.equal(first, results(gate=gate))
    stretto.manual_seed(5)
    assert torch.equal(first, results(gate=gate))


def test_spe_of_numpy_and_its_errors():
    x = numpy.ones((1, 2, 9, 4))
    filters = numpy.ones((2, 4, 3))
    q, k = stretto.spe(x, x, ConvCode(filters, filters), key=(1, 2))
    assert isinstance(q, numpy.ndarray) and q.shape == k.shape == (1, 2, 9, 64)
    with pytest.raises(TypeError, match="SineCode, ConvCode"):
        stretto.spe(x, x, filters)
    with pytest.raises(ValueError, match=r"\[SpeCode"):
        stretto.spe(x, x, SineCode(filters, filters, filters[:1]))
    with pytest.raises(ValueError, match='unknown argument "gate_key"'):
        stretto.spe(x, x, ConvCode(filters, filters), gate_key=(1, 2))
    with pytest.raises(ValueError, match=r"\[seed, stream\]"):
        stretto.spe(x, x, ConvCode(filters, filters), key=(1, 2, 3))
