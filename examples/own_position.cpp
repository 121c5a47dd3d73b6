#include <stretto/stretto.h>

#include <cstdio>
using namespace stretto;

// A position of your own: scores fall with the distance, by a slope that each head learns. In a
// bidirectional call the future falls like the past.
struct Fading : nn::Position {
  Fading(nn::Module& parent, nn::HeadShape shape)
      : Position(parent), slope(parameter("slope", full({shape.n_heads, 1}, 0.1))) {}

  void apply(nn::AttentionCall& call) const override {
    const Tensor distance = abs(nn::relative_positions(call));  // f32: bf16 counts to 256
    call.options.lag_bias = {.rows = (-slope * distance).to(call.q.dtype()),
                             .zero_row = nn::relative_range(call).past,
                             .beyond = Beyond::error};
  }
  const Tensor slope;
};

int main(int argc, char** argv) {
  const nn::Place place = nn::take_place(argc, argv);  // --device cuda, --dtype bf16
  nn::MultiHeadAttention attention(
      {.d_model = 16, .n_heads = 2, .position = nn::position<Fading>()});
  attention.to(place.device).to(place.dtype);
  Tensor x = randn({1, 10, 16}).to(place.device).to(place.dtype);
  Tensor y = attention(x, {.causal = true});
  sum(square(y)).backward();
  std::printf("%s", attention.describe().c_str());
}
