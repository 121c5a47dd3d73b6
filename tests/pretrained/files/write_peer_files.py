"""Writes files of weights with PyTorch and the gguf package, for peer_files_test.cpp.

python write_peer_files.py FOLDER     needs torch, gguf, numpy and safetensors

zip.pt, zip4.pt (pickle protocol 4) and old.pt (the format before zip archives) hold the same nested
dict; torch.safetensors has its tensors under their flattened names, in the dtypes that Stretto
reads. quants.gguf has random blocks of every supported type, gguf.safetensors their values.
"""

import sys
import warnings

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import save_file

warnings.simplefilter("ignore")
folder = sys.argv[1]
torch.manual_seed(1)
random = np.random.default_rng(1)

DTYPES = {"F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16,
          "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
          "U8": torch.uint8, "BOOL": torch.bool}
# Dtypes that can be present, but not read.
OTHERS = {"c64": torch.complex64, "u16": torch.uint16, "f8": torch.float8_e4m3fn}


def noise(dtype):
    x = 20 * torch.randn(3, 5)
    return x > 0 if dtype == torch.bool else (x.abs() if dtype == torch.uint8 else x).to(dtype)


def content():
    base, big = torch.arange(24.0).reshape(4, 6), torch.randn(1000)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    parameter = torch.nn.Parameter(torch.randn(2))
    parameter.extra = 1
    return {
        "dtypes": {name: noise(dtype) for name, dtype in DTYPES.items()},
        "others": {name: torch.zeros(3).to(dtype) for name, dtype in OTHERS.items()},
        "views": {"base": base, "transposed": base.t(), "column": base[:, 1], "rows": base[1:3],
                  "steps": base[::2, 1::3], "scalar": base[2, 3], "part": big[10:13],
                  "expanded": torch.tensor([1.0, 2.0]).expand(3, 2), "empty": torch.zeros(0, 3)},
        "net": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "list": [torch.ones(1), (torch.zeros(2), [torch.full((2, 2), 7.0)])],
        "parameter": torch.nn.Parameter(torch.randn(2)),
        "with_state": parameter,
        "buffer": torch.nn.Buffer(torch.randn(2)),
        "rng": torch.get_rng_state(),
        "epoch": 3, "rate": 0.1, "name": "run", "on": True, "none": None, "big": 2**80,
        "dtype": torch.float16, "size": torch.Size([1, 2]), "device": torch.device("cpu"),
        "set": {1, 2}, "bytes": b"ab", "numbers": [0.5] * 1000,
    }


def flattened(x, name=""):
    if isinstance(x, torch.Tensor):
        yield name, x.detach()
        return
    items = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, (list, tuple)) else ()
    for key, value in items:
        yield from flattened(value, f"{name}.{key}" if name else str(key))


def as_read(x):
    wide = {torch.float16: torch.float32, torch.int16: torch.int32, torch.int8: torch.int32}
    return x.to(wide.get(x.dtype, x.dtype)).contiguous().clone()


values = content()
torch.save(values, f"{folder}/zip.pt")
torch.save(values, f"{folder}/zip4.pt", pickle_protocol=4)
torch.save(values, f"{folder}/old.pt", _use_new_zipfile_serialization=False)
save_file({name: as_read(x) for name, x in flattened(values) if not name.startswith("others.")},
          f"{folder}/torch.safetensors")
torch.save(torch.nn.Linear(2, 2), f"{folder}/module.pt")

writer = gguf.GGUFWriter(f"{folder}/quants.gguf", "llama")
expected = {}
for kind in (Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1,
             Type.Q4_K, Type.Q5_K, Type.Q6_K):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    raw = random.integers(0, 256, (7, (512 if elements > 1 else 37) // elements * size), np.uint8)
    plain = {Type.F32: np.float32, Type.F16: np.float16}.get(kind)
    if plain:
        raw = raw.view(plain)
    writer.add_tensor(kind.name, raw, raw_dtype=None if plain else kind)
    expected[kind.name] = np.ascontiguousarray(gguf.quants.dequantize(raw, kind))
writer.add_array("texts", ["a", "", "é"])
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
save_arrays(expected, f"{folder}/gguf.safetensors")
