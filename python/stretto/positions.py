"""Positions: tables for attention(), and stochastic positional encoding."""

from typing import Any, NamedTuple

from ._library import apply


class RelativeTable(NamedTuple):
    """A table indexed by relative position: row zero_row + r belongs to relative position r.

    rows is [H or 1, R, D] for keys, [H or 1, R, Dv] for values, [H or 1, R] for a bias. zero_row is
    R − 1 for a table of the past only, (R − 1) // 2 for both directions. A relative position without
    a row contributes nothing ("zero"), the outermost row ("clip"), or is an error ("error").
    """

    rows: Any
    zero_row: int
    out_of_range: str = "zero"


def t5_bias(table, n_queries, n_keys, *, max_distance=128, bidirectional=True):
    """Returns T5's relative_bias [H, R] from its table [buckets, H]; differentiable."""
    options = {"n_queries": n_queries, "n_keys": n_keys, "max_distance": max_distance}
    options["bidirectional"] = bidirectional
    (rows,), zero_row = apply("t5_bias", {"table": table}, options)
    return RelativeTable(rows, zero_row)


class SineCode(NamedTuple):
    """The code of sineSPE for spe(): freqs, offsets and gains [H, D, K] of K sines, unconstrained.

    Frequencies are sigmoid(freqs) / 2 cycles per position, phases are offsets, amplitudes
    softplus(gains). The authors begin with normal numbers, and subtract 4 from those of freqs.
    """

    freqs: Any
    offsets: Any
    gains: Any


class ConvCode(NamedTuple):
    """The code of convSPE for spe(): filters [H, D, P] of P taps.

    In a plane of `shape` (h, w) the filters are [H, D, P1, P2], and position y·w + x is row y, column x.
    The authors begin with uniform numbers in [0, √(2 / number of taps)).
    """

    filter_q: Any
    filter_k: Any
    shape: Any = None


def spe(
    q, k, code, *, realizations=None, key=None, noise=None, gate=None, gate_key=None, gate_noise=None,
    first=0, implementation="automatic",
):  # fmt: skip
    """Encodes queries and keys by stochastic positional encoding: q [B, H, M, D], k [B, H, N, D] to
    q̂ [B, H, M, R], k̂ [B, H, N, R], for softmax or linear attention. `code` is a SineCode or ConvCode.

    In the mean over the noise, q̂_i · k̂_j is √(R/D) Σ_d q_i[d] k_j[d] P_d(τ), τ = query position − key
    position. Softmax attention divides it by √R. P is the covariance of the code. With `gate` [H, D]
    it is (1 − δ) P + δ, δ = sigmoid(gate). Key j has position first + j; the last query and key have
    the same position. q, k, the code and the gate have gradients.

    R is `realizations`, by default 64. `key` and `gate_key` are two integers (seed, stream) in place of
    the random state: calls with one key have the same noise. Or the noise itself: `noise` is
    [H, D, 2K, R] of a SineCode, [H, D, R, N + P − 1] or more of a ConvCode; gate_noise is [H, D, R].
    """
    if not isinstance(code, (SineCode, ConvCode)):
        raise TypeError(f"code is a {type(code).__name__}; accepted: SineCode, ConvCode")
    arrays = {"q": q, "k": k, "noise": noise, "gate": gate, "gate_noise": gate_noise}
    options = {"realizations": realizations, "key": key, "gate_key": gate_key, "first": first}
    options["implementation"] = implementation
    for name, value in code._asdict().items():
        (options if name == "shape" else arrays)[name] = value
    return tuple(apply("spe", arrays, options)[0])
