#include "examples/text/lm_training.h"

#include <algorithm>

#include "core/digest.h"
#include "examples/common/settings.h"
#include "nn/distributed/part_sums.h"
#include "ops/indexing.h"
#include "ops/reduce.h"

namespace stretto::examples {
namespace {

constexpr const char* vocabulary_note = "vocabulary.tokens";
constexpr const char* first_note = "memory.first";  // TransformerXL::Memory::first

// By a thread where one can be had: of a large text it takes a while, and training need not wait.
std::shared_future<std::string> fingerprint(const nn::TokenStream& tokens) {
  return std::async([tokens] {
    Digest print;
    tokens.each([&](int64_t token) { print.add(token); });
    return print.text();
  });
}

const nn::TokenStream& enough(const nn::TokenStream& tokens, const LmSettings& s,
                              const std::string& data) {
  const int64_t needed = s.batch * (s.length + 1);
  require(tokens.size() >= needed, data + ": " + as_text(tokens.size()) +
                                       " tokens to learn from are too few; " + as_text(needed) +
                                       " are one segment of --length " + as_text(s.length) +
                                       " for each row of --batch " + as_text(s.batch));
  return tokens;
}

}  // namespace

LmTraining::LmTraining(const LmSettings& s, nn::Tokenizer tokenizer, nn::TokenStream train,
                       Device device, const std::string& data)
    : ModelTraining(s, s.model(tokenizer.size()), {.lr = s.learning_rate},
                    {fingerprint(enough(train, s, data)),
                     "text than that of --data (or of --seed without it)"},
                    device, cosine_of(s), s.batch * s.length),
      tokenizer_(std::move(tokenizer)),
      segments_(std::move(train), s.batch, s.length) {
  trainer.options.after_step = [this](const nn::StepResult&) {
    for (Remembered& part : parts_) {
      if (part.after) part.memory = std::move(*part.after);
      part.after.reset();
    }
    if (trainer.options.cuda_graph && remembered().memory.length() == settings.memory &&
        !settings.counts_tokens())
      keep_in_place();
  };
  trainer.options.step_kind = [this](int64_t step) { return goes_on(step) ? 0 : -1; };
}

LmTraining::Remembered& LmTraining::remembered() {
  parts_.resize(size_t(trainer.part_count()));
  return parts_[size_t(std::max<int64_t>(0, trainer.part() - trainer.first_part()))];
}

bool LmTraining::goes_on(int64_t step) {
  return !segments_.starts_epoch(step) && remembered().memory.length() == settings.memory &&
         !settings.counts_tokens();
}

void LmTraining::keep_in_place() {
  nn::TransformerXL::Memory& memory = remembered().memory;
  if (place_.empty()) {
    for (const Tensor& m : memory.layers) place_.push_back(m.clone());
  } else {
    for (size_t i = 0; i < place_.size(); ++i)
      if (!place_[i].same(memory.layers[i])) place_[i].copy_(memory.layers[i]);
  }
  memory.layers = place_;
}

Tensor LmTraining::loss(int64_t step) {
  const auto [inputs, targets] =
      trainer.fed_batch(step, [this](int64_t i) { return segments_(i); });
  if (settings.memory == 0)
    return mean(model.nll(inputs, targets, nullptr, trainer.sequence_group()));
  if (trainer.options.cuda_graph && goes_on(step)) {
    // A replay reads and writes one memory, of which backward gets a copy.
    keep_in_place();
    nn::TransformerXL::Memory memory;
    for (const Tensor& m : remembered().memory.layers) memory.layers.push_back(m.clone());
    Tensor loss = mean(model.nll(inputs, targets, &memory));
    for (size_t i = 0; i < place_.size(); ++i) place_[i].copy_(memory.layers[i]);
    return loss;
  }
  Remembered& own = remembered();
  own.after = segments_.starts_epoch(step) ? nn::TransformerXL::Memory() : own.memory;
  return mean(model.nll(inputs, targets, &*own.after));
}

void LmTraining::keep(nn::TrainingState& state) const {
  state.notes[vocabulary_note] = tokenizer_.to_note();
  if (parts_.empty()) return;
  if (settings.counts_tokens()) state.notes[first_note] = as_text(parts_[0].memory.first);
  for (size_t i = 0; i < parts_[0].memory.layers.size(); ++i) {
    Tensors rows;
    for (const Remembered& part : parts_) rows.push_back(part.memory.layers[i]);
    state.tensors.push_back({"memory." + std::to_string(i), nn::gather_rows(cat(rows, 0))});
  }
}

void LmTraining::take(const nn::TrainingState& state, const std::string& path) {
  const std::vector<nn::NamedTensor>& tensors = state.tensors;
  const size_t n = tensors.size();
  bool good = n == 0 || n == size_t(settings.layers);
  nn::TransformerXL::Memory memory;
  memory.layers.resize(n);
  for (const nn::NamedTensor& t : tensors) {
    int64_t i = -1;
    good = good && t.name.starts_with("memory.") && read_text(t.name.substr(7), i) && i >= 0 &&
           size_t(i) < n && t.tensor.dtype() == settings.weights() && t.tensor.dim() == 3 &&
           t.tensor.size(0) == settings.batch && t.tensor.size(1) <= settings.memory &&
           t.tensor.size(1) == tensors[0].tensor.size(1) && t.tensor.size(2) == settings.d_model;
    require(good, path + ": its memory is malformed");
    memory.layers[size_t(i)] = t.tensor.to(model.device());
  }
  require(good && (n > 0) == (settings.memory > 0 && state.step > 0),
          path + ": its memory is malformed");
  if (const auto first = state.notes.find(first_note); first != state.notes.end())
    require(read_text(first->second, memory.first) && memory.first >= 0,
            path + ": its memory is malformed");
  parts_.assign(size_t(trainer.part_count()), {});
  const int64_t size = settings.batch / trainer.parts();
  for (size_t part = 0; part < parts_.size(); ++part) {
    parts_[part].memory.first = memory.first;
    for (const Tensor& m : memory.layers) {
      const int64_t begin = (trainer.first_part() + int64_t(part)) * size;
      parts_[part].memory.layers.push_back(m.slice(0, begin, begin + size).contiguous());
    }
  }
}

nn::Tokenizer saved_tokenizer(const LmSettings& settings, const nn::Metadata& notes,
                              const std::string& path) {
  const auto note = notes.find(vocabulary_note);
  require(note != notes.end(), path + ": its vocabulary is missing");
  try {
    return nn::Tokenizer::from_note(token_kind(settings.tokens), note->second);
  } catch (const Error& e) {
    throw UsageError(path + ": " + plain(e));
  }
}

}  // namespace stretto::examples
