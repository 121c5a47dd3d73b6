// Sampler against transformers' logits processors. The expected values are in
// build/sampling_peer.txt, written by tests/nn/models/sampling_peer.py; without the file the test
// is skipped.
#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "nn/models/sampling.h"
#include "ops/create.h"
#include "tests/support/catch.h"
#include "tests/support/find_upwards.h"

using namespace stretto;

namespace {

template <class T>
std::vector<T> numbers(const std::string& line) {
  std::istringstream in(line);
  std::vector<T> all;
  for (T x; in >> x;) all.push_back(x);
  return all;
}

}  // namespace

TEST_CASE("Sampler: probabilities are those of transformers") {
  const auto path = testing::find_upwards("build/sampling_peer.txt");
  if (path.empty()) STRETTO_SKIP("no build/sampling_peer.txt of tests/nn/models/sampling_peer.py");
  std::ifstream in(path);
  int64_t cases = 0;
  for (std::string line; std::getline(in, line); ++cases) {
    const auto o = numbers<double>(line);
    INFO("case " << cases << ": " << line);
    std::getline(in, line);
    const auto tokens = numbers<int64_t>(line);
    std::getline(in, line);
    const auto values = numbers<double>(line);
    const auto vocabulary = int64_t(values.size() / 2);
    std::vector<double> logits, p;
    for (size_t i = 0; i < values.size(); i += 2) {
      logits.push_back(values[i]);
      p.push_back(values[i + 1]);
    }
    const Tensor x = tensor(logits, {vocabulary});
    const auto token_of = [&](double draw) {
      return nn::Sampler({.temperature = o[0],
                          .top_k = int64_t(o[1]),
                          .top_p = o[2],
                          .min_p = o[3],
                          .repetition_penalty = o[4]},
                         tokens)(x, draw);
    };
    // Tokens in the order of their probability divide [0, 1): each begins where the sum of the
    // probabilities before it ends.
    std::vector<int64_t> order;
    for (int64_t t = 0; t < vocabulary; ++t)
      if (p[size_t(t)] > 0) order.push_back(t);
    std::sort(order.begin(), order.end(),
              [&](int64_t a, int64_t b) { return p[size_t(a)] > p[size_t(b)]; });
    double sum = 0;
    for (const int64_t t : order) {
      const double share = p[size_t(t)];
      if (share > 1e-9) {
        CHECK(token_of(sum + 1e-12) == t);
        CHECK(token_of(sum + share - 1e-12) == t);
      }
      sum += share;
    }
  }
  CHECK(cases == 400);
}
