"""Writes random logits and what transformers' logits processors make of them.

    python tests/nn/models/sampling_peer.py build/sampling_peer.txt

Each case has three lines: the options (temperature top_k top_p min_p repetition_penalty), the
sequence so far, and V pairs of a logit and its probability after all processors, in the order of
transformers' generate(). Computed in f64. tests/nn/models/sampling_peer_test.cpp reads the file.
"""

import sys

import torch
import transformers
from transformers import GenerationConfig
from transformers.generation import logits_process as lp


def processors(o):
    """The processors of these options in the order of GenerationMixin._get_logits_processor."""
    each = [
        o["repetition_penalty"] != 1 and lp.RepetitionPenaltyLogitsProcessor(o["repetition_penalty"]),
        o["temperature"] != 1 and lp.TemperatureLogitsWarper(o["temperature"]),
        o["top_k"] > 0 and lp.TopKLogitsWarper(o["top_k"]),
        o["top_p"] < 1 and lp.TopPLogitsWarper(o["top_p"]),
        o["min_p"] > 0 and lp.MinPLogitsWarper(o["min_p"]),
    ]
    return lp.LogitsProcessorList([p for p in each if p])


def check_order():
    """The order above is that of transformers itself."""
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=8, n_embd=4, n_layer=1, n_head=1, n_positions=8))
    config = GenerationConfig(do_sample=True, repetition_penalty=1.5, temperature=0.7, top_k=3,
                              top_p=0.5, min_p=0.1, bos_token_id=0, eos_token_id=1)
    config._eos_token_tensor = torch.tensor([1])
    custom = lp.LogitsProcessorList([lambda ids, scores: scores])
    found = model._get_logits_processor(config, input_ids_seq_length=1, logits_processor=custom)
    names = [type(p).__name__ for p in found]
    assert names == ["RepetitionPenaltyLogitsProcessor", "function", "TemperatureLogitsWarper",
                     "TopKLogitsWarper", "TopPLogitsWarper", "MinPLogitsWarper"], names


def main(path):
    check_order()
    torch.manual_seed(0)
    choose = lambda *values: values[torch.randint(len(values), ()).item()]
    with open(path, "w") as out:
        for case in range(400):
            o = {
                "temperature": choose(1.0, 0.3, 0.8, 2.5),
                "top_k": choose(0, 1, 5, 40),
                "top_p": choose(1.0, 0.1, 0.5, 0.9, 0.99),
                "min_p": choose(0.0, 0.01, 0.1, 0.5),
                "repetition_penalty": choose(1.0, 1.3, 0.8, 2.0),
            }
            v = choose(50, 200)
            ids = torch.randint(v, (1, choose(1, 10, 30)))
            logits = torch.randn(1, v, dtype=torch.float64) * 3
            p = torch.softmax(processors(o)(ids, logits.clone()), -1)
            print(*o.values(), file=out)
            print(*ids[0].tolist(), file=out)
            print(*(f"{x!r} {y!r}" for x, y in zip(logits[0].tolist(), p[0].tolist())), file=out)
    print(f"{path}: transformers {transformers.__version__}, torch {torch.__version__}")


main(sys.argv[1])
