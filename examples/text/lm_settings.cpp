#include "examples/text/lm_settings.h"

#include <algorithm>

#include "examples/common/settings.h"
#include "nn/models/transformer_xl_presets.h"

namespace stretto::examples {

void LmSettings::check() const {
  check_each(*this);
  require(vocabulary != 1, "--vocabulary 1: needs at least 2 words, <eos> and <unk>, or 0 for all");
  require(vocabulary == 0 || tokens == "words", "--vocabulary: only --tokens words has a limit");
  require(vocabulary != 1 && vocabulary != 2,
          "--vocabulary " + as_text(vocabulary) + ": <eos> and <unk> leave no room for words");
  check_model();
  check_position(positions());
  require(!own_position() || d_model % 2 == 0,
          "--d-model " + as_text(d_model) + ": sinusoids need an even number");
  require(memory == 0 || has_memory(),
          "--memory " + as_text(memory) + ": --position " + position +
              " counts from the start of each segment, which a memory breaks; choose another");
  const std::vector<int64_t> cuts = read_list("--cutoffs", cutoffs);
  for (size_t i = 0; i < cuts.size(); ++i)
    require(cuts[i] > (i == 0 ? 0 : cuts[i - 1]), "--cutoffs " + cutoffs + ": must rise from 1");
  require(div == 1 || !cuts.empty(), "--div " + as_text(div) + ": needs --cutoffs to narrow by");
  int64_t width = d_model;
  for (size_t i = 0; i < cuts.size(); ++i) width /= div;
  require(width >= 1, "--div " + as_text(div) + ": leaves the last of " +
                          as_text(int64_t(cuts.size()) + 1) + " clusters no width");
}

nn::TransformerXL::Options LmSettings::model(int64_t n_tokens) const {
  const std::vector<int64_t> cuts = read_list("--cutoffs", cutoffs);
  require(cuts.empty() || cuts.back() < n_tokens, "--cutoffs " + cutoffs +
                                                      ": must be below the vocabulary, which has " +
                                                      as_text(n_tokens) + " tokens");
  nn::TransformerXL::Options o{.vocabulary = n_tokens,
                               .n_layers = layers,
                               .layer = layer(),
                               .lengths = {.memory = memory},
                               .tied_biases = !untied_biases,
                               .cutoffs = cuts,
                               .div = div};
  if (!own_position()) nn::add_position(position, positions(), o.layer, o.input);
  if (div > 1) {  // as the authors' WikiText-103: the clusters' own, the shortlist's not
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

bool LmSettings::has_memory() const {
  for (const nn::PositionEntry& p : nn::positions())
    if (has_position(p.name) && !p.memory) return false;
  return true;
}

bool LmSettings::counts_tokens() const {
  for (const nn::PositionEntry& p : nn::positions())
    if (has_position(p.name) && p.counted) return true;
  return false;
}

double LmSettings::least_memory(int64_t n_tokens) const {
  const double shown = cutoffs.empty() ? double(n_tokens) : 0;  // logits of the shortlist differ
  return least_memory_of<nn::TransformerXL>(model(n_tokens), double(batch) * double(length), shown);
}

namespace {

LmPreset from_paper(const nn::TransformerXLPreset& p, const std::string& tokens) {
  LmSettings s;
  s.tokens = tokens;
  s.layers = p.model.n_layers;
  s.d_model = p.model.layer.d_model;
  s.heads = p.model.layer.attention.n_heads;
  s.d_head = p.model.layer.attention.d_key;
  s.d_hidden = p.model.layer.feed_forward.d_hidden;
  s.dropout = p.model.layer.dropout;
  s.attention_dropout = p.model.layer.attention.dropout;
  for (int64_t c : p.model.cutoffs) s.cutoffs += (s.cutoffs.empty() ? "" : ",") + as_text(c);
  s.div = p.model.div;
  s.length = p.segment;
  s.memory = p.model.lengths.memory;
  s.batch = p.batch;
  s.learning_rate = p.learning_rate;
  s.warmup = p.warmup;
  s.clip = p.clip_norm;
  s.steps = p.steps;
  LmPreset preset{.settings = settings_to_notes(s),
                  .n_tokens = p.model.vocabulary,
                  .eval_length = p.evaluation_segment,
                  .eval_memory = p.evaluation.memory,
                  .eval_clamp = p.evaluation.clamp,
                  .eval_same_length = true};
  // Those a preset leaves to the user: the choice of data, and what a comparison is about.
  for (const char* name : {"vocabulary", "held_out", "beyond", "reach", "seed", "untied_biases"})
    preset.settings.erase(name);
  return preset;
}

}  // namespace

LmPreset lm_preset(const std::string& name) {
  if (name == "enwik8-12l") return from_paper(nn::enwik8_12l(), "bytes");
  if (name == "enwik8-24l") return from_paper(nn::enwik8_24l(), "bytes");
  if (name == "text8-12l") return from_paper(nn::text8_12l(), "bytes");
  if (name == "wt103-base") return from_paper(nn::wt103_base(), "words");
  if (name == "nano")
    return {.settings = {{"layers", "2"},
                         {"d_model", "64"},
                         {"heads", "2"},
                         {"d_hidden", "256"},
                         {"length", "64"},
                         {"batch", "16"}}};
  require(name == "small",
          "--preset " + name +
              ": accepted are enwik8-12l, enwik8-24l, text8-12l, wt103-base, nano and small");
  return {.settings = {{"layers", "6"},
                       {"d_model", "128"},
                       {"heads", "4"},
                       {"d_hidden", "512"},
                       {"length", "128"},
                       {"batch", "16"}}};
}

}  // namespace stretto::examples
