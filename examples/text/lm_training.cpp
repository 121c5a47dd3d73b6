#include "examples/text/lm_training.h"

#include "examples/common/settings.h"
#include "ops/reduce.h"

namespace stretto::examples {
namespace {

constexpr const char* vocabulary_note = "vocabulary.tokens";

// The model's first values are a function of the seed alone.
nn::TransformerXL::Options seeded(const LmSettings& settings, int64_t n_tokens) {
  manual_seed(settings.seed);
  return settings.model(n_tokens);
}

std::string fingerprint(const std::vector<int32_t>& tokens) {
  Fingerprint print;
  for (int32_t t : tokens) print.add(t);
  return print.text();
}

const std::vector<int32_t>& enough(const std::vector<int32_t>& tokens, const LmSettings& s,
                                   const std::string& data) {
  const int64_t needed = s.batch * (s.length + 1);
  require(int64_t(tokens.size()) >= needed,
          data + ": " + as_text(int64_t(tokens.size())) + " tokens to learn from are too few; " +
              as_text(needed) + " are one segment of --length " + as_text(s.length) +
              " for each row of --batch " + as_text(s.batch));
  return tokens;
}

}  // namespace

LmTraining::LmTraining(const LmSettings& s, Tokenizer tokenizer, std::vector<int32_t> train,
                       Device device, const std::string& data)
    : settings(s),
      model(seeded(s, tokenizer.size())),
      optimizer_(model.parameters(), {.lr = s.learning_rate}),
      tokenizer_(std::move(tokenizer)),
      segments_(enough(train, s, data), s.batch, s.length),
      fingerprint_(fingerprint(train)),
      device_(device) {
  model.to(device);
}

StepResult LmTraining::train_step(double progress) {
  const Segment segment = segments_(step_);
  if (segments_.starts_epoch(step_)) memory_ = {};
  const RunSchedule schedule{settings.learning_rate, settings.warmup, settings.steps};
  optimizer_.set_learning_rate(schedule.at(step_ + 1, progress));
  nn::TransformerXL::Memory after = memory_;
  const StepResult result = update(optimizer_, model, settings.clip, step_ + 1, [&] {
    return mean(model.nll(segment.inputs.to(device_), segment.targets.to(device_),
                          settings.memory > 0 ? &after : nullptr));
  });
  memory_ = std::move(after);
  ++step_;
  return result;
}

void LmTraining::save(const std::string& path, double seconds) const {
  check_finite(model, step_, path);
  nn::TrainingState state{.step = step_, .notes = settings_to_notes(settings)};
  state.notes["data"] = fingerprint_;
  state.notes[vocabulary_note] = tokenizer_.to_note();
  // Where the steps are counted the clock is left out, so that equal runs give equal files.
  if (settings.steps == 0) state.notes["seconds"] = as_text(seconds);
  for (size_t i = 0; i < memory_.layers.size(); ++i)
    state.tensors.push_back({"memory." + std::to_string(i), memory_.layers[i]});
  nn::save_checkpoint(path, model, &optimizer_, state);
}

double LmTraining::load(const std::string& path) {
  nn::TrainingState before = nn::load_training_state(path);
  require(before.step >= 0, path + ": malformed, its step is " + as_text(before.step));
  require(before.notes["data"] == fingerprint_,
          path + ": was trained on another text than that of --data (or of --seed without it)");
  double seconds = 0;
  if (settings.steps == 0)
    require(read_text(before.notes["seconds"], seconds) && seconds >= 0 && std::isfinite(seconds),
            path + ": its note \"seconds\" is missing or malformed");
  const nn::TrainingState state = nn::load_checkpoint(path, model, &optimizer_);
  const size_t n = state.tensors.size();
  bool good = n == 0 || n == size_t(settings.layers);
  nn::TransformerXL::Memory memory;
  memory.layers.resize(n);
  for (const nn::NamedTensor& t : state.tensors) {
    int64_t i = -1;
    good = good && t.name.starts_with("memory.") && read_text(t.name.substr(7), i) && i >= 0 &&
           size_t(i) < n && t.tensor.dtype() == f32 && t.tensor.dim() == 3 &&
           t.tensor.size(0) == settings.batch && t.tensor.size(1) <= settings.memory &&
           t.tensor.size(1) == state.tensors[0].tensor.size(1) &&
           t.tensor.size(2) == settings.d_model;
    require(good, path + ": its memory is malformed");
    memory.layers[size_t(i)] = t.tensor.to(device_);
  }
  require(good && (n > 0) == (settings.memory > 0 && state.step > 0),
          path + ": its memory is malformed");
  memory_ = std::move(memory);
  step_ = state.step;
  return seconds;
}

Tokenizer saved_tokenizer(const LmSettings& settings, const nn::Metadata& notes,
                          const std::string& path) {
  const auto note = notes.find(vocabulary_note);
  require(note != notes.end(), path + ": its vocabulary is missing");
  try {
    return Tokenizer::from_note(token_kind(settings.tokens), note->second);
  } catch (const UsageError& e) {
    throw UsageError(path + ": " + e.what());
  }
}

}  // namespace stretto::examples
