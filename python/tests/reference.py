"""Composed attention in PyTorch, with the options of stretto.attention(), written as its formula."""

import torch


def relative_positions(m, n):
    """Returns r [M, N], the position of key j relative to query i, which has position i + N − M."""
    return torch.arange(n)[None, :] - (torch.arange(m)[:, None] + n - m)


def rows_of(table, r):
    """Returns the rows of a table for relative positions r: [H or 1, M, N, …]."""
    at, n_rows = r + table.zero_row, table.rows.shape[1]
    rows = table.rows[:, at.clamp(0, n_rows - 1)]
    if table.out_of_range == "clip":
        return rows
    inside = ((at >= 0) & (at < n_rows)).reshape(at.shape + (1,) * (rows.dim() - 3))
    return torch.where(inside, rows, torch.zeros_like(rows))


def hidden_keys(b, m, n, o):
    """Returns the keys hidden from each query, [B, 1, M, N] or a shape that broadcasts with it."""
    r = relative_positions(m, n)
    position = (torch.arange(m) + n - m).clamp(min=0)
    hidden = torch.zeros(b, 1, m, n, dtype=torch.bool)
    if o.get("causal"):
        later = (r > 0).expand(b, 1, m, n)
        if o.get("prefix_lengths") is not None:
            later = later & (torch.arange(n) >= o["prefix_lengths"][:, None, None, None])
        hidden = hidden | later
    outside = torch.zeros(b, 1, m, n, dtype=torch.bool)
    if o.get("window"):
        outside = outside | (r <= -o["window"])
    if o.get("window_after"):
        outside = outside | (r >= o["window_after"])
    if o.get("global_tokens") is not None:
        tokens = o["global_tokens"]
        outside = outside & ~tokens[:, None, None, :] & ~tokens[:, position][:, None, :, None]
    hidden = hidden | outside
    if o.get("block"):
        blocks = torch.arange(n)[None, :] // o["block"] - (position // o["block"])[:, None]
        hidden = hidden | (r > 0) | (blocks < -1)
    if o.get("segments") is not None:
        segments = o["segments"]
        hidden = hidden | (segments[:, None, None, :] != segments[:, position][:, None, :, None])
    if o.get("key_padding") is not None:
        hidden = hidden | o["key_padding"][:, None, None, :]
    return hidden if o.get("hidden") is None else hidden | o["hidden"]


def scores(q, k, **o):
    (b, h, m, d), n = q.shape, k.shape[2]
    r = relative_positions(m, n)
    k = k.repeat_interleave(h // k.shape[1], 1)
    s = q @ k.transpose(-1, -2)
    if o.get("relative_keys") is not None:
        p = q if o.get("relative_query") is None else o["relative_query"]
        keys = rows_of(o["relative_keys"], r).expand(h, -1, -1, -1)
        s = s + torch.einsum("bhmp,hmnp->bhmn", p, keys)
    s = s * (d**-0.5 if o.get("scale") is None else o["scale"])
    if o.get("relative_bias") is not None:
        s = s + rows_of(o["relative_bias"], r)
    if o.get("bias") is not None:
        s = s + o["bias"]
    if o.get("soft_cap"):
        s = o["soft_cap"] * torch.tanh(s / o["soft_cap"])
    return s.masked_fill(hidden_keys(b, m, n, o), -torch.inf)


def attention(q, k, v, **o):
    s = scores(q, k, **o)
    b, h, m, n = s.shape
    if o.get("sinks") is not None:
        s = torch.cat([s, o["sinks"][None, :, None, None].expand(b, h, m, 1)], -1)
    nothing = torch.isneginf(s).all(-1, keepdim=True)
    w = torch.softmax(s.masked_fill(nothing, 0), -1).masked_fill(nothing, 0)[..., :n]
    out = w @ v.repeat_interleave(h // v.shape[1], 1)
    if o.get("relative_values") is not None:
        values = rows_of(o["relative_values"], relative_positions(m, n)).expand(h, -1, -1, -1)
        out = out + torch.einsum("bhmn,hmnd->bhmd", w, values)
    return out
