#include "tests/conformance/example.h"

#include "nn/files/safetensors.h"
#include "ops/create.h"
#include "tests/conformance/subjects.h"
#include "tests/support/catch.h"
#include "tests/support/gradcheck.h"

namespace stretto::conformance {

using testing::Number;

Example::Example(const std::string& subject, const std::string& config, DType dtype, uint64_t seed)
    : case_{.name = config, .subject = subject, .config = Config(config), .tensors = {}},
      dtype_(dtype),
      seed_(10000 * seed) {
  testing::number_tape().clear();
}

void Example::input(const std::string& name, const Shape& shape, double scale, double shift) {
  const Tensor x = testing::fixed_noise(shape, seed_ + 100 + leaves_.size()).to(cpu);
  Entry& entry = entries_[name];
  entry.shape = shape;
  for (int64_t i = 0; i < x.numel(); ++i) {
    double& value = x.data<double>()[i];
    value = testing::rounded(value * scale + shift, dtype_);
    entry.numbers.push_back(testing::leaf_number(value));
  }
  case_.tensors.set(name, x);
  leaves_.push_back(name);
}

void Example::constant(const std::string& name, const Tensor& x) {
  Entry& entry = entries_[name];
  entry.shape = x.shape();
  for (const double value : x.to_vector<double>())
    entry.numbers.push_back(testing::exact_number(testing::rounded(value, dtype_)));
  case_.tensors.set(name, x);
}

Case Example::finish(const std::vector<Output>& outputs) {
  std::vector<Number> values;
  std::vector<double> cotangents;
  for (const Output& out : outputs) {
    std::vector<double> plain;
    for (const Number& value : out.values) plain.push_back(value.value);
    const Tensor cotangent =
        testing::fixed_noise(out.shape, seed_ + 99 + 1000 * uint64_t(&out - outputs.data()), dtype_)
            .to(f64);
    case_.tensors.set("out." + out.name, tensor(plain, out.shape).to(dtype_).to(f64));
    case_.tensors.set("gout." + out.name, cotangent);
    values.insert(values.end(), out.values.begin(), out.values.end());
    const std::vector<double> more = cotangent.to_vector<double>();
    cotangents.insert(cotangents.end(), more.begin(), more.end());
  }
  size_t leaves = 0;
  for (const std::string& leaf : leaves_) leaves += entries_[leaf].numbers.size();
  const std::vector<double> slopes = testing::number_gradients(values, cotangents, leaves).value;
  auto at = slopes.begin();
  for (const std::string& leaf : leaves_) {
    const auto end = at + int64_t(entries_[leaf].numbers.size());
    case_.tensors.set(
        "grad." + leaf,
        tensor(std::vector<double>(at, end), entries_[leaf].shape).to(dtype_).to(f64));
    at = end;
  }
  return case_;
}

void check_everywhere(const Case& c) {
  const auto all = candidates(c.subject);
  REQUIRE(!all.empty());
  for (const DType dtype : {f64, f32, bf16}) {
    for (const Candidate& candidate : all) {
      INFO(c.subject << " " << c.name << ", " << candidate.name << ", " << name(dtype));
      const Result result = run(c, candidate, dtype);
      INFO("worst " << result.worst << " at " << result.where);
      CHECK(result.worst <= tolerance(dtype));
    }
  }
}

}  // namespace stretto::conformance
