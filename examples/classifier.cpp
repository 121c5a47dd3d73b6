// Classifies melodies as major or minor: a Transformer encoder reads whole melodies, in any key.
#include <stretto/stretto.h>

#include <algorithm>
#include <cstdio>
#include <random>
using namespace stretto;

constexpr int64_t length = 16, pitches = 40;
nn::DeviceConfig config;  // --device cuda, --dtype bf16

struct Melodies {
  Tensor notes;  // [B, length]
  Tensor minor;  // [B], 0 or 1
};

// Returns melodies that start on the first note of a scale and walk up and down the scale. Keys
// vary, so that no single pitch reveals the mode: the third of the scale is four (major) or three
// (minor) semitones above its first note.
Melodies make(int64_t count, std::mt19937& random) {
  constexpr int major_scale[] = {0, 2, 4, 5, 7, 9, 11}, minor_scale[] = {0, 2, 3, 5, 7, 8, 10};
  std::vector<int64_t> notes, minor;
  for (int64_t i = 0; i < count; ++i) {
    const bool in_minor = random() % 2 == 1;
    const int key = int(random() % 12);
    int degree = 0;
    for (int64_t n = 0; n < length; ++n) {
      notes.push_back(key + 12 * (degree / 7) + (in_minor ? minor_scale : major_scale)[degree % 7]);
      degree = std::clamp(degree + int(random() % 5) - 2, 0, 13);
    }
    minor.push_back(in_minor);
  }
  return {tensor(notes, {count, length}).to(config.device),
          tensor(minor, {count}).to(config.device)};
}

double accuracy(nn::SequenceClassifier& model, const Melodies& melodies) {
  const nn::EvalMode guard(model);
  const Tensor answer = argmax(model(melodies.notes), 1);
  return mean(eq(answer, melodies.minor).to(f32)).item();
}

int main(int argc, char** argv) {
  config = nn::parse_device_args(argc, argv);
  std::mt19937 random(1);
  const Melodies test = make(500, random);
  manual_seed(1);
  nn::SequenceClassifier model(
      {.vocabulary = pitches,
       .n_classes = 2,
       .n_layers = 2,
       .layer = {.d_model = 32,
                 .attention = {.n_heads = 4, .position = nn::shaw_relative({.max_distance = 4})},
                 .feed_forward = {.d_hidden = 64}},
       .pooling = nn::Pooling::mean});
  model.to(config.device).to(config.dtype);
  nn::AdamW optimizer(model.parameters(), {.lr = 2e-3});
  for (int step = 1; step <= 300; ++step) {
    const Melodies batch = make(32, random);
    const Tensor loss = cross_entropy(model(batch.notes), batch.minor);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step % 50 == 0)
      std::printf("step %3d  loss %.3f  accuracy %.1f %%\n", step, loss.item(),
                  100 * accuracy(model, test));
  }
  std::printf("a model of %d parameters\n", int(model.parameter_count()));
}
