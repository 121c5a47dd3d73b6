#include "examples/text/lm_settings.h"

#include <algorithm>

#include "examples/common/settings.h"
#include "nn/models/transformer_xl_presets.h"

namespace stretto::examples {

void LmSettings::check() const {
  token_kind(tokens);
  require_name("--position", position, lm_positions());
  require(beyond == "zero" || beyond == "clip",
          "--beyond " + beyond + ": accepted are zero and clip");
  require(norm == "post" || norm == "pre", "--norm " + norm + ": accepted are post and pre");
  require_range("--vocabulary", vocabulary, 0, 1 << 30);
  require(vocabulary == 0 || tokens == "words", "--vocabulary: only --tokens words has a limit");
  require(vocabulary != 1 && vocabulary != 2,
          "--vocabulary " + as_text(vocabulary) + ": <eos> and <unk> leave no room for words");
  require_number("--held-out", held_out, held_out > 0 && held_out < 1, "above 0 and below 1");
  check_model(false);
  require_range("--d-head", d_head, 0, 65536);
  require_range("--div", div, 1, 1024);
  require_range("--length", length, 1, 1 << 20);
  require_range("--memory", memory, 0, 1 << 20);
  require_range("--reach", reach, 0, 1 << 20);
  require(d_head > 0 || d_model % heads == 0, "--d-model " + as_text(d_model) +
                                                  " is not a multiple of --heads " +
                                                  as_text(heads) + "; give --d-head");
  require((position != "xl" && position != "sinusoid") || d_model % 2 == 0,
          "--d-model " + as_text(d_model) + ": sinusoids need an even number");
  const int64_t head = d_head > 0 ? d_head : d_model / heads;
  require((position != "rope" && position != "xpos") || head % 2 == 0,
          "--position " + position + ": turns pairs, and a head has " + as_text(head) +
              " numbers; give an even --d-head");
  require(memory == 0 || position != "music-local",
          "--memory " + as_text(memory) + ": blocks of music-local do not reach into a memory");
  require(memory == 0 || position != "sinusoid",
          "--memory " + as_text(memory) +
              ": sinusoid counts from the start of each segment, which a memory breaks; choose "
              "another --position");
  require_share("--attention-dropout", attention_dropout);
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
                               .d_model = d_model,
                               .n_layers = layers,
                               .n_heads = heads,
                               .d_head = d_head > 0 ? d_head : d_model / heads,
                               .d_hidden = d_hidden,
                               .dropout = dropout,
                               .attention_dropout = attention_dropout,
                               .norm = norm == "pre" ? nn::NormPlace::pre : nn::NormPlace::post,
                               .lengths = {.memory = memory},
                               .tied_biases = !untied_biases,
                               .cutoffs = cuts,
                               .div = div,
                               .position = lm_position(*this)};
  if (position == "sinusoid") o.sinusoid = nn::Sinusoid::concatenated;
  if (div > 1) {  // as the authors' WikiText-103: the clusters' own, the shortlist's not
    o.tied_projections.assign(cuts.size() + 1, true);
    o.tied_projections[0] = false;
  }
  return o;
}

int64_t parameter_count(const nn::TransformerXL::Options& o) {
  const int64_t d = o.d_model, n = o.n_heads * o.d_head, f = o.d_hidden;
  int64_t layer = 4 * d * n + 4 * d + 2 * d * f + f + d;  // projections, norms, feed-forward
  int64_t all = 0;
  if (!o.position && !o.sinusoid) {
    layer += d * n;  // r
    all += 2 * n * (o.tied_biases ? 1 : o.n_layers);
  }
  all += o.n_layers * layer;
  if (o.position) {
    nn::Module positions;
    std::vector<std::unique_ptr<nn::Module>> made;
    for (int64_t i = 0; i < o.n_layers; ++i) {
      made.push_back(std::make_unique<nn::Module>(positions, std::to_string(i)));
      nn::Module& parent = *made.back();
      made.push_back(o.position(parent, {o.n_heads, o.d_head, o.d_head, d}));
    }
    all += positions.parameter_count();
    while (!made.empty()) made.pop_back();  // children before their parents
  }

  nn::AdaptiveOptions v{.vocabulary = o.vocabulary,
                        .d_model = d,
                        .d_embedding = o.d_embedding > 0 ? o.d_embedding : d,
                        .cutoffs = o.cutoffs,
                        .div = o.div};
  for (int64_t i = 0; i < v.n_clusters(); ++i)
    all += (v.last(i) - v.first(i)) * v.width(i) * (o.tied ? 1 : 2);
  all += o.vocabulary + (v.n_clusters() - 1) * (v.width(0) + 1);
  if (v.projected()) {
    for (int64_t i = 0; i < v.n_tables(); ++i) all += d * v.width(i);
    for (int64_t i = 0; i < v.n_clusters(); ++i)
      if (size_t(i) >= o.tied_projections.size() || !o.tied_projections[size_t(i)])
        all += d * v.width(i);
  }
  return all;
}

double LmSettings::least_memory(int64_t n_tokens) const {
  const double rows = double(batch) * double(length), d = double(d_model);
  const double shown = cutoffs.empty() ? double(n_tokens) : 0;  // logits of the shortlist differ
  const double activations = rows * (double(layers) * (6 * d + double(d_hidden)) + shown);
  return sizeof(float) * (4 * double(parameter_count(model(n_tokens))) + activations);
}

namespace {

LmPreset from_paper(const nn::TransformerXLPreset& p, const std::string& tokens) {
  LmSettings s;
  s.tokens = tokens;
  s.layers = p.model.n_layers;
  s.d_model = p.model.d_model;
  s.heads = p.model.n_heads;
  s.d_head = p.model.d_head;
  s.d_hidden = p.model.d_hidden;
  s.dropout = p.model.dropout;
  s.attention_dropout = p.model.attention_dropout;
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
