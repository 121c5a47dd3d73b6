#include <stretto/stretto.h>

#include <cstdio>
using namespace stretto;

// A gated short convolution in place of attention (in the manner of LFM2, Liquid AI 2025):
//   b, c, h = in(x),   y = out(c ∘ silu(convolution(b ∘ h))).
struct GatedConvolution : nn::Mixer {
  GatedConvolution(nn::Module& parent, int64_t d) : Mixer(parent), d_model(d) {}
  std::string label() const override { return "GatedConvolution"; }
  nn::MixerTraits traits() const override { return {.cache = true, .key_padding = true}; }

  Tensor mix(const Tensor& x, const AttentionMask& mask, nn::KeyValueCache* cache,
             const nn::ForwardContext&) const override {
    const Tensors parts = split(in(x), {d_model, d_model, d_model}, 2);
    Tensor* const history = cache ? &cache->state.history : nullptr;  // the last three inputs
    return out(parts[1] * convolution(parts[0] * parts[2], mask, history));
  }

  const int64_t d_model;
  nn::Linear in{*this, "in", {d_model, 3 * d_model}};
  nn::ShortConvolution convolution{*this, "convolution", {.features = d_model, .taps = 4}};
  nn::Linear out{*this, "out", {d_model, d_model}};
};

// Networks whose outputs are weighted by a router; its further loss is least if it uses all equally.
struct Experts : nn::PositionWise {
  Experts(nn::Module& parent, nn::FeedForwardOptions o, int64_t count)
      : PositionWise(parent, "feed_forward"), expert((o.network = {}, o)), n(count) {}

  Tensor operator()(const Tensor& x, const nn::ForwardContext& forward) const override {
    const Tensor weights = softmax(router(x), -1);  // [B, L, n]
    Tensor y;
    for (int64_t i = 0; i < n; ++i) {
      const Tensor one = experts[i](x, forward) * weights.slice(2, i, i + 1);
      y = y.defined() ? y + one : one;
    }
    const Tensor used = mean(weights, Shape{0, 1});
    forward.add_loss(0.01 * double(n) * sum(used * used));
    return y;
  }

  const nn::FeedForwardOptions expert;
  const int64_t n;
  nn::Linear router{*this, "router", {expert.d_model, n}};
  nn::List<nn::FeedForward> experts{*this, "experts", n, expert};
};

int main(int argc, char** argv) {
  const nn::DeviceConfig config = nn::parse_device_args(argc, argv);  // --device cuda, --dtype bf16
  manual_seed(1);
  nn::LanguageModel model(
      {.vocabulary = 12,
       .n_layers = 3,
       .layer = {.d_model = 32,
                 .attention = {.n_heads = 2, .position = nn::rotary()},
                 .feed_forward = {.d_hidden = 64, .network = nn::position_wise<Experts>(4)}},
       .vary_layer = [](int64_t i, nn::LayerOptions& layer) {  // attention in the second layer only
         if (i != 1) layer.mixer = nn::mixer<GatedConvolution>();
       }});
  model.to(config.device).to(config.dtype);
  nn::AdamW optimizer(model.parameters(), {.lr = 3e-3});
  for (int step = 0; step <= 150; ++step) {  // bars of eight notes, each played three times
    const Tensor bar = randint(0, 12, {16, 8}).to(config.device), music = cat({bar, bar, bar}, 1);
    const nn::ForwardContext forward = nn::begin_forward();
    const Tensor nll = model.nll(music.slice(1, 0, 23), music.slice(1, 1, 24), forward);
    const Tensor repeated = mean(nll.slice(1, 8));  // the first bar cannot be foreseen
    optimizer.zero_grad();
    forward.total_loss(repeated).backward();
    optimizer.step();
    if (step % 50 == 0) std::printf("step %d: loss %.3f\n", step, repeated.item());
  }
  const nn::EvalMode guard(model);
  std::printf("1 7 4 9 2 2 8 5 |");
  for (const int64_t note : nn::generate(model, {1, 7, 4, 9, 2, 2, 8, 5, 1}, {.max_tokens = 7}))
    std::printf(" %d", int(note));  // token by token, with a cache
  std::printf("\n");
}
