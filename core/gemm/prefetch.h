// Prefetching of a matrix that is read once.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stretto::kernels {

/// The most columns of a prefetched block of 16 rows: two such blocks fit in L2.
inline constexpr int64_t prefetched_columns = 2048;

/// A block of a matrix that is prefetched while the block before it is used: `runs` contiguous
/// ranges of `bytes` bytes, `stride` bytes apart. It is read in the order of its memory, which the
/// prefetchers of the processor recognize, and goes to L2: reading it from there costs little, but
/// L1 allows only a few misses at a time, which the current block needs.
class Prefetch {
 public:
  /// The block is prefetched in `steps` equal shares.
  Prefetch(const void* block, int64_t runs, int64_t stride, int64_t bytes, int64_t steps)
      : at_(static_cast<const char*>(block)), runs_(runs), stride_(stride), bytes_(bytes) {
    if (stride == bytes) {  // one range
      bytes_ *= runs_;
      runs_ = std::min<int64_t>(runs_, 1);
    }
    const int64_t lines = runs_ * ((bytes_ + line - 1) / line);
    per_step_ = (lines + steps - 1) / steps * line;
  }

  /// Prefetches the next share.
  __attribute__((always_inline)) inline void step() {
    for (int64_t left = per_step_; left > 0 && runs_ > 0;) {
      const int64_t end = std::min(bytes_, done_ + left);
      left -= end - done_;
      for (; done_ < end; done_ += line) __builtin_prefetch(at_ + done_, 0, 2);
      if (done_ >= bytes_) done_ = 0, at_ += stride_, --runs_;
    }
  }

 private:
  static constexpr int64_t line = 64;
  const char* at_;
  int64_t runs_, stride_, bytes_, per_step_ = 0, done_ = 0;  // done_: bytes of the current run
};

}  // namespace stretto::kernels
