"""Writes the vectors of sentence-transformers for the sentences of a file, with the model MiniLM of
tests/published_models.sh:  python expected_minilm.py [FOLDER]      (needs sentence-transformers)

FOLDER is build/published by default. The test "MiniLM gives the vectors of sentence-transformers" reads the result,
FOLDER/expected/minilm.safetensors.
"""
import pathlib
import sys

import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer

SENTENCES = [
    "A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby.",
    "A cheetah is running behind its prey.", "", "Relative positions in attention: distances, not places.",
    "Über allen Gipfeln ist Ruh'", "音楽は言葉のないところから始まる。", "emoji 🎵🎶 and  several   blanks\tand tabs",
    "word " * 400,
]


def main(folder):
    model = SentenceTransformer(str(folder / "minilm" / "model"), device="cpu")
    vectors = model.encode(SENTENCES, convert_to_tensor=True).float()
    out = folder / "expected"
    out.mkdir(exist_ok=True)
    lines = "\n".join(SENTENCES).encode()
    save_file({"vectors": vectors.contiguous(), "text": torch.tensor(list(lines), dtype=torch.uint8)},
              out / "minilm.safetensors")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/published"))
