#include "examples/music/chorale_training.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "autograd/tape.h"
#include "examples/common/error.h"
#include "nn/generation.h"
#include "ops/loss.h"

namespace stretto::examples {
namespace {

// Every setting by name, in one list, for writing and for reading.
template <class Settings, class F>
void each_setting(Settings& s, F&& f) {
  f("attention", s.attention);
  f("layers", s.layers);
  f("d_model", s.d_model);
  f("heads", s.heads);
  f("d_hidden", s.d_hidden);
  f("dropout", s.dropout);
  f("attention_dropout", s.attention_dropout);
  f("length", s.length);
  f("batch", s.batch);
  f("transpose", s.transpose);
  f("learning_rate", s.learning_rate);
  f("warmup", s.warmup);
  f("weight_decay", s.weight_decay);
  f("clip", s.clip);
  f("steps", s.steps);
  f("seed", s.seed);
}

std::string as_text(const std::string& value) { return value; }
std::string as_text(int64_t value) { return std::to_string(value); }
std::string as_text(uint64_t value) { return std::to_string(value); }
std::string as_text(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

bool read_text(const std::string& text, std::string& value) {
  value = text;
  return true;
}
template <class T>
bool read_text(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end;
}

void require(bool condition, const std::string& message) {
  if (!condition) throw UsageError(message);
}

}  // namespace

void ChoraleSettings::check() const {
  require(attention == "relative" || attention == "absolute",
          "--attention " + attention + ": accepted are relative and absolute");
  const auto size = [](const char* option, int64_t value, int64_t most) {
    require(value >= 1 && value <= most, std::string(option) + " " + std::to_string(value) +
                                             ": accepted are 1 to " + std::to_string(most));
  };
  size("--layers", layers, 1000);
  size("--d-model", d_model, 65536);
  size("--heads", heads, d_model);
  size("--d-hidden", d_hidden, 1 << 20);
  size("--length", length, 1 << 20);
  size("--batch", batch, 1 << 20);
  require(d_model % heads == 0, "--d-model " + std::to_string(d_model) +
                                    " is not a multiple of --heads " + std::to_string(heads));
  require(length % 4 == 0, "--length " + std::to_string(length) +
                               ": must be a multiple of 4, the voices of a sixteenth");
  const auto share = [](const char* option, double value) {
    require(value >= 0 && value < 1,
            std::string(option) + " " + as_text(value) + ": must be at least 0 and below 1");
  };
  share("--dropout", dropout);
  share("--attention-dropout", attention_dropout);
  require(transpose >= 0 && transpose <= 24, "--transpose: accepted are 0 to 24 semitones");
  require(learning_rate > 0 && std::isfinite(learning_rate), "--learning-rate: must be above 0");
  require(clip > 0, "--clip: must be above 0");
  require(warmup >= 0 && steps >= 0, "--warmup and --steps: must not be negative");
}

nn::MusicTransformer::Options ChoraleSettings::model() const {
  nn::MusicTransformer::Options o{.vocabulary = chorale_vocabulary,
                                  .d_model = d_model,
                                  .n_layers = layers,
                                  .n_heads = heads,
                                  .d_hidden = d_hidden,
                                  .relative = attention == "relative",
                                  .relative_length = length,
                                  .dropout = dropout,
                                  .attention_dropout = attention_dropout};
  if (!o.relative) o.sinusoid = nn::Sinusoid::interleaved;
  return o;
}

nn::Metadata ChoraleSettings::to_notes() const {
  nn::Metadata notes;
  each_setting(*this, [&](const char* name, const auto& value) { notes[name] = as_text(value); });
  return notes;
}

ChoraleSettings ChoraleSettings::from_notes(const nn::Metadata& notes, const std::string& path) {
  ChoraleSettings s;
  each_setting(s, [&](const char* name, auto& value) {
    const auto it = notes.find(name);
    require(it != notes.end() && read_text(it->second, value),
            path + ": not a checkpoint of train_chorales (its setting \"" + name +
                "\" is missing or malformed)");
  });
  try {
    s.check();
  } catch (const UsageError& e) {
    throw UsageError(path + ": " + e.what());
  }
  return s;
}

double validation_loss(nn::MusicTransformer& model, const std::vector<Chorale>& pieces,
                       int64_t length, int64_t stride, int64_t batch) {
  NoGrad guard;
  const bool was_training = model.training();
  model.eval();
  double total = 0, count = 0;
  for (const Batch& b : scoring_batches(pieces, length, stride, batch)) {
    const Device device = model.embedding.weight.device();
    const Tensor losses = cross_entropy(model(b.inputs.to(device)), b.targets.to(device),
                                        {.ignore_index = not_scored, .reduction = Reduction::none});
    for (double loss : losses.to_vector<double>()) total += loss;
    for (int64_t target : b.targets.to_vector<int64_t>()) count += target != not_scored;
  }
  model.train(was_training);
  return total / count;
}

namespace {

// The model's first values are a function of the seed alone.
nn::MusicTransformer::Options seeded(const ChoraleSettings& settings) {
  manual_seed(settings.seed);
  return settings.model();
}

}  // namespace

ChoraleTraining::ChoraleTraining(const ChoraleSettings& s, Device device)
    : model(seeded(s)),
      settings(s),
      optimizer_(model.parameters(), {.lr = s.learning_rate,
                                      .beta2 = 0.98,
                                      .eps = 1e-9,
                                      .weight_decay = s.weight_decay}),
      device_(device) {
  model.to(device);
}

double ChoraleTraining::rate_at(double progress) const {
  const double floor = settings.learning_rate / 100;
  if (settings.steps > 0)
    return nn::WarmupCosine{.peak = settings.learning_rate,
                            .warmup = settings.warmup,
                            .steps = settings.steps,
                            .floor = floor}
        .at(step_ + 1);
  const double warm = std::min(1.0, double(step_ + 1) / double(std::max<int64_t>(1, settings.warmup)));
  const double wave = 0.5 + 0.5 * std::cos(3.141592653589793 * std::clamp(progress, 0.0, 1.0));
  return warm * (floor + (settings.learning_rate - floor) * wave);
}

StepResult ChoraleTraining::train_step(const std::vector<Chorale>& pieces, double progress) {
  const Batch batch = training_batch(
      pieces, {settings.batch, settings.length, int(settings.transpose)}, settings.seed, step_);
  optimizer_.set_learning_rate(rate_at(progress));
  optimizer_.zero_grad();
  const Tensor loss = cross_entropy(model(batch.inputs.to(device_)), batch.targets.to(device_),
                                    {.ignore_index = not_scored});
  const double value = loss.item();
  stretto::check(std::isfinite(value), "train", "step ", step_ + 1, ": the loss is ", value,
                 "; --anomaly names the op that made it");
  loss.backward();
  const double norm = nn::clip_grad_norm(model.parameters(), settings.clip);
  optimizer_.step();
  ++step_;
  return {value, norm};
}

void ChoraleTraining::save(const std::string& path, double seconds) const {
  nn::TrainingState state{.step = step_, .notes = settings.to_notes()};
  // Where the steps are counted the clock is left out, so that equal runs give equal files.
  if (settings.steps == 0) state.notes["seconds"] = as_text(seconds);
  nn::save_checkpoint(path, model, &optimizer_, state);
}

double ChoraleTraining::load(const std::string& path) {
  const nn::TrainingState state = nn::load_checkpoint(path, model, &optimizer_);
  step_ = state.step;
  double seconds = 0;
  if (const auto it = state.notes.find("seconds"); it != state.notes.end())
    require(read_text(it->second, seconds), path + ": malformed note \"seconds\"");
  return seconds;
}

Chorale continue_chorale(nn::MusicTransformer& model, const Chorale& opening, int64_t steps,
                         int64_t context, double temperature, double top_p, uint64_t seed) {
  model.eval();
  std::vector<int64_t> tokens = to_tokens(opening);
  std::vector<int64_t> prompt = {start_token};
  prompt.insert(prompt.end(), tokens.begin(), tokens.end());
  nn::MusicTransformer::Cache cache;
  cache.layers.resize(size_t(model.options.n_layers));
  for (auto& layer : cache.layers) layer.limit = context;
  const std::vector<int64_t> drawn = nn::generate(
      [&](const Tensor& next) {
        return model(next.to(model.embedding.weight.device()), &cache);
      },
      prompt,
      {.max_tokens = 4 * steps,
       .end_token = end_token,
       .seed = seed,
       .sampling = {.temperature = temperature, .top_p = top_p, .forbidden = {start_token}}});
  tokens.insert(tokens.end(), drawn.begin(), drawn.end());
  return to_chorale(tokens);
}

}  // namespace stretto::examples
