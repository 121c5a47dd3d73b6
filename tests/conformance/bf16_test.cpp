// How much of the error of bf16 layers is due to bf16 itself: layers in bf16 are compared with the
// same layers in which each tensor between two ops is rounded once, forward and backward, and all
// arithmetic is exact (example.h). The errors of both are relative to f64.
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

// Returns Σ (got − want)² in units of the tensor's scale, as in worst_error().
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
          // A gradient is rounded when an op returns it, and again when several are added. Fused
          // attention also rounds its weights and their gradients, as operands. That makes three
          // roundings for one of the simulation; squares of independent errors add up.
          INFO(candidate << ", " << name << ": " << std::sqrt(sum / sums[""][name])
                         << " times the errors of rounding once");
          CHECK(sum <= 3 * sums[""][name]);
        }
    }
}

TEST_CASE("bf16 gradients jump only if rounding moves a unit across the kink of ReLU") {
  int clear = 0, jumps = 0;
  for (const auto& [label, make] : with_kinks)
    for (const double scale : {1.0, 3.0})
      for (uint64_t seed = 0; seed < 24; ++seed) {
        INFO(label << ", scale " << scale << ", seed " << seed);
        std::vector<double> units, rounded_units;
        const Case exact = make({.seed = seed, .scale = scale, .before_relu = &units});
        const Case once =
            make({.dtype = bf16, .seed = seed, .scale = scale, .before_relu = &rounded_units});
        // The largest change of a unit by rounding, and the smallest distance of a unit from 0.
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
  CHECK(jumps > 20);  // of the simulation itself: any arithmetic on bf16 tensors has them
}
