// Single ops and the optimizer.
#include "nn/optim/optim.h"
#include "ops/attention/skew.h"
#include "ops/elementwise.h"
#include "ops/fft/fft_conv.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/softmax.h"
#include "tests/conformance/families.h"

namespace stretto::conformance {
namespace {

Tensors skew_subject(const Tensors& x, const Config& config) {
  const Tensor& in = x["in.x"];
  const int64_t n = config.integer("N");
  check(in.dim() >= 2, "conformance", "in.x is ", in, "; must be [.., M, W]");
  check(config.integer("M", in.size(-2)) == in.size(-2) &&
            config.integer("W", in.size(-1)) == in.size(-1),
        "conformance", "in.x is ", in, "; its config has other M or W");
  // Columns of y from W + M on would be zero.
  check(n >= 0 && n <= in.size(-1) + in.size(-2), "conformance", "config: N is ", n, " for in.x ",
        in);
  return only("out.y", skew(in, n));
}

Tensors layer_norm_subject(const Tensors& x, const Config& config) {
  const Tensor moved = x["in.x"] + config.number("shift", 0);
  return only("out.y", layer_norm(moved, x["param.weight"], x["param.bias"]));
}

Tensors softmax_subject(const Tensors& x, const Config& config) {
  return only("out.y", softmax(x["in.x"], config.integer("axis", -1)));
}

Tensors gelu_subject(const Tensors& x, const Config&) { return only("out.y", gelu(x["in.x"])); }

Tensors matmul_subject(const Tensors& x, const Config&) {
  return only("out.y", matmul(x["in.a"], x["in.b"]));
}

Tensors mul_subject(const Tensors& x, const Config&) {
  return only("out.y", x["in.a"] * x["in.b"]);
}

Tensors embedding_subject(const Tensors& x, const Config&) {
  return only("out.y", embedding(x["param.weight"], indices(x, "in.index")));
}

Tensors cross_entropy_subject(const Tensors& x, const Config& config) {
  return only("out.y", cross_entropy(x["in.x"], indices(x, "in.target"),
                                     {.ignore_index = config.integer("ignore", -100),
                                      .label_smoothing = config.number("smoothing", 0)}));
}

Evaluate fft_conv_subject(ConvForm implementation) {
  return [implementation](const Tensors& x, const Config&) {
    return only("out.y", fft_conv(x["in.x"], x["param.w"], {.implementation = implementation}));
  };
}

Tensors adamw_subject(const Tensors& x, const Config& config) {
  const Tensor w = x["in.w"].detach().clone().set_requires_grad();
  auto run = [&](auto&& optimizer) {
    for (int64_t step = 1, steps = config.integer("steps"); step <= steps; ++step) {
      w.set_grad(x["in.grad." + std::to_string(step)]);
      optimizer.step();
    }
  };
  const double lr = config.number("lr", 1e-3), eps = config.number("eps", 1e-8);
  const double beta1 = config.number("beta1", 0.9), beta2 = config.number("beta2", 0.999);
  const double decay = config.number("weight_decay", 0);
  if (config.flag("decoupled", true))
    run(nn::AdamW({w}, {lr, beta1, beta2, eps, decay}));
  else
    run(nn::Adam({w}, {lr, beta1, beta2, eps, decay}));
  return only("out.w", w);
}

}  // namespace

Subjects op_subjects() {
  auto only_one = [](Evaluate evaluate) {
    return std::vector<Candidate>{{"only", std::move(evaluate)}};
  };
  return {
      {"skew", only_one(skew_subject)},
      {"op.layer_norm", only_one(layer_norm_subject)},
      {"op.softmax", only_one(softmax_subject)},
      {"op.gelu", only_one(gelu_subject)},
      {"op.matmul", only_one(matmul_subject)},
      {"op.broadcast_mul", only_one(mul_subject)},
      {"op.embedding", only_one(embedding_subject)},
      {"op.fft_conv",
       {{"fft", fft_conv_subject(ConvForm::fft)}, {"direct", fft_conv_subject(ConvForm::direct)}}},
      {"op.cross_entropy", only_one(cross_entropy_subject)},
      {"optim.adamw", only_one(adamw_subject)},
  };
}

}  // namespace stretto::conformance
