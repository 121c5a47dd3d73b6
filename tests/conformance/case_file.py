"""Writes a case in the format of README.md."""

import json
import struct


def save(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, x in tensors.items():
        raw = x.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": "F64", "shape": list(x.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
