// The GPU runtime: copies through pinned memory, cached device tables, and invalid indices, which
// are reported when the host synchronizes.
#include "core/device_table.h"
#include "cuda/runtime/reports.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

TEST_CASE("copies larger than the pinned memory are complete", "[cuda]") {
  NEEDS_GPU();
  const int64_t half = int64_t(16) << 20;
  for (const int64_t bytes : {half - 4, half, half + 4, 2 * half + 12, 3 * half}) {
    const Tensor x = empty({bytes / 4}, {.dtype = i32});
    int32_t* at = x.data<int32_t>();
    for (int64_t i = 0; i < x.numel(); ++i) at[i] = int32_t(i * 2654435761);
    const Tensor back = x.to(gpu).to(cpu);
    CHECK(std::equal(at, at + x.numel(), back.data<int32_t>()));
  }
}

TEST_CASE("the source of a copy may be reused at once", "[cuda]") {
  NEEDS_GPU();
  const int64_t n = 3 << 20;  // large, so that copies overlap
  std::vector<Tensor> copies;
  Tensor x = empty({n});
  for (int i = 0; i < 6; ++i) {
    x.fill_(i);
    copies.push_back(x.to(gpu));
  }
  for (int i = 0; i < 6; ++i) CHECK(sum(copies[size_t(i)]).item() == double(i * n));
}

TEST_CASE("device_table copies a table to the GPU once", "[cuda]") {
  NEEDS_GPU();
  int made = 0;
  const auto table = [&](int64_t n, double by) {
    return device_table(
        gpu, [&] { return ++made, ones({n}) * by; }, "test", n, by);
  };
  const Tensor a = table(4, 0.1), b = table(4, 0.1), c = table(4, 0.2), d = table(5, 0.1);
  CHECK(made == 3);
  CHECK(a.same(b));
  check_equal(ones({4}) * 0.2, c);
  check_equal(ones({5}) * 0.1, d);
  a.fill_(7);  // by a caller who does not know that it is cached
  check_equal(ones({4}) * 0.1, table(4, 0.1));
  CHECK(made == 4);
  int on_cpu = 0;
  for (int i = 0; i < 2; ++i)
    device_table(
        cpu, [&] { return ++on_cpu, ones({1}); }, "test");
  CHECK(on_cpu == 2);
}

TEST_CASE("tables that were not used for long are dropped beyond 256 MiB", "[cuda]") {
  const int64_t n = 100 << 20;
  int made = 0;
  const auto table = [&](const char* key, int64_t bytes) {
    return kept_table(key, cpu,
                      [&] { return ++made, empty({bytes}, {.dtype = u8, .device = cpu}); });
  };
  for (const char* key : {"a", "b", "a", "c", "a"}) table(key, n);
  CHECK(made == 3);
  table("b", n);
  CHECK(made == 4);
  for (const char* key : {"a", "b", "c"}) {  // a changed table is freed
    table(key, n).slice(0, 0, 1).fill_(1);
    table(key, 1);
  }
}

TEST_CASE("cached tables are dropped before an allocation fails", "[cuda]") {
  NEEDS_GPU();
  const int64_t n = 1 << 20;
  int made = 0;
  const auto table = [&] {
    device_table(
        gpu, [&] { return ++made, zeros({n}, {.dtype = u8}); }, "large test");
  };
  const int64_t before = gpu_bytes();
  table();
  set_memory_limit(before + n + n / 2, gpu);
  const Tensor x = empty({n}, {.dtype = u8, .device = gpu});
  CHECK_THROWS_AS(empty({n}, {.dtype = u8, .device = gpu}), OutOfMemory);
  set_memory_limit(INT64_MAX, gpu);
  table();
  CHECK(made == 2);
}

// Totals [2, 70, 3] of heads, of which the heads 40 and 65 are all eps = 0.25.
Tensor dead_totals(DType t) {
  Tensor totals = ones({2, 70, 3}, {.dtype = t});
  for (const int64_t h : {40, 65}) Tensor(totals.slice(1, h, h + 1)).fill_(0.25);
  return totals;
}
void check_heads(const Tensor& totals, const Tensor& padding = {}) {
  cuda::check_heads("heads", totals.to(gpu), 0.25, padding,
                    [](int64_t head, int64_t) { return str("head ", head); });
}

TEST_CASE("the first head without weights is reported at synchronization", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : {f32, f64}) {
    check_heads(dead_totals(t));
    REQUIRE_THROWS_WITH(synchronize(gpu), "[heads] head 40");
  }
}

TEST_CASE("a head with a weight, a NaN or no visible keys is not reported", "[cuda]") {
  NEEDS_GPU();
  const Tensor totals = dead_totals(f32);
  check_heads(ones({2, 70, 3}));
  const Tensor padding = ones({2, 5}, {.dtype = u8, .device = gpu});
  check_heads(totals, padding);
  synchronize(gpu);
  Tensor(padding.slice(0, 1).slice(1, 4)).fill_(0);
  check_heads(totals, padding);
  REQUIRE_THROWS_WITH(synchronize(gpu), "[heads] head 40");
  Tensor(totals.slice(0, 1).slice(1, 40, 41).slice(2, 2)).fill_(0.26);  // one query has a weight
  check_heads(totals);
  REQUIRE_THROWS_WITH(synchronize(gpu), "[heads] head 65");
  Tensor(totals.slice(0, 0, 1).slice(1, 65, 66).slice(2, 1, 2)).fill_(NAN);
  check_heads(totals);
  synchronize(gpu);
}

TEST_CASE("an invalid index is reported at synchronization: the first index of the first check",
          "[cuda]") {
  NEEDS_GPU();
  const auto text = [](int64_t position, int64_t value) {
    return str("index ", value, " at ", position);
  };
  const auto ids = [](const std::vector<int64_t>& v) {
    return tensor(v, {int64_t(v.size())}).to(gpu);
  };
  const Tensor good = ids({0, 4, 2}), low = ids({3, -1, 7}), high = ids({1, 2, 5, 9});
  check_equal(tensor<int64_t>({0, 4, 2}, {3}), cuda::checked_indices("good", good, 5, 0, text));
  check_equal(tensor<int64_t>({3, -1, 7}, {3}), cuda::checked_indices("ignored", low, 8, -1, text));
  synchronize(gpu);
  const Tensor safe = cuda::checked_indices("first", high, 5, 0, text);
  cuda::checked_indices("second", low, 5, -1, text);
  REQUIRE_THROWS_WITH(synchronize(gpu), "[first] index 5 at 2");
  CHECK(safe.to_vector<int64_t>() == std::vector<int64_t>{1, 2, 0, 0});
  synchronize(gpu);  // it is reported once
  cuda::checked_indices("third", low, 7, -2, text);
  REQUIRE_THROWS_WITH(good.to_vector<int64_t>(), "[third] index -1 at 1");
  CHECK(good.to_vector<int64_t>() == std::vector<int64_t>{0, 4, 2});

  std::vector<int64_t> many(100000, 1);
  many[70000] = 2, many[99999] = 3;
  cuda::checked_indices("many", ids(many), 2, -1, text);
  REQUIRE_THROWS_WITH(synchronize(gpu), "[many] index 2 at 70000");
  for (int i = 0; i < 5000; ++i) cuda::checked_indices("often", good, 5, -1, text);
  cuda::checked_indices("last", high, 5, -1, text);
  REQUIRE_THROWS_WITH(synchronize(gpu), "[last] index 5 at 2");
}
