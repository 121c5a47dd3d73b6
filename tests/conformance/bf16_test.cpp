// How much of bf16's errors is bf16's own: layers in bf16 against the same layers with every tensor
// that passes from one op to the next rounded once, forward and backward, and all else exact
// (example.h). Both are compared with f64.
#include <algorithm>
#include <cmath>
#include <map>

#include "tests/conformance/layer_examples.h"
#include "tests/conformance/subjects.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

using namespace stretto;
using namespace stretto::conformance;

namespace {

using Make = std::function<Case(const Noise&)>;

bool compared(const std::string& name) {
  return name.rfind("out.", 0) == 0 || name.rfind("grad.", 0) == 0;
}

// Σ (got − want)² in units of the tensor's scale, the measure of worst_error.
double squares(const Tensor& got, const Tensor& want) {
  const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
  double largest = 1, sum = 0;
  for (const double v : b) largest = std::max(largest, std::fabs(v));
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum / (largest * largest);
}

double worst_of(const Case& got, const Case& want) {
  double worst = 0;
  for (const auto& [name, x] : got.tensors)
    if (compared(name)) worst = std::max(worst, testing::worst_error(x, want.tensors[name]));
  return worst;
}

const std::vector<std::pair<const char*, Make>> smooth = {
    {"pre-norm",
     [](const Noise& n) {
       return encoder_example({2, 7, 16, 4, 24, true, true, true, false}, n);
     }},
    {"pre-norm, padding",
     [](const Noise& n) {
       return encoder_example({2, 9, 6, 3, 7, true, true, false, true}, n);
     }},
    {"post-norm",
     [](const Noise& n) {
       return encoder_example({2, 7, 16, 4, 24, false, true, true, false}, n);
     }},
};

const std::vector<std::pair<const char*, Make>> with_kinks = {
    {"pre-norm",
     [](const Noise& n) {
       return encoder_example({2, 7, 16, 4, 24, true, false, false, true}, n);
     }},
    {"pre-norm, few units",
     [](const Noise& n) {
       return encoder_example({1, 3, 8, 2, 4, true, false, false, false}, n);
     }},
    {"Transformer-XL, few units",
     [](const Noise& n) {
       return xl_example({1, 3, 4, 8, 2, 4, 0}, n);
     }},
    {"Transformer-XL",
     [](const Noise& n) {
       return xl_example({2, 5, 6, 16, 4, 24, 0}, n);
     }},
    {"Transformer-XL, clamped",
     [](const Noise& n) {
       return xl_example({1, 6, 3, 8, 2, 12, 4}, n);
     }},
};

}  // namespace

TEST_CASE("bf16 layers lose what rounding once per op loses") {
  for (const auto& [label, make] : smooth)
    for (const double scale : {1.0, 3.0}) {
      std::map<std::string, std::map<std::string, double>> sums;  // by candidate and tensor
      double worst = 0;
      for (uint64_t seed = 0; seed < 16; ++seed) {
        const Case exact = make({.seed = seed, .scale = scale});
        const Case once = make({.dtype = bf16, .seed = seed, .scale = scale});
        for (const auto& [name, x] : once.tensors)
          if (compared(name)) sums[""][name] += squares(x, exact.tensors[name]);
        for (const Candidate& candidate : candidates(exact.subject)) {
          const Result result = run(exact, candidate, bf16);
          worst = std::max(worst, result.worst);
          for (const auto& [name, x] : result.computed)
            sums[candidate.name][name] += squares(x, exact.tensors[name]);
        }
      }
      INFO(label << ", scale " << scale);
      CHECK(worst < tolerance(bf16));
      for (const auto& [candidate, errors] : sums)
        for (const auto& [name, sum] : errors) {
          // A gradient is rounded where an op hands it back, once more where several meet, and
          // fused attention rounds its weights and their gradients where they are operands: three
          // times for the once of the simulation. Independent errors add in squares.
          INFO(candidate << ", " << name << ": " << std::sqrt(sum / sums[""][name])
                         << " times the errors of rounding once");
          CHECK(sum <= 3 * sums[""][name]);
        }
    }
}

TEST_CASE("bf16 gradients that jump are those of a ReLU on the other side of its kink") {
  int clear = 0, jumps = 0;
  for (const auto& [label, make] : with_kinks)
    for (const double scale : {1.0, 3.0})
      for (uint64_t seed = 0; seed < 24; ++seed) {
        INFO(label << ", scale " << scale << ", seed " << seed);
        std::vector<double> units, rounded_units;
        const Case exact = make({.seed = seed, .scale = scale, .before_relu = &units});
        const Case once =
            make({.dtype = bf16, .seed = seed, .scale = scale, .before_relu = &rounded_units});
        // How far rounding moves any unit, and how near to 0 the nearest one is.
        double moved = 0, nearest = 1e9;
        for (size_t i = 0; i < units.size(); ++i) {
          moved = std::max(moved, std::fabs(units[i] - rounded_units[i]));
          nearest = std::min(nearest, std::fabs(units[i]));
        }
        const bool far = nearest > 2 * moved;
        clear += far;
        jumps += worst_of(once, exact) > tolerance(bf16);
        for (const Candidate& candidate : candidates(exact.subject)) {
          const Result result = run(exact, candidate, bf16);
          INFO(candidate.name << ": " << result.worst << " at " << result.where);
          CHECK(testing::worst_error(result.computed["out.y"], exact.tensors["out.y"]) <
                tolerance(bf16));
          if (far) CHECK(result.worst < tolerance(bf16));
        }
      }
  CHECK(clear > 20);
  CHECK(jumps > 20);  // of the simulation itself: no arithmetic on bf16 tensors avoids them
}
