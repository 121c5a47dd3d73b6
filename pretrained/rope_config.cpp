#include "pretrained/rope_config.h"

#include <cstring>

#include "core/one_line.h"

namespace stretto::nn::pretrained {
namespace {

// Returns the object with the parameters of RoPE: "rope_parameters" of transformers 5 or
// "rope_scaling" of transformers 4.
std::optional<JsonReader> rope_object(JsonReader& c) {
  const std::string parameters = files::json_text(c.value("rope_parameters")),
                    scaling = files::json_text(c.value("rope_scaling"));
  const auto is_set = [](const std::string& text) { return text != "null" && text != "{}"; };
  if (is_set(parameters) && is_set(scaling) && parameters != scaling)
    c.refuse(
        str("\"rope_parameters\" and \"rope_scaling\" differ; write all parameters of RoPE into ",
            "one of them"));
  return c.object(is_set(parameters) ? "rope_parameters" : "rope_scaling");
}

// Returns the number of rotated features of heads with d features.
int64_t rotated_features(JsonReader& c, int64_t d, double share, bool may_be_partial) {
  if (!may_be_partial && share != 1)
    c.refuse(str("\"partial_rotary_factor\" is ", share, "; this model type rotates all features"));
  const auto dims = int64_t(double(d) * share);
  if (dims < 2 || dims % 2 != 0)
    c.refuse(str("RoPE rotates ", dims, " of ", d, " features of a head; must be an even number"));
  return dims;
}

// Reads the object `r` with the parameters of RoPE. theta and share: values of absent fields.
RotaryOptions read_rope(JsonReader& c, JsonReader& r, int64_t d, const RopeFields& f, double theta,
                        double share) {
  theta = r.number("rope_theta", theta);
  share = r.number("partial_rotary_factor", share);
  RotaryOptions o{.dims = rotated_features(c, d, share, f.share_field != nullptr), .base = theta};
  const std::string type = r.text("rope_type", r.text("type", "default"));
  r.ignore({"type"});
  const int64_t trained = c.integer("max_position_embeddings", f.max_length);
  const auto length = [&] {
    return double(r.integer("original_max_position_embeddings", trained));
  };
  const auto positive = [&](const char* name, std::optional<double> fallback = {}) {
    const double x = r.number(name, fallback);
    if (x <= 0) r.refuse(str('"', name, "\" is ", x, "; must be positive"));
    return x;
  };
  if (type == "linear") {
    o.scale = positive("factor");
  } else if (type == "llama3") {
    const double low = positive("low_freq_factor"), high = positive("high_freq_factor");
    if (low >= high) r.refuse("\"low_freq_factor\" must be less than \"high_freq_factor\"");
    o.frequencies = llama3_frequencies({.dims = o.dims,
                                        .base = o.base,
                                        .factor = positive("factor"),
                                        .low_frequency_factor = low,
                                        .high_frequency_factor = high,
                                        .length = length()});
  } else if (type == "yarn") {
    const double factor = positive("factor");
    o.frequencies = yarn_frequencies({.dims = o.dims,
                                      .base = o.base,
                                      .factor = factor,
                                      .length = length(),
                                      .beta_fast = positive("beta_fast", 32),
                                      .beta_slow = positive("beta_slow", 1),
                                      .truncate = r.flag("truncate", !r.is_present("truncate"))});
    o.attention_factor = r.number("attention_factor", yarn_attention_factor(factor));
  } else if (type != "default") {
    c.refuse(str("\"rope_type\" is ", in_quotes(type),
                 "; supported are \"default\", \"linear\", \"llama3\", \"yarn\""));
  }
  r.finish();
  return o;
}

}  // namespace

RotaryOptions rotary_options(JsonReader& c, int64_t d, const RopeFields& f) {
  double theta = c.number(f.theta_field, f.theta);
  double share = c.number(f.share_field ? f.share_field : "partial_rotary_factor", f.share);
  if (f.share_field) {  // transformers 4 repeats both fields under these names
    if (c.number("rope_theta", theta) != theta || c.number("partial_rotary_factor", share) != share)
      c.refuse(str("\"rope_theta\" and \"partial_rotary_factor\" differ from \"", f.theta_field,
                   "\" and \"", f.share_field, "\"; they must be equal"));
  }
  std::optional<JsonReader> given = rope_object(c);
  if (!given)
    return {.dims = rotated_features(c, d, share, f.share_field != nullptr), .base = theta};
  return read_rope(c, *given, d, f, theta, share);
}

RotaryOptions rotary_options_of(const char* layer_type, JsonReader& c, int64_t d,
                                const RopeFields& f) {
  const double theta = c.number(f.theta_field, f.theta);
  std::optional<JsonReader> given;
  if (std::optional<JsonReader> all = c.object("rope_parameters")) {
    given = all->object(layer_type);
    all->ignore({"full_attention", "sliding_attention"});
    all->finish();
  }
  if (std::strcmp(layer_type, "full_attention") == 0) {
    std::optional<JsonReader> scaling = c.object("rope_scaling");
    if (scaling && given)
      c.refuse("\"rope_parameters\" and \"rope_scaling\" are both set; use the former");
    if (scaling) given = std::move(scaling);
  }
  if (given) return read_rope(c, *given, d, f, theta, 1);
  return {.dims = rotated_features(c, d, 1, false), .base = theta};
}

}  // namespace stretto::nn::pretrained
