"""The networks that transformers does not have (any more), written from their definitions for expected.py: the
Transformer-XL of transformers 4 and gwinndr's Music Transformer. Weights are dicts of tensors by the names of the files.
"""
import math

import torch
from torch.nn.functional import layer_norm, linear, log_softmax, relu, softmax


def sinusoids(positions, d):
    """[n] -> [n, d]: d / 2 sines, then d / 2 cosines."""
    frequencies = 10000.0 ** (-torch.arange(0, d, 2, dtype=positions.dtype) / d)
    angles = positions[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], 1)


def clusters(c):
    ends = c["cutoffs"] + [c["vocab_size"]]
    return list(enumerate(zip([0] + c["cutoffs"], ends)))


def transformer_xl_weights(c):
    """Random weights with the names and ties of transformers 4."""
    w = {}
    d, heads = c["d_model"], (c["n_head"], c["d_head"])
    n = heads[0] * heads[1]

    def add(name, *shape, around=0.0):
        w[name] = around + (0.1 if len(shape) == 1 else 0.2) * torch.randn(*shape)

    tables = clusters(c) if c["div_val"] > 1 else [(0, (0, c["vocab_size"]))]
    projected = c["div_val"] > 1 or c["d_embed"] != d
    for i, (first, end) in tables:
        width = c["d_embed"] // c["div_val"] ** i
        add(f"transformer.word_emb.emb_layers.{i}.weight", end - first, width)
        if projected:
            add(f"transformer.word_emb.emb_projs.{i}", d, width)
        add(f"crit.out_layers.{i}.bias", end - first)
        if c["tie_word_embeddings"]:
            w[f"crit.out_layers.{i}.weight"] = w[f"transformer.word_emb.emb_layers.{i}.weight"]
        else:
            add(f"crit.out_layers.{i}.weight", end - first, width)
    for i, _ in clusters(c) if projected else []:
        table = i if c["div_val"] > 1 else 0
        if c["tie_projs"][i]:
            w[f"crit.out_projs.{i}"] = w[f"transformer.word_emb.emb_projs.{table}"]
        else:
            add(f"crit.out_projs.{i}", d, c["d_embed"] // c["div_val"] ** i)
    if c["cutoffs"]:
        add("crit.cluster_weight", len(c["cutoffs"]), c["d_embed"])
        add("crit.cluster_bias", len(c["cutoffs"]))
    w["transformer.pos_emb.inv_freq"] = 10000.0 ** (-torch.arange(0, d, 2) / d)
    for name in ["r_w_bias", "r_r_bias"] if not c["untie_r"] else []:
        add("transformer." + name, *heads)
    for l in range(c["n_layer"]):
        layer = f"transformer.layers.{l}."
        add(layer + "dec_attn.qkv_net.weight", 3 * n, d)
        add(layer + "dec_attn.r_net.weight", n, d)
        add(layer + "dec_attn.o_net.weight", d, n)
        for name in ["r_w_bias", "r_r_bias"]:
            add(layer + "dec_attn." + name, *heads)
            if not c["untie_r"]:
                w[layer + "dec_attn." + name] = w["transformer." + name]
        for norm in ["dec_attn.layer_norm", "pos_ff.layer_norm"]:
            add(layer + norm + ".weight", d, around=1.0)
            add(layer + norm + ".bias", d)
        add(layer + "pos_ff.CoreNet.0.weight", c["d_inner"], d)
        add(layer + "pos_ff.CoreNet.0.bias", c["d_inner"])
        add(layer + "pos_ff.CoreNet.3.weight", d, c["d_inner"])
        add(layer + "pos_ff.CoreNet.3.bias", d)
    return w


def transformer_xl(w, c, tokens, memory):
    """Log-probabilities [B, T, V] for tokens [B, T] after a memory, a list of [B, m, d] for each layer, and the new
    memory."""
    d, d_head = c["d_model"], c["d_head"]
    x = torch.zeros(*tokens.shape, d, dtype=memory[0].dtype)
    for i, (first, end) in clusters(c):
        table, start = (i, first) if c["div_val"] > 1 else (0, 0)
        here = (tokens >= first) & (tokens < end)
        rows = w[f"transformer.word_emb.emb_layers.{table}.weight"][tokens[here] - start]
        projection = w.get(f"transformer.word_emb.emb_projs.{table}")
        x[here] = rows if projection is None else rows @ projection.T
    x = x * math.sqrt(d)
    m, length = memory[0].shape[1], tokens.shape[1]
    distance = torch.arange(length)[:, None] + m - torch.arange(m + length)[None, :]
    hidden = distance < 0
    if c["same_length"]:
        hidden = hidden | (distance >= c["mem_len"])
    if c["clamp_len"] > 0:
        distance = distance.clamp(max=c["clamp_len"])
    distance = distance.clamp(min=0)
    relative = sinusoids(torch.arange(m + length, dtype=x.dtype), d)
    after = []
    for l in range(c["n_layer"]):
        layer = f"transformer.layers.{l}."
        attention = layer + "dec_attn."

        def norm(y, name):
            return layer_norm(y, (d,), w[layer + name + ".weight"], w[layer + name + ".bias"], c["layer_norm_epsilon"])

        def heads(y):
            return y.unflatten(-1, (-1, d_head)).transpose(-2, -3)

        context = torch.cat([memory[l], x], 1)
        after.append(context[:, max(0, context.shape[1] - c["mem_len"]):])
        given = norm(context, "dec_attn.layer_norm") if c["pre_lnorm"] else context
        q, k, v = (heads(y) for y in linear(given, w[attention + "qkv_net.weight"]).chunk(3, -1))
        q = q[:, :, m:]
        r = heads(linear(relative, w[attention + "r_net.weight"]))
        content = (q + w[attention + "r_w_bias"][:, None]) @ k.transpose(-1, -2)
        position = (q + w[attention + "r_r_bias"][:, None]) @ r.transpose(-1, -2)
        position = position.gather(-1, distance.expand(*position.shape[:2], *distance.shape))
        scores = ((content + position) / math.sqrt(d_head)).masked_fill(hidden, -math.inf)
        x = x + linear((softmax(scores, -1) @ v).transpose(1, 2).flatten(2), w[attention + "o_net.weight"])
        if not c["pre_lnorm"]:
            x = norm(x, "dec_attn.layer_norm")
        net = layer + "pos_ff.CoreNet."
        y = norm(x, "pos_ff.layer_norm") if c["pre_lnorm"] else x
        x = x + linear(relu(linear(y, w[net + "0.weight"], w[net + "0.bias"])), w[net + "3.weight"], w[net + "3.bias"])
        if not c["pre_lnorm"]:
            x = norm(x, "pos_ff.layer_norm")
    return adaptive_log_softmax(w, c, x), after


def adaptive_log_softmax(w, c, x):
    parts = []
    for i, (first, end) in clusters(c):
        table, start = (i, first) if c["div_val"] > 1 else (0, 0)
        weight = w[f"crit.out_layers.{table}.weight"][first - start:end - start]
        bias = w[f"crit.out_layers.{table}.bias"][first - start:end - start]
        if i == 0 and c["cutoffs"]:
            weight, bias = torch.cat([weight, w["crit.cluster_weight"]]), torch.cat([bias, w["crit.cluster_bias"]])
        projection = w.get(f"crit.out_projs.{i}")
        y = log_softmax(linear(x if projection is None else x @ projection, weight, bias), -1)
        if i == 0:
            head = y[..., end:]
            y = y[..., :end]
        else:
            y = head[..., i - 1:i] + y
        parts.append(y)
    return torch.cat(parts, -1)


def music_transformer_weights(vocabulary, d, d_head, d_hidden, n_layers, max_length):
    """Random weights with the names of gwinndr's state dict, option --rpr."""
    w = {"embedding.weight": 0.2 * torch.randn(vocabulary, d)}
    pe = sinusoids(torch.arange(max_length, dtype=torch.float64), d)
    w["positional_encoding.pe"] = torch.stack(pe.chunk(2, 1), 2).flatten(1).float()[:, None]  # sine, cosine, sine, …

    def add(name, rows, columns):
        w[name + "weight"], w[name + "bias"] = 0.2 * torch.randn(rows, columns), 0.1 * torch.randn(rows)

    def add_norm(name):
        w[name + "weight"], w[name + "bias"] = 1 + 0.1 * torch.randn(d), 0.1 * torch.randn(d)

    for l in range(n_layers):
        layer = f"transformer.encoder.layers.{l}."
        w[layer + "self_attn.Er"] = 0.2 * torch.randn(max_length, d_head)
        add(layer + "self_attn.in_proj_", 3 * d, d)
        add(layer + "self_attn.out_proj.", d, d)
        add(layer + "linear1.", d_hidden, d)
        add(layer + "linear2.", d, d_hidden)
        add_norm(layer + "norm1.")
        add_norm(layer + "norm2.")
    add_norm("transformer.encoder.norm.")
    add("Wout.", vocabulary, d)
    return w


def music_transformer(w, tokens):
    """Logits [B, T, V]. The score of key j for query i is q_i (k_j + Er[last row - (i - j)]) / sqrt(head dimension)."""
    x = w["embedding.weight"][tokens] + w["positional_encoding.pe"][:tokens.shape[1], 0]
    d, length = x.shape[-1], tokens.shape[1]
    distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
    l = 0
    while f"transformer.encoder.layers.{l}.self_attn.Er" in w:
        layer = f"transformer.encoder.layers.{l}."
        table = w[layer + "self_attn.Er"]

        def part(y, name):
            return linear(y, w[layer + name + "weight"], w[layer + name + "bias"])

        def norm(y, name):
            return layer_norm(y, (d,), w[layer + name + "weight"], w[layer + name + "bias"])

        q, k, v = (y.unflatten(-1, (-1, table.shape[1])).transpose(1, 2)
                   for y in part(x, "self_attn.in_proj_").chunk(3, -1))
        position = q @ table.T
        row = (len(table) - 1 - distance).clamp(max=len(table) - 1)
        scores = q @ k.transpose(-1, -2) + position.gather(-1, row.expand(*position.shape[:2], -1, -1))
        scores = (scores / math.sqrt(table.shape[1])).masked_fill(distance < 0, -math.inf)
        joined = (softmax(scores, -1) @ v).transpose(1, 2).flatten(2)
        x = norm(x + part(joined, "self_attn.out_proj."), "norm1.")
        x = norm(x + part(relu(part(x, "linear1.")), "linear2."), "norm2.")
        l += 1
    x = layer_norm(x, (d,), w["transformer.encoder.norm.weight"], w["transformer.encoder.norm.bias"])
    return linear(x, w["Wout.weight"], w["Wout.bias"])
