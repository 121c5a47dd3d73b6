// The order of an epoch.
#include "nn/data/epoch_order.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/support/catch.h"

using namespace stretto;  // NOLINT
using Numbers = std::vector<int64_t>;

TEST_CASE("every epoch has every row once, in another order", "[epoch_order]") {
  for (const int64_t batch : {1, 3, 7, 10, 24}) {
    nn::EpochOrder order(10, batch, 5);
    Numbers rows;
    for (int64_t step = 0; int64_t(rows.size()) < 50; ++step) {
      const Numbers some = order(step);
      CHECK(int64_t(some.size()) == batch);
      rows.insert(rows.end(), some.begin(), some.end());
    }
    std::set<Numbers> orders;
    for (int epoch = 0; epoch < 5; ++epoch) {
      Numbers one(rows.begin() + 10 * epoch, rows.begin() + 10 * epoch + 10);
      orders.insert(one);
      std::sort(one.begin(), one.end());
      CHECK(one == Numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    }
    CHECK(orders.size() == 5);
    // A step does not depend on the steps requested before.
    const Numbers late = order(40), early = order(1);
    nn::EpochOrder again(10, batch, 5);
    CHECK(again(1) == early);
    CHECK(again(40) == late);
  }
  CHECK(nn::EpochOrder(1000, 1000, 1)(0) != nn::EpochOrder(1000, 1000, 2)(0));
  CHECK(nn::EpochOrder(1000, 1000, 1)(1) != nn::EpochOrder(1000, 1000, 2)(0));
  CHECK(nn::EpochOrder(1, 3, 1)(0) == Numbers{0, 0, 0});
  CHECK_THROWS_WITH(nn::EpochOrder(0, 3, 1), Containing("0 rows in batches of 3"));
}

TEST_CASE("every place in an epoch is equally likely for a row", "[epoch_order]") {
  // The place of row 0 in 3,000 epochs of 5 rows: 600 times each, standard deviation 21.9.
  nn::EpochOrder order(5, 5, 3);
  Numbers places(5);
  for (int64_t epoch = 0; epoch < 3000; ++epoch) {
    const Numbers rows = order(epoch);
    ++places[size_t(std::find(rows.begin(), rows.end(), 0) - rows.begin())];
  }
  for (const int64_t n : places) CHECK(std::fabs(double(n) - 600) < 4 * 21.9);
}
