// A small thread pool.
//
// Idle workers spin for a few microseconds, then sleep. Short gaps between kernels therefore
// cost nothing, and idle workers do not slow down other programs. A caller never waits for a
// worker that has not started: the job is closed when all its chunks are taken, and the caller
// waits only for workers that have joined the job. A worker that the system does not schedule
// delays no other thread.
#include "core/parallel.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/environment.h"
#include "core/error.h"
#include "core/float_mode.h"
#include "core/thread_state.h"

namespace stretto {
namespace {

thread_local bool inside_job = false;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");  // waits about as long as x86's pause; most processors ignore yield
#endif
}

// Waits until value != old: a short spin, then sleep.
void wait_while(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < 1000; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    relax();
  }
  value.wait(old, std::memory_order_acquire);
}

class Pool {
 public:
  explicit Pool(const Pool* parent) : parent_(parent) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Ends the workers, at the end of the program; later jobs run on their callers. Does nothing
  // during a job.
  void end() {
    std::unique_lock lock(owner_, std::try_to_lock);
    if (!lock) return;
    ended_ = true;
    epoch_.fetch_add(1);
    epoch_.notify_all();
    for (std::thread& t : workers_) t.join();
    workers_.clear();
  }

  // Runs the job; false if another thread is using the pool, or if it has ended.
  bool run(int threads, int64_t count, void (*body)(void*, int64_t), void* context) {
    std::unique_lock lock(owner_, std::try_to_lock);
    if (!lock || ended_) return false;
    hire(threads - 1);
    job_.body = body;
    job_.context = context;
    job_.count = count;
    job_.helpers = threads - 1;
    job_.state = thread_state;
    job_.float_mode = float_mode();
    job_.next.store(0, std::memory_order_relaxed);
    state_.store(0, std::memory_order_release);  // open, nobody has joined
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();

    take_chunks();

    uint32_t state = state_.fetch_or(closed, std::memory_order_acq_rel) | closed;
    while (state != closed) {
      wait_while(state_, state);
      state = state_.load(std::memory_order_acquire);
    }
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    return true;
  }

 private:
  static constexpr uint32_t closed = 1u << 31;

  // Starts workers until there are `helpers`. If the system refuses a thread, the existing ones (or
  // only the caller) do the work: chunks do not depend on their number. Retried after 1000 jobs.
  void hire(int helpers) {
    if (int(workers_.size()) >= helpers || jobs_until_retry_-- > 0) return;
    jobs_until_retry_ = 0;
    try {
      while (int(workers_.size()) < helpers) {
        const int index = int(workers_.size());
        workers_.emplace_back([this, index] { work(index); });
      }
    } catch (const std::system_error&) {
      jobs_until_retry_ = jobs_between_attempts;
    } catch (const std::bad_alloc&) {
      jobs_until_retry_ = jobs_between_attempts;
    }
  }

  void take_chunks() {
    inside_job = true;
    for (;;) {
      const int64_t i = job_.next.fetch_add(1, std::memory_order_relaxed);
      if (i >= job_.count) break;
      try {
        job_.body(job_.context, i);
      } catch (...) {
        std::lock_guard lock(error_mutex_);
        if (!error_) error_ = std::current_exception();
      }
    }
    inside_job = false;
  }

  bool join() {
    uint32_t state = state_.load(std::memory_order_acquire);
    while (!(state & closed))
      if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) return true;
    return false;
  }

  void work(int index) {
    uint32_t seen = 0;
    for (;;) {
      wait_while(epoch_, seen);
      seen = epoch_.load(std::memory_order_acquire);
      if (ended_) return;
      if (!join()) continue;
      if (index < job_.helpers) {
        thread_state = job_.state;
        set_float_mode(job_.float_mode);
        take_chunks();
      }
      if (state_.fetch_sub(1, std::memory_order_acq_rel) - 1 == closed) state_.notify_all();
    }
  }

  struct Job {
    void (*body)(void*, int64_t) = nullptr;
    void* context = nullptr;
    int64_t count = 0;
    int helpers = 0;
    ThreadState state;
    FloatMode float_mode{};
    std::atomic<int64_t> next{0};
  };

  static constexpr int jobs_between_attempts = 1000;

  std::mutex owner_;
  std::vector<std::thread> workers_;
  int jobs_until_retry_ = 0;  // until the next attempt to start more workers
  Job job_;
  std::atomic<uint32_t> state_{closed};  // the number of workers in the job, and the flag `closed`
  std::atomic<uint32_t> epoch_{0};       // the number of jobs so far
  std::atomic<bool> ended_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
  // Of the process that forked this one: its workers are not here. Reachable for leak checkers.
  [[maybe_unused]] const Pool* parent_;
};

// Never destroyed: destructors of static objects may compute. A child made by fork() has its own.
Pool* pool = nullptr;

void make_pool() {
  static const bool made = [] {
    pool = new Pool(nullptr);
    pthread_atfork(nullptr, nullptr, [] { pool = new Pool(pool); });
    std::atexit([] { pool->end(); });
    return true;
  }();
  static_cast<void>(made);
}

constexpr int most_threads = 256;

int default_threads() {
  if (const int64_t n = environment_number("STRETTO_NUM_THREADS", 1, most_threads, 0))
    return int(n);
  // OpenMP's variable may be a list, e.g. "4,2": one number per level of nested loops.
  const char* const text = std::getenv("OMP_NUM_THREADS");
  const int asked = text ? std::atoi(text) : 0;
  return std::clamp(asked >= 1 ? asked : int(std::thread::hardware_concurrency()), 1, most_threads);
}

std::atomic<int> chosen{0};

}  // namespace

void set_num_threads(int n) {
  check(n >= 1 && n <= most_threads, "set_num_threads", n, " threads; accepted: 1 to ",
        most_threads);
  chosen = n;
}

int num_threads() {
  static const int by_default = default_threads();
  return chosen > 0 ? chosen.load() : by_default;
}

void run_parallel(int64_t count, void (*body)(void*, int64_t), void* context) {
  struct InBody {
    bool before = std::exchange(thread_state.in_body, true);
    ~InBody() { thread_state.in_body = before; }
  } in_body;
  const int n = int(std::min<int64_t>(num_threads(), count));
  if (n > 1 && !inside_job) {
    make_pool();
    if (pool->run(n, count, body, context)) return;
  }
  for (int64_t i = 0; i < count; ++i) body(context, i);
}

}  // namespace stretto
