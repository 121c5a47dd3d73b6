#include <stretto/stretto.h>

#include <cstdio>
using namespace stretto;

// Learns to continue a melody that repeats every eight notes.
struct Melody : nn::Module {
  nn::Embedding notes{*this, "notes", {.count = 12, .dim = 32}};
  nn::TransformerLayer layer{
      *this,
      "layer",
      {.d_model = 32,
       .attention = {.n_heads = 2, .position = nn::music_relative({.max_length = 32})},
       .feed_forward = {.d_hidden = 64}}};
  nn::Linear out{*this, "out", {.in = 32, .out = 12}};

  Tensor operator()(const Tensor& tokens) const {  // [B, L] → [B, L, 12]
    return out(layer(notes(tokens), {.causal = true}));
  }
};

int main(int argc, char** argv) {
  const nn::DeviceConfig config = nn::parse_device_args(argc, argv);  // --device cuda, --dtype bf16
  manual_seed(1);
  Tensor bar = randint(0, 12, {16, 8}).to(config.device);
  Tensor music = cat({bar, bar, bar, bar}, 1);  // [16, 32]
  Tensor input = music.slice(1, 0, 31), target = music.slice(1, 1, 32);

  Melody model;
  model.to(config.device).to(config.dtype);
  nn::AdamW optimizer(model.parameters(), {.lr = 3e-3});
  for (int step = 0; step <= 100; ++step) {
    Tensor loss = cross_entropy(model(input), target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step % 50 == 0) std::printf("step %d: loss %.3f\n", step, loss.item());
  }
  std::printf("%s", model.describe().c_str());
}
