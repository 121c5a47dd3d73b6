// Ops of the table with operands and incoming gradients in every layout, repeated, and with one and
// two threads: the results must be bit-identical.
#include <cstring>
#include <map>

#include "core/parallel.h"
#include "ops/create.h"
#include "tests/support/gradcheck.h"
#include "tests/support/op_check.h"

namespace stretto::testing {
namespace {

// Returns a view with these strides into new memory that is just large enough, filled with the
// values of x; elements that overlap or repeat have the value written last.
Tensor laid_out(const Tensor& x, const Shape& strides, int64_t offset) {
  int64_t last = offset;
  for (int64_t d = 0; d < x.dim(); ++d) last += std::max<int64_t>(x.size(d) - 1, 0) * strides[d];
  Tensor y = make_view(empty({last + 1}, options_of(x)), offset, x.shape(), strides);
  // Written element by element, because kernels for such strides are what is tested.
  const Tensor from = x.detach().contiguous();
  const auto size = size_t(item_size(x.dtype()));
  Shape index = x.shape();
  for (int64_t& i : index) i = 0;
  for (int64_t k = 0; k < x.numel(); ++k) {
    int64_t at = offset;
    for (int64_t d = 0; d < x.dim(); ++d) at += index[d] * strides[d];
    std::memcpy(static_cast<char*>(y.storage().data) + size_t(at) * size,
                static_cast<char*>(from.raw_data()) + size_t(k) * size, size);
    for (int64_t d = x.dim() - 1; d >= 0 && ++index[d] == x.size(d); --d) index[d] = 0;
  }
  return y;
}

// Returns the same values (under the strides given), row-major.
Tensor row_major(const Tensor& x) {
  Tensor y = empty_like(x);
  const auto size = size_t(item_size(x.dtype()));
  Shape index = x.shape();
  for (int64_t& i : index) i = 0;
  for (int64_t k = 0; k < x.numel(); ++k) {
    int64_t at = x.offset();
    for (int64_t d = 0; d < x.dim(); ++d) at += index[d] * x.strides()[d];
    std::memcpy(static_cast<char*>(y.raw_data()) + size_t(k) * size,
                static_cast<char*>(x.storage().data) + size_t(at) * size, size);
    for (int64_t d = x.dim() - 1; d >= 0 && ++index[d] == x.size(d); --d) index[d] = 0;
  }
  return y;
}

Shape scaled(Shape strides, int64_t by) {
  for (int64_t& s : strides) s *= by;
  return strides;
}

struct Layout {
  const char* name;
  Tensor (*apply)(const Tensor&);
};

// reference/frameworks.md, C3.
const Layout layouts[] = {
    {"transposed",
     [](const Tensor& x) {
       Shape strides = x.shape();
       int64_t step = 1;
       for (int64_t d = 0; d < x.dim(); ++d) {
         strides[d] = step;
         step *= std::max<int64_t>(x.size(d), 1);
       }
       return laid_out(x, strides, 0);
     }},
    {"every second element of a larger buffer",
     [](const Tensor& x) { return laid_out(x, scaled(contiguous_strides(x.shape()), 2), 1); }},
    {"at an offset", [](const Tensor& x) { return laid_out(x, contiguous_strides(x.shape()), 3); }},
    {"expanded along the first dimension",
     [](const Tensor& x) {
       Shape strides = contiguous_strides(x.shape());
       if (x.dim() > 0) strides[0] = 0;
       return laid_out(x, strides, 0);
     }},
    {"expanded along the last dimension",
     [](const Tensor& x) {
       Shape strides = contiguous_strides(x.shape());
       if (x.dim() > 0) strides.back() = 0;
       return laid_out(x, strides, 0);
     }},
    {"expanded along all dimensions",
     [](const Tensor& x) { return laid_out(x, scaled(x.shape(), 0), 2); }},
    {"overlapping",
     [](const Tensor& x) {
       Shape strides = x.shape();
       for (int64_t d = 0; d < x.dim(); ++d) strides[d] = d == x.dim() - 1 && d > 0 ? 7 : 1;
       return laid_out(x, strides, 2);
     }},
    {"overlapping rows with strides that rise and fall",
     [](const Tensor& x) {
       Shape strides = x.shape();
       for (int64_t d = 0; d < x.dim(); ++d) strides[d] = d == 0 ? 4 : d == 1 ? 5 : 3;
       return laid_out(x, strides, 3);
     }},
    {"with odd strides where the size is 1",
     [](const Tensor& x) {
       Shape strides = contiguous_strides(x.shape());
       for (int64_t d = 0; d < x.dim(); ++d)
         if (x.size(d) == 1) strides[d] = 77;
       return laid_out(x, strides, 0);
     }},
};

void check_same(const char* what, const Outcome& got, const Outcome& expected) {
  std::string difference;
  if (!same_bits(got, expected, difference)) FAIL_CHECK(what << ": " << difference);
}

}  // namespace

TEST_CASE("ops are bit-identical in any layout", "[ops]") {
  for (DType dtype : {f64, f32, bf16}) {
    for (const Layout& layout : layouts) {
      INFO("operands " << layout.name << ", " << name(dtype));
      for_each_sample([&](const Op& op, const Sample& sample) {
        Tensors strided, plain;
        for (const Tensor& x : inputs_of(sample, dtype)) {
          strided.push_back(layout.apply(x));
          plain.push_back(row_major(strided.back()));
          CHECK(plain.back().is_contiguous());
        }
        const Outcome got = run(op, strided);
        if (op.any_layout_exact) {
          check_same("result", got, run(op, plain));
        } else {
          check_value(op, plain, got.y);
        }
        // One operand at a time: kernels look at pairs of strides.
        if (strided.size() < 2 || dtype != f32) return;
        for (size_t i = 0; i < strided.size(); ++i) {
          Tensors mixed = plain;
          mixed[i] = strided[i];
          const Outcome one = run(op, mixed);
          if (op.any_layout_exact) {
            check_same("result with one such operand", one, run(op, plain));
          } else {
            check_value(op, plain, one.y);
          }
        }
      });
    }
  }
}

TEST_CASE("ops read operands that are views of one storage", "[ops]") {
  for_each_sample([](const Op& op, const Sample& sample) {
    if (sample.size() < 2 || sample[0].shape != sample[1].shape) return;
    if (sample[0].domain != sample[1].domain) return;
    Tensors inputs = inputs_of(sample, f32);
    inputs[1] = inputs[0].clone();
    const Outcome separate = run(op, inputs);
    inputs[1] = inputs[0];
    check_same("one storage", run(op, inputs), separate);
  });
}

TEST_CASE("gradients are bit-identical for an incoming gradient in any layout", "[ops]") {
  for (DType dtype : {f64, bf16}) {
    for_each_sample([&](const Op& op, const Sample& sample) {
      if (!op.differentiable) return;
      const Tensors inputs = inputs_of(sample, dtype);
      for (const Layout& layout : layouts) {
        const Outcome got = run(op, inputs, layout.apply);
        const Outcome expected =
            run(op, inputs, [&](const Tensor& w) { return row_major(layout.apply(w)); });
        if (op.any_layout_exact) {
          check_same(layout.name, got, expected);
          continue;
        }
        for (size_t i = 0; i < got.gradients.size(); ++i) {  // BLAS: close to rounding
          const auto a = got.gradients[i].to_vector<double>();
          const auto b = expected.gradients[i].to_vector<double>();
          for (size_t k = 0; k < a.size(); ++k)
            if (std::fabs(a[k] - b[k]) > (dtype == f64 ? 1e-13 : 0.05) * (1 + std::fabs(b[k])))
              FAIL_CHECK(layout.name << ": gradient " << i << ", element " << k << ": " << a[k]
                                     << " is not " << b[k]);
        }
      }
    });
  }
}

TEST_CASE("ops are bit-identical when repeated", "[ops]") {
  for (DType dtype : {f32, bf16}) {
    for_each_sample([&](const Op& op, const Sample& sample) {
      const Tensors inputs = inputs_of(sample, dtype);
      const Outcome first = run(op, inputs);
      // Memory that was just released has other contents now; the results must not depend on them.
      for (int64_t size : {1, 40, 400, 4000}) full({size}, -3e30);
      check_same("second run", run(op, inputs), first);
    });
  }
}

TEST_CASE("a backward pass is bit-identical when repeated", "[ops]") {
  for_each_sample([&](const Op& op, const Sample& sample) {
    if (!op.differentiable) return;
    Tensors inputs = inputs_of(sample, f32), leaves;
    for (Tensor& x : inputs)
      if (x.dtype() == f32) leaves.push_back(x.set_requires_grad());
    const Tensor y = op.call(inputs);
    const Tensor w = fixed_noise(y.shape(), 999, f32);
    if (!y.requires_grad()) return;
    const Outcome first{y.detach(), grad({y}, leaves, {w}, {.retain_graph = true})};
    const Outcome second{y.detach(), grad({y}, leaves, {w}, {.retain_graph = true})};
    check_same("second backward", second, first);
    // A recorded pass gives the same gradients, to rounding.
    const Tensors recorded = grad({y}, leaves, {w}, {.create_graph = true});
    for (size_t i = 0; i < recorded.size(); ++i) {
      const auto a = recorded[i].to_vector<double>(), b = first.gradients[i].to_vector<double>();
      for (size_t k = 0; k < a.size(); ++k)
        if (std::fabs(a[k] - b[k]) > 1e-4 * (1 + std::fabs(b[k])))
          FAIL_CHECK("recorded gradient " << i << ", element " << k << ": " << a[k] << " is not "
                                          << b[k]);
    }
  });
}

TEST_CASE("ops are bit-identical with one and two threads", "[ops][exhaustive]") {
  const int before = num_threads();
  for (DType dtype : {f32, bf16}) {
    for_each_sample(
        [&](const Op& op, const Sample& sample) {
          const Tensors inputs = inputs_of(sample, dtype);
          set_num_threads(1);
          const Outcome one = run(op, inputs);
          set_num_threads(2);
          check_same("two threads", run(op, inputs), one);
        },
        true);
  }
  set_num_threads(before);
}

}  // namespace stretto::testing
