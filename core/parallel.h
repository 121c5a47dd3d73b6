// Threads. Work is cut into chunks that depend on the sizes only, never on the number of threads,
// so results have the same bits with any number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stretto {

/// Threads used by all CPU kernels, the calling one included. The default is STRETTO_NUM_THREADS,
/// else OMP_NUM_THREADS, else the number of cores; 1 to 256. If the system cannot start that many
/// threads, fewer do the same work. Any other value of STRETTO_NUM_THREADS is an error.
void set_num_threads(int n);
int num_threads();

/// Runs body(context, i) for i in [0, count), in any order, on all threads; an exception in a body
/// is rethrown here. Inside a body, and while another thread is in run_parallel, it runs alone.
/// Bodies see the ThreadState of the caller: under NoGrad they record nothing either.
void run_parallel(int64_t count, void (*body)(void* context, int64_t i), void* context);

/// f(begin, end) on consecutive ranges of at most `grain` that cover [0, n).
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  if (n <= 0) return;
  if (n <= grain) return f(int64_t(0), n);
  struct Job {
    F& f;
    int64_t n, grain;
  } job{f, n, grain};
  run_parallel((n + grain - 1) / grain,
               [](void* context, int64_t i) {
                 Job& j = *static_cast<Job*>(context);
                 j.f(i * j.grain, std::min(j.n, (i + 1) * j.grain));
               },
               &job);
}

/// Rows per chunk so that a chunk is about 32k elements.
inline int64_t rows_per_chunk(int64_t row_size) {
  return std::max<int64_t>(1, 32768 / std::max<int64_t>(row_size, 1));
}

}  // namespace stretto
