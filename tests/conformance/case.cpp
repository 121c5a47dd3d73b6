#include "tests/conformance/case.h"

#include "autograd/tape.h"
#include "nn/safetensors.h"
#include "ops/create.h"
#include "tests/support/compare.h"

namespace stretto::conformance {
namespace {

bool starts_with(const std::string& text, const std::string& with) {
  return text.rfind(with, 0) == 0;
}

const std::string& text_of(const nn::Metadata& metadata, const char* key, const std::string& path) {
  const auto found = metadata.find(key);
  check(found != metadata.end(), "conformance", path, ": no \"", key, "\" in its metadata");
  return found->second;
}

// What the evaluation gets, in the dtype and on the device asked for.
Tensors inputs_of(const Case& c, DType dtype, Device device) {
  Tensors inputs;
  for (const auto& [name, x] : c.tensors) {
    if (!starts_with(name, "in.") && !starts_with(name, "param.") && !starts_with(name, "noise."))
      continue;
    Tensor y = (is_floating(x.dtype()) ? x.to(dtype) : x).to(device).clone();
    if (c.tensors.has("grad." + name)) y.set_requires_grad();
    inputs.set(name, y);
  }
  return inputs;
}

Tensors evaluate(const Case& c, const Implementation& implementation, Tensors& inputs) {
  try {
    return implementation.evaluate(inputs, c.config);
  } catch (const nlohmann::json::exception& e) {
    fail("conformance", c.name, ": its config: ", e.what());
  }
}

}  // namespace

Tensor& Tensors::operator[](const std::string& name) {
  const auto found = map_.find(name);
  check(found != map_.end(), "conformance", "the case has no tensor ", name);
  return found->second;
}

const Tensor& Tensors::operator[](const std::string& name) const {
  return const_cast<Tensors&>(*this)[name];
}

Case load_case(const std::string& path) {
  const nn::Safetensors file = nn::load_safetensors(path);
  const std::string& format = text_of(file.metadata, "format", path);
  check(format == "conformance-1", "conformance", path, ": format \"", format,
        "\"; known: \"conformance-1\"");
  Case c;
  c.name = text_of(file.metadata, "case", path);
  c.subject = text_of(file.metadata, "subject", path);
  c.config = nlohmann::json::parse(text_of(file.metadata, "config", path), nullptr, false);
  check(c.config.is_object(), "conformance", path, ": its config is no JSON object");
  bool judged_by_something = false;
  for (const auto& [name, tensor] : file.tensors) {
    c.tensors.set(name, tensor);
    judged_by_something |= starts_with(name, "out.");
  }
  check(judged_by_something, "conformance", path, ": no outputs to compare with");
  return c;
}

Result run(const Case& c, const Implementation& implementation, DType dtype, Device device) {
  Tensors inputs = inputs_of(c, dtype, device);
  const Tensors outputs = evaluate(c, implementation, inputs);
  Result result{.implementation = implementation.name};
  stretto::Tensors differentiated, cotangents, wanted;
  std::vector<std::string> names;
  for (const auto& [name, x] : outputs) {
    result.computed.set(name, x.detach());
    const std::string cotangent = "g" + name;
    if (!c.tensors.has(cotangent)) continue;
    differentiated.push_back(x);
    cotangents.push_back(c.tensors[cotangent].to(x.dtype()).to(device));
  }
  for (const auto& [name, x] : inputs) {
    if (!c.tensors.has("grad." + name)) continue;
    names.push_back("grad." + name);
    wanted.push_back(x);
  }
  if (!wanted.empty()) {
    const stretto::Tensors gradients = grad(differentiated, wanted, cotangents);
    for (size_t i = 0; i < wanted.size(); ++i)
      result.computed.set(names[i], gradients[i].defined() ? gradients[i] : zeros_like(wanted[i]));
  }
  for (const auto& [name, want] : c.tensors) {
    if (!starts_with(name, "out.") && !starts_with(name, "grad.")) continue;
    const double error = testing::worst_error(result.computed[name], want);
    if (result.where.empty() || error > result.worst) {
      result.worst = error;
      result.where = name;
    }
  }
  return result;
}

double tolerance(DType dtype) { return dtype == f64 ? 1e-9 : dtype == f32 ? 2e-4 : 6e-2; }

bool judged(const Case& c, DType dtype) {
  if (dtype == f64) return true;
  const bool shifted = c.subject == "op.layer_norm" && c.config.value("shift", 0.0) != 0;
  const bool scaled = c.subject == "op.softmax" && c.config.value("scale", 1.0) > 1;
  return !shifted && !scaled;
}

}  // namespace stretto::conformance
