#include "nn/data/epoch_order.h"

#include <numeric>
#include <utility>

#include "core/error.h"
#include "nn/data/draws.h"

namespace stretto::nn {

EpochOrder::EpochOrder(int64_t n, int64_t batch, uint64_t seed)
    : EpochOrder(n, batch, [n, seed](int64_t epoch) {
        // The seed is changed so that the key differs from those of the program's random state.
        Draws draws(seed ^ 0x65706f6368ull, epoch);
        std::vector<int64_t> order(static_cast<size_t>(n));
        std::iota(order.begin(), order.end(), 0);
        for (int64_t i = n - 1; i > 0; --i)
          std::swap(order[size_t(i)], order[size_t(draws.below(i + 1))]);
        return order;
      }) {}

EpochOrder::EpochOrder(int64_t n, int64_t batch, Shuffle shuffle)
    : n_(n), batch_(batch), shuffle_(std::move(shuffle)) {
  check(n >= 1 && n <= INT32_MAX && batch >= 1, "EpochOrder", n, " rows in batches of ", batch,
        "; needs 1 to 2147483647 rows and batches of at least 1");
}

std::vector<int64_t> EpochOrder::operator()(int64_t step) {
  std::vector<int64_t> rows;
  for (int64_t at = step * batch_; at < (step + 1) * batch_; ++at) {
    if (at / n_ != epoch_) {
      epoch_ = at / n_;
      order_ = shuffle_(epoch_);
    }
    rows.push_back(order_[size_t(at % n_)]);
  }
  return rows;
}

}  // namespace stretto::nn
