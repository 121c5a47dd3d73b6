"""Attention in all forms."""

from ._library import apply, call
from .positions import RelativeTable


# fmt: off
def attention(
    q, k, v, *, causal=False, window=0, window_after=0, block=0, key_padding=None, segments=None,
    prefix_lengths=None, global_tokens=None, hidden=None, scale=None, soft_cap=0.0,
    relative_query=None, relative_keys=None, relative_values=None, relative_bias=None, bias=None,
    sinks=None, dropout=0.0, dropout_key=None, implementation="automatic",
):  # fmt: on
    """Computes softmax attention: q [B, H, M, D], k [B, G, N, D], v [B, G, N, Dv] to [B, H, M, Dv].

    H is a multiple of G. All floating-point arrays have one dtype: float32, float64, or PyTorch's
    bfloat16. q, k, v, relative_query, the tables, bias and sinks have gradients.

    Masks (True hides): with `causal` the last query sees the last key; `window` and `window_after`
    hide keys that many or more positions before and after the query; `block` is the block size of
    local attention (Music Transformer); key_padding [B, N]; segments [B, N] of packed documents;
    prefix_lengths [B]; global_tokens [B, N]; hidden broadcasts to [B, H, M, N].

    Scores: scale · (q · k + p · K[r]) + b[r] + bias, r = key position − query position. K
    (relative_keys), b (relative_bias) and the values V[r] (relative_values) are RelativeTables; p is
    relative_query [B, H, M, P], by default q. The default of `scale` is D**-0.5. `bias` broadcasts
    to [B, H, M, N], sinks [H]. `soft_cap` c > 0: scores s become c · tanh(s / c).

    `dropout` is the probability of the weights, `dropout_key` two integers (seed, stream) in place of
    the random state; `implementation` is "automatic", "composed" or "fused".
    """
    return _attention("attention", **locals())[0]


def attention_with_lse(q, k, v, **options):
    """Returns attention() and the log-sum-exp of its scores [B, H, M]; not in bf16, without sinks."""
    return tuple(_attention("attention_with_lse", q=q, k=k, v=v, **options))


def attention_weights(q, k, **options):
    """Returns the softmax weights [B, H, M, N] of attention(), which has the same options."""
    return _attention("attention_weights", q=q, k=k, **options)[0]


def attention_scores(q, k, **options):
    """Returns the scores [B, H, M, N] before the softmax; −inf for a hidden key."""
    return _attention("attention_scores", q=q, k=k, **options)[0]


_ARRAYS = {"q", "k", "v", "key_padding", "segments", "prefix_lengths", "global_tokens", "hidden"}
_ARRAYS |= {"relative_query", "bias", "sinks"}


def _attention(function, **arguments):
    arrays, options = {}, {}
    for name, value in arguments.items():
        if name in ("relative_keys", "relative_values", "relative_bias") and value is not None:
            if not isinstance(value, RelativeTable):
                raise TypeError(f"{name} is a {type(value).__name__}; accepted: stretto.RelativeTable")
            arrays[name] = value.rows
            options[name + ".zero_row"] = value.zero_row
            options[name + ".out_of_range"] = value.out_of_range
        else:
            (arrays if name in _ARRAYS else options)[name] = value
    return apply(function, arrays, options)[0]


def linear_attention(
    q, k, v, *, causal=False, key_padding=None, eps=0.0, chunk=32, implementation="automatic"
):
    """Computes linear attention: features q [B, H, M, F], k [B, G, N, F], v [B, G, N, Dv] to
    [B, H, M, Dv], Σ_j (q_i · k_j) v_j / (Σ_j q_i · k_j + eps).
    """
    arrays = {"q": q, "k": k, "v": v, "key_padding": key_padding}
    options = {"causal": causal, "eps": eps, "chunk": chunk, "implementation": implementation}
    return apply("linear_attention", arrays, options)[0][0]


def gated_linear_attention(
    q, k, v, *, log_decay=None, beta=None, key_padding=None, segments=None, scale=None, chunk=64,
    implementation="automatic",
):  # fmt: skip
    """Computes causal linear attention with decay: RetNet, GLA, Mamba-2; with `beta` DeltaNet.

    log_decay [H], [B, H, N] or [B, H, N, F]; beta [B, H, N]; the default of `scale` is F**-0.5.
    """
    arrays = {"q": q, "k": k, "v": v, "log_decay": log_decay, "beta": beta}
    arrays.update(key_padding=key_padding, segments=segments)
    options = {"scale": scale, "chunk": chunk, "implementation": implementation}
    return apply("gated_linear_attention", arrays, options)[0][0]


def set_num_threads(n):
    """Sets the number of threads of the library, 1 to 256; PyTorch's threads are others."""
    call("set_num_threads", options={"n": n})


def num_threads():
    """Returns the number of threads of the library."""
    return call("num_threads").json


def manual_seed(seed):
    """Sets the random state from which dropout gets its keys."""
    call("manual_seed", options={"seed": seed})
