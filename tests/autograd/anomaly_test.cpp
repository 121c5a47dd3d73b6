// Anomaly detection: the error names the op that computed the first NaN [autograd/tape.h].
#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "tests/support/gradcheck.h"

namespace stretto {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

struct Detection {
  Detection() { set_anomaly_detection(true); }
  ~Detection() { set_anomaly_detection(false); }
};

std::string forward_text(const char* op) {
  return str("[", op, "] this op produced NaN or infinity from finite inputs (anomaly detection)");
}
std::string backward_text(const char* op) {
  return str("[", op,
             "] the backward pass of this op produced NaN or infinity from finite gradients "
             "(anomaly detection)");
}

Tensor leaf(std::initializer_list<float> values) {
  return tensor<float>(values).set_requires_grad();
}

}  // namespace

TEST_CASE("without anomaly detection NaN is not an error", "[autograd]") {
  CHECK(!anomaly_detection());
  const Tensor x = leaf({0, 1});
  const Tensor y = sum(sqrt(x) / x);
  CHECK(std::isnan(y.item()));
  CHECK_NOTHROW(y.backward());
}

TEST_CASE("the error names the first op with NaN or infinity in its result", "[autograd]") {
  const Detection on;
  CHECK(anomaly_detection());
  const Tensor x = leaf({0, 1});
  CHECK_THROWS_WITH(sum(exp(log(x) * 2.0)), forward_text("log"));
  CHECK_THROWS_WITH(x / x, forward_text("div"));
  CHECK_THROWS_WITH(exp(x * 1000.0), forward_text("exp"));
  CHECK_THROWS_WITH(matmul(full({2, 2}, 1e30), full({2, 2}, 1e30)), forward_text("matmul"));
  const NoGrad off;  // also if nothing is recorded
  CHECK_THROWS_WITH(log(x), forward_text("log"));
}

TEST_CASE("the error names the first op with NaN or infinity in its gradients", "[autograd]") {
  const Detection on;
  const Tensor x = leaf({0, 1});
  const Tensor y = sum(exp(sqrt(x) * 2.0));
  CHECK_THROWS_WITH(y.backward(), backward_text("sqrt"));
  CHECK_THROWS_WITH(sum(pow(x, 0.5)).backward(), Containing("[pow] "));
  const Tensor z = record("mine", {x}, x.detach().clone(),
                          [](Backward& b) { return Tensors{b.grad() + full({2}, 0)}; });
  CHECK_NOTHROW(sum(z).backward());
  const Tensor bad = record("mine", {x}, x.detach().clone(), [](Backward&) {
    return Tensors{full({2}, std::numeric_limits<double>::quiet_NaN())};
  });
  CHECK_THROWS_WITH(sum(bad * 2.0).backward(), backward_text("mine"));
}

TEST_CASE("NaN that was in the input is not reported", "[autograd]") {
  const Detection on;
  const Tensor x = tensor<float>({std::numeric_limits<float>::quiet_NaN(), 1}).set_requires_grad();
  CHECK_NOTHROW(sum(exp(x) * 2.0));
  CHECK_NOTHROW(leaf({1, 2}).backward(tensor<float>({float(inf), 1})));
}

// Reading a strided tensor copies it, and the copy is an op itself.
TEST_CASE("strided tensors with infinities can be read under anomaly detection", "[autograd]") {
  const Detection on;
  const Tensor x = full({2, 3}, inf).transpose(0, 1);
  CHECK(std::isinf((x + x).to_vector<double>()[0]));  // no op computed it
  CHECK(std::isinf(x.contiguous().to_vector<double>()[0]));
  // A gradient that is one repeated element, infinite in the input already.
  const Tensor w = leaf({1, 2}), total = sum(w);
  CHECK_NOTHROW(total.backward(full({}, inf)));
  CHECK(std::isinf(w.grad().to_vector<double>()[1]));
}

TEST_CASE("masks of -inf are not reported as anomalies", "[autograd]") {
  const Detection on;
  const Tensor scores = testing::fixed_noise({4, 4}, 1, f32).set_requires_grad();
  const Tensor v = testing::fixed_noise({4, 3}, 2, f32).set_requires_grad();
  const Tensor future = triu(ones({4, 4}, {.dtype = f32}), 1).to(boolean);
  const auto attend = [&](const Tensor& masked) { sum(matmul(softmax(masked), v)).backward(); };
  CHECK_NOTHROW(attend(masked_fill(scores, future, -inf)));
  CHECK_NOTHROW(attend(where(future, full({}, -inf), scores)));
  CHECK_NOTHROW(attend(scores + masked_fill(zeros({4, 4}), future, -inf)));
  CHECK_NOTHROW(attend(masked_fill(scores, ones({4, 4}, {.dtype = boolean}), -inf)));
  CHECK_NOTHROW(attend(pad(scores, 1, 0, 3, -inf).slice(1, 0, 4)));
  CHECK_NOTHROW(sum(softmax(pad(scores, 0, 0, 2, -inf), 0)).backward());
  CHECK_NOTHROW(sum(logsumexp(masked_fill(scores, future, -inf), -1)).backward());
  CHECK_NOTHROW(
      cross_entropy(masked_fill(scores, future, -inf), zeros({4}, {.dtype = i64})).backward());
  CHECK_NOTHROW(max(masked_fill(scores, future, -inf)).backward());
}

}  // namespace stretto
