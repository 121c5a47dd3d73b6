#include "tests/reference/ctc.h"

namespace stretto::reference {

using testing::Array;
using testing::Number;

namespace {

// The labels of a path: repeated classes merged, then blanks removed.
std::vector<int64_t> labels_of(const std::vector<int64_t>& path, int64_t blank) {
  std::vector<int64_t> labels;
  for (size_t t = 0; t < path.size(); ++t)
    if (path[t] != blank && (t == 0 || path[t] != path[t - 1])) labels.push_back(path[t]);
  return labels;
}

// Moves to the next path of the same length; false after the last one.
bool advance(std::vector<int64_t>& path, int64_t classes) {
  for (int64_t& c : path) {
    if (++c < classes) return true;
    c = 0;
  }
  return false;
}

}  // namespace

std::vector<Number> ctc(const Array& log_p, const Array& targets,
                        const std::vector<int64_t>& input_lengths,
                        const std::vector<int64_t>& target_lengths, int64_t blank) {
  std::vector<Number> losses;
  for (int64_t n = 0; n < log_p.shape[1]; ++n) {
    std::vector<int64_t> target, path;
    path.resize(size_t(input_lengths[size_t(n)]), 0);
    for (int64_t i = 0; i < target_lengths[size_t(n)]; ++i)
      target.push_back(int64_t(targets.at({n, i}).value));
    Number total;
    do {
      if (labels_of(path, blank) != target) continue;
      Number sum;
      for (size_t t = 0; t < path.size(); ++t) sum = sum + log_p.at({int64_t(t), n, path[t]});
      total = total + exp(sum);
    } while (advance(path, log_p.shape[2]));
    losses.push_back(-log(total));
  }
  return losses;
}

}  // namespace stretto::reference
