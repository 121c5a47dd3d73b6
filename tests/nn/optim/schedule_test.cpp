#include "nn/optim/schedule.h"

#include <cmath>

#include "tests/support/catch.h"

using namespace stretto;

TEST_CASE("a constant schedule is constant") {
  const nn::Schedule schedule = nn::ConstantRate{.lr = 0.25};
  CHECK(schedule.at(0) == 0.25);
  CHECK(schedule.at(1000000) == 0.25);
  CHECK(nn::Schedule().at(1) == 1e-3);
}

TEST_CASE("the text of a schedule has its settings, without the number of steps") {
  const auto text = [](const nn::Schedule& schedule) { return schedule.text(); };
  CHECK(text(nn::ConstantRate{.lr = 0.25}) == "ConstantRate(lr 0.25)");
  CHECK(text(nn::WarmupStableDecay{.peak = 0.5, .warmup = 3, .steps = 9}) ==
        "WarmupStableDecay(peak 0.5, warmup 3, decay 0.2, floor 0)");
  CHECK(text(nn::InverseSqrt{}) == "InverseSqrt(factor 1, d_model 512, warmup 4000)");
  CHECK(text([](int64_t, double) { return 1.0; }) == "a function");
}

TEST_CASE("a cosine schedule warms up, then falls to its floor") {
  const nn::Schedule schedule =
      nn::WarmupCosine{.peak = 0.5, .warmup = 100, .steps = 1100, .floor = 0.1};
  CHECK(schedule.at(0) == 0);
  CHECK(schedule.at(1) == 0.005);
  CHECK(schedule.at(50) == 0.25);
  CHECK(schedule.at(100) == 0.5);
  CHECK(schedule.at(600) == Approx(0.3).epsilon(1e-15));  // half way: the mean of peak and floor
  CHECK(schedule.at(350) == Approx(0.3 + 0.2 * std::sqrt(0.5)).epsilon(1e-15));
  CHECK(schedule.at(1100) == 0.1);
  CHECK(schedule.at(5000) == 0.1);
  for (int64_t t = 101; t <= 1100; ++t) CHECK(schedule.at(t) < schedule.at(t - 1));

  CHECK(nn::WarmupCosine{.peak = 2, .warmup = 0, .steps = 10}.at(0) == 2);
  CHECK(nn::WarmupCosine{.peak = 2, .warmup = 10, .steps = 10}.at(5) == 1);
  CHECK(nn::WarmupCosine{.peak = 2, .warmup = 10, .steps = 10}.at(10) == 0);
  CHECK_THROWS_WITH(schedule.at(-1), Containing("[WarmupCosine] step -1"));
}

TEST_CASE("a warmup-stable-decay schedule rises, stays and falls") {
  const nn::Schedule schedule =
      nn::WarmupStableDecay{.peak = 0.5, .warmup = 100, .steps = 1000, .decay = 0.25, .floor = 0.1};
  CHECK(schedule.at(0) == 0);
  CHECK(schedule.at(1) == 0.005);
  CHECK(schedule.at(50) == 0.25);
  for (int64_t t = 100; t <= 750; ++t) CHECK(schedule.at(t) == 0.5);
  CHECK(schedule.at(875) == Approx(0.3).epsilon(1e-15));  // half of the decay
  for (int64_t t = 751; t <= 1000; ++t) CHECK(schedule.at(t) < schedule.at(t - 1));
  CHECK(schedule.at(1000) == 0.1);
  CHECK(schedule.at(5000) == 0.1);

  // By progress: the number of steps is unknown.
  const nn::WarmupStableDecay by_progress{.peak = 2, .warmup = 10};
  CHECK(by_progress.at(5, 0.01) == 1);
  CHECK(by_progress.at(20, 0.8) == 2);
  CHECK(by_progress.at(20, 0.9) == Approx(1).epsilon(1e-15));
  CHECK(by_progress.at(20, 1.5) == 0);
  CHECK(nn::WarmupStableDecay{.peak = 2, .steps = 10}.at(0) == 2);
  CHECK(nn::WarmupStableDecay{.peak = 2, .steps = 10, .decay = 0}.at(9) == 2);
  CHECK_THROWS_WITH(schedule.at(-1), Containing("[WarmupStableDecay] step -1"));
  CHECK_THROWS_WITH(nn::WarmupStableDecay{.decay = 2}.at(1), Containing("decay must be 0 to 1"));
}

TEST_CASE("an inverse square root schedule, as in the paper and by its peak") {
  const nn::Schedule schedule = nn::InverseSqrt{.factor = 2, .d_model = 256, .warmup = 400};
  for (int64_t t : {1, 2, 100, 399, 400, 401, 1000, 1000000}) {
    const double s = double(t);
    CHECK(schedule.at(t) ==
          Approx(2 * std::pow(256, -0.5) * std::min(std::pow(s, -0.5), s * std::pow(400, -1.5)))
              .epsilon(1e-14));
  }
  CHECK(schedule.at(0) == 0);
  CHECK(schedule.at(400) == Approx(2.0 / 16 / 20).epsilon(1e-15));

  const nn::Schedule by_peak = nn::InverseSqrt::with_peak(0.3, 50);
  CHECK(by_peak.at(50) == Approx(0.3).epsilon(1e-15));
  CHECK(by_peak.at(25) == Approx(0.15).epsilon(1e-15));
  CHECK(by_peak.at(200) == Approx(0.15).epsilon(1e-15));
  CHECK_THROWS_WITH((nn::InverseSqrt{.warmup = 0}.at(1)), Containing("[InverseSqrt]"));
  CHECK_THROWS_WITH((nn::InverseSqrt{.d_model = 0}.at(1)), Containing("d_model 0"));
}
