// Batches of labeled sequences, and confidence intervals of accuracies.

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"
#include "examples/common/portable_random.h"
#include "examples/lra/sequences.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto;                     // NOLINT
using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

LabeledSequences three() {
  LabeledSequences data;
  data.sequences.add({5, 6, 7});
  data.sequences.add({8});
  data.sequences.add({1, 2});
  data.labels = {4, 0, 9};
  return data;
}

using Numbers = std::vector<int64_t>;

}  // namespace

TEST_CASE("batches are padded at the end", "[examples]") {
  const LabeledSequences data = three();
  CHECK(data.sequences.size() == 3);
  CHECK(data.sequences.longest() == 3);
  CHECK(data.sequences.total() == 6);
  const SequenceBatch batch = make_batch(data, {2, 0});
  CHECK(batch.tokens.shape() == Shape{2, 3});
  CHECK(batch.tokens.dtype() == i32);
  CHECK(batch.tokens.to_vector<int64_t>() == Numbers{1, 2, 0, 5, 6, 7});
  CHECK(batch.padding.dtype() == boolean);
  CHECK(batch.padding.to_vector<int64_t>() == Numbers{0, 0, 1, 0, 0, 0});
  CHECK(batch.labels.to_vector<int64_t>() == Numbers{9, 4});
  CHECK(batch.labels.dtype() == i64);
  CHECK(!batch.others.defined());
  CHECK(make_batch(data, {1}).tokens.shape() == Shape{1, 1});
  const SequenceBatch wide = make_batch(data, {1}, 4);
  CHECK(wide.tokens.to_vector<int64_t>() == Numbers{8, 0, 0, 0});
  CHECK(wide.padding.to_vector<int64_t>() == Numbers{0, 1, 1, 1});
  CHECK_THROWS_WITH(make_batch(data, {0}, 2),
                    "[make_batch] a sequence of 3 ids; the largest length is 2");
}

TEST_CASE("batches of pairs have two lengths", "[examples]") {
  LabeledSequences data = three();
  for (int i = 0; i < 3; ++i) data.others.add(std::vector<uint16_t>(size_t(i + 1), 30));
  CHECK(data.pairs());
  const SequenceBatch batch = make_batch(data, {1, 0});
  CHECK(batch.tokens.shape() == Shape{2, 3});
  CHECK(batch.others.to_vector<int64_t>() == Numbers{30, 30, 30, 0});
  CHECK(batch.others_padding.to_vector<int64_t>() == Numbers{0, 0, 0, 1});
}

TEST_CASE("part() and rows() select examples, and fingerprints differ between data sets",
          "[examples]") {
  const LabeledSequences data = three();
  const LabeledSequences part = data.part(1, 2);
  CHECK(part.labels == std::vector<int32_t>{0, 9});
  CHECK(part.sequences.length(0) == 1);
  CHECK(part.sequences[1][1] == 2);
  CHECK(data.part(3, 0).size() == 0);
  const LabeledSequences rows = data.rows({2, 0, 2});
  CHECK(rows.labels == std::vector<int32_t>{9, 4, 9});
  CHECK(rows.sequences.length(1) == 3);
  CHECK_THROWS_WITH(data.part(2, 2), "[LabeledSequences] 2 examples from 2 on; there are 3");

  CHECK(data.fingerprint() == three().fingerprint());
  LabeledSequences other = three();
  other.labels[2] = 8;
  CHECK(other.fingerprint() != data.fingerprint());
  LabeledSequences moved;  // the same ids with other sequence borders
  moved.sequences.add({5, 6});
  moved.sequences.add({7, 8});
  moved.sequences.add({1, 2});
  moved.labels = data.labels;
  CHECK(moved.fingerprint() != data.fingerprint());
  CHECK(part.fingerprint() != data.fingerprint());
}

TEST_CASE("a fraction of each label is held out at random", "[examples]") {
  PortableRandom random(11);
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<int32_t> labels;
    std::vector<int64_t> of_label;
    for (int label = random.below(3); label < 10; label += 1 + random.below(3)) {
      of_label.resize(size_t(label) + 1);
      of_label.back() = 1 + random.below(40);
      labels.insert(labels.end(), size_t(of_label.back()), label);
    }
    if (trial % 2 == 0)
      for (int i = int(labels.size()) - 1; i > 0; --i)
        std::swap(labels[size_t(i)], labels[size_t(random.below(i + 1))]);
    const double share = 0.05 * (1 + random.below(19));
    const HeldOutRows rows = hold_out(labels, share, uint64_t(trial));
    CHECK(int64_t(rows.held.size()) == int64_t(share * double(labels.size())));
    CHECK(std::is_sorted(rows.kept.begin(), rows.kept.end()));
    Numbers all = rows.kept;
    all.insert(all.end(), rows.held.begin(), rows.held.end());
    std::sort(all.begin(), all.end());
    for (size_t i = 0; i < labels.size(); ++i) CHECK(all.at(i) == int64_t(i));
    CHECK(all.size() == labels.size());
    for (size_t label = 0; label < of_label.size(); ++label) {
      const auto held = std::count_if(rows.held.begin(), rows.held.end(), [&](int64_t row) {
        return labels[size_t(row)] == int32_t(label);
      });
      CHECK(std::abs(double(held) - share * double(of_label[label])) < 1 + 1e-9);
    }
    CHECK(hold_out(labels, share, uint64_t(trial)).held == rows.held);
  }
  // Every example can be held out: one of 20 is never drawn in 200 seeds with probability 7e-10.
  std::set<int64_t> drawn;
  for (uint64_t seed = 0; seed < 200; ++seed)
    for (const int64_t row : hold_out(std::vector<int32_t>(20), 0.1, seed).held) drawn.insert(row);
  CHECK(drawn.size() == 20);

  CHECK(sample_rows(4, 0, 1) == Numbers{0, 1, 2, 3});
  CHECK(sample_rows(4, 9, 1) == Numbers{0, 1, 2, 3});
  const Numbers some = sample_rows(1000, 100, 1);
  CHECK(std::set<int64_t>(some.begin(), some.end()).size() == 100);
  CHECK(some == sample_rows(1000, 100, 1));
  CHECK(some != sample_rows(1000, 100, 2));
  CHECK(std::count_if(some.begin(), some.end(), [](int64_t row) { return row < 500; }) < 100);

  CHECK(missing_labels({3, 1, 1}, 5) == "0, 2, 4");
  CHECK(missing_labels({0, 1}, 2).empty());
  CHECK(missing_labels({}, 1) == "0");
}

TEST_CASE("accuracies have Wilson's interval", "[examples]") {
  // With z² = 3.841459 the bounds for 0 of 10 are 0 and z²/(10 + z²).
  const Accuracy none{0, 10}, all{10, 10}, half{50, 100};
  CHECK(none.interval().low == 0);
  CHECK(none.interval().high == Approx(0.2775328).epsilon(1e-6));
  CHECK(all.interval().low == Approx(0.7224672).epsilon(1e-6));
  CHECK(all.interval().high == Approx(1).epsilon(1e-15));
  // 1/2 ± z / (2 √(n + z²)).
  CHECK(half.interval().low == Approx(0.4038315).epsilon(1e-6));
  CHECK(half.interval().high == Approx(0.5961685).epsilon(1e-6));
  CHECK(Accuracy{356, 2000}.value() == Approx(0.178));
  CHECK_THROWS_WITH((Accuracy{3, 2}.interval()), "[Accuracy] 3 of 2");
  CHECK_THROWS_WITH((Accuracy{0, 0}.interval()), "[Accuracy] 0 of 0");
  // Three classes, one of them unseen: (2 + 1) / 7 and (0 + 1) / 7.
  CHECK(class_frequency_loss({0, 0, 1, 1}, {0, 2, 2}, 3) ==
        Approx(-(std::log(3.0 / 7) + 2 * std::log(1.0 / 7)) / 3));
  CHECK(class_frequency_loss({0, 0, 1, 1}, {0}, 3) == Approx(-std::log(3.0 / 7)));
  const Accuracy most = majority({3, 1, 3, 2, 1, 3});
  CHECK(most.correct == 3);
  CHECK(most.total == 6);
}
