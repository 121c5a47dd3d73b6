#include <stretto/stretto.h>

#include <cstdio>
using namespace stretto;

// A custom positional encoding: scores fall linearly with the distance, with a learned slope per
// head. In bidirectional attention they fall on both sides of the query.
struct Fading : nn::PositionalEncoding {
  Fading(nn::Module& parent, nn::HeadShape shape)
      : PositionalEncoding(parent), slope(parameter("slope", full({shape.n_heads}, 0.1))) {}

  void apply(nn::AttentionInputs& inputs) const override {
    // In f32, because bf16 represents integers exactly only up to 256.
    const Tensor distance = abs(nn::relative_positions(inputs));
    const Tensor bias = -slope.unsqueeze(1) * distance;  // [H, R]
    inputs.options.relative_bias = {.rows = bias.to(inputs.q.dtype()),
                                    .zero_row = nn::relative_range(inputs).past,
                                    .out_of_range = OutOfRange::error};
  }
  const Tensor slope;
};

int main(int argc, char** argv) {
  const nn::DeviceConfig config = nn::parse_device_args(argc, argv);  // --device cuda, --dtype bf16
  nn::MultiHeadAttention attention(
      {.d_model = 16, .n_heads = 2, .position = nn::positional_encoding<Fading>()});
  attention.to(config.device).to(config.dtype);
  Tensor x = randn({1, 10, 16}).to(config.device).to(config.dtype);
  Tensor y = attention(x, {.causal = true});
  sum(square(y)).backward();
  std::printf("%s", attention.describe().c_str());
}
