"""Writes small random models of each supported architecture, as transformers saves them, with the outputs of
transformers:  python expected.py FOLDER      (needs torch, transformers, safetensors, peft)

The test "load_pretrained computes what transformers computes" reads FOLDER, by default build/pretrained.
"""
import pathlib
import sys

import torch
import transformers as t
from safetensors.torch import save_file

VOCABULARY = 61
LLAMA = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16, "rope_theta": 500000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 1e6}

MODELS = {
    "llama": (t.LlamaForCausalLM, t.LlamaConfig(**LLAMA)),
    "llama-tied": (t.LlamaForCausalLM, t.LlamaConfig(**LLAMA, tie_word_embeddings=True, attention_bias=True,
                                                     mlp_bias=True, head_dim=12)),
    "llama-linear": (t.LlamaForCausalLM, t.LlamaConfig(**LLAMA, rope_parameters=LINEAR)),
    "llama-3": (t.LlamaForCausalLM, t.LlamaConfig(**LLAMA, rope_parameters=LLAMA3)),
    "mistral": (t.MistralForCausalLM, t.MistralConfig(**LLAMA, sliding_window=5)),
    "mistral-full": (t.MistralForCausalLM, t.MistralConfig(**LLAMA, sliding_window=None)),
    "qwen2": (t.Qwen2ForCausalLM, t.Qwen2Config(**LLAMA)),
    "qwen2-sliding": (t.Qwen2ForCausalLM, t.Qwen2Config(**LLAMA, use_sliding_window=True, sliding_window=4,
                                                        max_window_layers=1)),
    "qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config(**LLAMA, head_dim=16, rope_parameters=YARN)),
    "smollm3": (t.SmolLM3ForCausalLM, t.SmolLM3Config(**LLAMA, no_rope_layer_interval=2, pad_token_id=0)),
    "gemma2": (t.Gemma2ForCausalLM, t.Gemma2Config(**LLAMA, head_dim=12, sliding_window=5, query_pre_attn_scalar=20,
                                                   attn_logit_softcapping=3.0, final_logit_softcapping=2.0)),
    "gpt2": (t.GPT2LMHeadModel, t.GPT2Config(vocab_size=VOCABULARY, n_embd=24, n_layer=2, n_head=3, n_positions=64)),
    "gpt_neox": (t.GPTNeoXForCausalLM, t.GPTNeoXConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2,
                                                       num_attention_heads=4, intermediate_size=40,
                                                       max_position_embeddings=64)),
    "gpt_neox-sequential": (t.GPTNeoXForCausalLM,
                            t.GPTNeoXConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2,
                                            num_attention_heads=2, intermediate_size=40, use_parallel_residual=False,
                                            max_position_embeddings=64)),
    "gptj": (t.GPTJForCausalLM, t.GPTJConfig(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=2, rotary_dim=8,
                                             n_positions=64)),
    "bloom": (t.BloomForCausalLM, t.BloomConfig(vocab_size=VOCABULARY, hidden_size=24, n_layer=2, n_head=3)),
    "t5": (t.T5ForConditionalGeneration, t.T5Config(vocab_size=VOCABULARY, d_model=24, d_kv=8, d_ff=40, num_layers=2,
                                                    num_heads=3, relative_attention_num_buckets=8,
                                                    relative_attention_max_distance=12)),
    "t5-1.1": (t.T5ForConditionalGeneration, t.T5Config(vocab_size=VOCABULARY, d_model=24, d_kv=8, d_ff=40,
                                                        num_layers=2, num_decoder_layers=1, num_heads=3,
                                                        feed_forward_proj="gated-gelu", tie_word_embeddings=False,
                                                        scale_decoder_outputs=False)),
    "bert": (t.BertModel, t.BertConfig(vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=2,
                                       num_attention_heads=3, intermediate_size=40, max_position_embeddings=32)),
}


def randomize(model):
    """Random values for all parameters: norms and biases start as constants, which would hide errors."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            around = 1.0 if p.dim() == 1 and "bias" not in name else 0.0
            p.copy_(around + 0.1 * torch.randn_like(p) if p.dim() == 1 else 0.2 * torch.randn_like(p))


def write_adapter(folder):
    """A LoRA adapter of PEFT for the model "llama", with the outputs."""
    import peft
    model = t.LlamaForCausalLM.from_pretrained(folder / "llama").eval()
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=10, target_modules=["q_proj", "down_proj"]))
    torch.manual_seed(5)
    for name, p in adapted.named_parameters():
        if "lora_" in name:
            p.data = 0.2 * torch.randn_like(p)
    adapted.save_pretrained(folder / "llama-peft")
    tokens = torch.randint(0, VOCABULARY, (2, 20))
    with torch.no_grad():
        output = adapted.double()(input_ids=tokens).logits
    save_file({"tokens": tokens, "output": output}, folder / "llama-peft" / "expected.safetensors")


def main(folder):
    for name, (cls, config) in MODELS.items():
        torch.manual_seed(len(name))
        config._attn_implementation = "eager"  # Gemma 2 has no soft cap otherwise
        model = cls(config).eval()
        randomize(model)
        out = folder / name
        model.save_pretrained(out)
        model = model.double()
        tokens = torch.randint(0, VOCABULARY, (2, 20))
        expected = {"tokens": tokens}
        with torch.no_grad():
            if name.startswith("t5"):
                expected["target"] = torch.randint(0, VOCABULARY, (2, 9))
                expected["output"] = model(input_ids=tokens, decoder_input_ids=expected["target"]).logits
            elif name == "bert":
                expected["padding"] = torch.zeros(2, 20, dtype=torch.uint8)
                expected["padding"][1, 13:] = 1
                result = model(input_ids=tokens, attention_mask=1 - expected["padding"].long())
                expected["output"], expected["pooled"] = result.last_hidden_state, result.pooler_output
            else:
                expected["output"] = model(input_ids=tokens).logits
        save_file({k: v.contiguous() for k, v in expected.items()}, out / "expected.safetensors")
        print(name)
    write_adapter(folder)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
