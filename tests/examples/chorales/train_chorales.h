// Shared by the tests of train_chorales: a run of a few hundredths of a second.
#pragma once

#include <string>
#include <vector>

#include "examples/chorales/chorale.h"
#include "examples/common/portable_random.h"
#include "tests/examples/tiny_run.h"

namespace stretto::examples::testing {

inline Chorale random_chorale(PortableRandom& random, int steps) {
  Chorale chorale;
  for (int i = 0; i < steps; ++i) {
    chorale.steps.push_back({60 + random.below(12), 55 + random.below(10), 48 + random.below(12),
                             random.percent(20) ? -1 : 36 + random.below(16)});
  }
  return chorale;
}

inline ChoraleSet tiny_chorales() {
  PortableRandom random(7);
  ChoraleSet set;
  for (int i = 0; i < 3; ++i) set.train.push_back(random_chorale(random, 20));
  set.valid.push_back(random_chorale(random, 12));
  set.test.push_back(random_chorale(random, 12));
  return set;
}

/// Trains on tiny_chorales(), saved as tiny.json in its directory.
class TinyChorales : public TinyRun {
 public:
  TinyChorales()
      : TinyRun("train_chorales",
                words("--layers 1 --d-model 16 --heads 2 --d-hidden 32 --length 32 --batch 2 "
                      "--warmup 5 --attention-dropout 0.1 --steps 60")) {
    save_chorales(file("tiny.json"), tiny_chorales());
    settings.insert(settings.end(), not_saved.begin(), not_saved.end());
  }

  /// The settings that are not stored in checkpoints.
  const Arguments not_saved{"--data", file("tiny.json"), "--save-every", "3", "--generate", "0"};
};

}  // namespace stretto::examples::testing
