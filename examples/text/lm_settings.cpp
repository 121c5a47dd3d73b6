#include "examples/text/lm_settings.h"

#include <algorithm>
#include <map>

#include "examples/common/settings.h"
#include "nn/models/transformer_xl.h"

namespace stretto::examples {

void LmSettings::check() const {
  check_each(*this);
  require(vocabulary != 1, "--vocabulary 1: needs at least 2 words, <eos> and <unk>, or 0 for all");
  require(vocabulary == 0 || tokens == "words", "--vocabulary: only --tokens words has a limit");
  require(vocabulary != 1 && vocabulary != 2,
          "--vocabulary " + as_text(vocabulary) + ": <eos> and <unk> leave no entry for words");
  check_model();
  check_position(positions());
  require(!own_position() || d_model % 2 == 0,
          "--d-model " + as_text(d_model) + ": sinusoids need an even dimension");
  require(!pack || memory == 0, "--pack: documents have no memory; accepted: --memory 0");
  require(!pack || nn::find_kernel(attention).traits().segments,
          "--pack: --attention " + attention + " does not support packed documents");
  require(memory == 0 || nn::find_kernel(attention).traits().memory,
          "--memory " + as_text(memory) + ": --attention " + attention +
              " has short convolutions and does not support a memory; must be 0");
  require(memory == 0 || has_memory(),
          "--memory " + as_text(memory) + ": --position " + position +
              " counts from the start of each segment and does not support a memory");
  const std::vector<int64_t> cuts = read_list("--cutoffs", cutoffs);
  for (size_t i = 0; i < cuts.size(); ++i)
    require(cuts[i] > (i == 0 ? 0 : cuts[i - 1]), "--cutoffs " + cutoffs + ": must rise from 1");
  require(div == 1 || !cuts.empty(), "--div " + as_text(div) + ": needs --cutoffs");
  int64_t width = d_model;
  for (size_t i = 0; i < cuts.size(); ++i) width /= div;
  require(width >= 1, "--div " + as_text(div) + ": reduces the dimension of the last of " +
                          as_text(int64_t(cuts.size()) + 1) + " clusters to 0");
}

nn::LanguageModel::Options LmSettings::model(int64_t n_tokens) const {
  const std::vector<int64_t> cuts = read_list("--cutoffs", cutoffs);
  require(cuts.empty() || cuts.back() < n_tokens, "--cutoffs " + cutoffs +
                                                      ": must be below the vocabulary, which has " +
                                                      as_text(n_tokens) + " tokens");
  nn::LanguageModel::Options o = nn::transformer_xl(n_tokens);
  o.n_layers = layers;
  o.layer = layer();
  o.memory.length = memory;
  o.tied_biases = !untied_biases;
  o.adaptive->cutoffs = cuts;
  o.adaptive->div = div;
  if (!own_position()) nn::add_position(position, positions(), o.layer, o.input);
  if (div > 1) {  // as in the authors' WikiText-103: tied for the clusters, not for the shortlist
    o.tied_projections.assign(cuts.size() + 1, true);
    o.tied_projections[0] = false;
  }
  return o;
}

nn::PositionSettings LmSettings::positions() const {
  nn::PositionSettings p = position_settings(length + memory);
  p.layout = nn::Sinusoid::concatenated;
  return p;
}

bool LmSettings::has_memory() const { return nn::position_traits(position, positions()).memory; }

bool LmSettings::counts_tokens() const {
  return memory > 0 && !nn::position_traits(position, positions()).relative;
}

double LmSettings::least_memory(int64_t n_tokens) const {
  // With clusters the number of logits depends on the tokens, so they are not counted.
  const double shown = cutoffs.empty() ? double(n_tokens) : 0;
  return least_memory_of<nn::LanguageModel>(model(n_tokens), double(batch) * double(length), shown);
}

namespace {

// A training script of Transformer-XL's authors: Adam with linear warm-up to a learning
// rate of 2.5e-4 and cosine decay to 0, gradients clipped to a norm of 0.25. Segments are
// as long as the memory.
struct Script {
  nn::LanguageModel::Options (*model)();
  std::string tokens;
  int64_t batch;
  int64_t warmup;
  int64_t steps;
  int64_t eval_length, eval_memory, eval_clamp;
};

const std::map<std::string, Script>& scripts() {
  static const std::map<std::string, Script> all{
      {"enwik8-12l", {nn::enwik8_12l, "bytes", 22, 0, 400'000, 80, 2100, 820}},
      {"enwik8-24l", {nn::enwik8_24l, "bytes", 64, 4000, 400'000, 128, 3800, 1000}},
      {"text8-12l", {nn::text8_12l, "bytes", 22, 0, 400'000, 80, 2100, 820}},
      {"text8-24l", {nn::text8_24l, "bytes", 64, 4000, 400'000, 128, 3800, 1000}},
      {"wt103-base", {nn::wt103_base, "words", 60, 0, 200'000, 64, 640, 400}},
      {"wt103-large", {nn::wt103_large, "words", 128, 16'000, 4'000'000, 128, 1600, 1000}},
      {"lm1b-base", {nn::lm1b_base, "words", 224, 20'000, 500'000, 32, 128, 0}},
      {"lm1b-large", {nn::lm1b_large, "words", 512, 30'000, 1'200'000, 32, 128, 0}}};
  return all;
}

LmPreset from_script(const Script& script) {
  const nn::LanguageModel::Options model = script.model();
  LmSettings s;
  s.tokens = script.tokens;
  s.layers = model.n_layers;
  s.d_model = model.layer.d_model;
  s.heads = model.layer.attention.n_heads;
  s.d_head = model.layer.attention.d_key;
  s.d_hidden = model.layer.feed_forward.d_hidden;
  s.dropout = model.layer.dropout;
  s.attention_dropout = model.layer.attention.dropout;
  for (int64_t c : model.adaptive->cutoffs)
    s.cutoffs += (s.cutoffs.empty() ? "" : ",") + as_text(c);
  s.div = model.adaptive->div;
  s.length = s.memory = model.memory.length;
  s.batch = script.batch;
  s.learning_rate = 2.5e-4;
  s.warmup = script.warmup;
  s.max_grad_norm = 0.25;
  s.steps = script.steps;
  LmPreset preset{.settings = settings_to_metadata(s),
                  .n_tokens = model.vocabulary,
                  .eval_length = script.eval_length,
                  .eval_memory = script.eval_memory,
                  .eval_clamp = script.eval_clamp,
                  .eval_same_length = true};
  // Settings that a preset leaves to the user: the choice of data, and settings under comparison.
  for (const char* name :
       {"vocabulary", "held_out", "out_of_range", "max_distance", "seed", "untied_biases"})
    preset.settings.erase(name);
  return preset;
}

}  // namespace

LmPreset lm_preset(const std::string& name) {
  if (const auto script = scripts().find(name); script != scripts().end())
    return from_script(script->second);
  if (name == "nano")
    return {.settings = {{"layers", "2"},
                         {"d_model", "64"},
                         {"heads", "2"},
                         {"d_hidden", "256"},
                         {"length", "64"},
                         {"batch", "16"}}};
  std::string accepted;
  for (const auto& script : scripts()) accepted += script.first + ", ";
  require(name == "small",
          "--preset " + name + ": accepted values are " + accepted + "nano and small");
  return {.settings = {{"layers", "6"},
                       {"d_model", "128"},
                       {"heads", "4"},
                       {"d_hidden", "512"},
                       {"length", "128"},
                       {"batch", "16"}}};
}

}  // namespace stretto::examples
