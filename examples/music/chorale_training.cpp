#include "examples/music/chorale_training.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "autograd/tape.h"
#include "examples/common/error.h"
#include "examples/common/interrupt.h"
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
  return {text, std::to_chars(text, text + sizeof text, value).ptr};  // shortest that reads back
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
  const auto range = [](const char* option, int64_t value, int64_t least, int64_t most) {
    require(least <= value && value <= most, std::string(option) + " " + as_text(value) +
                                                 ": accepted are " + as_text(least) + " to " +
                                                 as_text(most));
  };
  range("--layers", layers, 1, 1000);
  range("--d-model", d_model, 1, 65536);
  range("--heads", heads, 1, d_model);
  range("--d-hidden", d_hidden, 1, 1 << 20);
  range("--length", length, 4, 1 << 20);
  range("--batch", batch, 1, 1 << 20);
  range("--transpose", transpose, 0, 24);
  range("--warmup", warmup, 0, INT64_MAX);
  range("--steps", steps, 0, INT64_MAX);
  require(d_model % heads == 0,
          "--d-model " + as_text(d_model) + " is not a multiple of --heads " + as_text(heads));
  require(length % 4 == 0,
          "--length " + as_text(length) + ": must be a multiple of 4, the voices of a sixteenth");
  const auto number = [](const char* option, double value, bool accepted, const char* what) {
    require(accepted, std::string(option) + " " + as_text(value) + ": must be " + what);
  };
  for (const auto& [option, value] :
       {std::pair("--dropout", dropout), {"--attention-dropout", attention_dropout}})
    number(option, value, value >= 0 && value < 1, "at least 0 and below 1");
  number("--learning-rate", learning_rate, learning_rate > 0 && std::isfinite(learning_rate),
         "a number above 0");
  number("--weight-decay", weight_decay, weight_decay >= 0 && std::isfinite(weight_decay),
         "a number of at least 0");
  number("--clip", clip, clip > 0, "above 0");
}

double ChoraleSettings::least_memory() const {
  const double d = double(d_model), hidden = double(d_hidden), vocabulary = chorale_vocabulary;
  const double table = attention == "relative" ? double(length) * d : 0;
  const double parameters =
      double(layers) * (4 * d * d + 2 * d * hidden + table) + 2 * vocabulary * d;
  const double activations =
      double(batch) * double(length) * (double(layers) * (6 * d + hidden) + vocabulary);
  return sizeof(float) * (4 * parameters + activations);
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
  const Device device = model.embedding.weight.device();
  double total = 0, count = 0;
  scoring_batches(pieces, length, stride, batch, [&](const Batch& b) {
    check_interrupt();
    const Tensor losses = cross_entropy(model(b.inputs.to(device)), b.targets.to(device),
                                        {.ignore_index = not_scored, .reduction = Reduction::none});
    for (double loss : losses.to_vector<double>()) total += loss;
    for (int64_t target : b.targets.to_vector<int64_t>()) count += target != not_scored;
  });
  model.train(was_training);
  return total / count;
}

namespace {

// The model's first values are a function of the seed alone.
nn::MusicTransformer::Options seeded(const ChoraleSettings& settings) {
  manual_seed(settings.seed);
  return settings.model();
}

// FNV-1a over all tokens, in hexadecimal.
std::string fingerprint(const std::vector<Chorale>& pieces) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const Chorale& piece : pieces) {
    std::vector<int64_t> tokens = to_tokens(piece);
    tokens.push_back(end_token);
    for (int64_t t : tokens) hash = (hash ^ uint64_t(t)) * 0x100000001b3;
  }
  char text[16];
  return {text, std::to_chars(text, text + sizeof text, hash, 16).ptr};
}

void require_finite(const char* what, double value) {
  if (std::isfinite(value)) return;
  throw Error("the " + std::string(what) + " is " + as_text(value) +
              (anomaly_detection() ? "" : "; --anomaly names the op that first makes it so"));
}

}  // namespace

ChoraleTraining::ChoraleTraining(const ChoraleSettings& s, std::vector<Chorale> pieces,
                                 Device device)
    : model(seeded(s)),
      settings(s),
      optimizer_(
          model.parameters(),
          {.lr = s.learning_rate, .beta2 = 0.98, .eps = 1e-9, .weight_decay = s.weight_decay}),
      pieces_(std::move(pieces)),
      fingerprint_(fingerprint(pieces_)),
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
  const double warm =
      std::min(1.0, double(step_ + 1) / double(std::max<int64_t>(1, settings.warmup)));
  const double wave = 0.5 + 0.5 * std::cos(3.141592653589793 * std::clamp(progress, 0.0, 1.0));
  return warm * (floor + (settings.learning_rate - floor) * wave);
}

StepResult ChoraleTraining::train_step(double progress) {
  const Batch batch = training_batch(
      pieces_, {settings.batch, settings.length, int(settings.transpose)}, settings.seed, step_);
  optimizer_.set_learning_rate(rate_at(progress));
  optimizer_.zero_grad();
  StepResult result;
  try {
    const Tensor loss = cross_entropy(model(batch.inputs.to(device_)), batch.targets.to(device_),
                                      {.ignore_index = not_scored});
    require_finite("loss", result.loss = loss.item());
    loss.backward();
    result.gradient_norm = nn::clip_grad_norm(model.parameters(), settings.clip);
    require_finite("norm of the gradient", result.gradient_norm);
  } catch (const Error& e) {
    throw Error("step " + as_text(step_ + 1) + ": " + e.what());
  }
  optimizer_.step();
  ++step_;
  return result;
}

void ChoraleTraining::save(const std::string& path, double seconds) const {
  for (const nn::NamedTensor& p : model.named_parameters())
    for (float value : p.tensor.to_vector<float>())
      if (!std::isfinite(value))
        throw Error("step " + as_text(step_) + ": " + p.name + " holds " + as_text(value) +
                    "; not saved to " + path);
  nn::TrainingState state{.step = step_, .notes = settings.to_notes()};
  state.notes["data"] = fingerprint_;
  // Where the steps are counted the clock is left out, so that equal runs give equal files.
  if (settings.steps == 0) state.notes["seconds"] = as_text(seconds);
  nn::save_checkpoint(path, model, &optimizer_, state);
}

double ChoraleTraining::load(const std::string& path) {
  nn::TrainingState state = nn::load_training_state(path);
  require(state.step >= 0, path + ": malformed, its step is " + as_text(state.step));
  require(state.notes["data"] == fingerprint_,
          path + ": was trained on other chorales than those of --data (or of --seed without it)");
  double seconds = 0;
  if (settings.steps == 0)
    require(read_text(state.notes["seconds"], seconds) && seconds >= 0 && std::isfinite(seconds),
            path + ": its note \"seconds\" is missing or malformed");
  nn::load_checkpoint(path, model, &optimizer_);
  step_ = state.step;
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
      [&](const Tensor& next) { return model(next.to(model.embedding.weight.device()), &cache); },
      prompt,
      {.max_tokens = 4 * steps,
       .end_token = end_token,
       .seed = seed,
       .sampling = {.temperature = temperature, .top_p = top_p, .forbidden = {start_token}}},
      [](int64_t) {
        check_interrupt();
        return true;
      });
  tokens.insert(tokens.end(), drawn.begin(), drawn.end());
  return to_chorale(tokens);
}

}  // namespace stretto::examples
