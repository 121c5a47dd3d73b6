// Fine-tunes published weights: a GPT-2 that was trained on melodies in major is fine-tuned on a
// few melodies in minor.
//
//     fine_tuning [FILE] [--device cuda] [--dtype bf16]
//
// The first run writes FILE, with the tensor names of Hugging Face's GPT-2; any file with these
// names and shapes can be used.
#include <stretto/stretto_pretrained.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <random>
using namespace stretto;

constexpr int64_t length = 32, pitches = 40;
nn::DeviceConfig config;

// Returns melodies that start on the first note of a scale and walk up and down the scale.
Tensor melodies(int64_t count, bool minor, std::mt19937& random) {
  constexpr int scales[2][7] = {{0, 2, 4, 5, 7, 9, 11}, {0, 2, 3, 5, 7, 8, 10}};
  std::vector<int64_t> notes;
  for (int64_t i = 0; i < count; ++i) {
    const int key = int(random() % 12);
    int degree = 0;
    for (int64_t n = 0; n < length; ++n) {
      notes.push_back(key + 12 * (degree / 7) + scales[minor][degree % 7]);
      degree = std::clamp(degree + int(random() % 3) - 1, 0, 13);
    }
  }
  return tensor(notes, {count, length}).to(config.device);
}

nn::LanguageModel::Options gpt2() {
  return {.vocabulary = pitches,
          .n_layers = 2,
          .layer = {.d_model = 64,
                    .attention = {.n_heads = 4},
                    .feed_forward = {.d_hidden = 256, .activation = nn::Activation::gelu_tanh}},
          .input = {.scale = false, .learned_length = length},
          .tied = true,
          .init_std = 0.02};
}

Tensor loss_of(const nn::LanguageModel& model, const Tensor& notes) {
  return cross_entropy(model(notes.slice(1, 0, length - 1)), notes.slice(1, 1, length));
}

// Trains on `data` [N, length], in random batches of 16 melodies.
void train(nn::LanguageModel& model, const Tensor& data, int steps, double lr,
           const std::vector<nn::ParameterGroup>& groups) {
  nn::AdamW optimizer(groups, {.lr = lr});
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss_of(model, index_select(data, 0, randint(0, data.size(0), {16}).to(config.device)))
        .backward();
    optimizer.step();
  }
}

// Groups of parameters: those whose names begin with "embedding" learn at a tenth of the
// learning rate, because they hold what was learned from more data; norms and biases do not decay.
std::vector<nn::ParameterGroup> groups_of(const nn::LanguageModel& model) {
  nn::ParameterGroup embedding{.lr_scale = 0.1}, matrices, vectors{.weight_decay = 0};
  for (const auto& [name, parameter] : model.named_parameters())
    (name.starts_with("embedding") ? embedding
     : parameter.dim() > 1         ? matrices
                                   : vectors)
        .parameters.push_back(parameter);
  return {embedding, matrices, vectors};
}

double held_out(nn::LanguageModel& model, const Tensor& notes) {
  const nn::EvalMode guard(model);
  return loss_of(model, notes).item();
}

int main(int argc, char** argv) {
  config = nn::parse_device_args(argc, argv, nn::Processes::one, "[FILE]");
  const std::string path = argc > 1 ? argv[1] : "published.safetensors";
  std::mt19937 random(1);
  manual_seed(1);
  if (!std::filesystem::exists(path)) {
    nn::LanguageModel publisher(gpt2());
    publisher.to(config.device).to(config.dtype);
    train(publisher, melodies(2000, false, random), 400, 2e-3, {{publisher.parameters()}});
    nn::save_weights(path, publisher, nn::gpt2_names(publisher.options));
    std::printf("%s: trained on major, and published\n", path.c_str());
  }
  const Tensor few = melodies(20, true, random), others = melodies(500, true, random);

  const nn::SafetensorsFile file(path);
  for (const auto& entry : file.entries())
    if (entry.name.find("h.1.") == std::string::npos)
      std::printf("  %-36s %s\n", entry.name.c_str(), str(entry.shape).c_str());
  nn::LanguageModel model(gpt2());
  model.to(config.device).to(config.dtype);
  const nn::LoadReport report = nn::load_weights(file, model, nn::gpt2_names(model.options));
  std::printf("%s\n", report.describe().c_str());

  std::printf("loss on melodies in minor, nats per note\n");
  std::printf("  as published           %.3f\n", held_out(model, others));
  // The lower layer stays as published. Freezing the embedding would also freeze the output layer:
  // with `tied` they share a table.
  model.layers[0].freeze();
  train(model, few, 60, 1e-3, groups_of(model));
  std::printf("  fine-tuned on twenty   %.3f\n", held_out(model, others));
  nn::LanguageModel fresh(gpt2());
  fresh.to(config.device).to(config.dtype);
  train(fresh, few, 60, 1e-3, {{fresh.parameters()}});
  std::printf("  the same from scratch  %.3f\n", held_out(fresh, others));
}
