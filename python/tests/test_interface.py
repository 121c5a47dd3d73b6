"""Arrays without copies, errors, threads, models and tokenizers."""

import ctypes
import pathlib
import re
import resource
import sys
import threading

import numpy
import pytest
import torch

import stretto
from stretto import RelativeTable, _library


def arrays(*shape, count=3):
    generator = numpy.random.default_rng(0)
    return [generator.standard_normal(shape, dtype="float32") for _ in range(count)]


@pytest.mark.parametrize("convert", [lambda x: x, torch.from_numpy])
def test_no_copies(convert):
    (x,) = map(convert, arrays(2, 3, count=1))
    inputs = _library._inputs([("x", x)])
    assert inputs[0].versioned
    start = ctypes.c_void_p.from_address(inputs[0].managed + 32).value  # data in the managed tensor
    assert start == (x.ctypes.data if isinstance(x, numpy.ndarray) else x.data_ptr())
    assert not getattr(stretto.attention(*arrays(1, 1, 4, 4)), "flags").owndata


def test_inputs_are_unchanged_and_released():
    q, k, v = arrays(1, 2, 6, 4)
    bias = arrays(6, 6, count=1)[0]
    copies = [x.copy() for x in (q, k, v, bias)]
    counts = [sys.getrefcount(x) for x in (q, k, v, bias)]
    out = stretto.attention(q, k, v, bias=bias, causal=True)
    for x, copy in zip((q, k, v, bias), copies):
        numpy.testing.assert_array_equal(x, copy)
    leaves = [torch.from_numpy(x.copy()).requires_grad_() for x in (q, k, v, bias)]
    torch_out = stretto.attention(*leaves[:3], bias=leaves[3], causal=True)
    g = torch.ones_like(torch_out)
    torch.autograd.grad(torch_out, leaves, g)
    assert torch.equal(g, torch.ones_like(g))
    for x, copy in zip(leaves, copies):
        numpy.testing.assert_array_equal(x.detach().numpy(), copy)
    numpy.testing.assert_array_equal(torch_out.detach().numpy(), out)
    assert [sys.getrefcount(x) for x in (q, k, v, bias)] == counts


def test_memory_is_released():
    leaves = [torch.randn(1, 4, 512, 64, requires_grad=True) for _ in range(3)]  # 512 kB each

    def step():
        stretto.attention(*leaves).sum().backward()
        detached = [x.detach() for x in leaves]
        stretto.attention(*(x.numpy() for x in detached))
        _library._Output(_library.call("attention", list(zip("qkv", detached))), 0).__dlpack__()

    step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100):
        step()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB; leaks: 150 MB


def test_numpy_layouts():
    q, k, v = arrays(2, 6, 3, 4)
    expected = stretto.attention(*(numpy.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v)))
    q.flags.writeable = False
    found = stretto.attention(*(x.swapaxes(1, 2) for x in (q, k, v)))
    numpy.testing.assert_array_equal(found, expected)
    assert found.flags.writeable
    backwards = numpy.ascontiguousarray(q[::-1])[::-1].swapaxes(1, 2)  # negative strides
    found = stretto.attention(backwards, k.swapaxes(1, 2), v.swapaxes(1, 2))
    numpy.testing.assert_array_equal(found, expected)


def test_mixed_arrays_give_pytorch():
    q, k, v = arrays(1, 2, 5, 4)
    found = stretto.attention(torch.from_numpy(q), k, v)
    assert isinstance(found, torch.Tensor)
    numpy.testing.assert_array_equal(found.numpy(), stretto.attention(q, k, v))


def test_empty_arrays():
    for b, h, m, n in [(0, 2, 3, 4), (1, 2, 0, 4), (1, 2, 3, 0), (1, 2, 0, 0)]:
        q, k, v = (torch.randn(b, h, size, 4, requires_grad=True) for size in (m, n, n))
        out = stretto.attention(q, k, v)
        assert out.shape == (b, h, m, 4) and not out.detach().any()
        out.sum().backward()
        assert all(x.grad is not None and not x.grad.any() for x in (q, k, v))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"window": -1}, "must not be negative"),
        ({"implementation": "best"}, 'accepted: "automatic", "composed", "fused"'),
        ({"window": 1.5}, "window is 1.5; accepted: integers"),
        ({"causal": 1}, "causal is 1; accepted: true, false"),
        ({"dropout_key": [1]}, "accepted: .seed, stream."),
        ({"scale": float("nan")}, "JSON"),
        ({"relative_keys": RelativeTable(numpy.ones((1, 3, 4), "f"), -1)}, "zero_row"),
        ({"relative_bias": RelativeTable(numpy.ones((1, 3), "f"), 2, "error")}, "from -2 to 0, but"),
        ({"bias": numpy.ones((5, 5))}, "dtypes must agree"),
        ({"bias": numpy.ones((5, 5), "float16")}, r"16 bits.*accepted: f32.*\(argument bias\)"),
        ({"key_padding": torch.ones(1, 5, device="meta")}, "argument key_padding"),
    ],
)
def test_errors_are_value_errors(options, text):
    with pytest.raises(ValueError, match=text):
        stretto.attention(*arrays(1, 2, 5, 4), **options)


def test_other_errors():
    q, k, v = arrays(1, 2, 5, 4)
    with pytest.raises(ValueError, match=r"\[attention\] .* f32 \[1, 2, 5, 4\].*\[1, 2, 5, 3\]"):
        stretto.attention(q, k[..., :3], v)
    with pytest.raises(TypeError, match="unexpected keyword"):
        stretto.attention(q, k, v, is_causal=True)
    with pytest.raises(ValueError, match='unknown argument "is_causal"; accepted: q, k, v, causal'):
        stretto.attention_weights(q, k, is_causal=True)
    with pytest.raises(TypeError, match="relative_bias is a ndarray; accepted: stretto.RelativeTable"):
        stretto.attention(q, k, v, relative_bias=q)
    with pytest.raises(TypeError, match="q is a list; accepted: NumPy arrays, PyTorch tensors"):
        stretto.attention(q.tolist(), k, v)
    with pytest.raises(ValueError, match="1 to 256"):
        stretto.set_num_threads(0)
    with pytest.raises(MemoryError):
        stretto.attention_scores(*(torch.ones(1).expand(1, 1, 2**26, 1) for _ in "qk"))


def test_two_threads():
    inputs = [[torch.from_numpy(x) for x in arrays(2, 2, 150 + i, 16)] for i in range(2)]

    def gradients(qkv):
        leaves = [x.clone().requires_grad_() for x in qkv]
        return torch.autograd.grad(stretto.attention(*leaves, causal=True).square().sum(), leaves)

    expected, wrong = [gradients(qkv) for qkv in inputs], []

    def work(i):
        for _ in range(50):
            if not all(map(torch.equal, gradients(inputs[i]), expected[i])):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_torch_compile_breaks_the_graph_at_a_call():
    def f(x):
        return stretto.attention(x * 2, x, x).sum()

    x = torch.randn(1, 1, 5, 4, requires_grad=True)
    (g,) = torch.autograd.grad(torch.compile(f, backend="eager")(x), x)
    assert torch.equal(g, torch.autograd.grad(f(x), x)[0])


def test_music(tmp_path):
    tokenizer = stretto.music.Tokenizer("tsd")
    names = ["Pitch_60", "Velocity_63", "Duration_1.0.8", "TimeShift_1.0.8", "Pitch_64"]
    names += ["Velocity_63", "Duration_0.4.8"]
    ids = [tokenizer.token_names.index(name) for name in names]
    tokenizer.decode(ids, tmp_path / "a.mid")
    found = [tokenizer.token_names[i] for i in tokenizer.encode(tmp_path / "a.mid")]
    assert [name for name in found if not name.startswith(("Tempo", "EOS"))] == names
    with pytest.raises(ValueError, match="tsd-multitrack"):
        stretto.music.Tokenizer("midi")


def test_pretrained(tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=300, hidden_size=32, intermediate_size=48,
                                      num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2)  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval().double()
    model.save_pretrained(tmp_path)
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator(["the cat sat on the mat"] * 9, vocab_size=300)
    bpe.save(str(tmp_path / "tokenizer.json"))

    loaded = stretto.load_pretrained(tmp_path, dtype="f64")
    assert loaded.model_type == "llama"
    ids = bpe.encode("the cat on a hat").ids
    assert loaded.tokenizer.encode("the cat on a hat") == ids
    assert loaded.tokenizer.decode(ids) == "the cat on a hat"
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits
    found = loaded.logits(torch.tensor([ids]))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)  # its RoPE is f32
    new = loaded.generate(ids, max_tokens=3, temperature=0, end_tokens=[])
    assert len(new) == 3 and new[0] == int(expected[0, -1].argmax())
    text = loaded.generate("the cat on a hat", max_tokens=3, temperature=0, end_tokens=[])
    assert text == loaded.tokenizer.decode(new)
    with pytest.raises(ValueError, match="chat"):
        loaded.chat("Hello")
    with pytest.raises(ValueError, match="nowhere"):
        stretto.load_pretrained(tmp_path / "nowhere")


def test_the_programs_of_the_page():
    page = (pathlib.Path(__file__).parents[2] / "docs/python.md").read_text()
    programs = re.findall("```python\n(.*?)```", page, re.DOTALL)
    assert programs
    for program in programs:
        exec(program, {})  # noqa: S102
