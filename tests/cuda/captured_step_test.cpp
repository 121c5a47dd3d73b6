// A training step captured as a CUDA graph, against the same step run eagerly.
#include "nn/training/captured_step.h"

#include <dlfcn.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "autograd/tape.h"
#include "nn/models/moe.h"
#include "nn/optim/muon.h"
#include "ops/attention/attention.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/feed_forward.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

struct Run {
  std::vector<double> losses;
  std::vector<std::vector<double>> weights;
  uint64_t streams;
};

// A regression with dropout, so that random numbers, gradients, clipping and Adam's corrections all
// change from step to step. Muon updates only the first weight itself.
Run train(int steps, bool captured, bool muon = false) {
  manual_seed(3);
  const Tensor w1 = noise({16, 8}, 1100).to(gpu).set_requires_grad();
  const Tensor w2 = noise({1, 16}, 1101).to(gpu).set_requires_grad();
  const Tensor x = empty({32, 8}, {.device = gpu}), y = empty({32, 1}, {.device = gpu});
  const std::vector<nn::ParameterGroup> groups{
      {.parameters = {w1}},
      {.parameters = {w2},
       .lr_factor = [](int64_t t) { return 1 / double(t); },
       .use_muon = false}};
  std::unique_ptr<nn::Optimizer> made =
      std::make_unique<nn::AdamW>(groups, nn::AdamW::Options{.lr = 0.01});
  if (muon)
    made = std::make_unique<nn::Muon>(groups, nn::Muon::Options{.lr = 0.01, .row_variance = 0.95});
  nn::Optimizer& optimizer = *made;
  const auto step = [&] {
    optimizer.zero_grad();
    const Tensor out = muon ? feed_forward(x, w1, {}, w2, {}, Activation::relu, 0.25)
                            : linear(dropout(relu(linear(x, w1)), 0.25), w2);
    Tensor loss = mean(square(out - y));
    loss.backward();
    nn::clip_grad_norm({w1, w2}, 0.5);
    optimizer.step();
    return loss.detach();
  };
  nn::CapturedStep captured_step(gpu, step);
  Run run;
  for (int t = 0; t < steps; ++t) {
    Tensor(x).copy_(noise({32, 8}, 1110 + uint64_t(t)).to(gpu));
    Tensor(y).copy_(noise({32, 1}, 1210 + uint64_t(t)).to(gpu));
    optimizer.set_learning_rate(0.01 * (1 + t % 5));
    run.losses.push_back((captured ? captured_step() : step()).item());
  }
  CHECK(captured_step.captured() == captured);
  for (const Tensor& w : {w1, w2}) run.weights.push_back(w.to_vector<double>());
  for (const nn::ParameterState& s : optimizer.state()) CHECK(s.steps == steps);
  run.streams = random_state().next_stream;
  return run;
}

}  // namespace

TEST_CASE("a captured step is bit-identical to an eager step", "[cuda]") {
  NEEDS_GPU();
  for (const bool muon : {false, true}) {
    const Run plain = train(50, false, muon), captured = train(50, true, muon);
    CHECK(same_values(plain.losses, captured.losses));
    for (size_t i = 0; i < plain.weights.size(); ++i)
      CHECK(same_values(plain.weights[i], captured.weights[i]));
    CHECK(plain.streams == captured.streams);
  }
}

// The gradients of all operands of attention with dropout, whose backward kernels draw the same
// random numbers again.
TEST_CASE("a captured step of attention with dropout is bit-identical to an eager step", "[cuda]") {
  NEEDS_GPU();
  for (const DType type : {f32, bf16}) {
    CAPTURE(name(type));
    const auto run = [&](bool captured) {
      manual_seed(4);
      Tensors in;
      for (const Shape& shape :
           {Shape{1, 2, 40, 16}, Shape{1, 2, 40, 16}, Shape{1, 2, 40, 16}, Shape{2, 40, 16}})
        in.push_back(noise(shape, 1400 + in.size(), type).to(gpu).set_requires_grad());
      AttentionOptions options{
          .mask = {.causal = true}, .relative_keys = {in[3], 39}, .dropout = 0.25};
      options.implementation = Implementation::fused;
      const auto step = [&] {
        const Tensor y = attention(in[0], in[1], in[2], options);
        Tensors all = grad({sum(square(y.to(f32)))}, in);
        all.push_back(y.detach());
        for (Tensor& x : all) x = x.to(f32).reshape({-1});
        return cat(all, 0);
      };
      nn::CapturedStep captured_step(gpu, step, 1);
      std::vector<std::vector<double>> results;
      for (int i = 0; i < 4; ++i)
        results.push_back((captured ? captured_step() : step()).to_vector<double>());
      CHECK(captured_step.captured() == captured);
      return results;
    };
    const auto eager = run(false), captured = run(true);
    for (size_t i = 0; i < eager.size(); ++i) CHECK(same_values(captured[i], eager[i]));
    CHECK_FALSE(same_values(eager[2], eager[3]));
  }
}

// The router's choice differs from step to step, so the experts have other numbers of tokens.
TEST_CASE("a captured step of experts is bit-identical to an eager step", "[cuda]") {
  NEEDS_GPU();
  for (const DType type : {f32, bf16})
    for (const bool gated : {false, true}) {
      CAPTURE(name(type), gated);
      const auto run = [&](bool captured) {
        manual_seed(5);
        nn::Module parent;
        const nn::MoE experts(parent,
                              {.d_model = 16, .d_hidden = 24, .dropout = 0.25, .gated = gated},
                              {.n_experts = 6,
                               .score = nn::RouterScore::sigmoid,
                               .d_shared = 8,
                               .n_always = 1,
                               .selection_bias = true,
                               .n_groups = 2,
                               .top_groups = 2,
                               .balance = 0.01});
        parent.to(gpu).to(type);
        nn::AdamW optimizer(parent.parameters(), {.lr = 0.01});
        const Tensor x = empty({40, 16}, {.dtype = type, .device = gpu});
        const auto step = [&] {
          optimizer.zero_grad();
          const nn::ForwardContext forward = nn::begin_forward();
          const Tensor y = experts(x, forward);
          const Tensor loss = forward.total_loss(mean(square(y.to(f32) - x.to(f32))));
          loss.backward();
          optimizer.step();
          return loss.detach();
        };
        nn::CapturedStep captured_step(gpu, step, 1);
        std::vector<std::vector<double>> results;
        for (int i = 0; i < 6; ++i) {
          Tensor(x).copy_(noise({40, 16}, 1500 + uint64_t(i), type).to(gpu));
          const Tensor loss = captured ? captured_step() : step();
          results.push_back(loss.to_vector<double>());
          results.push_back(experts.load());
          if (i == 3) experts.update_selection_bias(0.1);
        }
        CHECK(captured_step.captured() == captured);
        for (const nn::NamedTensor& p : parent.named_parameters())
          results.push_back(p.tensor.to_vector<double>());
        return results;
      };
      const auto eager = run(false), captured = run(true);
      for (size_t i = 0; i < eager.size(); ++i) CHECK(same_values(captured[i], eager[i]));
      CHECK_FALSE(same_values(eager[1], eager[3]));
    }
}

TEST_CASE("operations that cannot be replayed are rejected", "[cuda]") {
  NEEDS_GPU();
  const Tensor x = noise({4}, 1300).to(gpu), host = noise({4}, 1301);
  const auto refused = [&](const nn::CapturedStep::Step& f, const std::string& text) {
    nn::CapturedStep step(gpu, f, 1);
    step();
    REQUIRE_THROWS_WITH(step(), Containing("[graph] " + text));
    check_equal(host + host, (host.to(gpu) + host.to(gpu)));  // the device remains usable
  };
  refused([&] { return x * sum(x).item(); }, "a copy to the host in a captured step");
  refused([&] { return x + host.to(gpu); }, "a copy from the host in a captured step");
  refused([&] { return synchronize(gpu), x; }, "waiting for the device in a captured step");
}

TEST_CASE("work of another thread does not become part of a captured step", "[cuda]") {
  NEEDS_GPU();
  const Tensor x = noise({4}, 1305).to(gpu), y = x * x;
  ones({4}).to(gpu);  // allocates the pinned memory
  const std::vector<std::function<void()>> works{[&] { x + x; }, [&] { ones({4}).to(gpu); },
                                                 [&] { x.to_vector<float>(); },
                                                 [&] { synchronize(gpu); },
                                                 [&] {
                                                   linear(x.view({1, 4}), x.view({1, 4}));
                                                 }};
  for (const auto& work : works) {
    bool captures = false;
    std::string error;
    const auto elsewhere = [&] {
      try {
        work();
      } catch (const Error& e) {
        error = e.what();
      }
    };
    nn::CapturedStep step(
        gpu,
        [&] {
          if (captures) std::thread(elsewhere).join();
          return x * x;
        },
        1);
    step();
    captures = true;
    check_equal(y.to(cpu), step());
    CHECK_THAT(error, Containing("[graph] another thread is capturing a step on cuda:0"));
    captures = false;
    error.clear();
    std::thread(elsewhere).join();
    CHECK(error.empty());
  }
}

TEST_CASE("another thread that finds no memory during a capture gets OutOfMemory", "[cuda]") {
  NEEDS_GPU();
  const Tensor x = noise({4}, 1306).to(gpu);
  empty({3 << 20}, {.device = gpu});  // cached
  bool captures = false, no_memory = false;
  nn::CapturedStep step(
      gpu,
      [&] {
        if (captures)
          std::thread([&] {
            try {
              empty({100 << 20}, {.device = gpu});
            } catch (const OutOfMemory&) {
              no_memory = true;
            } catch (const Error& e) {
              UNSCOPED_INFO(e.what());
            }
          }).join();
        return x * x;
      },
      1);
  step();
  captures = true;
  set_memory_limit(memory_stats(gpu).live + (64 << 20), gpu);
  step();
  set_memory_limit(INT64_MAX, gpu);
  CHECK(no_memory);
}

TEST_CASE("a capture that cannot be ended draws no random numbers", "[cuda]") {
  NEEDS_GPU();
  auto* const wait =
      reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "cudaDeviceSynchronize"));  // ends it
  if (!wait) STRETTO_SKIP("the CUDA runtime is linked statically");
  bool breaks = false;
  nn::CapturedStep step(
      gpu,
      [&] {
        if (breaks) wait();
        return randn({4}, {.device = gpu}) * 2.0;
      },
      1);
  step();
  breaks = true;
  const uint64_t streams = random_state().next_stream;
  REQUIRE_THROWS_WITH(step(), Containing("cudaStreamEndCapture failed"));
  CHECK(random_state().next_stream == streams);
  breaks = false;
  step();
  CHECK(step.captured());
}

TEST_CASE("a wrong index in a replay is reported", "[cuda]") {
  NEEDS_GPU();
  const Tensor table = noise({4, 2}, 1307).to(gpu);
  const Tensor ids = zeros({3}, {.dtype = i64, .device = gpu});
  nn::CapturedStep step(
      gpu, [&] { return index_select(table, 0, ids); }, 1);
  for (const int64_t id : {1, 2, 3, 99, 0, -1, 2}) {
    Tensor(ids).copy_(tensor<int64_t>({0, id, 1}, {3}));
    CAPTURE(id);
    const Tensor rows = step();
    if (id >= 0 && id < 4)
      check_equal(index_select(table.to(cpu), 0, ids.to(cpu)), rows);
    else
      REQUIRE_THROWS_WITH(synchronize(gpu), Containing(std::to_string(id)));
  }
  CHECK(step.captured());
}

TEST_CASE("destroying a captured step frees its memory", "[cuda]") {
  NEEDS_GPU();
  const Tensor x = noise({64}, 1310).to(gpu);
  exp(x * x);
  const int64_t before = gpu_bytes();
  {
    nn::CapturedStep step(
        gpu, [&] { return exp(x * x) + x; }, 1);
    const Tensor plain = step();
    const Tensor replayed = step();
    check_equal(plain.to(cpu), replayed);
    check_equal(plain.to(cpu), step());
  }
  CHECK(gpu_bytes() == before);
}

TEST_CASE("each key has its own graph, for up to 16 keys", "[cuda]") {
  NEEDS_GPU();
  int64_t n = 0;
  int calls = 0;  // of the step function: two per key, one eager and one captured
  nn::CapturedStep step(
      gpu,
      [&] {
        ++calls;
        return ones({n}, {.device = gpu}) * 2.0;
      },
      1);
  for (int round = 0; round < 3; ++round)
    for (int64_t key = 0; key < 20; ++key) {
      n = key + 1;
      CHECK(same_values(step(key).to_vector<double>(), std::vector<double>(size_t(n), 2)));
    }
  CHECK(calls == 2 * 16 + 3 * 4);
  CHECK(step.captured(15));
  CHECK_FALSE(step.captured(16));
  for (int i = 0; i < 3; ++i) step(-1);
  CHECK(calls == 2 * 16 + 3 * 4 + 3);
  CHECK_FALSE(step.captured(-1));
}

TEST_CASE("a captured step on the CPU runs eagerly") {
  int calls = 0;
  nn::CapturedStep step(cpu, [&] { return ones({1}) * double(++calls); });
  for (int i = 1; i <= 5; ++i) CHECK(step().item() == i);
  CHECK_FALSE(step.captured());
  REQUIRE_THROWS_WITH(nn::CapturedStep(
                          cpu, [] { return Tensor(); }, 0),
                      Containing("[CapturedStep] 0 warmup calls"));
}
