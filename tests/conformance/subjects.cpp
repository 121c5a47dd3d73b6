#include "tests/conformance/subjects.h"

#include "tests/conformance/families.h"
#include "tests/support/stand_in.h"

namespace stretto::conformance {

Tensors only(const char* name, const Tensor& x) {
  Tensors outputs;
  outputs.set(name, x);
  return outputs;
}

void check_sizes(const Config& config, const std::vector<std::pair<const char*, int64_t>>& sizes) {
  for (const auto& [key, size] : sizes)
    check(config.integer(key, size) == size, "conformance", "config: ", key, " is ",
          config.integer(key, size), ", by the tensors it is ", size);
}

void check_shape(const Tensors& x, const std::string& name, const Shape& shape) {
  check(x[name].shape() == shape, "conformance", name, " is ", x[name],
        "; by the config and the other tensors it must be ", shape);
}

namespace {

Tensor whole_numbers(const Tensors& x, const std::string& name, DType dtype) {
  check(!is_floating(x[name].dtype()), "conformance", name, " is ", x[name],
        "; must be integers or booleans");
  return x[name].to(dtype);
}

}  // namespace

Tensor mask(const Tensors& x, const std::string& name) { return whole_numbers(x, name, boolean); }

Tensor indices(const Tensors& x, const std::string& name) { return whole_numbers(x, name, i64); }

void connect(const Tensor& parameter, const Tensors& x, const std::string& name) {
  check_shape(x, name, parameter.shape());
  testing::stand_in(x[name], parameter);
}

std::vector<Candidate> candidates(const std::string& subject) {
  static const Subjects all = [] {
    Subjects joined;
    for (const Subjects& family :
         {attention_subjects(), linear_subjects(), layer_subjects(), op_subjects(), spe_subjects()})
      joined.insert(family.begin(), family.end());
    return joined;
  }();
  const auto found = all.find(subject);
  if (found == all.end()) return {};
  std::vector<Candidate> here = found->second;
  if (default_device().is_cuda())
    std::erase_if(here, [](const Candidate& i) { return i.cpu_alone; });
  return here;
}

}  // namespace stretto::conformance
