// Threads. Work is cut into chunks that depend only on the sizes, never on the number of threads,
// so results are bit-identical with any number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stretto {

/// Sets the number of threads that CPU kernels use, including the calling one; throws unless it is
/// 1 to 256. If the system cannot start that many, fewer threads do the same work.
void set_num_threads(int n);
/// Returns the number of threads that CPU kernels use. The default is the environment variable
/// STRETTO_NUM_THREADS (an error if not 1 to 256), else OMP_NUM_THREADS, else the number of cores.
int num_threads();

/// Runs body(context, i) for i in [0, count), in any order, on all threads. Rethrows an exception
/// of a body. Uses only the calling thread inside a body, at the exit of the program, or while
/// another thread is in run_parallel. Bodies inherit the caller's ThreadState (under NoGrad they
/// record nothing) and floating-point mode (rounding, flush to zero).
void run_parallel(int64_t count, void (*body)(void* context, int64_t i), void* context);

/// Calls f(begin, end) on all threads, for consecutive ranges of at most `grain` that cover [0, n).
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

/// Returns the number of rows per chunk that makes a chunk about 32k elements.
inline int64_t rows_per_chunk(int64_t row_size) {
  return std::max<int64_t>(1, 32768 / std::max<int64_t>(row_size, 1));
}

}  // namespace stretto
