// Transformer layers as conformance cases, by loops that follow README.md.
#pragma once

#include "tests/conformance/case.h"

namespace stretto::conformance {

struct EncoderSetting {
  int64_t b, l, e, h, ff;
  bool pre, gelu, causal, padding;
};

struct XLSetting {
  int64_t b, m, mem, e, h, ff, clamp;
};

/// `scale` multiplies the inputs and the weights of the queries; dtype and seed as in example.h.
struct Noise {
  DType dtype = f64;
  uint64_t seed = 0;
  double scale = 1;
  std::vector<double>* before_relu = nullptr;  // receives the inputs of ReLU, in order
};

Case encoder_example(const EncoderSetting& setting, const Noise& noise = {});
Case xl_example(const XLSetting& setting, const Noise& noise = {});

}  // namespace stretto::conformance
