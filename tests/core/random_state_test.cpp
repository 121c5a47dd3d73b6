// The global random state, and Philox with many blocks at a time [core/random.h]. Known answers and
// distributions are in tests/ops/create_test.cpp.
#include <set>
#include <thread>
#include <vector>

#include "core/random.h"
#include "ops/create.h"
#include "ops/dropout.h"
#include "tests/support/catch.h"

namespace stretto {
namespace {

struct RestoreState {
  RandomState before = random_state();
  ~RestoreState() { set_random_state(before); }
};

}  // namespace

TEST_CASE("many Philox blocks at once equal single blocks", "[core]") {
  const RandomKey key{.seed = 0x123456789abcdef, .stream = 0xfedcba987654321};
  for (uint64_t first : {uint64_t(0), uint64_t(7), uint64_t(0xFFFFFFF5), ~uint64_t(0) - 40}) {
    for (int64_t n : {0, 1, 15, 16, 17, 37}) {
      std::vector<uint32_t> out(size_t(4 * n) + 1, 12345);
      philox_blocks(key, first, n, out.data());
      int wrong = 0;
      for (int64_t i = 0; i < n; ++i)
        for (int j = 0; j < 4; ++j)
          wrong += out[size_t(4 * i + j)] != philox(key, first + uint64_t(i)).v[j];
      CHECK(wrong == 0);
      CHECK(out.back() == 12345);
    }
  }
  for (uint64_t i : {0u, 1u, 5u, 1002u}) CHECK(random_bits(key, i) == philox(key, i / 4).v[i % 4]);
}

TEST_CASE("uniforms lie in [0, 1)", "[core]") {
  CHECK(uniform_from_bits(0) == 0);
  CHECK(uniform_from_bits(~0u) < 1);
  CHECK(uniform_from_bits(~0u) == 1 - 0x1p-24f);
  CHECK(uniform_from_bits(0x80000000u) == 0.5f);
  float a = 0, b = 0;
  normals_from_bits(~0u, 0, a, b);  // the largest possible radius
  CHECK(std::isfinite(a));
  CHECK(a > 5);
  normals_from_bits(0, 77, a, b);
  CHECK(a == 0);
  CHECK(b == 0);
}

TEST_CASE("the threshold of dropout is rounded up", "[core]") {
  CHECK(DropoutRule(0.1).below == 1677722);  // of 1677721.6
  CHECK(DropoutRule(0.25).below == 1u << 22);
  CHECK(DropoutRule(1e-9).below == 1);
}

TEST_CASE("every random op takes one stream of the random state", "[core]") {
  const RestoreState restore;
  manual_seed(42);
  CHECK(random_state().seed == 42);
  CHECK(random_state().next_stream == 0);
  const RandomKey key = next_random_key();
  CHECK(key.seed == 42);
  CHECK(key.stream == 0);
  rand({3});
  randn({3});
  dropout(ones({3}), 0.5);
  CHECK(random_state().next_stream == 4);
  dropout(ones({3}), 0);
  rand({3}, RandomKey{.seed = 1, .stream = 2});
  CHECK(random_state().next_stream == 4);
}

TEST_CASE("restoring the random state repeats a run", "[core]") {
  const RestoreState restore;
  manual_seed(7);
  rand({5});
  const RandomState saved = random_state();
  const auto draw = [] {
    std::vector<float> all = randn({9}).to_vector<float>();
    for (float v : dropout(ones({9}), 0.5).to_vector<float>()) all.push_back(v);
    for (float v : rand({9}).to_vector<float>()) all.push_back(v);
    return all;
  };
  const auto first = draw(), next = draw();
  CHECK(first != next);
  set_random_state(saved);
  CHECK(draw() == first);
  CHECK(draw() == next);
  manual_seed(8);
  rand({5});
  CHECK(draw() != first);
}

TEST_CASE("threads never use the same stream", "[core]") {
  const RestoreState restore;
  manual_seed(3);
  std::vector<uint64_t> streams[4];
  std::vector<std::thread> threads;
  for (auto& list : streams)
    threads.emplace_back([&list] {
      for (int i = 0; i < 2000; ++i) list.push_back(next_random_key().stream);
    });
  for (auto& t : threads) t.join();
  std::set<uint64_t> all;
  for (const auto& list : streams) all.insert(list.begin(), list.end());
  CHECK(all.size() == 8000);
  CHECK(*all.rbegin() == 7999);
}

}  // namespace stretto
