// Rotary positional encoding on CUDA: bit-identical to the CPU.
#include "ops/attention/rotary.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

// The rotated x, and dx for an incoming gradient g.
Tensors results(const Tensor& given, const Tensor& g, const RotaryOptions& options) {
  const Tensor x = given.detach().set_requires_grad(), y = rotate(x, 70, options);
  y.backward(g);
  return {y.detach(), x.grad()};
}

}  // namespace

TEST_CASE("rotate on CUDA equals the CPU bit for bit", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : floating)
    for (const bool by_layer : {false, true})
      for (const RotaryPairing pairing : {RotaryPairing::half, RotaryPairing::interleaved})
        // Rows of 80 features consist of packs, and so do the pairs of 16 and of 80.
        for (const auto& [dims, width] :
             {std::pair(2, 79), std::pair(24, 79), std::pair(66, 79), std::pair(78, 79),
              std::pair(78, 80), std::pair(16, 80), std::pair(80, 80)})
          for (const bool xpos : {false, true}) {
            CAPTURE(name(t), by_layer, int(pairing), dims, width, xpos);
            Tensor x = noise({2, 33, 3, width}, 1, t).transpose(1, 2);
            Tensor g = noise({2, 33, 3, width}, 2, t).transpose(1, 2);
            if (!by_layer) x = x.contiguous(), g = g.contiguous();
            const RotaryOptions options{.dims = dims, .pairing = pairing, .xpos = xpos};
            const Tensors expected = results(x, g, options),
                          actual = results(on_gpu(x), on_gpu(g), options);
            for (const size_t i : {0, 1}) {
              check_equal(expected[i], actual[i]);
              CHECK(expected[i].strides() == actual[i].strides());
            }
          }
}
