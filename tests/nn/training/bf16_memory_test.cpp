// The memory of a training step in bf16, compared with f32.
#include "core/storage.h"
#include "nn/models/language_model.h"
#include "nn/models/registry.h"
#include "nn/optim/optim.h"
#include "ops/create.h"
#include "ops/loss.h"
#include "tests/support/catch.h"
#include "tests/support/gpu.h"

using namespace stretto;

namespace {

// Peak bytes of a step above those in use between steps (weights, gradients, moments).
int64_t taken_by_step(const std::string& position, const std::string& kernel, DType dtype) {
  nn::LanguageModel::Options o{
      .vocabulary = 50,
      .n_layers = 3,
      .layer = {.d_model = 64,
                .attention = {.n_heads = 2, .kernel = nn::find_kernel(kernel).make({})},
                .feed_forward = {.d_hidden = 256, .activation = nn::Activation::gelu},
                .dropout = 0.1}};
  nn::add_position(position, {.length = 256}, o.layer, o.input);
  nn::LanguageModel model(o);
  model.to(dtype);
  nn::AdamW optimizer(model.parameters(), {});
  int64_t taken = 0;
  for (int step = 0; step < 2; ++step) {
    const int64_t before = testing::live_bytes();
    reset_peak_memory();
    const Tensor ids = randint(0, 50, {default_device().is_cpu() ? 8 : 1, 256});
    optimizer.zero_grad();
    cross_entropy(model(ids), ids).backward();
    nn::clip_grad_norm(model.parameters(), 1);
    optimizer.step();
    taken = memory_stats().peak - before;
  }
  return taken;
}

}  // namespace

TEST_CASE("a training step in bf16 needs at most 0.6 of the memory of f32") {
  for (const auto& [position, kernel] : {std::pair{"music", "softmax"},
                                         {"xl", "softmax"},
                                         {"learned", "softmax"},
                                         {"rope", "linear-elu"},
                                         {"learned", "performer"}}) {
    const int64_t narrow = taken_by_step(position, kernel, bf16),
                  wide = taken_by_step(position, kernel, f32);
    INFO(position << ", " << kernel << ": " << narrow << " and " << wide << " bytes");
    // On a GPU fused softmax attention also saves the rounding errors of its outputs
    // (cuda/attention/attention.h).
    const bool rest = default_device().is_cuda() && std::string(kernel) == "softmax";
    CHECK(narrow <= 0.6 * wide + (rest ? 3 * 256 * 64 * 2 : 0));  // layers, tokens, d_model, bytes
  }
}
