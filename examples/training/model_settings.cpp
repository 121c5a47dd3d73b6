#include "examples/training/model_settings.h"

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

std::vector<std::string> activation_names() { return names_of(activations()); }

void ModelSettings::check_model() const {
  require(d_head > 0 || d_model % heads == 0, "--d-model " + as_text(d_model) +
                                                  " is not a multiple of --heads " +
                                                  as_text(heads) + "; set --d-head");
  require(kv_heads == 0 || heads % kv_heads == 0,
          "--heads " + as_text(heads) + " is not a multiple of --kv-heads " + as_text(kv_heads));
  require(attention_dropout == 0 || !nn::find_kernel(attention).traits().recurrent,
          "--attention-dropout " + as_text(attention_dropout) + ": --attention " + attention +
              " has no attention weights; must be 0");
  require(features % 2 == 0 || attention != "performer-hyperbolic",
          "--features " + as_text(features) + ": hyperbolic features come in pairs");
}

void ModelSettings::check_position(const nn::PositionSettings& p) const {
  std::string why;
  try {
    why = nn::refusal(position, attention, p, layer());
  } catch (const Error& e) {
    throw UsageError("--position " + plain(e));
  }
  require(why.empty(), "--position " + why);
  require_room(
      p, p.length,
      "--max-distance " + as_text(p.max_distance) + " for sequences of " + as_text(p.length));
  require(!has_position("sinusoid") || p.layout != nn::Sinusoid::concatenated || d_model % 2 == 0,
          "--d-model " + as_text(d_model) + ": sinusoids need an even dimension");
}

int64_t ModelSettings::room(const nn::PositionSettings& p) const {
  return nn::position_traits(position, p).max_positions;
}

void ModelSettings::require_room(const nn::PositionSettings& p, int64_t positions,
                                 const std::string& given) const {
  require(positions <= room(p),
          given + ": --position " + position + " is limited to " + as_text(room(p)) + " positions");
}

int64_t ModelSettings::cache_limit(const nn::PositionSettings& p, int64_t context) const {
  if (nn::find_kernel(attention).traits().recurrent) return 0;
  const nn::PositionTraits traits = nn::position_traits(position, p);
  if (!traits.relative || traits.max_positions == INT64_MAX) return context;
  const int64_t most = traits.max_positions - 1;  // positions before the new one
  return context > 0 ? std::min(context, most) : most;
}

bool ModelSettings::has_position(const std::string& name) const {
  return position == name || position.starts_with(name + "+") || position.ends_with("+" + name);
}

nn::LayerOptions ModelSettings::layer() const {
  return {.d_model = d_model,
          .attention = {.n_heads = heads,
                        .n_kv_heads = kv_heads,
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
          .max_distance = max_distance,
          .out_of_range = out_of_range == "clip" ? OutOfRange::clip : OutOfRange::zero,
          .realizations = realizations,
          .sines = sines,
          .taps = taps};
}

void describe_position(OptionList& options, const ModelSettings& s,
                       const std::vector<nn::PositionSettings>& attentions,
                       const std::string& more) {
  std::vector<std::string> positions = nn::position_names();
  std::erase_if(positions, [&](const std::string& name) {
    return std::any_of(attentions.begin(), attentions.end(), [&](const nn::PositionSettings& p) {
      return !nn::refusal(name, "softmax", p, s.layer()).empty();
    });
  });
  options.describe("position", "Positional encoding: " + joined(positions) +
                                   "; or A+B: A (sinusoid or learned) is added to the input, B is "
                                   "part of attention. Recommended: xl with softmax, rope with "
                                   "linear kernels" +
                                   more);
}

}  // namespace stretto::examples
