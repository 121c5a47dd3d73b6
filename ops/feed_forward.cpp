#include "ops/feed_forward.h"

#include "autograd/tape.h"
#include "cuda/linear.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace stretto {
namespace {

Tensor composed(const Tensors& in) {
  return linear(gelu_tanh(linear(in[0], in[1], in[2])), in[3], in[4]);
}

// One floating dtype but f64, nothing empty, and rows of the hidden layer as cuBLASLt takes them.
bool fits(const Tensors& in) {
  for (const Tensor& x : in)
    if (!x.defined() || x.dtype() != in[0].dtype() || x.numel() == 0) return false;
  return in[0].device().is_cuda() && (in[0].dtype() == f32 || in[0].dtype() == bf16) &&
         in[1].dim() == 2 && in[1].size(0) % 8 == 0;
}

}  // namespace

Tensor gelu_feed_forward(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                         const Tensor& b2) {
  const char* op = "gelu_feed_forward";
  check(x.dim() >= 1 && w1.dim() == 2 && w2.dim() == 2 && x.size(-1) == w1.size(1) &&
            w1.size(0) == w2.size(1),
        op, "x ", x, ", w1 ", w1, ", w2 ", w2,
        "; x must be [.., in], w1 [hidden, in], w2 [out, hidden]");
  check(b1.defined() && b1.shape() == Shape{w1.size(0)} && b2.defined() &&
            b2.shape() == Shape{w2.size(0)},
        op, "b1 ", b1, ", b2 ", b2, "; must be [", w1.size(0), "] and [", w2.size(0), "]");
  check_same_device(op, {&x, &w1, &b1, &w2, &b2});
  const Tensors inputs{x, w1, b1, w2, b2};
  if (!fits(inputs)) return composed(inputs);

  const auto plain = [](const Tensor& t) { return t.detach().contiguous(); };
  Shape shape = x.shape();
  shape.back() = w2.size(0);
  const Tensor rows = plain(x.detach().reshape({-1, w1.size(1)}));
  const Tensor before = empty({rows.size(0), w1.size(0)}, options_of(x));
  const Tensor hidden = cuda::linear(rows, plain(w1), plain(b1), before);
  const Tensor y = cuda::linear(hidden, plain(w2), plain(b2), {}).reshape(shape);
  return record(op, inputs, y,
                [x = Saved(x), w1 = Saved(w1), b1 = Saved(b1), w2 = Saved(w2), b2 = Saved(b2),
                 before, hidden](Backward& b) {
                  if (grad_enabled())
                    return composed_gradient(b, composed, {x(), w1(), b1(), w2(), b2()});
                  const Tensor g = b.grad().reshape({hidden.size(0), -1}).contiguous();
                  Tensors all(5);
                  if (b.needs(3)) all[3] = matmul(g.transpose(0, 1), hidden);
                  if (b.needs(4)) all[4] = sum(g, {0});
                  if (!b.needs(0) && !b.needs(1) && !b.needs(2)) return all;
                  const Tensor db1 = empty_like(b1());
                  const Tensor d = cuda::gelu_gradient(g, w2().detach().contiguous(), before, db1);
                  if (b.needs(0)) all[0] = matmul(d, w1().detach()).reshape(x().shape());
                  if (b.needs(1))
                    all[1] = matmul(d.transpose(0, 1), x().detach().reshape({hidden.size(0), -1}));
                  if (b.needs(2)) all[2] = db1;
                  return all;
                });
}

}  // namespace stretto
