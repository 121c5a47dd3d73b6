#include "tests/support/op_table.h"

#include "ops/create.h"
#include "ops/view.h"
#include "tests/support/gradcheck.h"

namespace stretto::testing {
namespace {

// Maps u in [-1, 1) to a value of the domain, away from kinks.
double placed(double u, Domain domain) {
  double x = 0.05 + 1.95 * std::fabs(u);
  for (double kink : {0.75, 1.5})
    if (std::fabs(x - kink) < 0.01) x += 0.02;
  return u < 0 && domain == Domain::any ? -x : x;
}

Tensor values_of(const Input& input, uint64_t stream, DType dtype) {
  Tensor x = fixed_noise(input.shape, stream);
  double* v = x.data<double>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    switch (input.domain) {
      case Domain::any:
      case Domain::positive:
        v[i] = placed(v[i], input.domain);
        break;
      case Domain::probability:
        v[i] = 0.425 * placed(v[i], Domain::positive);
        break;
      case Domain::index:
      case Domain::index32:
        v[i] = std::floor((v[i] + 1) / 2 * double(input.classes));
        break;
      case Domain::mask:
        v[i] = v[i] < 0;
    }
  }
  switch (input.domain) {
    case Domain::index:
      return x.to(i64);
    case Domain::index32:
      return x.to(i32);
    case Domain::mask:
      return x.to(boolean);
    default:
      return x.to(dtype);
  }
}

}  // namespace

const Number& Array::at(const Shape& index) const {
  int64_t position = 0;
  const int64_t lead = index.dim() - shape.dim();
  for (int64_t d = 0; d < shape.dim(); ++d)
    position = position * shape[d] + (shape[d] == 1 ? 0 : index[d + lead]);
  return values[size_t(position)];
}

Shape broadcast_of(const Shape& a, const Shape& b) {
  Shape y;
  for (int64_t d = std::max(a.dim(), b.dim()); d-- > 0;) {
    const int64_t p = d < a.dim() ? a[a.dim() - 1 - d] : 1,
                  q = d < b.dim() ? b[b.dim() - 1 - d] : 1;
    y.push_back(p == 1 ? q : p);
  }
  return y;
}

Array linear_reference(const Array& x, const Array& w, const Array* bias) {
  Shape shape = x.shape;
  shape.back() = w.shape[0];
  return build(shape, [&](const Shape& i) {
    const int64_t d = i.dim() - 1;
    Number sum;
    for (int64_t p = 0; p < w.shape[1]; ++p)
      sum = sum + x.at(with_entry(i, d, p)) * w.at({i[d], p});
    if (!bias) return sum;
    sum.storing += std::fabs(sum.value);  // bf16 adds the bias to a stored product
    return sum + bias->at({i[d]});
  });
}

const std::vector<Op>& op_table() {
  static const std::vector<Op> table = [] {
    std::vector<Op> all;
    for (auto add : {add_unary_ops, add_binary_ops, add_view_ops, add_rearranging_ops,
                     add_reduce_ops, add_scan_ops, add_indexing_ops, add_index_ops, add_einsum_ops,
                     add_model_ops, add_loss_ops, add_fft_ops, add_conv_ops, add_ctc_ops})
      add(all);
    return all;
  }();
  return table;
}

std::string describe(const Op& op, const Sample& sample) {
  std::string text = op.name + ":";
  for (size_t i = 0; i < sample.size(); ++i) text += str(i == 0 ? " " : ", ", sample[i].shape);
  return text;
}

std::string describe(const Op& op, size_t sample) {
  return describe(op, op.samples[sample]) + " (sample " + std::to_string(sample) + ")";
}

Tensors inputs_of(const Sample& sample, DType dtype) {
  Tensors inputs;
  for (size_t i = 0; i < sample.size(); ++i) inputs.push_back(values_of(sample[i], 100 + i, dtype));
  return inputs;
}

}  // namespace stretto::testing
