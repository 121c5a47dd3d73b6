#include "nn/positions/sinusoid.h"

#include <algorithm>
#include <cmath>

#include "core/device_table.h"
#include "ops/create.h"
#include "ops/view.h"

namespace stretto::nn {

Tensor sinusoids(const std::vector<double>& positions, int64_t d, Sinusoid layout,
                 TensorOptions options) {
  check(d > 0, "sinusoids", d, " columns; needs at least 1");
  check(layout != Sinusoid::concatenated || d % 2 == 0, "sinusoids", "the concatenated layout has ",
        "an even number of columns; got ", d);
  const auto n = int64_t(positions.size());
  const int64_t half = d / 2;
  const bool t2t = layout == Sinusoid::tensor2tensor;
  const bool interleaved = layout == Sinusoid::interleaved;
  const double denominator = t2t ? double(std::max<int64_t>(half - 1, 1)) : 0.5 * double(d);
  std::vector<double> rates;
  for (int64_t i = 0; i < (interleaved ? (d + 1) / 2 : half); ++i)
    rates.push_back(std::pow(10000.0, -double(i) / denominator));

  Tensor table = zeros({n, d}, {.dtype = f64, .device = cpu});
  double* row = table.data<double>();
  for (int64_t t = 0; t < n; ++t, row += d) {
    for (int64_t i = 0; i < int64_t(rates.size()); ++i) {
      const double angle = positions[size_t(t)] * rates[size_t(i)];
      const int64_t sine = interleaved ? 2 * i : i;
      const int64_t cosine = interleaved ? 2 * i + 1 : half + i;
      row[sine] = std::sin(angle);
      if (cosine < d) row[cosine] = std::cos(angle);
    }
  }
  Tensor result = table.to(options.dtype).to(options.device);
  if (options.requires_grad) result.set_requires_grad();
  return result;
}

Tensor sinusoids(int64_t n, int64_t d, Sinusoid layout, int64_t first, int64_t step,
                 TensorOptions options) {
  check(n >= 0, "sinusoids", n, " positions; must be 0 or more");
  const auto make = [&] {
    std::vector<double> positions(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) positions[size_t(i)] = double(first) + double(i * step);
    return sinusoids(positions, d, layout, {.dtype = options.dtype, .device = cpu});
  };
  Tensor table =
      device_table(options.device, make, "sinusoids", n, d, layout, first, step, options.dtype);
  if (options.requires_grad) table = table.clone().set_requires_grad();
  return table;
}

}  // namespace stretto::nn
