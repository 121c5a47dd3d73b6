#include "ops/orthogonal.h"

#include <cmath>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "cuda/orthogonal.h"

namespace stretto {
namespace {

// Orthonormalizes the n rows of one matrix, m elements each, in place.
void make_orthonormal(double* rows, int64_t n, int64_t m) {
  for (int64_t i = 0; i < n; ++i) {
    double* v = rows + i * m;
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t j = 0; j < i; ++j) {
        const double* u = rows + j * m;
        double dot = 0;
        for (int64_t k = 0; k < m; ++k) dot += u[k] * v[k];
        for (int64_t k = 0; k < m; ++k) v[k] -= dot * u[k];
      }
    }
    double norm = 0;
    for (int64_t k = 0; k < m; ++k) norm += v[k] * v[k];
    norm = std::sqrt(norm);
    for (int64_t k = 0; k < m; ++k) v[k] /= norm;
  }
}

}  // namespace

Tensor orthogonal_rows(const Tensor& x) {
  const char* op = "orthogonal_rows";
  check(x.dim() >= 2 && x.dtype() == f64 && x.size(-2) <= x.size(-1), op, "x ", x,
        "; must be f64 [..., n, m] with n ≤ m");
  const NoGrad guard;
  const int64_t n = x.size(-2), m = x.size(-1);
  if (x.device().is_cuda() && !cuda::orthogonal_rows_fit(n, m, x.device()))
    return orthogonal_rows(x.to(cpu)).to(x.device());
  Tensor y = x.clone();
  if (y.numel() == 0) return y;
  if (y.device().is_cuda()) {
    cuda::orthogonal_rows(y);
    return y;
  }
  double* const all = y.data<double>();
  parallel_for(y.numel() / (n * m), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) make_orthonormal(all + i * n * m, n, m);
  });
  return y;
}

}  // namespace stretto
