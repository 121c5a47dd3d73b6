// The number of launches of a training step, as the PTX interpreter counts them: the table in
// docs/gpu.md. A change that adds or saves a launch must change the table.
#include <memory>

#include "autograd/tape.h"
#include "nn/attention/feature_map.h"
#include "nn/attention/linear_attention.h"
#include "nn/models/language_model.h"
#include "nn/models/moe.h"
#include "nn/models/transformer_xl.h"
#include "nn/optim/optim.h"
#include "nn/positions/relative_table.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "tests/cuda/kernel_counts.h"
#include "tests/support/gpu.h"
#include "tests/support/sources.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

// Sizes that take the same kernels as the presets: head dimension 64, fused f32 attention (from 256
// keys), and sums of columns in two steps (from 257 rows).
constexpr int64_t vocabulary = 40, batch = 2, length = 256, d_model = 64;

struct Step {
  Launches forward, backward, rest;  // rest: clipping and AdamW
};

// Counts the second step; the first one creates the optimizer's state.
Step step_of(nn::Module& model, DType dtype, const std::function<Tensor()>& loss) {
  model.to(dtype).to(gpu);
  nn::AdamW optimizer(model.parameters(), {});
  Step step;
  for (int i = 0; i < 2; ++i) {
    optimizer.zero_grad();
    Tensor value;
    step.forward = launches_of([&] { value = loss(); });
    step.backward = launches_of([&] { value.backward(); });
    step.rest = launches_of([&] {
      nn::clip_grad_norm(model.parameters(), 1);
      optimizer.step();
    });
  }
  return step;
}

nn::LayerOptions small(nn::LayerOptions layer) {
  layer.d_model = d_model;
  layer.attention.n_heads = 1;
  layer.feed_forward.d_hidden = 2 * d_model;
  return layer;
}

Step language_model(nn::LanguageModel::Options options, int64_t n_layers, DType dtype) {
  options.n_layers = n_layers;
  options.layer = small(options.layer);
  nn::LanguageModel model(options);
  const Tensor ids = randint(0, vocabulary, {batch, length}).to(gpu);
  return step_of(model, dtype, [&] { return cross_entropy(model(ids), ids); });
}

// The model of character_model.
Step llama(int64_t n_layers, DType dtype) {
  return language_model(nn::llama(vocabulary), n_layers, dtype);
}
// The same with experts, of any number.
Step experts(int64_t n_layers, DType dtype) {
  nn::LanguageModel::Options options = nn::llama(vocabulary);
  options.layer.feed_forward.network = nn::moe({.n_experts = 8, .top_k = 2});
  return language_model(options, n_layers, dtype);
}
// The models of benchmarks/train_step.cpp; the first one is train_chorales', too.
Step music_transformer(int64_t n_layers, DType dtype) {
  nn::LanguageModel::Options options = nn::music_transformer(vocabulary, length);
  options.layer.dropout = 0.1;
  return language_model(options, n_layers, dtype);
}
Step gpt(int64_t n_layers, DType dtype) {
  nn::LanguageModel::Options options = nn::music_transformer(vocabulary, length);
  options.layer.dropout = 0.1;
  options.layer.attention.position = {};
  options.input.sinusoid = nn::Sinusoid::interleaved;
  return language_model(options, n_layers, dtype);
}
// train_music --preset published --position sinusoid
Step performer(int64_t n_layers, DType dtype) {
  nn::LanguageModel::Options options = nn::music_performer(vocabulary);
  options.layer.attention.kernel = nn::linear_kernel(
      nn::favor({.features = 128, .kind = nn::FavorKind::hyperbolic, .redraw = 20}), {.eps = 1e-6});
  options.input.sinusoid = nn::Sinusoid::interleaved;
  return language_model(options, n_layers, dtype);
}
// train_lm
Step transformer_xl(int64_t n_layers, DType dtype) {
  nn::LanguageModel::Options o = nn::transformer_xl(vocabulary);
  o.n_layers = n_layers;
  o.layer = small(o.layer);
  o.memory.length = length;
  nn::LanguageModel model(o);
  nn::LanguageModel::Cache memory = model.make_memory();
  const Tensor ids = randint(0, vocabulary, {batch, length}).to(gpu);
  return step_of(model, dtype, [&] { return mean(model.nll(ids, ids, &memory)); });
}

// The cells of a row of the table: launches per layer, and those of a step without layers.
std::string cells(const Step& one, const Step& two) {
  const int64_t forward = two.forward.all - one.forward.all,
                backward = two.backward.all - one.backward.all, rest = two.rest.all - one.rest.all;
  const int64_t copies = two.forward.copies - one.forward.copies + two.backward.copies -
                         one.backward.copies + two.rest.copies - one.rest.copies;
  const int64_t outside =
      one.forward.all + one.backward.all + one.rest.all - forward - backward - rest;
  return str(forward, " | ", backward, " | ", rest, " | ", copies, " | ", outside);
}

// The same cells of the page's row for the model.
std::string on_page(const std::string& name, DType dtype) {
  const std::string page = text_of("docs/gpu.md"), begin = str("\n| ", name, " | ", dtype, " | ");
  const size_t at = page.find(begin);
  if (at == std::string::npos) return "no row";
  const size_t from = at + begin.size();
  return page.substr(from, page.find(" |\n", from) - from);
}

}  // namespace

TEST_CASE("the launches of a training step are those of the table in docs/gpu.md", "[cuda]") {
  NEEDS_GPU();
  if (!has_counters()) STRETTO_SKIP("needs the counters of the PTX interpreter");
  const std::vector<std::pair<const char*, Step (*)(int64_t, DType)>> models{
      {"GPT", gpt},
      {"Music Transformer", music_transformer},
      {"LLaMA", llama},
      {"LLaMA with experts", experts},
      {"Transformer-XL", transformer_xl},
      {"Performer", performer}};
  for (const auto& [name, step] : models)
    for (const DType dtype : {bf16, f32}) {
      INFO(name);
      CHECK(cells(step(1, dtype), step(2, dtype)) == on_page(name, dtype));
    }
}
