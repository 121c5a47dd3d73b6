"""A model that `finetune --gguf` has written, in llama.cpp (PyPI: xllamacpp)."""

import pytest

import stretto
from test_programs import run

xllamacpp = pytest.importorskip("xllamacpp")

NAMES = zip("ABCDEFG", "BCDEFGH", "XYZXYZX")
LINES = [f"{a} and {b} are friends, and {b} likes {c}." for a, b, c in NAMES]


def greedy_text(path, prompt, n):
    """The text of llama.cpp after `prompt`, which its own tokenizer encodes."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_batch, parameters.warmup = 64, 64, False
    parameters.cpuparams.n_threads = 1
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    request = {"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True}
    return xllamacpp.Server(parameters).handle_completions(request)["choices"][0]["text"]


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0"])
def test_greedy_text_is_the_same(tmp_path, kind):
    (tmp_path / "text.txt").write_text("\n".join(LINES * 40))
    new = "--vocabulary 300 --layers 2 --d-model 64 --heads 2 --kv-heads 1 --length 64 --out new"
    tune = f"--full --gguf {kind} --steps 60 --length 32 --batch 4 --learning-rate 0.003 --out tuned"
    for command in [["new-model", *new.split()], ["finetune", "new", *tune.split()]]:
        result = run(*command, "--data", "text.txt", folder=tmp_path)
        assert result.returncode == 0, result.stderr
    path = tmp_path / "tuned/model.gguf"
    model = stretto.load_pretrained(path)
    for prompt in ["A and B are", "E", "C and D"]:
        ids = model.tokenizer.encode(prompt)
        expected = model.generate(ids, max_tokens=24, temperature=0, end_tokens=[])
        assert greedy_text(path, prompt, 24) == model.tokenizer.decode(expected)
