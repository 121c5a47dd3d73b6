"""Computes the cases of attention.inkling with the functions of Hugging Face's transformers.

    pip install torch transformers==5.24.0
    python inkling_cases.py [cases]
"""

import json
import sys

import torch
from transformers.models.inkling import modeling_inkling as inkling
from transformers.models.inkling2.modeling_inkling2 import Inkling2L2Clip

from case_file import save

cases = sys.argv[1] if len(sys.argv) > 1 else "cases"
softmax = torch.nn.functional.softmax
# transformers computes the softmax and norms in f32.
torch.nn.functional.softmax = lambda x, dim, dtype=None: softmax(x, dim=dim)
torch.Tensor.float = torch.Tensor.double


class Groups:
    """The members of a layer that the attention function reads."""
    training = False

    def __init__(self, n):
        self.num_key_value_groups = n


def case(name, heads=2, key_heads=1, queries=11, keys=11, d=6, dv=6, width=7, features=3, extent=5,
         floor=0, clip=0):
    torch.manual_seed(len(name))
    kind = dict(dtype=torch.float64)
    inputs = {"in.q": torch.randn(2, heads, queries, d, **kind),
              "in.k": torch.randn(2, key_heads, keys, d, **kind),
              "in.v": torch.randn(2, key_heads, keys, dv, **kind),
              "in.x": torch.randn(2, queries, width, **kind),
              "param.r": torch.randn(heads * features, width, **kind) / 2,
              "param.proj": torch.randn(features, extent, **kind)}
    if clip:
        inputs["param.factors"] = torch.rand(heads, features, **kind) + 0.5
    for x in inputs.values():
        x.requires_grad_()
    q, k, v, x, r, proj = list(inputs.values())[:6]
    logits = inkling.InklingRelativeLogits(features, extent)
    del logits.proj
    logits.proj = proj
    at = torch.arange(keys - queries, keys)
    p = (x @ r.T).view(2, queries, heads, features)
    if clip:  # as in Inkling2ScaledL2Clip
        p = Inkling2L2Clip(clip)(p * inputs["param.factors"])
    bias = logits(p, at, torch.arange(keys))
    if floor:  # as in InklingAttention.forward
        tau = 1 + 0.1 * torch.log(((at + 1).double() / floor).clamp(min=1)).view(1, 1, -1, 1)
        q, bias = q * tau, bias * tau
    mask = torch.where(torch.arange(keys) > at[:, None], -torch.inf, 0.0).double()
    y = inkling.eager_attention_forward(Groups(heads // key_heads), q, k, v, mask, scaling=1 / d,
                                        position_bias=bias)[0].transpose(1, 2)
    g = torch.randn(y.shape, **kind)
    y.backward(g)
    grads = {f"grad.{name}": x.grad for name, x in inputs.items()}
    save(f"{cases}/{name}.safetensors", {**inputs, "out.y": y, "gout.y": g, **grads},
         {"format": "conformance-1", "case": name, "subject": "attention.inkling",
          "config": json.dumps(({"log_floor": floor} if floor else {}) | ({"clip": clip} if clip else {}))})


case("inkling")
case("inkling_clip", clip=1.5)
case("inkling_log", key_heads=2, queries=4, keys=13, extent=20, floor=3)
