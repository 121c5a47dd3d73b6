"""Computes the cases of attention.gated with the naive functions of flash-linear-attention.

    pip install --no-deps fla-core torch einops
    python gated_cases.py FOLDER_OF_FLA [cases]     # FOLDER_OF_FLA has the directory fla/

The functions convert their inputs to f32; here their sources run with f64 instead.
"""

import json
import sys

import torch

from case_file import save

source, cases = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "cases"


def naive(path, name):
    with open(f"{source}/fla/ops/{path}/naive.py") as file:
        text = file.read().replace("float32", "float64").replace(".float()", ".double()")
    space = {}
    exec(text.replace("torch.float)", "torch.float64)").replace("torch.float,", "torch.float64,"),
         space)
    return space[name]


def case(name, f, key_heads=2, decay=None, delta=False, config=None, n=19, d=5, dv=4, heads=2):
    """f gets tensors laid out [B, H, N, ..] and returns y in the same layout."""
    torch.manual_seed(len(name))
    kind = dict(dtype=torch.float64)
    inputs = {"in.q": torch.randn(1, key_heads, n, d, **kind),
              "in.k": torch.nn.functional.normalize(torch.randn(1, key_heads, n, d, **kind), dim=-1),
              "in.v": torch.randn(1, heads, n, dv, **kind)}
    if decay:
        shape = (1, heads, n) if decay == "token" else (1, heads, n, d)
        inputs["in.log_decay"] = torch.nn.functional.logsigmoid(torch.randn(shape, **kind))
    if delta:
        inputs["in.beta"] = torch.rand(1, heads, n, **kind)
    for x in inputs.values():
        x.requires_grad_()
    y = f(*inputs.values())
    g = torch.randn(y.shape, **kind)
    y.backward(g)
    grads = {f"grad.{name}": x.grad for name, x in inputs.items()}
    save(f"{cases}/{name}.safetensors", {**inputs, "out.y": y, "gout.y": g, **grads},
         {"format": "conformance-1", "case": name, "subject": "attention.gated",
          "config": json.dumps(config or {})})


def transposed(f, *order):
    """Calls f, whose layout is [B, N, H, ..], with the inputs in this order."""
    def call(*x):
        return f(*(x[i].transpose(1, 2) for i in order))[0].transpose(1, 2)
    return call


def recurrent_gla(*x):  # returns zeros like v, which must not require a gradient
    return transposed(naive("gla", "naive_recurrent_gla"), 0, 1, 2, 3)(*x)


case("gated_retention", naive("retention", "naive_retention"), config={"decay": "retention"})
case("gated_simple_gla", transposed(naive("simple_gla", "naive_recurrent_simple_gla"), 0, 1, 2, 3),
     decay="token")
case("gated_gla", recurrent_gla, decay="feature", dv=5)
case("gated_delta", lambda q, k, v, beta: naive("delta_rule", "delta_rule_recurrence")(
    q, k, v, beta)[0], delta=True)
case("gated_delta_decay", transposed(naive("gated_delta_rule", "naive_recurrent_gated_delta_rule"),
                                     0, 1, 2, 4, 3), decay="token", delta=True)
case("gated_delta_features", transposed(naive("kda", "naive_recurrent_kda"), 0, 1, 2, 3, 4),
     key_heads=1, decay="feature", delta=True)
