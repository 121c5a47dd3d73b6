#include "tests/faults/training.h"

#include "autograd/tape.h"
#include "nn/positions/relative_table.h"
#include "ops/create.h"
#include "ops/loss.h"
#include "ops/view.h"

namespace stretto::testing {
namespace {

constexpr int64_t vocabulary = 11;

nn::LanguageModel::Options model_options(bool wide) {
  return {.vocabulary = vocabulary,
          .n_layers = 1,
          .layer = {.d_model = wide ? 64 : 8,
                    .attention = {.n_heads = 2,
                                  .bias = false,
                                  .dropout = 0.1,
                                  .position = nn::music_relative({.max_length = 6})},
                    .feed_forward = {.d_hidden = wide ? 128 : 16},
                    .dropout = 0.1}};
}

Tensor some_tokens(bool wide, int64_t first) {
  const int64_t batch = wide ? 8 : 2, length = wide ? 64 : 6;
  std::vector<int64_t> values;
  for (int64_t i = 0; i < batch * length; ++i) values.push_back((first + i * i) % vocabulary);
  return tensor(values, {batch, length});
}

}  // namespace

TinyTraining::TinyTraining(bool wide)
    : model(model_options(wide)),
      optimizer(model.parameters(), {.lr = 0.01}),
      tokens(some_tokens(wide, 0)),
      targets(some_tokens(wide, 1)) {}

void TinyTraining::step() {
  optimizer.zero_grad();
  const Tensor logits = model(tokens);
  cross_entropy(logits.reshape({-1, vocabulary}), targets.reshape({-1})).backward();
  nn::clip_grad_norm(model.parameters(), 1);
  optimizer.step();
}

void TinyTraining::save(const std::string& path) const {
  nn::save_checkpoint(path, model, &optimizer, {.step = 1, .metadata = {{"note", "text"}}});
}

void TinyTraining::load(const std::string& path) { nn::load_checkpoint(path, model, &optimizer); }

Snapshot::Snapshot(const TinyTraining& training)
    : optimizer_(training.optimizer.state()), random_(random_state()) {
  for (const Tensor& p : training.model.parameters()) weights_.push_back(p.detach().clone());
  for (nn::ParameterState& state : optimizer_)
    for (nn::NamedTensor& n : state.tensors) n.tensor = n.tensor.clone();
}

void Snapshot::restore(TinyTraining& training) const {
  NoGrad guard;
  Tensors parameters = training.model.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(weights_[i]);
  training.optimizer.load_state(optimizer_);
  training.optimizer.zero_grad();
  set_random_state(random_);
}

std::vector<std::vector<float>> Snapshot::values() const {
  std::vector<std::vector<float>> all;
  for (const Tensor& w : weights_) all.push_back(w.to_vector<float>());
  for (const nn::ParameterState& state : optimizer_) {
    all.push_back({float(state.steps)});
    for (const nn::NamedTensor& n : state.tensors) all.push_back(n.tensor.to_vector<float>());
  }
  return all;
}

bool Snapshot::operator==(const Snapshot& other) const {
  return values() == other.values() && random_.seed == other.random_.seed &&
         random_.next_stream == other.random_.next_stream;
}

}  // namespace stretto::testing
