// Work on threads [core/parallel.h].
#include "core/parallel.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/float_mode.h"
#include "ops/create.h"
#include "ops/fft/fft.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"

namespace stretto {
namespace {

struct Threads {
  int before = num_threads();
  explicit Threads(int n) { set_num_threads(n); }
  ~Threads() { set_num_threads(before); }
};

}  // namespace

TEST_CASE("parallel_for visits every index once", "[core]") {
  for (int threads : {1, 2, 5}) {
    const Threads guard(threads);
    CHECK(num_threads() == threads);
    for (int64_t n : {0, 1, 2, 7, 100, 1001}) {
      for (int64_t grain : {1, 2, 7, 100, 5000}) {
        std::vector<std::atomic<int>> visits(size_t(n) + 1);
        std::atomic<int> bad_ranges{0};
        parallel_for(n, grain, [&](int64_t begin, int64_t end) {
          // Chunks depend only on the sizes.
          if (begin >= end || end > n || end - begin > grain || begin % grain != 0) ++bad_ranges;
          for (int64_t i = begin; i < end; ++i) ++visits[size_t(i)];
        });
        INFO(threads << " threads, " << n << " by " << grain);
        int wrong = 0;
        for (int64_t i = 0; i < n; ++i) wrong += visits[size_t(i)] != 1;
        CHECK(wrong == 0);
        CHECK(bad_ranges == 0);
      }
    }
  }
}

TEST_CASE("parallel_for with a negative size does nothing", "[core]") {
  parallel_for(-5, 2, [](int64_t, int64_t) { FAIL("called"); });
}

TEST_CASE("exceptions reach the thread that called parallel_for", "[core]") {
  for (int threads : {1, 2, 4}) {
    const Threads guard(threads);
    for (int64_t at : {0, 1, 57, 99}) {
      INFO(threads << " threads, chunk " << at);
      const auto body = [at](int64_t begin, int64_t) {
        if (begin == at) fail("body", "chunk ", at);
      };
      CHECK_THROWS_WITH(parallel_for(100, 1, body), str("[body] chunk ", at));
      CHECK_THROWS_AS(parallel_for(100, 1, body), Error);
    }
    CHECK_THROWS_AS(parallel_for(100, 1, [](int64_t, int64_t) { throw 7; }), int);
    CHECK_THROWS_AS(parallel_for(3, 1, [](int64_t, int64_t) { throw std::bad_alloc(); }),
                    std::bad_alloc);
    std::atomic<int> done{0};  // later loops still work
    parallel_for(100, 1, [&](int64_t, int64_t) { ++done; });
    CHECK(done == 100);
  }
}

TEST_CASE("parallel loops can be nested", "[core]") {
  const Threads guard(2);
  std::atomic<int> count{0};
  parallel_for(8, 1, [&](int64_t, int64_t) {
    parallel_for(8, 1,
                 [&](int64_t, int64_t) { parallel_for(8, 1, [&](int64_t, int64_t) { ++count; }); });
  });
  CHECK(count == 512);
  CHECK_THROWS_WITH(parallel_for(4, 1,
                                 [](int64_t, int64_t) {
                                   parallel_for(4, 1, [](int64_t, int64_t) { fail("inner", "x"); });
                                 }),
                    "[inner] x");
}

TEST_CASE("several threads can call parallel_for at once", "[core]") {
  const Threads guard(2);
  std::vector<std::thread> callers;
  std::vector<int64_t> sums(4);
  for (size_t t = 0; t < sums.size(); ++t)
    callers.emplace_back([t, &sums] {
      for (int round = 0; round < 300; ++round) {
        std::atomic<int64_t> sum{0};
        parallel_for(50, 1, [&](int64_t begin, int64_t) { sum += begin; });
        sums[t] += sum;
      }
    });
  for (auto& c : callers) c.join();
  CHECK(sums == std::vector<int64_t>(4, 300 * 1225));
}

TEST_CASE("many short jobs in a row are all run", "[core]") {
  const Threads guard(3);
  int64_t wrong = 0;
  for (int job = 0; job < 5000; ++job) {
    std::atomic<int64_t> sum{0};
    const int64_t n = 2 + job % 5;
    parallel_for(n, 1, [&](int64_t begin, int64_t) { sum += begin + 1; });
    wrong += sum != n * (n + 1) / 2;
  }
  CHECK(wrong == 0);
}

TEST_CASE("two threads work at the same time", "[core]") {
  const Threads guard(2);
  std::atomic<int> here{0};
  int met = 0;
  parallel_for(2, 1, [&](int64_t begin, int64_t) {
    ++here;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (here < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    if (begin == 0) met = here;
  });
  CHECK(met == 2);
}

TEST_CASE("no more threads work than set_num_threads() allows", "[core]") {
  std::mutex mutex;
  std::set<std::thread::id> ids;
  const auto run = [&](int threads) {
    const Threads guard(threads);
    for (int job = 0; job < 20; ++job)
      parallel_for(16, 1, [&](int64_t, int64_t) {
        std::this_thread::yield();  // lets the workers take chunks
        const std::lock_guard lock(mutex);
        ids.insert(std::this_thread::get_id());
      });
  };
  run(5);  // starts the workers
  ids.clear();
  run(2);
  CHECK(ids.size() <= 2);
}

TEST_CASE("OMP_NUM_THREADS is the default number of threads", "[core][default_threads]") {
  constexpr const char* child = "STRETTO_TEST_DEFAULT_THREADS";  // the default is read only once
  if (const char* const expected = std::getenv(child)) {
    CHECK(num_threads() == std::atoi(expected));
    return;
  }
  const auto program = std::filesystem::read_symlink("/proc/self/exe").string();
#ifdef __aarch64__
  if (std::system(str("'", program, "' --libidentify >/dev/null 2>&1").c_str()) != 0)
    STRETTO_SKIP("an emulated program cannot start itself");
#endif
  const auto is_default = [&](int threads, const std::string& settings) {
    return std::system(str(child, "=", threads, " ", settings, " '", program,
                           "' '[default_threads]' >/dev/null")
                           .c_str()) == 0;
  };
  CHECK(is_default(3, "STRETTO_NUM_THREADS= OMP_NUM_THREADS=3,2"));
  CHECK(is_default(4, "STRETTO_NUM_THREADS=4 OMP_NUM_THREADS=7"));
}

TEST_CASE("set_num_threads rejects numbers below 1", "[core]") {
  const Threads guard(1);
  CHECK_THROWS_WITH(set_num_threads(0), Containing("[set_num_threads] 0 threads"));
  CHECK_THROWS_AS(set_num_threads(-3), Error);
  CHECK(num_threads() == 1);
}

TEST_CASE("a chunk of rows has about 32k elements", "[core]") {
  CHECK(rows_per_chunk(1) == 32768);
  CHECK(rows_per_chunk(0) == 32768);
  CHECK(rows_per_chunk(1000) == 32);
  CHECK(rows_per_chunk(1'000'000) == 1);
}

TEST_CASE("workers round and flush subnormal numbers as the caller does", "[core]") {
  // Sums that are rounded, and products of subnormal numbers.
  const auto numbers = [](int threads) {
    const Threads guard(threads);
    std::vector<float> out(size_t(1) << 16);
    parallel_for(int64_t(out.size()), 256, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        volatile float one = 1.0f, subnormal = 1e-40f;
        out[size_t(i)] = i % 2 == 0 ? one + float(i) * 1e-12f : subnormal * 1.5f;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));  // lets the workers take chunks
    });
    return out;
  };
  const FloatMode usual = float_mode();
  const std::vector<float> in_usual_mode = numbers(4);  // starts the workers
  const auto check_mode = [&](bool changes) {
    const std::vector<float> four = numbers(4), one = numbers(1);
    set_float_mode(usual);
    CHECK(four == one);
    CHECK((four != in_usual_mode) == changes);
  };
  for (int rounding : {FE_UPWARD, FE_TONEAREST}) {
    std::fesetround(rounding);
    check_mode(rounding != FE_TONEAREST);
  }
#if defined(__x86_64__)
  set_float_mode(usual | 0x8040);  // flush to zero, also of inputs
  check_mode(true);
#endif
}

TEST_CASE("a forked process starts its own threads and computes at its exit", "[core][fork]") {
#if defined(STRETTO_SANITIZED) || defined(__SANITIZE_THREAD__)
  STRETTO_SKIP("sanitizers do not support threads after fork()");
#endif
  const Threads guard(2);
  const Tensor x = ones({128, 128});
  matmul(x, x);
  rfft(x);
  static Tensor at_exit;
  at_exit = x;
  std::fflush(nullptr);
  for (bool threads : {false, true}) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      std::atexit([] {
        set_num_threads(3);
        const bool right = sum(matmul(at_exit, at_exit)).item<float>() == 128 * 128 * 128;
        rfft(at_exit);
        if (!right) std::_Exit(3);
      });
      if (threads) {
        std::thread([] {}).join();
        set_num_threads(4);
      }
      if (sum(matmul(x, x)).item<float>() != 128 * 128 * 128) std::_Exit(2);
      std::exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    INFO((WIFSIGNALED(status) ? "signal " : "exit status ")
         << (WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)));
    CHECK(status == 0);
  }
}

}  // namespace stretto
