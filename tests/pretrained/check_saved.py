"""Compares models of nn::save_pretrained() with transformers, and adapters of nn::save_lora() with PEFT:
python check_saved.py FOLDER      (needs torch, transformers, safetensors, peft)

The tests write them:  STRETTO_SAVED=FOLDER build/release/tests/stretto_tests "[#save_pretrained_test]"
"""
import json
import pathlib
import sys
import warnings

import peft
import torch
import transformers as t
from expected import states_in_f64
from safetensors.torch import load_file

TEXT = "Hello, <|im_end|>world! 2026 Ü\n\n  a b"


def auto_class(config):
    if config.model_type in ("bert", "deberta-v2", "mpnet", "modernbert", "roberta", "xlm-roberta", "camembert"):
        return t.AutoModel
    return t.AutoModelForSeq2SeqLM if config.is_encoder_decoder else t.AutoModelForCausalLM


def output_of(model, expected):
    tokens = expected["tokens"]
    with torch.no_grad():
        if "target" in expected:
            return model(input_ids=tokens, decoder_input_ids=expected["target"]).logits
        if "padding" in expected:
            hidden = model(input_ids=tokens, attention_mask=1 - expected["padding"].long()).last_hidden_state
            return hidden * (1 - expected["padding"].unsqueeze(-1).float())
        return model(input_ids=tokens).logits


def open_model(folder):
    """Opens a model or a model with an adapter; every tensor of its files must be used."""
    if (folder / "adapter_config.json").exists():
        base = json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"]
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*missing adapter keys")
            adapted = peft.PeftModel.from_pretrained(open_model(pathlib.Path(base)), folder)
        mine, theirs = set(load_file(folder / "adapter_model.safetensors")), set(peft.get_peft_model_state_dict(adapted))
        assert mine == theirs, (folder.name, mine ^ theirs)
        return adapted
    model, info = auto_class(t.AutoConfig.from_pretrained(folder)).from_pretrained(
        folder, dtype="auto", attn_implementation="eager", experts_implementation="eager", output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[key], (folder.name, key, info[key])
    assert model.dtype == torch.float32, (folder.name, model.dtype)
    return model


def check(folder):
    """Returns the largest difference between our outputs in f32 and theirs in f64."""
    model = open_model(folder).double()  # PEFT's own error in f32 is 2e-4 for SmolLM2
    expected = load_file(folder / "expected.safetensors")
    want = expected["output"].double()
    if "padding" in expected:
        want = want * (1 - expected["padding"].unsqueeze(-1).double())
    with states_in_f64():  # Inkling 2 computes the router in f32, whose weights are now f64
        error = (output_of(model.eval(), expected) - want).abs().max().item()
    if (folder / "tokenizer.json").exists():
        tokenizer = t.AutoTokenizer.from_pretrained(folder)
        ids = json.loads((folder / "expected_ids.json").read_text())
        assert tokenizer(TEXT).input_ids == ids, (folder.name, tokenizer(TEXT).input_ids, ids)
        template = folder / "chat_template.jinja"
        assert tokenizer.chat_template == (template.read_text() if template.exists() else None), folder.name
    return error


def main(folder):
    wrong = []
    for saved in sorted(p for p in folder.iterdir() if (p / "expected.safetensors").exists()):
        if saved.name.startswith("transfo-xl"):
            continue  # transformers 5 does not have it
        error = check(saved)
        print(f"{saved.name:24} {error:.1e}")
        if error >= 1e-4:
            wrong.append(saved.name)
    sys.exit(f"different: {wrong}" if wrong else 0)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
