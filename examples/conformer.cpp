// Recognizes sequences of tones in noise: a Conformer (Gulati et al. 2020), whose attention has the
// relative positions of Transformer-XL, trained by the CTC loss without an alignment.
#include <stretto/stretto.h>

#include <cstdio>
#include <random>
using namespace stretto;

constexpr int64_t tones = 8, longest = 6, frames = 48, bands = 12;
nn::DeviceConfig config;  // --device cuda, --dtype bf16

struct Recordings {
  Tensor spectrum;  // [B, frames, bands]
  Tensor melody;    // i64 [B, longest], tones 1 … 8; 0 after the last one
  Tensor length;    // i64 [B], number of tones
};

// A tone lasts 3 to 6 frames, is strong in two neighboring bands, and is followed by 1 to 2 frames of
// noise.
Recordings make(int64_t count, std::mt19937& random) {
  const auto between = [&](int low, int high) {
    return low + int(random() % unsigned(high - low + 1));
  };
  std::vector<float> spectrum(size_t(count * frames * bands));
  std::vector<int64_t> melody(size_t(count * longest)), length;
  for (float& value : spectrum) value = float(between(-50, 50)) / 100;
  for (int64_t n = 0; n < count; ++n) {
    length.push_back(between(2, int(longest)));
    int64_t t = between(0, 2);
    for (int64_t i = 0; i < length.back(); ++i) {
      const int tone = between(1, int(tones));
      melody[size_t(n * longest + i)] = tone;
      for (const int64_t end = t + between(3, 6); t < end; ++t)
        for (int64_t band = tone; band <= tone + 1; ++band)
          spectrum[size_t((n * frames + t) * bands + band)] += 1;
      t += between(1, 2);
    }
  }
  return {tensor(spectrum, {count, frames, bands}).to(config.device).to(config.dtype),
          tensor(melody, {count, longest}), tensor(length, {count})};
}

// The convolution module (Gulati et al., §2.2): x [B, L, d] → the same.
struct ConvolutionModule : nn::Module {
  ConvolutionModule(nn::Module& parent, int64_t d, int64_t kernel)
      : Module(parent, "convolution"),
        norm(*this, "norm", {.dim = d}),
        in(*this, "in", {.in = d, .out = 2 * d}),
        depthwise(*this, "depthwise",
                  {.in = d, .out = d, .kernel = kernel, .padding = kernel / 2, .groups = d}),
        batch_norm(*this, "batch_norm", {.dim = d}),
        out(*this, "out", {.in = d, .out = d}) {}
  Tensor operator()(const Tensor& x) const {
    const Tensors halves = chunk(in(norm(x)), 2, 2);
    const Tensor gated = halves[0] * sigmoid(halves[1]);  // GLU
    return out(silu(batch_norm(depthwise(gated.transpose(1, 2)))).transpose(1, 2));
  }
  nn::Norm norm;
  nn::Linear in;
  nn::Conv1d depthwise;
  nn::BatchNorm batch_norm;
  nn::Linear out;
};

// Half a feed-forward network, attention, convolution, half a feed-forward network (eq. 1).
struct ConformerBlock : nn::Module {
  ConformerBlock(nn::Module& parent, std::string name, int64_t d)
      : Module(parent, std::move(name)),
        norm1(*this, "norm1", {.dim = d}),
        feed_forward1(*this, "feed_forward1", half(d)),
        norm2(*this, "norm2", {.dim = d}),
        attention(*this, "attention",
                  {.d_model = d, .n_heads = 4, .position = nn::relative_sinusoid()}),
        convolution(*this, d, 7),
        norm3(*this, "norm3", {.dim = d}),
        feed_forward2(*this, "feed_forward2", half(d)),
        norm4(*this, "norm4", {.dim = d}) {}
  Tensor operator()(Tensor x) const {
    x = x + feed_forward1(norm1(x)) * 0.5;
    x = x + attention(norm2(x));
    x = x + convolution(x);
    x = x + feed_forward2(norm3(x)) * 0.5;
    return norm4(x);
  }
  static nn::FeedForwardOptions half(int64_t d) {
    return {.d_model = d, .d_hidden = 4 * d, .activation = Activation::silu};
  }
  nn::Norm norm1;
  nn::FeedForward feed_forward1;
  nn::Norm norm2;
  nn::MultiHeadAttention attention;
  ConvolutionModule convolution;
  nn::Norm norm3;
  nn::FeedForward feed_forward2;
  nn::Norm norm4;
};

struct Conformer : nn::Module {
  nn::Linear in{*this, "in", {.in = bands, .out = 32}};
  ConformerBlock block1{*this, "block1", 32}, block2{*this, "block2", 32};
  nn::Linear out{*this, "out", {.in = 32, .out = 1 + tones}};  // class 0: blank
  // [B, L, bands] → log probabilities [L, B, 1 + tones]
  Tensor operator()(const Tensor& x) const {
    return log_softmax(out(block2(block1(in(x)))).transpose(0, 1), 2);
  }
};

// The most likely path without repetitions and blanks.
std::vector<int64_t> recognized(const Tensor& path) {
  std::vector<int64_t> melody;
  int64_t before = 0;
  for (const int64_t tone : path.to_vector<int64_t>()) {
    if (tone != 0 && tone != before) melody.push_back(tone);
    before = tone;
  }
  return melody;
}

int main(int argc, char** argv) {
  config = nn::parse_device_args(argc, argv);
  manual_seed(1);
  std::mt19937 random(1);
  Conformer model;
  model.to(config.device).to(config.dtype);
  std::printf("a Conformer of %d parameters\n", int(model.parameter_count()));
  nn::AdamW optimizer(model.parameters(), {.lr = 2e-3});
  const Tensor all_frames = full({16}, frames, {.dtype = i64});
  for (int step = 1; step <= 300; ++step) {
    const Recordings batch = make(16, random);
    const Tensor loss = ctc_loss(model(batch.spectrum), batch.melody, all_frames, batch.length);
    optimizer.zero_grad();
    loss.backward();
    nn::clip_grad_norm(model.parameters(), 1);
    optimizer.step();
    if (step % 100 == 0) std::printf("step %d: loss %.3f\n", step, loss.item());
  }
  const nn::EvalMode guard(model);
  const Recordings test = make(100, random);
  const Tensor paths = argmax(model(test.spectrum), 2).transpose(0, 1).to(cpu);
  int right = 0;
  for (int64_t n = 0; n < 100; ++n) {
    const int64_t length = test.length[n].item<int64_t>();
    right += recognized(paths[n]) == test.melody[n].slice(0, 0, length).to_vector<int64_t>();
  }
  std::printf("%d of 100 melodies recognized\n", right);
}
