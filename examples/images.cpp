// Classifies images by a Vision Transformer and by a Swin Transformer: in which direction do the
// stripes of a disk run?
#include <stretto/stretto.h>

#include <cmath>
#include <cstdio>
#include <numbers>
#include <random>
using namespace stretto;

constexpr int64_t size = 32, classes = 4;  // pixels; directions, 45 degrees apart
nn::DeviceConfig config;                   // --device cuda, --dtype bf16

struct Images {
  Tensor pixels;     // [B, 1, size, size]
  Tensor direction;  // [B]
};

// A striped disk at a random place, in noise.
Images make(int64_t count, std::mt19937& random) {
  const auto between = [&](int low, int high) {
    return low + int(random() % unsigned(high - low + 1));
  };
  std::vector<float> pixels;
  std::vector<int64_t> direction;
  for (int64_t n = 0; n < count; ++n) {
    direction.push_back(between(0, int(classes) - 1));
    const double angle = std::numbers::pi / classes * double(direction.back());
    const double phase = between(0, 7), radius = between(8, 10);
    const int x0 = between(10, size - 11), y0 = between(10, size - 11);
    for (int y = 0; y < size; ++y)
      for (int x = 0; x < size; ++x) {
        const double across = double(x) * std::cos(angle) + double(y) * std::sin(angle);
        const bool bright = std::fmod(across + phase + 8 * size, 8) < 4;
        const bool inside = std::hypot(x - x0, y - y0) < radius;
        pixels.push_back(float(inside ? 2 * bright - 1 : 0) + float(between(-50, 50)) / 100);
      }
  }
  return {tensor(pixels, {count, 1, size, size}).to(config.device).to(config.dtype),
          tensor(direction, {count}).to(config.device)};
}

// A layer of Swin (Liu et al. 2021, §3.2). Attention is within windows of w × w cells; in every second
// layer the windows are shifted by half their size.
struct SwinBlock : nn::Module {
  SwinBlock(nn::Module& parent, std::string name, int64_t cells_, int64_t d, bool shifted)
      : Module(parent, std::move(name)),
        cells(cells_),
        shift(shifted ? w / 2 : 0),
        layer(
            *this, "layer",
            {.d_model = d,
             .attention = {.n_heads = d / 8, .position = nn::swin_bias({.height = w, .width = w})},
             .feed_forward = {.d_hidden = 2 * d, .activation = Activation::gelu}}) {
    if (!shifted) return;
    // Rolling brings cells of opposite edges together. They are in different segments, which do not
    // see each other.
    const Tensor edge = ge(arange(cells), double(cells - shift)).to(i64);  // 1 from the other edge
    segments =
        buffer("segments",
               windows((edge.unsqueeze(1) * 2 + edge).reshape({1, cells, cells, 1})).squeeze(2),
               {.persistent = false});
  }

  Tensor operator()(const Tensor& x) const {  // [B, cells, cells, d] → the same
    AttentionMask mask;
    if (shift > 0) mask.segments = repeat(segments, {x.size(0), 1});
    const Tensor y = layer(windows(roll(x, {-shift, -shift}, {1, 2})), mask);
    const int64_t n = cells / w;
    const Tensor image = y.reshape({-1, n, n, w, w, x.size(3)}).transpose(2, 3).reshape(x.shape());
    return roll(image, {shift, shift}, {1, 2});
  }

  // [B, cells, cells, d] → [B · number of windows, w², d]
  Tensor windows(const Tensor& x) const {
    const int64_t n = cells / w;
    return x.reshape({-1, n, w, n, w, x.size(3)}).transpose(2, 3).reshape({-1, w * w, x.size(3)});
  }

  static constexpr int64_t w = 4;
  int64_t cells, shift;
  nn::TransformerLayer layer;
  Tensor segments;  // [number of windows, w²]
};

// Three stages of two layers. Before the second and the third, 2 × 2 cells become one of twice the
// width.
struct Swin : nn::Module {
  nn::PatchEmbedding patches{*this, "patches", {.channels = 1, .patch = 2, .d_model = 16}};
  SwinBlock a{*this, "a", 16, 16, false}, b{*this, "b", 16, 16, true};
  nn::Linear merge1{*this, "merge1", {.in = 64, .out = 32}};
  SwinBlock c{*this, "c", 8, 32, false}, d{*this, "d", 8, 32, true};
  nn::Linear merge2{*this, "merge2", {.in = 128, .out = 64}};
  SwinBlock e{*this, "e", 4, 64, false}, f{*this, "f", 4, 64, false};
  nn::Norm norm{*this, "norm", {.dim = 64}};
  nn::Linear head{*this, "head", {.in = 64, .out = classes}};

  Tensor operator()(const Tensor& images) const {  // [B, 1, 32, 32] → [B, classes]
    Tensor x = patches(images).reshape({-1, 16, 16, 16});
    x = merge1(joined(b(a(x))));
    x = merge2(joined(d(c(x))));
    return head(mean(norm(f(e(x))), {1, 2}));
  }

  static Tensor joined(const Tensor& x) {  // [B, n, n, d] → [B, n / 2, n / 2, 4d]
    const int64_t n = x.size(1) / 2, d = x.size(3);
    return x.reshape({-1, n, 2, n, 2, d}).transpose(2, 3).reshape({-1, n, n, 4 * d});
  }
};

template <class Model>
void train(const char* name, Model& model) {
  model.to(config.device).to(config.dtype);
  std::mt19937 random(1);
  const Images test = make(200, random);
  nn::AdamW optimizer(model.parameters(), {.lr = 3e-3});
  for (int step = 1; step <= 300; ++step) {
    const Images batch = make(32, random);
    const Tensor loss = cross_entropy(model(batch.pixels), batch.direction);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step % 100 != 0) continue;
    const nn::EvalMode guard(model);
    const Tensor right = eq(argmax(model(test.pixels), 1), test.direction);
    std::printf("%s, step %d: loss %.3f, accuracy %.1f %%\n", name, step, loss.item(),
                100 * mean(right.to(f32)).item());
  }
}

int main(int argc, char** argv) {
  config = nn::parse_device_args(argc, argv);
  manual_seed(1);
  nn::VisionTransformer vit(
      {.image = size,
       .patch = 4,
       .channels = 1,
       .n_classes = classes,
       .n_layers = 2,
       .layer = {.d_model = 32,
                 .attention = {.n_heads = 2,
                               .position =
                                   nn::rotary_2d({.height = 8, .width = 8, .class_tokens = 1})},
                 .feed_forward = {.d_hidden = 64, .activation = Activation::gelu}},
       .position = nn::ImagePosition::none});
  train("ViT", vit);
  Swin swin;
  train("Swin", swin);
}
