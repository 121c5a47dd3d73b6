#include "nn/conv/conv.h"

#include <cmath>

#include "nn/init.h"
#include "ops/conv/conv.h"

namespace stretto::nn {
namespace {

template <class Options>
const Options& checked(const char* name, const Options& o, Size2d kernel) {
  check(o.in > 0 && o.out > 0 && kernel.height > 0 && kernel.width > 0, name, "in = ", o.in,
        ", out = ", o.out, ", kernel ", kernel.height, " × ", kernel.width, "; must be positive");
  check(o.groups > 0 && o.in % o.groups == 0 && o.out % o.groups == 0, name, "groups = ", o.groups,
        " for in = ", o.in, " and out = ", o.out, "; groups must divide both");
  return o;
}

const Conv1dOptions& checked(const Conv1dOptions& o) { return checked("Conv1d", o, {1, o.kernel}); }
const Conv2dOptions& checked(const Conv2dOptions& o) { return checked("Conv2d", o, o.kernel); }

void reset_parameters(const Tensor& weight, const Tensor& bias) {
  const int64_t terms = weight.numel() / weight.size(0);
  const double bound = 1 / std::sqrt(double(terms));
  uniform_(weight, -bound, bound);
  if (bias.defined()) uniform_(bias, -bound, bound);
}

template <class Options>
std::string label_of(const char* name, const Options& o, const std::string& kernel) {
  return str(name, "(", o.in, " → ", o.out, ", kernel ", kernel,
             o.groups > 1 ? str(", groups ", o.groups) : "", o.bias ? ")" : ", no bias)");
}

}  // namespace

Conv1d::Conv1d(Options o) : options(checked(o)) { reset_parameters(weight, bias); }

Conv1d::Conv1d(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(checked(o)) {
  reset_parameters(weight, bias);
}

Tensor Conv1d::operator()(const Tensor& x) const {
  return conv1d(x, weight, bias,
                {.stride = options.stride,
                 .padding = options.padding,
                 .dilation = options.dilation,
                 .groups = options.groups});
}

std::string Conv1d::label() const { return label_of("Conv1d", options, str(options.kernel)); }

Conv2d::Conv2d(Options o) : options(checked(o)) { reset_parameters(weight, bias); }

Conv2d::Conv2d(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(checked(o)) {
  reset_parameters(weight, bias);
}

Tensor Conv2d::operator()(const Tensor& x) const {
  return conv2d(x, weight, bias,
                {.stride = options.stride,
                 .padding = options.padding,
                 .dilation = options.dilation,
                 .groups = options.groups});
}

std::string Conv2d::label() const {
  return label_of("Conv2d", options, str(options.kernel.height, " × ", options.kernel.width));
}

}  // namespace stretto::nn
