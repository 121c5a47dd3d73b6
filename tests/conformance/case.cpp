#include "tests/conformance/case.h"

#include "autograd/tape.h"
#include "nn/files/safetensors.h"
#include "ops/create.h"
#include "tests/support/compare.h"

namespace stretto::conformance {
namespace {

constexpr const char* op = "conformance";

bool starts_with(const std::string& text, const std::string& with) {
  return text.rfind(with, 0) == 0;
}

const std::string& text_of(const nn::Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  check(found != metadata.end(), op, "no \"", key, "\" in its metadata");
  return found->second;
}

void check_alike(const Tensors& tensors, const std::string& name, const std::string& other) {
  const Tensor &x = tensors[name], &like = tensors[other];
  check(is_floating(x.dtype()) && is_floating(like.dtype()), op, name, " ", x, " for ", other, " ",
        like, "; only floating tensors have gradients");
  check(x.shape() == like.shape(), op, name, " ", x, " for ", other, " ", like,
        "; shapes must agree");
}

// Checks that outputs, cotangents and gradients of the file fit together.
void check_consistent(const Tensors& tensors) {
  bool outputs = false, cotangents = false;
  for (const auto& [name, x] : tensors) {
    outputs |= starts_with(name, "out.");
    if (!starts_with(name, "gout.")) continue;
    cotangents = true;
    check_alike(tensors, name, name.substr(1));
  }
  check(outputs, op, "no outputs to compare with");
  for (const auto& [name, x] : tensors) {
    if (!starts_with(name, "grad.")) continue;
    check(cotangents, op, name, " without the cotangent of any output");
    check_alike(tensors, name, name.substr(5));
  }
}

// Returns the inputs of the evaluation in the requested dtype and on the requested device.
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

}  // namespace

const Tensor& Tensors::operator[](const std::string& name) const {
  const auto found = map_.find(name);
  check(found != map_.end(), op, "the case has no tensor ", name);
  return found->second;
}

Case load_case(const std::string& path) {
  const nn::Safetensors file = nn::load_safetensors(path);
  try {
    const std::string& format = text_of(file.metadata, "format");
    check(format == "conformance-1", op, "format \"", format, "\"; known: \"conformance-1\"");
    Case c{.name = text_of(file.metadata, "case"),
           .subject = text_of(file.metadata, "subject"),
           .config = Config(text_of(file.metadata, "config")),
           .tensors = {}};
    for (const auto& [name, tensor] : file.tensors) c.tensors.set(name, tensor);
    check_consistent(c.tensors);
    return c;
  } catch (const Error& e) {
    throw Error(path + ": " + e.what());
  }
}

Result run(const Case& c, const Candidate& candidate, DType dtype, Device device) {
  const Tensors inputs = inputs_of(c, dtype, device);
  const Tensors outputs = candidate.evaluate(inputs, c.config);
  Result result{.candidate = candidate.name, .computed = {}, .worst = 0, .where = {}};
  stretto::Tensors differentiated, cotangents, sources;
  std::vector<std::string> names;
  for (const auto& [name, want] : c.tensors) {
    if (!starts_with(name, "out.")) continue;
    check(outputs.has(name), op, c.subject, " has no output ", name);
    const Tensor& got = outputs[name];
    check(got.shape() == want.shape(), op, name, " is ", want,
          " in the file, but the computed output is ", got);
    result.computed.set(name, got.detach());
    if (!c.tensors.has("g" + name) || !got.requires_grad()) continue;
    differentiated.push_back(got);
    cotangents.push_back(c.tensors["g" + name].to(got.dtype()).to(device));
  }
  for (const auto& [name, x] : inputs) {
    if (!c.tensors.has("grad." + name)) continue;
    names.push_back("grad." + name);
    sources.push_back(x);
  }
  if (!sources.empty()) {
    stretto::Tensors gradients(sources.size());
    if (!differentiated.empty()) gradients = grad(differentiated, sources, cotangents);
    for (size_t i = 0; i < sources.size(); ++i)
      result.computed.set(names[i], gradients[i].defined() ? gradients[i] : zeros_like(sources[i]));
  }
  for (const auto& [name, got] : result.computed) {
    const double error = testing::worst_error(got, c.tensors[name]);
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
  if (c.subject == "op.layer_norm") return c.config.number("shift", 0) == 0;
  if (c.subject == "op.softmax") return c.config.number("scale", 1) <= 1;
  return true;
}

}  // namespace stretto::conformance
