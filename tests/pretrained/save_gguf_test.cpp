// Models as GGUF files [pretrained/save_gguf.cpp, pretrained/files/gguf/gguf_writer.h].
#include <cmath>
#include <filesystem>
#include <limits>

#include "stretto_pretrained.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using testing::same_bits;
using testing::TempDir;

namespace {

constexpr const char* text = "to be, or not to be: that is the question. 123 don't 4567\n\n";

// A new model of a type with GQA, and a tokenizer whose vocabulary is smaller than the model's.
nn::Pretrained made(const std::string& type, const std::string& more = "",
                    nn::WordSplit split = nn::WordSplit::gpt2) {
  manual_seed(4);
  nn::Pretrained p = nn::initialize_pretrained(
      R"({"model_type": ")" + type +
      R"(", "vocab_size": 300, "hidden_size": 64, "num_hidden_layers": 2, "initializer_range": 0.3,
          "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "head_dim": 32,
          "max_position_embeddings": 48, "rms_norm_eps": 1e-5)" +
      more + "}");
  const NoGrad guard;
  for (const nn::NamedTensor& n : p.model->named_parameters())  // also biases and norms
    if (n.tensor.dim() == 1) n.tensor.copy_(rand_like(n.tensor) + 0.5);
  p.tokenizer = nn::train_bpe(
      text, {.vocabulary = 280, .special_tokens = {"<|im_end|>", "<|im_start|>"}, .split = split});
  p.chat_template = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}";
  return p;
}

Tensor logits(const nn::Pretrained& p) {
  const NoGrad guard;
  return p.language_model()(tensor({3, 1, 290, 17, 5}).unsqueeze(0));
}

}  // namespace

TEST_CASE("save_gguf: the loaded model has the same bits", "[pretrained][gguf]") {
  const TempDir folder;
  const std::string path = folder.file("a.gguf");
  struct Case {
    const char *type, *more;
    nn::WordSplit split = nn::WordSplit::gpt2;
  };
  for (const Case& c : std::vector<Case>{
           {"llama", R"(, "tie_word_embeddings": true)"},
           {"llama", R"(, "attention_bias": true, "mlp_bias": true, "rope_theta": 500000.0)",
            nn::WordSplit::llama3},
           {"llama", R"(, "rope_scaling": {"rope_type": "linear", "factor": 4.0})",
            nn::WordSplit::smollm},
           {"mistral", R"(, "sliding_window": 3)"},
           {"qwen2", R"(, "tie_word_embeddings": true)", nn::WordSplit::qwen2},
           {"qwen3", ""}}) {
    INFO(c.type << c.more);
    const nn::Pretrained p = made(c.type, c.more, c.split);
    nn::save_gguf(path, p, nn::GgufType::f32);
    const nn::Pretrained q = nn::load_pretrained(path);
    CHECK(q.model_type == (std::string(c.type) == "mistral" ? "llama" : c.type));
    CHECK(same_bits(logits(q), logits(p)));
    CHECK(q.max_length == 48);
    CHECK(q.chat_template == p.chat_template);
    CHECK(q.tokenizer->encode(text) == p.tokenizer->encode(text));
    CHECK(q.tokenizer->encode("a<|im_end|>b") == p.tokenizer->encode("a<|im_end|>b"));
    CHECK(q.tokenizer->eos() == p.tokenizer->eos());
    CHECK(q.tokenizer->is_special(0));
    CHECK(q.generation.end_tokens == std::vector<int64_t>{0});
    // Once more, from the file, and as a folder.
    nn::save_gguf(folder.file("b.gguf"), q, nn::GgufType::f32);
    CHECK(same_bits(logits(nn::load_pretrained(folder.file("b.gguf"))), logits(p)));
    const std::string saved = folder.file(std::string("folder-") + c.type);
    std::filesystem::remove_all(saved);
    nn::save_pretrained(saved, q);
    CHECK(same_bits(logits(nn::load_pretrained(saved)), logits(p)));
  }
}

TEST_CASE("save_gguf: types of matrices", "[pretrained][gguf]") {
  const TempDir folder;
  const std::string path = folder.file("a.gguf");
  const nn::Pretrained p = made("qwen3");
  const auto worst = [&](nn::GgufType type) {
    nn::save_gguf(path, p, type);
    const nn::Pretrained q = nn::load_pretrained(path);
    double error = 0;
    const auto before = p.model->named_parameters(), after = q.model->named_parameters();
    for (size_t i = 0; i < before.size(); ++i) {
      const Tensor &x = before[i].tensor, &y = after[i].tensor;
      if (x.dim() == 1) CHECK(same_bits(x, y));
      error = std::max(error, ((x - y).abs() / (x.abs().max())).max().item());
    }
    return error;
  };
  CHECK(worst(nn::GgufType::f32) == 0);
  CHECK(worst(nn::GgufType::f16) <= 0x1p-11);
  CHECK(worst(nn::GgufType::bf16) <= 0x1p-8);
  CHECK(worst(nn::GgufType::q8_0) <= 0.5 / 127 + 0x1p-11);  // the scale is a half
  nn::save_gguf(path, p, nn::GgufType::bf16);
  nn::Pretrained half = nn::load_pretrained(path, {.dtype = bf16});
  nn::save_gguf(folder.file("b.gguf"), half, nn::GgufType::bf16);
  const nn::GgufFile a(path), b(folder.file("b.gguf"));
  CHECK(same_bits(a["blk.0.attn_q.weight"], b["blk.0.attn_q.weight"]));
  CHECK(a.get<std::string>("tokenizer.ggml.pre") == "gpt-2");
  CHECK(a.get<int64_t>("qwen3.attention.head_count_kv") == 2);
}

// The expected values are those of gguf.quants.quantize() of gguf 0.17, Python.
TEST_CASE("gguf_bytes: the bytes of the gguf package", "[pretrained][gguf]") {
  std::vector<float> x;
  for (int i = 0; i < 64; ++i) x.push_back(float((i * 37 % 101 - 50) / 64.0 * (i < 32 ? 1 : 1e-7)));
  x[5] = 3, x[40] = 0;
  const auto hex = [&](nn::GgufType type, size_t n) {
    std::string digits;
    for (const char byte : nn::files::gguf_bytes(x, type, "x").substr(0, n)) {
      constexpr const char* all = "0123456789abcdef";
      digits += all[uint8_t(byte) / 16];
      digits += all[uint8_t(byte) % 16];
    }
    return digits;
  };
  CHECK(hex(nn::GgufType::f16, 16) == "40ba80b2003600b900aa004280b7002f");
  CHECK(hex(nn::GgufType::bf16, 16) == "48bf50bec03e20bf40bd4040f0bee03d");
  CHECK(hex(nn::GgufType::q8_0, 68) ==
        "0c26dff710e6fe7fec051df30be1f912e80018ee071ff50de3fb14ea021af00921f7"
        "00003c96f656b0106fca0084e3439efd5db71777d1318beb4ba50565bf1f7fd93993");
  // All halves there are, and values between them: ties to even, and the smallest numbers.
  for (const auto& [value, expected] :
       std::vector<std::pair<float, std::string>>{{0x1p-24f, "0100"},
                                                  {0x1p-25f, "0000"},
                                                  {0x3p-25f, "0200"},
                                                  {-0x1p-14f, "0084"},
                                                  {0x1.ff8p-15f, "ff03"},
                                                  {0x1.ffcp-15f, "0004"},
                                                  {1 + 0x1p-11f, "003c"},
                                                  {1 + 0x3p-11f, "023c"},
                                                  {65504, "ff7b"},
                                                  {65519, "ff7b"}}) {
    x = {value};
    INFO(value);
    CHECK(hex(nn::GgufType::f16, 2) == expected);
  }
}

TEST_CASE("save_gguf: what it refuses leaves the file as it was", "[pretrained][gguf]") {
  const TempDir folder;
  const std::string path = folder.file("a.gguf");
  testing::write_file(path, "mine");
  const auto refused = [&](const nn::Pretrained& p, const std::string& expected,
                           nn::GgufType type = nn::GgufType::f32) {
    INFO(expected);
    CHECK_THROWS_WITH(nn::save_gguf(path, p, type), Containing(expected));
    CHECK(testing::read_file(path) == "mine");
  };
  refused(made("gemma2"), "a gemma2 model; supported are llama, mistral, qwen2 and qwen3");
  refused(made("llama", R"(, "rope_scaling": {"rope_type": "yarn", "factor": 2.0})"),
          "RoPE is scaled or partial");
  refused(made("qwen2", R"(, "use_sliding_window": true, "sliding_window": 4,
                          "max_window_layers": 1)"),
          "layers with different windows");
  nn::Pretrained p = made("llama");
  p.tokenizer.reset();
  refused(p, "the model has no tokenizer");
  p = made("llama");
  nn::add_lora(*p.model, {.rank = 2, .targets = {"q"}});
  refused(p, "the model has adapters");
  p = made("llama");
  const NoGrad guard;
  p.model->parameters().at(0).fill_(1e6);
  refused(p, "token_embd.weight: the value 1e+06 does not fit into f16", nn::GgufType::f16);
  p = made("llama");
  for (const nn::NamedTensor& n : p.model->named_parameters())
    if (n.name.ends_with("linear2.weight"))
      n.tensor.fill_(std::numeric_limits<double>::quiet_NaN());
  refused(p, "does not fit into q8_0", nn::GgufType::q8_0);
  CHECK_THROWS_WITH(nn::gguf_type_of("q4_0"), Containing("\"q4_0\"; accepted are"));
  CHECK_THROWS_WITH(nn::save_gguf(folder.file("none/a.gguf"), made("llama")), Containing("none"));
}
