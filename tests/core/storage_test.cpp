// The caching allocator and its statistics [core/storage.h].
#include "core/storage.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "core/tensor.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "tests/support/catch.h"

namespace stretto {
namespace {

// Empties the cache at the start and removes the memory limit at the end.
struct CleanAllocator {
  CleanAllocator() { release_cached_memory(); }
  ~CleanAllocator() {
    set_memory_limit(INT64_MAX);
    release_cached_memory();
  }
};

// STRETTO_ALLOC=exact, as in the test preset debug-nan, switches the cache off.
bool has_cache() {
  const char* const text = std::getenv("STRETTO_ALLOC");
  return !text || std::string(text).empty();
}
#define NEEDS_CACHE() \
  if (!has_cache()) STRETTO_SKIP("STRETTO_ALLOC=exact switches the cache off")

}  // namespace

TEST_CASE("live bytes count the bytes that were requested", "[core]") {
  NEEDS_CACHE();
  const CleanAllocator clean;
  const MemoryStats before = memory_stats();
  {
    const Storage a(1000, cpu);
    CHECK(memory_stats().live == before.live + 1000);
    CHECK(memory_stats().allocations == before.allocations + 1);
    {
      const Storage b(1, cpu);
      CHECK(memory_stats().live == before.live + 1001);
    }
    CHECK(memory_stats().live == before.live + 1000);
    const Tensor x = empty({3, 5}, {.dtype = f64});
    CHECK(memory_stats().live == before.live + 1120);
    const std::vector<Tensor> handles{x.transpose(0, 1), x};
    CHECK(memory_stats().live == before.live + 1120);
  }
  CHECK(memory_stats().live == before.live);
  CHECK(memory_stats().cached > 0);
}

TEST_CASE("a view keeps its storage alive", "[core]") {
  const int64_t before = memory_stats().live;
  Tensor view;
  {
    const Tensor x = arange(100);
    view = x.slice(0, 98);
  }
  CHECK(memory_stats().live == before + 800);
  CHECK(view.to_vector<int64_t>() == std::vector<int64_t>{98, 99});
  view = {};
  CHECK(memory_stats().live == before);
}

TEST_CASE("nothing is allocated for nothing", "[core]") {
  const MemoryStats before = memory_stats();
  const Storage none(0, cpu);
  const Tensor x = empty({0, 3});
  CHECK(none.data == nullptr);
  CHECK(memory_stats().allocations == before.allocations);
  CHECK(memory_stats().live == before.live);
}

TEST_CASE("the peak is the maximum in use since its reset", "[core]") {
  const int64_t before = memory_stats().live;
  reset_peak_memory();
  CHECK(memory_stats().peak == before);
  {
    const Storage a(4096, cpu);
    { const Storage b(8192, cpu); }
    { const Storage c(100, cpu); }
  }
  CHECK(memory_stats().peak == before + 12288);
  { const Storage d(5, cpu); }
  CHECK(memory_stats().peak == before + 12288);
  reset_peak_memory();
  CHECK(memory_stats().peak == before);
}

TEST_CASE("a freed block is reused for the next request of its size", "[core]") {
  NEEDS_CACHE();
  const CleanAllocator clean;
  void* first;
  {
    const Storage a(100000, cpu);
    first = a.data;
  }
  const int64_t cached = memory_stats().cached;
  CHECK(cached >= 100000);
  CHECK(cached < 100000 * 1.13);  // rounded up by less than an eighth
  {
    const Storage b(100000, cpu);
    CHECK(b.data == first);
    CHECK(memory_stats().cached == 0);
    const Storage c(100000, cpu);
    CHECK(c.data != first);
  }
  CHECK(memory_stats().cached == 2 * cached);
  release_cached_memory();
  CHECK(memory_stats().cached == 0);
}

TEST_CASE("blocks are aligned, do not overlap, and have the requested size", "[core]") {
  std::vector<std::unique_ptr<Storage>> blocks;
  for (int64_t bytes : {1, 63, 64, 65, 511, 512, 513, 1000, 4095, 4097, 65536, 1000003}) {
    blocks.push_back(std::make_unique<Storage>(bytes, cpu));
    CHECK(blocks.back()->bytes == bytes);
    CHECK(reinterpret_cast<uintptr_t>(blocks.back()->data) % 64 == 0);
    std::memset(blocks.back()->data, int(blocks.size()), size_t(bytes));
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto* bytes = static_cast<const unsigned char*>(blocks[i]->data);
    int wrong = 0;
    for (int64_t k = 0; k < blocks[i]->bytes; ++k) wrong += bytes[k] != i + 1;
    CHECK(wrong == 0);
  }
}

TEST_CASE("blocks of a pool on the CPU are aligned, separate and reused", "[core]") {
  const int64_t before = memory_stats(cpu).live;
  {
    std::vector<Tensor> all;  // outlives the pool
    const MemoryPool pool(cpu);
    const MemoryPool::Use use(pool);
    for (const int64_t n : {1, 100, 3'000, 1 << 18, 1 << 20, 5, 1'900'000, 1 << 20, 1 << 20,
                            1 << 20, 1 << 20, 1 << 20, 1 << 20, 3 << 20})
      all.push_back(full({n}, double(all.size()), {.dtype = f32, .device = cpu}));
    for (size_t i = 0; i < all.size(); ++i) {
      CHECK(reinterpret_cast<uintptr_t>(all[i].raw_data()) % 64 == 0);
      CHECK(all[i].to_vector<float>() == std::vector<float>(size_t(all[i].numel()), float(i)));
    }
    const void* const block = all[3].raw_data();
    all[3] = {};
    all[3] = empty({1 << 18}, {.dtype = f32, .device = cpu});
    CHECK(all[3].raw_data() == block);
  }
  CHECK(memory_stats(cpu).live == before);
}

TEST_CASE("exceeding the memory limit is an error, and everything stays usable", "[core]") {
  const CleanAllocator clean;
  const Tensor keep = full({1000}, 3);
  const int64_t live = memory_stats().live;
  set_memory_limit(live + 2'000'000);
  CHECK(memory_stats().limit == live + 2'000'000);
  {
    const Tensor half = full({250'000}, 1);
    CHECK_THROWS_AS(empty({400'000}), OutOfMemory);
    CHECK_THROWS_AS(empty({int64_t(1) << 50}), Error);
    CHECK_THROWS_WITH(
        empty({int64_t(1) << 40}),
        str("[allocate] out of memory on cpu: ", int64_t(1) << 42, " bytes requested, ",
            memory_stats().live, " in use, limit ", live + 2'000'000));
    CHECK(memory_stats().live == live + 1'000'000);
    CHECK(half.to_vector<float>()[249'999] == 1);
    CHECK((keep + keep).to_vector<float>()[999] == 6);
  }
  CHECK_NOTHROW(empty({400'000}));
  CHECK(memory_stats().live == live);
  set_memory_limit(INT64_MAX);
  CHECK_NOTHROW(empty({4'000'000}));
}

TEST_CASE("the memory limit can be reached exactly", "[core]") {
  NEEDS_CACHE();
  const CleanAllocator clean;
  const auto fits = [](int64_t limit) {
    set_memory_limit(limit);
    try {
      const Storage block(4096, cpu);
    } catch (const OutOfMemory&) {
      return false;
    }
    release_cached_memory();
    return true;
  };
  int64_t too_small = 0, enough = int64_t(1) << 40;
  while (enough - too_small > 1) {
    const int64_t limit = (too_small + enough) / 2;
    (fits(limit) ? enough : too_small) = limit;
  }
  // All blocks are multiples of 64 bytes.
  CHECK(enough % 64 == 0);
}

TEST_CASE("the cache is released before a request fails", "[core]") {
  NEEDS_CACHE();
  const CleanAllocator clean;
  set_memory_limit(memory_stats().live + 3'000'000);
  { const Storage a(1'500'000, cpu); }
  CHECK(memory_stats().cached >= 1'500'000);
  {
    const Storage b(2'500'000, cpu);  // fits only if the cached block is released
    CHECK(memory_stats().cached == 0);
  }
  // A limit below the bytes in use and cached empties the cache at once.
  set_memory_limit(memory_stats().live + 1);
  CHECK(memory_stats().cached == 0);
  CHECK_THROWS_AS(Storage(4096, cpu), OutOfMemory);
}

TEST_CASE("an op that runs out of memory changes nothing", "[core]") {
  const CleanAllocator clean;
  const Tensor x = full({300'000}, 2);
  set_memory_limit(memory_stats().live + 1'000'000);
  const MemoryStats before = memory_stats();
  CHECK_THROWS_AS(x * x, OutOfMemory);
  CHECK_THROWS_AS(x.expand({5, 300'000}).contiguous(), OutOfMemory);
  CHECK(memory_stats().live == before.live);
  CHECK(x.to(bf16).dtype() == bf16);
  CHECK(x.slice(0, 0, 2).to_vector<float>() == std::vector<float>{2, 2});
}

TEST_CASE("threads share one allocator", "[core]") {
  const CleanAllocator clean;
  const int64_t live = memory_stats().live;
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t, &wrong] {
      for (int i = 0; i < 500; ++i) {
        const Storage s(64 * (1 + i % 7), cpu);
        std::memset(s.data, t, size_t(s.bytes));
        std::this_thread::yield();
        for (int64_t k = 0; k < s.bytes; ++k)
          wrong[size_t(t)] += static_cast<const char*>(s.data)[k] != t;
      }
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == std::vector<int>(4));
  CHECK(memory_stats().live == live);
}

TEST_CASE("bytes are copied unchanged", "[core]") {
  const char from[] = "stretto";
  char to[8] = "-------";
  copy_bytes(to, cpu, from, cpu, 3);
  CHECK(std::string(to) == "str----");
  CHECK_NOTHROW(copy_bytes(nullptr, cpu, nullptr, cpu, 0));
}

TEST_CASE("an in-place change through any view increments the version", "[core]") {
  Tensor x = zeros({4});
  const uint32_t before = x.storage().version;
  x.slice(0, 1, 2).fill_(1);
  CHECK(x.storage().version == before + 1);
  x.add_(ones({4}));
  x.mul_(2);
  x.detach().copy_(ones({4}));
  CHECK(x.storage().version == before + 4);
  CHECK((x + x).storage().version != before + 5);
  CHECK(x.storage().version == before + 4);
}

}  // namespace stretto
