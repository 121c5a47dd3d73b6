#include "ops/attention/random_features_device.h"

#include "autograd/tape.h"
#include "cuda/attention/random_features.h"
#include "cuda/runtime/composed.h"
#include "ops/attention/heads.h"

namespace stretto {

using Kind = RandomFeatureKind;

bool has_device_random_features(const Tensor& x, const Tensor& projection,
                                const RandomFeatureOptions& o) {
  return x.device().is_cuda() && (o.kind == Kind::positive || o.kind == Kind::hyperbolic) &&
         !recording({projection}) && !cuda::composed("random_features", x.device()) &&
         cuda::serves_random_features(x, projection);
}

Tensor device_random_features(const Tensor& x, const Tensor& projection, const Tensor& bound,
                              const RandomFeatureOptions& o,
                              const std::function<Tensor(const Tensor&)>& composed) {
  // For a single position, as in generation, heads are treated as rows.
  if (x.size(2) == 1 && x.size(1) > 1) {
    const auto transposed = [composed](const Tensor& t) {
      return composed(t.transpose(1, 2)).transpose(1, 2);
    };
    return device_random_features(x.transpose(1, 2), projection, bound, o, transposed)
        .transpose(1, 2);
  }
  const cuda::RandomFeatures s{.projection = projection.detach().contiguous(),
                               .pairs = o.kind == Kind::hyperbolic,
                               .own_max = o.stabilizer == FeatureStabilizer::own_max,
                               .bound = bound};
  const Tensor rows = rows_contiguous(x), y = empty({x.size(0), x.size(1), x.size(2),
                                                     s.projection.size(0) * (s.pairs ? 2 : 1)},
                                                    options_of(x));
  const Tensor places = s.own_max && recording({x})
                            ? empty({x.numel() / x.size(3)}, {.dtype = i32, .device = x.device()})
                            : Tensor();
  cuda::random_features(rows, s, y, places);
  // Gradients: dx' = Σ_w du_w ω_w + (dshift) x', du = ±g · y, dshift = −Σ g · y.
  return record(
      "random_features", {x}, y,
      [s, places, composed, x = Saved(x)](Backward& b) {
        if (grad_enabled())
          return composed_gradient(b, [&](const Tensors& in) { return composed(in[0]); }, {x()});
        const Tensor dx = heads_beside(x(), x().size(1), x().size(2), x().size(3));
        cuda::random_features_backward(s.own_max ? Tensor() : rows_contiguous(x()), s,
                                       b.output().detach(), rows_contiguous(b.grad()), places, dx);
        return Tensors{dx};
      },
      Keep::outputs);
}

}  // namespace stretto
