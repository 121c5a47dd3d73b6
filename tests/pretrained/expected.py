"""Writes small random models of each supported architecture, as transformers saves them, with the outputs of
transformers:  python expected.py FOLDER      (needs torch, transformers, safetensors, peft,
sentencepiece)

transformers 5 has no Transformer-XL, and gwinndr's Music Transformer is not a part of it: expected_networks.py.

The test "load_pretrained computes what transformers computes" reads FOLDER, by default build/pretrained.
"""
import contextlib
import io
import json
import pathlib
import sys

import sentencepiece
import torch
import transformers as t
from expected_networks import music_transformer, music_transformer_weights, transformer_xl, transformer_xl_weights
from safetensors.torch import save_file

VOCABULARY = 61
LLAMA = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16, "rope_theta": 500000.0}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 500.0}
PROPORTIONAL = {"rope_type": "proportional", "factor": 2.0, "partial_rotary_factor": 0.6, "rope_theta": 500.0}
SHORT = [1.0, 1.5, 2.0, 3.0]
LONGROPE = {"rope_type": "longrope", "short_factor": SHORT, "long_factor": [1.0, 4.0, 9.0, 16.0], "rope_theta": 5e3}
HYBRID = LLAMA | dict(num_hidden_layers=4, linear_key_head_dim=6, linear_value_head_dim=10, linear_num_key_heads=2,
                      linear_num_value_heads=4)
EXPERTS = dict(moe_intermediate_size=20, shared_expert_intermediate_size=28, num_experts=4, num_experts_per_tok=2)
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 1e6}
DEEPSEEK_YARN = YARN | {"mscale": 0.7, "mscale_all_dim": 0.9}
LATENT = LLAMA | dict(num_key_value_heads=4, kv_lora_rank=10, qk_nope_head_dim=8, qk_rope_head_dim=6, v_head_dim=9,
                      moe_intermediate_size=20)
INKLING = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
               head_dim=12, swa_num_attention_heads=4, swa_num_key_value_heads=2, swa_head_dim=12, sliding_window_size=5,
               d_rel=6, rel_extent=9, moe_intermediate_size=20, n_routed_experts=5, num_experts_per_tok=2,
               n_shared_experts=2, max_position_embeddings=64)
INKLING2 = {k: v for k, v in INKLING.items() if k not in ("n_shared_experts", "intermediate_size")} | dict(
    unpadded_vocab_size=VOCABULARY - 4, qk_l2_clip_threshold=1.5, rel_l2_clip_threshold=0.8, mlp_gate_softcap=0.6,
    mlp_up_softcap=0.4, final_logit_softcapping=2.0, n_layers_per_attn_res_block=2, eos_token_id=3)

DEBERTA = dict(vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
               max_position_embeddings=32, relative_attention=True)
XL = dict(model_type="transfo-xl", vocab_size=VOCABULARY, n_layer=2, d_model=24, d_embed=24, n_head=3, d_head=10,
          d_inner=40, mem_len=5, clamp_len=4, same_length=True, pre_lnorm=False, untie_r=True, cutoffs=[20, 40],
          div_val=2, tie_projs=[False, True, True], tie_word_embeddings=True, layer_norm_epsilon=1e-5, attn_type=0,
          adaptive=True, sample_softmax=-1, eos_token_id=0)
XL_MODELS = {
    "transfo-xl": XL,
    "transfo-xl-pre": XL | dict(pre_lnorm=True, untie_r=False, same_length=False, clamp_len=-1, mem_len=9, d_embed=16,
                                div_val=1, cutoffs=[30], tie_projs=[False, True]),
    "transfo-xl-untied": XL | dict(tie_word_embeddings=False, tie_projs=[False, False, False], mem_len=30),
    "transfo-xl-flat": XL | dict(cutoffs=[], div_val=1, tie_projs=[False]),
}

MODELS = {
    "llama": (t.LlamaForCausalLM, t.LlamaConfig(**LLAMA)),
    "llama-tied": (t.LlamaForCausalLM, t.LlamaConfig(**LLAMA, tie_word_embeddings=True, attention_bias=True,
                                                     mlp_bias=True, head_dim=12)),
    "llama-linear": (t.LlamaForCausalLM, t.LlamaConfig(**LLAMA, rope_parameters=LINEAR)),
    "llama-3": (t.LlamaForCausalLM, t.LlamaConfig(**LLAMA, rope_parameters=LLAMA3)),
    "llama-dynamic": (t.LlamaForCausalLM, t.LlamaConfig(**LLAMA, head_dim=12, rope_parameters=DYNAMIC)),
    "llama-longrope": (t.LlamaForCausalLM, t.LlamaConfig(
        **LLAMA, rope_parameters=LONGROPE | {"original_max_position_embeddings": 24, "factor": 3.0})),
    "llama-proportional": (t.LlamaForCausalLM, t.LlamaConfig(**LLAMA, head_dim=12, rope_parameters=PROPORTIONAL)),
    "mistral": (t.MistralForCausalLM, t.MistralConfig(**LLAMA, sliding_window=5)),
    "mistral-full": (t.MistralForCausalLM, t.MistralConfig(**LLAMA, sliding_window=None)),
    "qwen2": (t.Qwen2ForCausalLM, t.Qwen2Config(**LLAMA)),
    "qwen2-sliding": (t.Qwen2ForCausalLM, t.Qwen2Config(**LLAMA, use_sliding_window=True, sliding_window=4,
                                                        max_window_layers=1)),
    "qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config(**LLAMA, head_dim=16, rope_parameters=YARN)),
    "qwen3_moe": (t.Qwen3MoeForCausalLM, t.Qwen3MoeConfig(**LLAMA, head_dim=12, moe_intermediate_size=20, num_experts=5,
                                                          num_experts_per_tok=2, mlp_only_layers=[1])),
    "qwen3_moe-sliding": (t.Qwen3MoeForCausalLM, t.Qwen3MoeConfig(
        **LLAMA, moe_intermediate_size=20, num_experts=4, num_experts_per_tok=3, decoder_sparse_step=2,
        norm_topk_prob=True, use_sliding_window=True, sliding_window=5, attention_bias=True)),
    "phi3": (t.Phi3ForCausalLM, t.Phi3Config(**LLAMA, sliding_window=6, pad_token_id=0, bos_token_id=1, eos_token_id=2)),
    "phi3-partial": (t.Phi3ForCausalLM, t.Phi3Config(
        **LLAMA | dict(num_key_value_heads=4), pad_token_id=0, bos_token_id=1, eos_token_id=2, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5})),
    "phi3-longrope": (t.Phi3ForCausalLM, t.Phi3Config(
        **LLAMA, pad_token_id=0, bos_token_id=1, eos_token_id=2, original_max_position_embeddings=20,
        rope_parameters=dict(LONGROPE))),
    "phi3-yarn": (t.Phi3ForCausalLM, t.Phi3Config(
        **LLAMA, pad_token_id=0, bos_token_id=1, eos_token_id=2, original_max_position_embeddings=24, rope_parameters={
            "type": "yarn", "short_factor": SHORT[:2], "long_factor": SHORT[2:], "attention_factor": 1.3,
            "partial_rotary_factor": 0.5})),
    "qwen2_moe": (t.Qwen2MoeForCausalLM, t.Qwen2MoeConfig(
        **LLAMA, moe_intermediate_size=20, shared_expert_intermediate_size=28, num_experts=4, num_experts_per_tok=2,
        use_sliding_window=True, sliding_window=4, max_window_layers=1)),
    "mixtral": (t.MixtralForCausalLM, t.MixtralConfig(**LLAMA, num_local_experts=4, sliding_window=6)),
    "mixtral-tied": (t.MixtralForCausalLM, t.MixtralConfig(**LLAMA | dict(num_key_value_heads=4), head_dim=12,
                                                           num_local_experts=3, num_experts_per_tok=1,
                                                           tie_word_embeddings=True)),
    "deepseek_v2": (t.DeepseekV2ForCausalLM, t.DeepseekV2Config(
        **LATENT, q_lora_rank=None, n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=2,
        first_k_dense_replace=1, rope_parameters=DEEPSEEK_YARN)),
    "deepseek_v2-groups": (t.DeepseekV2ForCausalLM, t.DeepseekV2Config(
        **LATENT, q_lora_rank=14, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, n_group=3, topk_group=2,
        topk_method="group_limited_greedy", routed_scaling_factor=1.5, attention_bias=True, tie_word_embeddings=True)),
    "deepseek_v3": (t.DeepseekV3ForCausalLM, t.DeepseekV3Config(
        **LATENT, q_lora_rank=14, n_routed_experts=6, num_experts_per_tok=3, n_shared_experts=1, n_group=3, topk_group=2,
        first_k_dense_replace=1, rope_parameters=DEEPSEEK_YARN | {"mscale": 1.0, "mscale_all_dim": 1.0})),
    "deepseek_v3-half": (t.DeepseekV3ForCausalLM, t.DeepseekV3Config(
        **LATENT | dict(num_attention_heads=2, num_key_value_heads=2, v_head_dim=15), q_lora_rank=None,
        n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=2, n_group=1, topk_group=1, first_k_dense_replace=0,
        norm_topk_prob=False, rope_interleave=False, attention_bias=True)),
    "smollm3": (t.SmolLM3ForCausalLM, t.SmolLM3Config(**LLAMA, no_rope_layer_interval=2, pad_token_id=0)),
    "smollm3-sliding": (t.SmolLM3ForCausalLM, t.SmolLM3Config(**LLAMA, no_rope_layers=[1, 0, 1], pad_token_id=0,
                                                              use_sliding_window=True, sliding_window=4)),
    "gemma2": (t.Gemma2ForCausalLM, t.Gemma2Config(**LLAMA, head_dim=12, sliding_window=5, query_pre_attn_scalar=20,
                                                   attn_logit_softcapping=3.0, final_logit_softcapping=2.0)),
    "gemma3": (t.Gemma3ForCausalLM, t.Gemma3TextConfig(**LLAMA | dict(num_hidden_layers=7), head_dim=12,
                                                       sliding_window=5, query_pre_attn_scalar=20,
                                                       rope_parameters={"full_attention": LINEAR, "sliding_attention": {
                                                           "rope_type": "default", "rope_theta": 50.0}})),
    "gemma3-defaults": (t.Gemma3ForCausalLM, t.Gemma3TextConfig(**LLAMA, head_dim=16, final_logit_softcapping=2.0)),
    "olmo2": (t.Olmo2ForCausalLM, t.Olmo2Config(**LLAMA, head_dim=12, attention_bias=True, eos_token_id=3)),
    "olmo2-tied": (t.Olmo2ForCausalLM, t.Olmo2Config(**LLAMA | dict(num_key_value_heads=4, num_attention_heads=4),
                                                     tie_word_embeddings=True, rope_parameters=LLAMA3)),
    "olmo2-one-head": (t.Olmo2ForCausalLM, t.Olmo2Config(
        **LLAMA | dict(num_key_value_heads=1, num_attention_heads=1), head_dim=10)),
    "olmo3": (t.Olmo3ForCausalLM, t.Olmo3Config(**LLAMA | dict(num_hidden_layers=5), sliding_window=5, rope_parameters={
        "full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}})),
    "olmo3-types": (t.Olmo3ForCausalLM, t.Olmo3Config(
        **LLAMA | dict(num_key_value_heads=1), head_dim=12, sliding_window=3, tie_word_embeddings=True,
        attention_bias=True, layer_types=["full_attention", "sliding_attention", "full_attention"])),
    "granite": (t.GraniteForCausalLM, t.GraniteConfig(**LLAMA, embedding_multiplier=12, logits_scaling=13,
                                                      residual_multiplier=0.22, attention_multiplier=0.4)),
    "granite-tied": (t.GraniteForCausalLM, t.GraniteConfig(
        **LLAMA | dict(num_key_value_heads=1), head_dim=12, tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
        embedding_multiplier=0.3, logits_scaling=0.25, residual_multiplier=1.5, rope_parameters=LINEAR)),
    "granite-defaults": (t.GraniteForCausalLM, t.GraniteConfig(**LLAMA)),
    "gpt_oss": (t.GptOssForCausalLM, t.GptOssConfig(**LLAMA, head_dim=12, num_local_experts=5, num_experts_per_tok=3,
                                                    sliding_window=5)),
    "gpt_oss-clamped": (t.GptOssForCausalLM, t.GptOssConfig(
        **LLAMA | dict(num_key_value_heads=1), head_dim=8, num_local_experts=3, num_experts_per_tok=1,
        sliding_window=3, attention_bias=False, tie_word_embeddings=True, swiglu_limit=0.4, swiglu_alpha=1.1,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"], rope_parameters=dict(DYNAMIC))),
    "qwen3_next": (t.Qwen3NextForCausalLM, t.Qwen3NextConfig(**HYBRID, **EXPERTS, head_dim=16, mlp_only_layers=[1])),
    "qwen3_next-tied": (t.Qwen3NextForCausalLM, t.Qwen3NextConfig(
        **HYBRID | dict(linear_num_value_heads=6, linear_value_head_dim=4, linear_conv_kernel_dim=3), **EXPERTS,
        head_dim=12, tie_word_embeddings=True, attention_bias=True, norm_topk_prob=False, decoder_sparse_step=2,
        layer_types=["full_attention", "linear_attention"] * 2,
        rope_parameters=YARN | {"partial_rotary_factor": 0.5})),
    "qwen3_next-equal-heads": (t.Qwen3NextForCausalLM, t.Qwen3NextConfig(
        **HYBRID | dict(num_key_value_heads=4, linear_num_value_heads=2, linear_key_head_dim=9), head_dim=20,
        mlp_only_layers=[0, 2], num_experts=2, num_experts_per_tok=1, full_attention_interval=2,
        partial_rotary_factor=0.3)),
    "qwen3_5": (t.Qwen3_5ForCausalLM, t.Qwen3_5TextConfig(**HYBRID, head_dim=16)),
    "qwen3_5-tied": (t.Qwen3_5ForCausalLM, t.Qwen3_5TextConfig(
        **HYBRID | dict(num_hidden_layers=5, linear_num_key_heads=3, linear_num_value_heads=3, linear_conv_kernel_dim=2),
        head_dim=24, tie_word_embeddings=True, attention_bias=True, full_attention_interval=3, rope_parameters={
            "rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5, "mrope_interleaved": True,
            "mrope_section": [2, 2, 2]})),
    "qwen3_5-multi-query": (t.Qwen3_5ForCausalLM, t.Qwen3_5TextConfig(
        **HYBRID | dict(num_key_value_heads=1), head_dim=8, layer_types=["linear_attention"] * 3 + ["full_attention"])),
    "qwen3_5_moe": (t.Qwen3_5MoeForCausalLM, t.Qwen3_5MoeTextConfig(**HYBRID, **EXPERTS, head_dim=16)),
    "qwen3_5_moe-tied": (t.Qwen3_5MoeForCausalLM, t.Qwen3_5MoeTextConfig(
        **HYBRID | dict(linear_num_value_heads=2, linear_key_head_dim=5), **EXPERTS | dict(num_experts_per_tok=3),
        head_dim=12, tie_word_embeddings=True, full_attention_interval=2, rope_parameters={
            "rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 1.0})),
    "olmo_hybrid": (t.OlmoHybridForCausalLM, t.OlmoHybridConfig(
        **HYBRID, head_dim=12, rms_norm_eps=1e-3, pad_token_id=0, eos_token_id=3)),
    "olmo_hybrid-tied": (t.OlmoHybridForCausalLM, t.OlmoHybridConfig(
        **HYBRID | dict(num_key_value_heads=1, linear_num_key_heads=3, linear_num_value_heads=3), pad_token_id=0,
        tie_word_embeddings=True, attention_bias=True, linear_allow_neg_eigval=False, linear_conv_kernel_dim=3,
        layer_types=["full_attention", "linear_attention"] * 2, rope_parameters={"rope_theta": None})),
    "olmo_hybrid-defaults": (t.OlmoHybridForCausalLM, t.OlmoHybridConfig(
        **LLAMA | dict(num_hidden_layers=5, num_key_value_heads=4), pad_token_id=0, rope_parameters=YARN)),
    "inkling_text": (t.InklingForCausalLM, t.InklingTextConfig(
        **INKLING, num_hidden_layers=4, layer_types=["hybrid_sliding", "hybrid"] * 2,
        mlp_layer_types=["dense", "sparse", "sparse", "dense"], log_scaling_n_floor=7, logits_mup_width_multiplier=3.0)),
    "inkling_text-heads": (t.InklingForCausalLM, t.InklingTextConfig(
        **INKLING | dict(swa_num_attention_heads=6, swa_num_key_value_heads=3, swa_head_dim=5, num_key_value_heads=4,
                         n_shared_experts=1, num_experts_per_tok=3),
        num_hidden_layers=3, local_layer_ids=[0, 1], dense_mlp_idx=1, conv_kernel_size=3,
        log_scaling_n_floor=3, log_scaling_alpha=0.7, route_scale=2.5)),
    "inkling_text-dense": (t.InklingForCausalLM, t.InklingTextConfig(
        **INKLING | dict(num_key_value_heads=1, sliding_window_size=30, rel_extent=3), num_hidden_layers=7,
        mlp_layer_types=["dense"] * 7, conv_kernel_size=2, hidden_act="gelu", unpadded_vocab_size=VOCABULARY - 6)),
    "inkling2_text": (t.Inkling2ForCausalLM, t.Inkling2TextConfig(
        **INKLING2, num_hidden_layers=5, layer_types=["hybrid_sliding", "hybrid", "hybrid", "hybrid_sliding", "hybrid"],
        log_scaling_n_floor=7)),
    "inkling2_text-heads": (t.Inkling2ForCausalLM, t.Inkling2TextConfig(
        **INKLING2 | dict(swa_num_attention_heads=6, swa_num_key_value_heads=3, swa_head_dim=5, num_key_value_heads=4,
                          n_layers_per_attn_res_block=3, num_experts_per_tok=3, unpadded_vocab_size=VOCABULARY),
        num_hidden_layers=7, conv_kernel_size=3, log_scaling_n_floor=3, log_scaling_alpha=0.7, route_scale=2.5,
        rms_norm_eps=1e-2)),
    "inkling2_text-full": (t.Inkling2ForCausalLM, t.Inkling2TextConfig(
        **INKLING2 | dict(num_key_value_heads=1, head_dim=7, rel_extent=3, n_layers_per_attn_res_block=1,
                          qk_l2_clip_threshold=22.0), num_hidden_layers=3, layer_types=["hybrid"] * 3,
        conv_kernel_size=1)),
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
    "roberta": (t.RobertaModel, t.RobertaConfig(vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=2,
                                                num_attention_heads=3, intermediate_size=40, type_vocab_size=1,
                                                max_position_embeddings=34, layer_norm_eps=1e-5)),
    "xlm-roberta": (t.XLMRobertaModel, t.XLMRobertaConfig(vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=2,
                                                          num_attention_heads=2, intermediate_size=40,
                                                          max_position_embeddings=34, pad_token_id=3)),
    "mpnet": (t.MPNetModel, t.MPNetConfig(vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=3,
                                          num_attention_heads=3, intermediate_size=40, max_position_embeddings=34)),
    "mpnet-relu": (t.MPNetModel, t.MPNetConfig(vocab_size=VOCABULARY, hidden_size=20, num_hidden_layers=1,
                                                   num_attention_heads=5, intermediate_size=28, hidden_act="relu",
                                                   max_position_embeddings=24, layer_norm_eps=1e-5, pad_token_id=0)),
    "modernbert": (t.ModernBertModel, t.ModernBertConfig(
        vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=5, num_attention_heads=3, intermediate_size=28,
        local_attention=16, max_position_embeddings=32, pad_token_id=0)),  # padded tokens see others
    "modernbert-biases": (t.ModernBertModel, t.ModernBertConfig(
        vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=3, num_attention_heads=2, intermediate_size=20,
        local_attention=15, attention_bias=True, mlp_bias=True, norm_bias=True, hidden_activation="silu", pad_token_id=0,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"], rope_parameters={
            "full_attention": LINEAR, "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}})),
    "deberta-v3": (t.DebertaV2Model, t.DebertaV2Config(**DEBERTA, position_buckets=6, max_relative_positions=-1,
                                                       norm_rel_ebd="layer_norm", share_att_key=True,
                                                       pos_att_type="p2c|c2p", position_biased_input=False)),
    "deberta-v2": (t.DebertaV2Model, t.DebertaV2Config(**DEBERTA, max_relative_positions=12, norm_rel_ebd="none",
                                                       pos_att_type=["c2p", "p2c"], type_vocab_size=2)),
    "deberta-v2-conv": (t.DebertaV2Model, t.DebertaV2Config(**DEBERTA, position_buckets=8, pos_att_type="p2c|c2p",
                                                            share_att_key=True, position_biased_input=False,
                                                            norm_rel_ebd="layer_norm", attention_head_size=8,
                                                            conv_kernel_size=3, conv_act="gelu")),
    "deberta-c2p": (t.DebertaV2Model, t.DebertaV2Config(**DEBERTA, position_buckets=8, pos_att_type="c2p",
                                                        norm_rel_ebd="layer_norm")),
    "deberta-p2c": (t.DebertaV2ForMaskedLM, t.DebertaV2Config(**DEBERTA, pos_att_type="p2c", share_att_key=True,
                                                              norm_rel_ebd="layer_norm")),
}


def randomize(model):
    """Random values for all parameters: norms and biases start as constants, which would hide errors."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            around = p.mean().item() if "norm" in name else 1.0 if p.dim() == 1 and "bias" not in name else 0.0
            around = -1.0 if name.endswith("A_log") else around  # a state that lasts for several tokens
            near = p.dim() == 1 or name.endswith("norm.scale")
            p.copy_(around + 0.1 * torch.randn_like(p) if near else 0.2 * torch.randn_like(p))
        for name, b in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                b.copy_(0.2 * torch.randn_like(b))


@contextlib.contextmanager
def states_in_f64():
    """Computes in f64 what transformers computes in f32 in every model, such as norms and recurrent states."""
    saved = torch.Tensor.float, torch.float32
    torch.Tensor.float, torch.float32 = torch.Tensor.double, torch.float64
    try:
        yield
    finally:
        torch.Tensor.float, torch.float32 = saved


ALL_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS = {
    "llama": dict(r=4, lora_alpha=10, lora_dropout=0.1, target_modules=ALL_LINEAR, task_type="CAUSAL_LM"),
    "qwen3_next-equal-heads": dict(r=2, target_modules=["q_proj", "in_proj_qkvz", "in_proj_ba", "o_proj", "out_proj"]),
    "qwen3_5": dict(r=3, lora_alpha=5, target_modules="all-linear"),
    "olmo_hybrid": dict(r=2, lora_alpha=7, target_modules="all-linear"),
    "qwen2": dict(r=2, lora_alpha=3, use_rslora=True, target_modules="all-linear", init_lora_weights="gaussian"),
    "gpt2": dict(r=3, target_modules=["c_attn", "c_fc", "c_proj"], fan_in_fan_out=True, modules_to_save=[]),
    "gpt_neox": dict(r=3, target_modules=["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"],
                     exclude_modules="x"),
    "olmo3": dict(r=2, target_modules=["q_proj", "o_proj", "up_proj"]),
    "granite": dict(r=3, target_modules=ALL_LINEAR, task_type="CAUSAL_LM"),
    "inkling2_text": dict(r=2, target_modules=["linear", "gate_proj", "sink_proj", "weight_proj"]),
    "gpt_oss": dict(r=2, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
    "bloom": dict(r=2, target_modules=["query_key_value"]),
    "t5": dict(r=2, target_modules=["q", "v", "wi", "wo"], task_type="SEQ_2_SEQ_LM"),
    "modernbert": dict(r=2, target_modules=["Wqkv", "Wi", "Wo"], task_type="FEATURE_EXTRACTION"),
    "mpnet": dict(r=2, target_modules=["q", "o", "dense"], task_type="FEATURE_EXTRACTION"),
    "bert": dict(r=2, target_modules=["query", "value", "dense"], task_type="FEATURE_EXTRACTION"),
}


def write_adapters(folder):
    """LoRA adapters of PEFT for some of the models, with the outputs."""
    import peft
    for name, settings in ADAPTERS.items():
        model = MODELS[name][0].from_pretrained(folder / name, experts_implementation="eager").eval()
        adapted = peft.get_peft_model(model, peft.LoraConfig(**settings)).eval()
        torch.manual_seed(5)
        for key, p in adapted.named_parameters():
            if "lora_" in key:
                p.data = 0.2 * torch.randn_like(p)
        out = folder / f"{name}-peft"
        adapted.save_pretrained(out)
        tokens = torch.randint(4 if name == "mpnet" else 0, VOCABULARY, (2, 20))
        target = torch.randint(0, VOCABULARY, (2, 9))
        inputs = {"decoder_input_ids": target} if name == "t5" else {}
        with torch.no_grad(), states_in_f64():
            output = adapted.double()(input_ids=tokens, **inputs)[0]
        padding = torch.zeros(2, 20, dtype=torch.uint8)
        save_file({"tokens": tokens, "target": target, "padding": padding, "output": output.contiguous()},
                  out / "expected.safetensors")


def write_deberta_tokenizer(folder):
    """A SentencePiece model as that of DeBERTa v3, without tokenizer_class and tokenizer.json, and the ids of a text."""
    corpus = ["the cat sat on the mat and the dog ran after the cat", "music is made of notes and of rests",
              "attention is all you need to read the notes"] * 20
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=model, vocab_size=60, hard_vocab_limit=False, model_type="unigram",
        pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]",
        unk_piece="[UNK]", minloglevel=2)
    (folder / "spm.model").write_bytes(model.getvalue())
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false, "vocab_type": "spm"}')
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    text = "  The dog reads,  the notes of a Café"
    ids = [pieces.bos_id()] + pieces.encode(text) + [pieces.eos_id()]
    save_file({"text": torch.tensor(list(text.encode())), "ids": torch.tensor(ids),
               "mask": torch.tensor([pieces.get_piece_size()])}, folder / "tokenizer.safetensors")


def write_transformer_xl(folder):
    """Two segments of a stream, the second with the memory of the first; the log-probabilities of both."""
    for name, config in XL_MODELS.items():
        torch.manual_seed(len(name))
        weights = transformer_xl_weights(config)
        out = folder / name
        out.mkdir(parents=True, exist_ok=True)
        (out / "config.json").write_text(json.dumps(config))
        torch.save(weights, out / "pytorch_model.bin")
        weights = {k: v.double() for k, v in weights.items()}
        tokens = torch.randint(0, VOCABULARY, (2, 14))
        memory = [torch.zeros(2, config["mem_len"], config["d_model"]).double()] * config["n_layer"]
        first, memory = transformer_xl(weights, config, tokens[:, :8], memory)
        second, _ = transformer_xl(weights, config, tokens[:, 8:], memory)
        save_file({"tokens": tokens, "output": torch.cat([first, second], 1)}, out / "expected.safetensors")
        print(name)


def write_music_transformer(folder):
    torch.manual_seed(3)
    out = folder / "music-transformer"
    out.mkdir(parents=True, exist_ok=True)
    weights = music_transformer_weights(vocabulary=390, d=24, d_head=8, d_hidden=40, n_layers=2, max_length=32)
    torch.save(weights, out / "best_acc_weights.pickle")
    tokens = torch.randint(0, 390, (2, 20))
    output = music_transformer({k: v.double() for k, v in weights.items()}, tokens)
    save_file({"tokens": tokens, "output": output}, out / "expected.safetensors")


def main(folder):
    for name, (cls, config) in MODELS.items():
        torch.manual_seed(len(name))
        config._attn_implementation = "eager"  # Gemma 2 has no soft cap otherwise
        config._experts_implementation = "eager"  # others have no f64
        model = cls(config).eval()
        randomize(model)
        out = folder / name
        model.save_pretrained(out)
        model = model.double()
        counts = "roberta" in name or "mpnet" in name  # positions of tokens that are not padding
        tokens = torch.randint(4 if counts else 0, VOCABULARY, (2, 20))
        expected = {"tokens": tokens}
        with torch.no_grad(), states_in_f64():
            if name.startswith("t5"):
                expected["target"] = torch.randint(0, VOCABULARY, (2, 9))
                expected["output"] = model(input_ids=tokens, decoder_input_ids=expected["target"]).logits
            elif "bert" in name or "mpnet" in name:
                expected["padding"] = torch.zeros(2, 20, dtype=torch.uint8)
                expected["padding"][1, 13:] = 1
                encoder = getattr(model, "deberta", model)
                result = encoder(input_ids=tokens, attention_mask=1 - expected["padding"].long())
                expected["output"] = result.last_hidden_state
                if "deberta" not in name and "modern" not in name:
                    expected["pooled"] = result.pooler_output
            else:
                expected["output"] = model(input_ids=tokens).logits
        save_file({k: v.contiguous() for k, v in expected.items()}, out / "expected.safetensors")
        print(name)
    write_adapters(folder)
    write_deberta_tokenizer(folder / "deberta-v3")
    write_transformer_xl(folder)
    write_music_transformer(folder)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
