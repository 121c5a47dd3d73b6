// Sharded optimizers: state, gradients and updates divided over processes, which are threads here.
#include "nn/distributed/optimizer_shards.h"

#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/process_threads.h"

using namespace stretto;
using namespace stretto::nn;
using namespace stretto::testing;

namespace {

struct Outcome {
  std::vector<double> weights, norms, state;
  std::vector<int64_t> steps;
  int64_t sent = 0, own = 0;
};

void append(std::vector<double>& to, const Tensor& x) {
  for (const double value : x.to_vector<double>()) to.push_back(value);
}

// Three steps of clipped Adam over parameters of several sizes, one longer than a block of the
// norm, one empty. Returns the weights and state of rank 0 afterwards.
enum class Shared { nothing, state, state_and_gradients };

Outcome train(int size, Shared shared, DType dtype) {
  const int64_t micro_batches = 4;
  Outcome first;
  each_of(size, [&](ProcessGroup& group) {
    Tensors all;
    for (const int64_t n : {100'000, 0, 7, 40'000, 1}) {
      std::vector<double> values;
      for (int64_t i = 0; i < n; ++i)
        values.push_back(uniform_from_bits(random_bits({3, uint64_t(n)}, uint64_t(i))) - 0.5);
      all.push_back(tensor(values, {n}).to(dtype).set_requires_grad());
    }
    const auto factor = [](int64_t t) { return t == 2 ? 0.25 : 1; };
    Adam optimizer({{.parameters = {all.begin(), all.begin() + 3}},
                    {.parameters = {all.begin() + 3, all.end()}, .lr_factor = factor}},
                   {.lr = 0.1});
    GradientReducer sums(all, micro_batches, group, 1, shared == Shared::state_and_gradients);
    std::unique_ptr<OptimizerShards> shards;
    Outcome got;
    for (int step = 0; step < 3; ++step) {
      for (int64_t i = 0; i < sums.count(); ++i) {
        sums.begin_micro_batch();
        Tensor loss = scalar(0.0);
        for (const Tensor& p : all) loss = loss + sum(p * p * double(1 + sums.first() + i)).to(f32);
        loss.backward();
        sums.end_micro_batch();
      }
      sums.finish();
      const double most = step == 1 ? 1e9 : 1;
      if (shared != Shared::nothing && !shards)
        shards = std::make_unique<OptimizerShards>(optimizer, sums, group);
      got.norms.push_back(sums.scatters() ? shards->clip(most) : clip_grad_norm(all, most).item());
      shards ? shards->step() : optimizer.step();
      for (const ParameterState& s : optimizer.state())
        for (const NamedTensor& t : s.tensors) got.own += step == 2 ? t.tensor.numel() : 0;
      if (!shards) continue;
      shards->gather();
      if (step < 2) shards->keep_own();
    }
    got.sent = sums.communication().bytes;
    if (!group.is_root()) return;
    for (const Tensor& p : all) append(got.weights, p);
    for (const ParameterState& s : optimizer.state()) {
      got.steps.push_back(s.steps);
      for (const NamedTensor& t : s.tensors) append(got.state, t.tensor);
    }
    first = got;
  });
  return first;
}

}  // namespace

TEST_CASE("Sharded updates are bit-identical to unsharded ones", "[distributed]") {
  for (const DType dtype : {f32, f64, bf16}) {
    const Outcome whole = train(1, Shared::nothing, dtype);
    CHECK(whole.norms[0] > 1);
    CHECK(whole.steps == std::vector<int64_t>(5, 3));
    for (const int size : {2, 4}) {
      INFO(size << " processes, numbers of " << item_size(dtype) << " bytes");
      const Outcome got = train(size, Shared::state_and_gradients, dtype);
      CHECK(got.norms == whole.norms);
      CHECK(got.weights == whole.weights);
      CHECK(got.steps == whole.steps);
      CHECK(got.state == whole.state);
      // Cut at whole blocks of the norm, of which there are six.
      CHECK(got.own < whole.own / size + 2 * norm_block * (dtype == bf16 ? 3 : 2));
      const Outcome summed = train(size, Shared::state, dtype);
      CHECK(summed.weights == whole.weights);
      CHECK(summed.state == whole.state);
      CHECK(double(got.sent) < 0.75 * double(summed.sent));  // 2/3
    }
  }
}

TEST_CASE("The ranges of all ranks cover each element of the parameters once", "[distributed]") {
  for (const int size : {1, 2, 8})
    each_of(size, [&](ProcessGroup& group) {
      const std::vector<int64_t> lengths{5, 3'000'000, 0, 70'000, 1};
      Tensors all;
      for (const int64_t n : lengths) all.push_back(zeros({n}).set_requires_grad());
      const GradientReducer sums(all, 8, group);
      if (!group.is_root()) return;
      int64_t total = 0, most = 0;
      for (int rank = 0; rank < size; ++rank) {
        int64_t own = 0;
        const std::vector<ElementRange> ranges = sums.ranges(rank);
        for (size_t i = 0; i < lengths.size(); ++i) {
          CHECK(ranges[i].begin >= 0);
          CHECK(ranges[i].end <= lengths[i]);
          if (ranges[i].begin < ranges[i].end) CHECK(ranges[i].begin % norm_block == 0);
          own += ranges[i].end - ranges[i].begin;
        }
        total += own;
        most = std::max(most, own);
      }
      CHECK(total == 3'070'006);
      CHECK(most < total / size + 2 * norm_block);
    });
}
