"""A model that `finetune --gguf` has written, in llama.cpp (PyPI: xllamacpp)."""

import pytest
import torch

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


def as_type(folder, model_type, **options):
    """Replaces the weights of a LLaMA model by random ones of another type of transformers."""
    transformers = pytest.importorskip("transformers")
    old = transformers.AutoConfig.from_pretrained(folder)
    names = ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"]
    names += ["num_key_value_heads", "max_position_embeddings", "bos_token_id", "eos_token_id"]
    config = transformers.AutoConfig.for_model(
        model_type, **{name: getattr(old, name) for name in names}, **options
    )
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        if parameter.dim() == 1:  # biases and norms, which are all 0 or 1
            parameter.data += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)


OTHERS = [
    ("mistral", {"head_dim": 16, "sliding_window": None}),
    ("qwen2", {"tie_word_embeddings": True}),
    ("qwen3", {"head_dim": 16}),
]
CASES = [("llama", {}, kind) for kind in ["f32", "f16", "bf16", "q8_0"]]
CASES += [(*other, kind) for other in OTHERS for kind in ["f32", "q8_0"]]


@pytest.mark.parametrize("model_type, options, kind", CASES)
def test_greedy_text_is_the_same(tmp_path, model_type, options, kind):
    (tmp_path / "text.txt").write_text("\n".join(LINES * 40))
    new = "--vocabulary 300 --layers 2 --d-model 64 --heads 2 --kv-heads 1 --length 64 --out new"
    tune = f"--full --gguf {kind} --steps 60 --length 32 --batch 4 --learning-rate 0.003 --out tuned"
    for command in [["new-model", *new.split()], ["finetune", "new", *tune.split()]]:
        result = run(*command, "--data", "text.txt", folder=tmp_path)
        assert result.returncode == 0, result.stderr
        if command[0] == "new-model" and model_type != "llama":
            as_type(tmp_path / "new", model_type, **options)
    path = tmp_path / "tuned/model.gguf"
    model = stretto.load_pretrained(path)
    for prompt in ["A and B are", "E", "C and D"]:
        ids = model.tokenizer.encode(prompt)
        expected = model.generate(ids, max_tokens=24, temperature=0, end_tokens=[])
        assert greedy_text(path, prompt, 24) == model.tokenizer.decode(expected)
