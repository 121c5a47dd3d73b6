#include "examples/training/model_settings.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

namespace stretto::examples {
namespace {

const std::map<std::string, nn::Activation>& activations() {
  static const std::map<std::string, nn::Activation> all{{"gelu", nn::Activation::gelu},
                                                         {"gelu_tanh", nn::Activation::gelu_tanh},
                                                         {"relu", nn::Activation::relu},
                                                         {"silu", nn::Activation::silu}};
  return all;
}

}  // namespace

void ModelSettings::check_model() const {
  require_range("--layers", layers, 1, 1000);
  require_range("--d-model", d_model, 1, 65536);
  require_range("--heads", heads, 1, 65536);
  require_range("--d-head", d_head, 0, 65536);
  require_range("--key-heads", key_heads, 0, heads);
  require_range("--d-hidden", d_hidden, 1, 1 << 20);
  require_range("--batch", batch, 1, 1 << 20);
  require_range("--warmup", warmup, 0, INT64_MAX);
  require_range("--steps", steps, 0, INT64_MAX);
  require(d_head > 0 || d_model % heads == 0, "--d-model " + as_text(d_model) +
                                                  " is not a multiple of --heads " +
                                                  as_text(heads) + "; give --d-head");
  require(key_heads == 0 || heads % key_heads == 0,
          "--heads " + as_text(heads) + " is not a multiple of --key-heads " + as_text(key_heads));
  find_name(activations(), "--activation", activation);
  require_name("--norm", norm, {"post", "pre"});
  require_name("--dtype", dtype, {"bf16", "f32"});
  require_name("--beyond", beyond, {"clip", "zero"});
  require_share("--dropout", dropout);
  require_share("--attention-dropout", attention_dropout);
  require_positive("--learning-rate", learning_rate);
  require_number("--clip", clip, clip > 0, "above 0");
  require_name("--attention", attention, nn::kernel_names());
  require(attention_dropout == 0 || nn::find_kernel(attention).scores,
          "--attention-dropout " + as_text(attention_dropout) + ": --attention " + attention +
              " has no weights to drop; accepted is 0");
  require_range("--features", features, 2, 65536);
  require(features % 2 == 0 || attention != "performer-hyperbolic",
          "--features " + as_text(features) + ": hyperbolic ones come in pairs");
  require_range("--redraw", redraw, 0, INT64_MAX);
  require_range("--reach", reach, 0, 1 << 20);
  require_range("--realizations", realizations, 1, 65536);
  require_range("--sines", sines, 1, 65536);
  require_range("--taps", taps, 1, 1 << 20);
}

void ModelSettings::check_position(const nn::PositionSettings& p) const {
  std::string why;
  try {
    why = nn::refusal(position, attention, p, layer());
  } catch (const Error& e) {
    throw UsageError("--position " + plain(e));
  }
  require(why.empty(), "--position " + why);
  require_room(p, p.length,
               "--reach " + as_text(p.reach) + " for sequences of " + as_text(p.length));
  require(!has_position("sinusoid") || p.layout != nn::Sinusoid::concatenated || d_model % 2 == 0,
          "--d-model " + as_text(d_model) + ": sinusoids need an even number");
}

int64_t ModelSettings::room(const nn::PositionSettings& p) const {
  const int64_t rows = p.longest > 0 ? p.longest : p.length;
  int64_t most = INT64_MAX;
  if (has_position("learned")) most = rows;
  if (has_position("bert")) most = std::min(most, p.reach > 0 ? p.reach : rows);
  return most;
}

void ModelSettings::require_room(const nn::PositionSettings& p, int64_t positions,
                                 const std::string& given) const {
  require(positions <= room(p),
          given + ": --position " + position + " has room for " + as_text(room(p)) + " positions");
}

int64_t ModelSettings::cache_limit(const nn::PositionSettings& p, int64_t context) const {
  if (!nn::find_kernel(attention).scores) return 0;
  if (!has_position("bert")) return context;
  const int64_t most = room(p) - 1;  // positions before the new one
  return context > 0 ? std::min(context, most) : most;
}

bool ModelSettings::has_position(const std::string& name) const {
  return position == name || position.starts_with(name + "+") || position.ends_with("+" + name);
}

nn::LayerOptions ModelSettings::layer() const {
  return {.d_model = d_model,
          .attention = {.n_heads = heads,
                        .n_key_heads = key_heads,
                        .d_key = d_head,
                        .d_value = d_head,
                        .bias = false,
                        .dropout = attention_dropout,
                        .kernel = nn::find_kernel(attention).make(
                            {.features = features, .redraw = redraw})},
          .feed_forward = {.d_hidden = d_hidden,
                           .activation = find_name(activations(), "--activation", activation),
                           .gated = gated},
          .norm = norm == "post" ? nn::NormPlace::post : nn::NormPlace::pre,
          .dropout = dropout,
          .norm_kind = rms_norm ? nn::NormKind::rms : nn::NormKind::layer};
}

nn::PositionSettings ModelSettings::position_settings(int64_t length) const {
  return {.length = length,
          .reach = reach,
          .beyond = beyond == "clip" ? Beyond::clip : Beyond::zero,
          .realizations = realizations,
          .sines = sines,
          .taps = taps};
}

void describe_model(CLI::App& app, ModelSettings& s,
                    const std::vector<nn::PositionSettings>& attentions) {
  std::vector<std::string> positions = nn::position_names();
  std::erase_if(positions, [&](const std::string& name) {
    return std::any_of(attentions.begin(), attentions.end(), [&](const nn::PositionSettings& p) {
      return !nn::refusal(name, "softmax", p, s.layer()).empty();
    });
  });
  app.add_option("--attention", s.attention, joined(nn::kernel_names()));
  app.add_option("--position", s.position,
                 joined(positions) +
                     "; or A+B, A (sinusoid or learned) added to the input and B in the attention");
  app.add_option("--features", s.features, "performer: random features");
  app.add_option("--redraw", s.redraw, "performer: draw them again after so many steps (0: never)");
  app.add_option("--reach", s.reach,
                 "music, shaw, fire, bert, deberta: lags told apart; the block of music-local (0: "
                 "follows)");
  app.add_option("--beyond", s.beyond, "music: lags without a row count zero or clip to the last");
  app.add_option("--realizations", s.realizations,
                 "sine and conv: draws, the width of their heads");
  app.add_option("--sines", s.sines, "sine: sines of each template");
  app.add_option("--taps", s.taps, "conv: taps of each filter, how far it reaches");
  app.add_option("--layers", s.layers, "Layers");
  app.add_option("--d-model", s.d_model, "Width of the model");
  app.add_option("--heads", s.heads, "Attention heads");
  app.add_option("--d-head", s.d_head, "Width of a head (0: d-model / heads)");
  app.add_option("--key-heads", s.key_heads, "Heads of keys and values, shared (0: --heads)");
  app.add_option("--d-hidden", s.d_hidden, "Width of the feed-forward networks");
  app.add_option("--activation", s.activation, joined(names_of(activations())));
  app.add_flag("--gated", s.gated, "Gated feed-forward networks (GLU)");
  app.add_option("--norm", s.norm, "pre or post: before or after each branch");
  app.add_flag("--rms-norm", s.rms_norm, "RMSNorm instead of LayerNorm");
  app.add_option("--dropout", s.dropout, "Dropout on embeddings and residual branches");
  app.add_option("--attention-dropout", s.attention_dropout, "Dropout on attention weights");
  app.add_option("--dtype", s.dtype, "f32 or bf16: of the weights and all between them");
  app.add_option("--batch", s.batch, "Sequences of a step");
  app.add_option("--learning-rate", s.learning_rate, "Highest learning rate of the optimiser");
  app.add_option("--warmup", s.warmup, "Steps of linear warm-up");
  app.add_option("--clip", s.clip, "Largest norm of a step's gradient");
}

}  // namespace stretto::examples
