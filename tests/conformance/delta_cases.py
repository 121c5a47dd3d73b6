"""Computes the cases of layer.delta with the layers of Hugging Face's transformers.

    pip install torch transformers==5.24.0
    python delta_cases.py [cases]
"""

import json
import sys

import torch

torch.Tensor.float = torch.Tensor.double  # transformers computes gates, norms and states in f32
torch.float32 = torch.float64

from transformers import KimiLinearConfig, Qwen3_5TextConfig  # noqa: E402
from transformers.models.kimi_linear.modeling_kimi_linear import KimiLinearDeltaAttention  # noqa: E402
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5GatedDeltaNet  # noqa: E402

from case_file import save  # noqa: E402

cases = sys.argv[1] if len(sys.argv) > 1 else "cases"
# Names in the file, by those of transformers; in_proj_qkv is q, k and v.
NAMES = {"in_proj_qkv": "qkv", "in_proj_z": "gate", "in_proj_b": "beta", "in_proj_a": "decay", "out_proj": "out",
         "conv1d": "convolution", "A_log": "decay_rate", "dt_bias": "decay_bias", "norm": "norm", "q_proj": "q",
         "k_proj": "k", "v_proj": "v", "b_proj": "beta", "o_proj": "out", "o_norm": "norm", "g_a_proj": "gate",
         "g_b_proj": "gate_up", "f_a_proj": "decay", "f_b_proj": "decay_up"}


def case(name, cls, config, settings, n=5):
    torch.manual_seed(len(name))
    layer = cls(config, 0).double().eval()
    inputs = {"in.x": torch.randn(2, n, config.hidden_size, dtype=torch.float64, requires_grad=True)}
    for key, p in layer.named_parameters():
        p.data = 1 + 0.3 * torch.randn_like(p) if "norm" in key else 0.3 * torch.randn_like(p)
        parts = key.removesuffix(".weight").split(".")
        inputs["param." + NAMES[parts[-1]]] = p
    y = layer(inputs["in.x"])
    g = torch.randn_like(y)
    y.backward(g)
    grads = {f"grad.{key}": x.grad for key, x in inputs.items()}
    tensors = {**inputs, "out.y": y, "gout.y": g, **grads}
    for key, x in list(tensors.items()):  # the shapes of the library
        if key.endswith(".qkv"):
            sizes = [layer.key_dim, layer.key_dim, layer.value_dim]
            del tensors[key]
            for part, rows in zip("qkv", x.split(sizes)):
                tensors[key[:-3] + part] = rows
        elif key.endswith(("convolution", "decay_rate")):
            tensors[key] = x.squeeze(1) if x.dim() == 3 else x.flatten()
    save(f"{cases}/{name}.safetensors", tensors,
         {"format": "conformance-1", "case": name, "subject": "layer.delta", "config": json.dumps(settings)})


SIZES = dict(hidden_size=12, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
             linear_value_head_dim=5, linear_conv_kernel_dim=3)
case("delta_qwen", Qwen3_5GatedDeltaNet, Qwen3_5TextConfig(**SIZES), {"H": 2, "values": 4, "eps": 1e-6})
case("delta_kda", KimiLinearDeltaAttention,
     KimiLinearConfig(hidden_size=12, linear_num_heads=2, linear_head_dim=8, linear_conv_kernel_dim=4,
                      rms_norm_eps=1e-5), {"H": 2})
