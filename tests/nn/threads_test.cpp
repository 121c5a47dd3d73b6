// What README guarantees for threads. Also runs under ThreadSanitizer (tests/threads.cmake).
#include <exception>
#include <memory>
#include <thread>

#include "autograd/tape.h"
#include "nn/models/language_model.h"
#include "nn/optim/optim.h"
#include "nn/positions/relative_sinusoid.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/rotary.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "tests/nn/positions/spe.h"

using testing::Layers;
using testing::layers_of;
using testing::spe_codes;

namespace {

// Runs f(0) … f(n − 1), each in its own thread; exceptions are rethrown here.
template <class F>
void on_threads(int n, F f) {
  std::vector<std::exception_ptr> errors{size_t(n)};
  std::vector<std::thread> threads;
  const Device device = default_device();
  for (int i = 0; i < n; ++i)
    threads.emplace_back([&, i] {
      try {
        const DefaultDevice here(device);
        f(i);
      } catch (...) {
        errors[size_t(i)] = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

struct Setting {
  std::string name;
  nn::MakePositionalEncoding position;
  nn::MakeKernel kernel = {};
};

std::vector<Setting> settings() {
  std::vector<Setting> all = {
      {"none, softmax", {}},
      {"music", nn::music_relative({.max_length = 16})},
      {"xl", nn::relative_sinusoid()},
      {"rotary, favor", nn::rotary(), nn::linear_kernel(nn::favor({.features = 8}))},
      {"none, redrawn favor", {}, nn::linear_kernel(nn::favor({.features = 8, .redraw = 2}))}};
  for (const auto& code : spe_codes())
    if (code.share != SpeShare::parameters)
      all.push_back({code.name, code.make, nn::linear_kernel()});
  return all;
}

// Token by token, with a cache.
Tensor generated(const Layers& model, const Tensor& x) {
  std::vector<nn::KeyValueCache> caches(3);
  Tensors parts;
  for (int64_t i = 0; i < x.size(1); ++i)
    parts.push_back(model(x.slice(1, i, i + 1), {.causal = true}, &caches));
  return cat(parts, 1);
}

Tensor remainder_of(const Tensor& x, int64_t n) {
  std::vector<int64_t> values = x.to_vector<int64_t>();
  for (int64_t& v : values) v %= n;
  return stretto::tensor(values, x.shape());
}

Tensors all_gradients(const nn::Module& model) {
  Tensors all;
  for (const Tensor& p : model.parameters()) all.push_back(p.grad());
  return all;
}

}  // namespace

TEST_CASE("threads: several threads can run inference with one model") {
  constexpr int n = 4;
  for (const Setting& s : settings()) {
    INFO(s.name);
    manual_seed(4);
    const auto model = layers_of(s.position, s.kernel);
    model->eval();
    Tensors inputs, alone, alone_step(n), together(n), together_step(n);
    {
      NoGrad guard;
      for (int i = 0; i < n; ++i) {
        inputs.push_back(fixed_noise({1, 5 + i, 8}, uint64_t(i)));
        alone.push_back((*model)(inputs[size_t(i)]));
        alone_step[size_t(i)] = generated(*model, inputs[size_t(i)]);
      }
    }
    on_threads(n, [&](int i) {
      NoGrad guard;
      for (int round = 0; round < 3; ++round) {
        together[size_t(i)] = (*model)(inputs[size_t(i)]);
        together_step[size_t(i)] = generated(*model, inputs[size_t(i)]);
      }
    });
    for (size_t i = 0; i < n; ++i) {
      CHECK(same_bits(together[i], alone[i]));
      CHECK(same_bits(together_step[i], alone_step[i]));
    }
  }
}

TEST_CASE("threads: models can train in parallel while other threads use random numbers") {
  const auto train = [](int seed) {
    nn::LanguageModel model(
        {.vocabulary = 11,
         .n_layers = 2,
         .layer = {.d_model = 16,
                   .attention = {.n_heads = 2,
                                 .bias = false,
                                 .position = nn::music_relative({.max_length = 8})},
                   .feed_forward = {.d_hidden = 32}}});
    {
      NoGrad guard;
      uint64_t i = 0;  // initial values depend on the order of the threads
      for (Tensor& p : model.parameters())
        p.copy_(fixed_noise(p.shape(), 100 * uint64_t(seed) + ++i, f32) * 0.1);
    }
    nn::Adam optimizer(model.parameters(), {.lr = 1e-2});
    const Tensor tokens = (arange(18).reshape({2, 9}) * double(seed + 2)).to(i64);
    const Tensor input = remainder_of(tokens, 11);
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      cross_entropy(model(input.slice(1, 0, 8)), input.slice(1, 1, 9)).backward();
      optimizer.step();
    }
    return model.parameters();
  };
  std::vector<Tensors> alone, together(3);
  for (int i = 0; i < 3; ++i) alone.push_back(train(i));
  const uint64_t before = random_state().next_stream;
  on_threads(5, [&](int i) {
    if (i < 3) together[size_t(i)] = train(i);
    for (int k = 0; i >= 3 && k < 200; ++k) rand({16});
  });
  CHECK(random_state().next_stream >= before + 400);
  for (size_t i = 0; i < 3; ++i) {
    REQUIRE(together[i].size() == alone[i].size());
    for (size_t k = 0; k < alone[i].size(); ++k) CHECK(same_bits(together[i][k], alone[i][k]));
  }
}

TEST_CASE("threads: several backward passes can add to shared parameters") {
  for (const Setting& s : settings()) {
    INFO(s.name);
    manual_seed(4);
    const auto model = layers_of(s.position, s.kernel);
    model->eval();  // no noise: all threads have the same gradient
    const auto backward_of = [&](int i) {
      const Tensor y = (*model)(fixed_noise({1, 6, 8}, uint64_t(i)));
      sum(y * y).backward();
    };
    for (int i = 0; i < 4; ++i) backward_of(i);
    Tensors expected;
    for (const Tensor& g : all_gradients(*model)) expected.push_back(g.clone());
    model->zero_grad();
    on_threads(4, backward_of);
    const Tensors found = all_gradients(*model);
    for (size_t i = 0; i < found.size(); ++i) CHECK(worst_error(found[i], expected[i]) < 1e-12);
  }
}

TEST_CASE("threads: several threads can run training calls of one model, including its noise") {
  for (const Setting& s : settings()) {
    INFO(s.name);
    manual_seed(4);
    const auto model = layers_of(s.position, s.kernel);
    on_threads(4, [&](int i) {
      for (int round = 0; round < 3; ++round) {
        const Tensor x = fixed_noise({1, 6, 8}, uint64_t(i));
        const auto whole = [&](const Tensors& in) { return (*model)(in[0]); };
        sum(square(round == 1 ? recompute(whole, {x}) : whole({x}))).backward();
      }
    });
    for (const Tensor& g : all_gradients(*model)) {
      REQUIRE(g.defined());
      CHECK(std::isfinite(sum(g).item()));
    }
  }
}
