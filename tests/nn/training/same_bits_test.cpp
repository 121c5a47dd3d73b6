// Training steps are bit-identical for any number of threads, with every instruction set.
#include "core/cpu.h"
#include "core/parallel.h"
#include "core/random.h"
#include "nn/models/language_model.h"
#include "nn/models/registry.h"
#include "nn/optim/optim.h"
#include "ops/create.h"
#include "ops/loss.h"
#include "tests/support/catch.h"

using namespace stretto;

namespace {

struct Setting {
  std::string position, kernel;
  DType dtype = f32;
  int64_t length = 96, heads = 2;
};

// The weights after two steps, with dropout and gradient clipping.
std::vector<std::vector<float>> trained(const Setting& s) {
  manual_seed(3);
  nn::LanguageModel::Options o{
      .vocabulary = 50,
      .n_layers = 2,
      .layer = {
          .d_model = 32 * s.heads,
          .attention = {.n_heads = s.heads,
                        .kernel = nn::find_kernel(s.kernel).make({.features = 40, .redraw = 1})},
          .feed_forward = {.d_hidden = 128 * s.heads, .activation = nn::Activation::gelu},
          .dropout = 0.1}};
  nn::add_position(s.position, {.length = s.length, .realizations = 32, .sines = 3, .taps = 20},
                   o.layer, o.input);
  nn::LanguageModel model(o);
  model.to(s.dtype);
  nn::AdamW optimizer(model.parameters(), {.lr = 1e-2});
  for (int step = 0; step < 2; ++step) {
    const Tensor ids = randint(0, 50, {3, s.length});
    optimizer.zero_grad();
    cross_entropy(model(ids), ids).backward();
    nn::clip_grad_norm(model.parameters(), 0.5);
    optimizer.step();
  }
  std::vector<std::vector<float>> all;
  for (const Tensor& p : model.parameters()) all.push_back(p.detach().to(f32).to_vector<float>());
  return all;
}

void check_threads(const Setting& s) {
  INFO(str(s.position, ", ", s.kernel, ", ", s.dtype, ", ", cpu_description()));
  const int before = num_threads();
  set_num_threads(1);
  const auto alone = trained(s);
  for (const int threads : {2, 4}) {
    set_num_threads(threads);
    CHECK(trained(s) == alone);
  }
  set_num_threads(before);
}

}  // namespace

TEST_CASE("steps with every position and kernel are bit-identical for 1, 2 and 4 threads") {
  if (!default_device().is_cpu()) STRETTO_SKIP("threads and instruction sets are the CPU's");
  for (const nn::PositionEntry& position : nn::positions())
    for (const nn::KernelEntry& kernel : nn::kernels()) {
      if (!position.traits().causal || (position.traits().scores && kernel.traits().recurrent))
        continue;
      check_threads({position.name, kernel.name, f32, 70, 1});
    }
}

TEST_CASE("steps with every instruction set are bit-identical for 1, 2 and 4 threads",
          "[exhaustive]") {
  if (!default_device().is_cpu()) STRETTO_SKIP("threads and instruction sets are the CPU's");
  for (const Isa most :
       {Isa::portable, Isa::neon, Isa::avx2, Isa::avx512, Isa::amx, Isa::emulated}) {
    const IsaCap cap(most);
    if (isa() != most) continue;
    for (const DType dtype : {f32, bf16}) {
      check_threads({"music", "softmax", dtype});
      check_threads({"xl", "softmax", dtype});
      check_threads({"rope", "performer", dtype});
      check_threads({"conv", "linear-elu", dtype});
    }
  }
}
