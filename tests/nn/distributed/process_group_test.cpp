// Collectives between processes, which are threads here: order of the sums, and results per rank.
#include "nn/distributed/process_group.h"

#include <array>
#include <chrono>
#include <mutex>
#include <thread>

#include "core/random.h"
#include "nn/distributed/gradient_reducer.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/process_threads.h"

using namespace stretto;
using namespace stretto::nn;
using namespace stretto::testing;

namespace {

float number(int rank, int64_t i) {
  return 1e3f * (uniform_from_bits(random_bits({7, uint64_t(rank)}, uint64_t(i))) - 0.5f);
}

// The sum as a binary tree: neighbors first, then pairs of them.
float tree(int first, int count, int64_t i) {
  if (count == 1) return number(first, i);
  return tree(first, count / 2, i) + tree(first + count / 2, count / 2, i);
}

}  // namespace

TEST_CASE("all_reduce sums along one tree and sends no more bytes than necessary",
          "[distributed]") {
  for (const int size : {1, 2, 4, 8})
    for (const int64_t n : {int64_t(0), int64_t(1), int64_t(5), int64_t(1000)}) {
      std::vector<std::vector<float>> got(static_cast<size_t>(size));
      std::vector<int64_t> sent(static_cast<size_t>(size));
      each_of(size, [&](ProcessGroup& group) {
        std::vector<float> mine;
        for (int64_t i = 0; i < n; ++i) mine.push_back(number(group.rank(), i));
        group.all_reduce(mine.data(), n);
        sent[size_t(group.rank())] = group.bytes_reduced();
        got[size_t(group.rank())] = mine;
      });
      std::vector<float> expected;
      for (int64_t i = 0; i < n; ++i) expected.push_back(tree(0, size, i));
      for (int rank = 0; rank < size; ++rank) {
        INFO(size << " processes, " << n << " numbers, process " << rank);
        CHECK(got[size_t(rank)] == expected);
        if (n == 1000) CHECK(sent[size_t(rank)] == 2 * (size - 1) * 4 * n / size);
      }
    }
}

TEST_CASE("reduce_scatter and all_gather_chunks leave each rank its chunk, of any length",
          "[distributed]") {
  const int size = 4;
  const std::vector<int64_t> ends{0, 70, 71, 100}, bytes{0, 280, 284, 400};
  each_of(size, [&](ProcessGroup& group) {
    std::vector<float> mine;
    for (int64_t i = 0; i < 100; ++i) mine.push_back(number(group.rank(), i));
    group.reduce_scatter(mine.data(), ends);
    const size_t chunk = size_t(group.chunk_of(group.rank()));
    bool right = true;
    for (int64_t i = chunk == 0 ? 0 : ends[chunk - 1]; i < ends[chunk]; ++i)
      right &= mine[size_t(i)] == tree(0, size, i);
    group.all_gather_chunks(mine.data(), bytes);
    bool all = true;
    for (int64_t i = 0; i < 100; ++i) all &= mine[size_t(i)] == tree(0, size, i);
    static std::mutex one;  // of the test framework
    const std::lock_guard lock(one);
    CHECK(right);
    CHECK(all);
  });
}

TEST_CASE("all_gather returns the values in the order of the ranks", "[distributed]") {
  for (const int size : {1, 2, 8})
    each_of(size, [&](ProcessGroup& group) {
      const int me = group.rank();
      const std::vector<double> numbers = group.all_gather({double(me), double(10 * me)});
      const std::vector<std::string> texts = group.all_gather(std::string(size_t(me), 'x'));
      std::vector<size_t> ends;
      for (int i = 0; i < size; ++i) ends.push_back((ends.empty() ? 0 : ends.back()) + size_t(i));
      std::string text(ends.back(), '.');
      const size_t begin = me == 0 ? 0 : ends[size_t(me) - 1];
      std::fill(text.begin() + int64_t(begin), text.begin() + int64_t(ends[size_t(me)]),
                char('a' + me));
      group.all_gatherv(text.data(), ends);
      group.barrier();
      static std::mutex one;  // of the test framework
      const std::lock_guard lock(one);
      size_t at = 0;
      for (int i = 0; i < size; ++i) {
        CHECK(numbers[size_t(2 * i)] == i);
        CHECK(numbers[size_t(2 * i) + 1] == 10 * i);
        CHECK(texts[size_t(i)].size() == size_t(i));
        for (int k = 0; k < i; ++k) CHECK(text[at++] == char('a' + i));
      }
    });
}

// Gradients of f for rows of x, by micro-batches, on `size` processes; all must be the same.
static Tensors gradients_of(int size, DType dtype) {
  const int64_t micro_batches = 8;
  std::vector<Tensors> of_all(static_cast<size_t>(size));
  each_of(size, [&](ProcessGroup& group) {
    const auto filled = [&](const Shape& shape, int kind) {
      std::vector<double> values;
      for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(1e-3 * number(kind, i));
      return tensor(values, shape).to(dtype);
    };
    Tensor w = filled({6, 5}, 1).set_requires_grad(), b = filled({5}, 2).set_requires_grad();
    const Tensor unused = filled({3}, 3).set_requires_grad();
    const Tensor rows = filled({16, 6}, 4);
    GradientReducer sums({w, b, unused}, micro_batches, group);
    Tensors& got = of_all[size_t(group.rank())];
    for (int step = 0; step < 2; ++step) {
      for (int64_t i = 0; i < sums.count(); ++i) {
        const int64_t micro_batch = sums.first() + i;
        sums.begin_micro_batch();
        const Tensor y = matmul(rows.slice(0, 2 * micro_batch, 2 * micro_batch + 2), w) + b;
        // A micro-batch that does not reach b.
        const Tensor z = micro_batch == 5 ? matmul(rows.slice(0, 10, 12), w) : y;
        mean(z * z * z).backward();
        sums.end_micro_batch();
      }
      sums.finish();
      got = {w.grad().clone(), b.grad().clone(), unused.grad().clone()};
    }
  });
  for (const Tensors& got : of_all)
    for (size_t i = 0; i < got.size(); ++i)
      CHECK(got[i].to_vector<double>() == of_all[0][i].to_vector<double>());
  return of_all[0];
}

TEST_CASE("Gradients of micro-batches are bit-identical for any number of processes",
          "[distributed]") {
  for (const DType dtype : {f32, f64, bf16}) {
    const Tensors alone = gradients_of(1, dtype);
    CHECK(alone[2].to_vector<double>() == std::vector<double>(3, 0));
    double most = 0;
    for (const double g : alone[0].to_vector<double>()) most = std::max(most, std::abs(g));
    CHECK(most > 1e-3);
    for (const int size : {2, 4, 8}) {
      const Tensors got = gradients_of(size, dtype);
      for (size_t i = 0; i < got.size(); ++i) {
        INFO(size << " processes, parameter " << i);
        CHECK(got[i].dtype() == dtype);
        CHECK(got[i].to_vector<double>() == alone[i].to_vector<double>());
      }
    }
  }
}

TEST_CASE("A step that failed in one micro-batch can be retried", "[distributed]") {
  const Tensor w = tensor({2.0, 3.0}).set_requires_grad();
  Post post;
  Threads alone(post, 0, 1);
  GradientReducer sums({w}, 4, alone);
  const auto micro_batch = [&](double factor) {
    sums.begin_micro_batch();
    sum(w * factor).backward();
    sums.end_micro_batch();
  };
  micro_batch(100), micro_batch(1000);
  sums.begin_micro_batch();  // fails before its backward pass
  for (const double factor : {1, 2, 3, 4}) micro_batch(factor);
  sums.finish();
  CHECK(w.grad().to_vector<double>() == std::vector<double>{10, 10});
}

// Rank 1 posts its message of the failed step when rank 0 has begun the next.
TEST_CASE("A message of a step that fails does not disturb the next step", "[distributed]") {
  std::array<std::vector<std::vector<double>>, 2> got;
  each_of(2, [&](ProcessGroup& group) {
    const Tensor a = tensor({2.0, 3.0}).set_requires_grad(),
                 b = tensor({4.f, 5.f}).set_requires_grad();  // two dtypes, thus two buckets
    GradientReducer sums({a, b}, 2, group);
    const auto wait = [&](int rank) {
      if (group.rank() == rank)
        std::this_thread::sleep_for(std::chrono::milliseconds(200 * rank + 100));
    };
    sums.begin_micro_batch();
    wait(1);
    sum(b * 100.0).backward();  // fails before the gradient of a
    wait(0);
    sums.begin_micro_batch();
    sum(a * double(group.rank() + 1)).backward();
    sum(b * double(group.rank() + 3)).backward();
    sums.end_micro_batch();
    sums.finish();
    for (const Tensor& w : {a, b})
      got[size_t(group.rank())].push_back(w.grad().to_vector<double>());
  });
  const std::vector<std::vector<double>> expected{{3, 3}, {7, 7}};
  for (const auto& of_rank : got) CHECK(of_rank == expected);
}

TEST_CASE("Micro-batches that cannot be divided among the processes are an error",
          "[distributed]") {
  Post post;
  Threads two(post, 0, 2);
  for (const int64_t micro_batches : {0, 1, 3, 6})
    CHECK_THROWS_WITH(GradientReducer({}, micro_batches, two),
                      Containing("with 2 processes; must be a power of two"));
}

TEST_CASE("A single process evaluates every batch", "[distributed]") {
  EvaluationReducer sums(2);
  for (int i = 0; i < 3; ++i) {
    CHECK(sums.next());
    sums.add({double(i), 1});
  }
  CHECK(sums.total() == std::vector<double>{3, 3});
  CHECK_THROWS_WITH(sums.add({1}), Containing("got 1 values; expected 2"));
}
