// Stochastic positional encoding, by every implementation of the op.
#include "ops/spe/spe.h"
#include "tests/conformance/families.h"

namespace stretto::conformance {
namespace {

// Checks the sizes of q and k and returns them, [B, L, H, D].
Shape size_of_queries(const Tensors& x, const Config& config) {
  const Tensor& q = x["in.q"];
  check(q.dim() == 4, "conformance", "in.q is ", q, "; must be [B, L, H, D]");
  check_shape(x, "in.k", q.shape());
  check_sizes(config, {{"B", q.size(0)}, {"L", q.size(1)}, {"H", q.size(2)}, {"D", q.size(3)}});
  return q.shape();
}

SpeCode sine(const Tensors& x, const Config& config) {
  const Shape q = size_of_queries(x, config);
  const Tensor &freqs = x["param.freqs"], &z = x["noise.z"];
  check(freqs.dim() == 3 && freqs.size(0) == q[2] && freqs.size(1) == q[3] && freqs.size(2) >= 1,
        "conformance", "param.freqs is ", freqs, "; must be [", q[2], ", ", q[3], ", K]");
  check_shape(x, "param.offsets", freqs.shape());
  check_shape(x, "param.gains", freqs.shape());
  check(z.dim() == 4 && z.size(3) >= 1, "conformance", "noise.z is ", z, "; must be [H, D, 2K, R]");
  check_shape(x, "noise.z", {q[2], q[3], 2 * freqs.size(2), z.size(3)});
  check_sizes(config, {{"K", freqs.size(2)}, {"R", z.size(3)}});
  return SpeCode::sine(freqs, x["param.offsets"], x["param.gains"], z);
}

SpeCode conv(const Tensors& x, const Config& config) {
  const Shape q = size_of_queries(x, config);
  const Tensor &filter = x["param.filter_q"], &z = x["noise.z"];
  const std::vector<int64_t> shape =
      config.has("shape") ? config.integers("shape") : std::vector<int64_t>{q[1]};
  const int64_t axes = int64_t(shape.size());
  check(axes == 1 || axes == 2, "conformance", "config: shape has ", axes,
        " sizes; must be 1 or 2");
  check(filter.dim() == 2 + axes && filter.size(0) == q[2] && filter.size(1) == q[3] &&
            filter.numel() > 0,
        "conformance", "param.filter_q is ", filter, "; must be [", q[2], ", ", q[3],
        axes == 1 ? ", P]" : ", P1, P2]");
  check_shape(x, "param.filter_k", filter.shape());
  check(z.dim() == 3 + axes && z.size(2) >= 1, "conformance", "noise.z is ", z,
        "; must be [H, D, R, ", axes == 1 ? "n]" : "n1, n2]");
  Shape noise{q[2], q[3], z.size(2)}, positions;
  int64_t length = 1;
  for (int64_t i = 0; i < axes; ++i) {
    const int64_t n = shape[size_t(i)];
    check(n >= 1 && n <= q[1], "conformance", "config: shape has a size of ", n, " for in.q ",
          x["in.q"]);
    noise.push_back(n + filter.size(2 + i) - 1);
    positions.push_back(n);
    length *= n;
  }
  check(length == q[1], "conformance", "config: shape has ", length, " positions, in.q is ",
        x["in.q"]);
  check_shape(x, "noise.z", noise);
  check_sizes(config, {{"R", z.size(2)}});
  if (config.has("kernel")) {
    const std::vector<int64_t> kernel = config.integers("kernel");
    check(int64_t(kernel.size()) == axes, "conformance", "config: kernel has ",
          int64_t(kernel.size()), " sizes, shape has ", axes);
    for (int64_t i = 0; i < axes; ++i)
      check(kernel[size_t(i)] == filter.size(2 + i), "conformance", "config: kernel is ",
            kernel[size_t(i)], " for param.filter_q ", filter);
  }
  return SpeCode::conv(filter, x["param.filter_k"], z, axes == 2 ? positions : Shape{});
}

using Make = SpeCode (*)(const Tensors& x, const Config& config);

std::vector<Candidate> all_of(Make make) {
  auto way = [make](const char* name, Implementation implementation, bool kept = false) {
    return Candidate{
        name,
        [=](const Tensors& x, const Config& config) {
          SpeCode code = make(x, config);
          const Tensor q = x["in.q"].transpose(1, 2), k = x["in.k"].transpose(1, 2);
          if (kept) code = code.kept(q.size(2));
          SpeOptions options{.implementation = implementation};
          if (config.flag("gated", x.has("param.gate"))) {
            check_shape(x, "param.gate", {code.heads(), code.d()});
            check_shape(x, "noise.gate", {code.heads(), code.d(), code.realizations()});
            options.gate = SpeGate{x["param.gate"], x["noise.gate"]};
          }
          const SpePair y = spe(q, k, code, options);
          Tensors outputs;
          outputs.set("out.q", y.q.transpose(1, 2));
          outputs.set("out.k", y.k.transpose(1, 2));
          return outputs;
        },
        implementation == Implementation::fused};
  };
  return {way("fused", Implementation::fused), way("kept", Implementation::automatic, true),
          way("composed", Implementation::composed)};
}

}  // namespace

Subjects spe_subjects() { return {{"spe.sine", all_of(sine)}, {"spe.conv", all_of(conv)}}; }

}  // namespace stretto::conformance
