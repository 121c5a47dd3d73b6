#include "pretrained/rope_config.h"

#include <cmath>
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

double positive(JsonReader& r, const char* name, std::optional<double> fallback = {}) {
  const double x = r.number(name, fallback);
  if (x <= 0) r.refuse(str('"', name, "\" is ", x, "; must be positive"));
  return x;
}

// Reads the length of the original training; the field outside the object is that of Phi-3.
int64_t trained_length(JsonReader& c, JsonReader& r, const RopeFields& f, int64_t max_length) {
  const char* name = "original_max_position_embeddings";
  if (!f.phi3) return r.size(name, max_length);
  const int64_t length = c.size(name, 4096);
  if (r.size(name, length) != length)
    c.refuse(str('"', name, "\" inside and outside of the parameters of RoPE differ"));
  return length;
}

// LongRoPE (Ding et al. 2024) divides each frequency by a factor, with other factors for sequences
// longer than the original training. Those sequences are refused: the keys in a cache would change.
void read_longrope(JsonReader& r, RotaryOptions& o, int64_t length, int64_t max_length) {
  const auto factors = [&](const char* name) {
    std::vector<double> all = r.numbers(name);
    if (2 * int64_t(all.size()) != o.dims)
      r.refuse(str('"', name, "\" has ", all.size(), " numbers for ", o.dims, " rotated features"));
    for (const double x : all)
      if (x <= 0) r.refuse(str('"', name, "\" has ", x, "; must be positive"));
    return all;
  };
  o.frequencies = factors("short_factor");
  factors("long_factor");
  for (size_t i = 0; i < o.frequencies.size(); ++i)
    o.frequencies[i] = std::pow(o.base, -2 * double(i) / double(o.dims)) / o.frequencies[i];
  if (length < 2)
    r.refuse(str("\"original_max_position_embeddings\" is ", length, "; must be 2 or more"));
  const double factor = r.number("factor", double(max_length) / double(length));
  const double grown = factor <= 1 ? 0 : std::log(factor) / std::log(double(length));
  o.attention_factor = r.number("attention_factor", std::sqrt(1 + grown));
  o.max_length = length;
}

void read_llama3(JsonReader& r, RotaryOptions& o, double length) {
  const double low = positive(r, "low_freq_factor"), high = positive(r, "high_freq_factor");
  if (low >= high) r.refuse("\"low_freq_factor\" must be less than \"high_freq_factor\"");
  o.frequencies = llama3_frequencies({.dims = o.dims,
                                      .base = o.base,
                                      .factor = positive(r, "factor"),
                                      .low_frequency_factor = low,
                                      .high_frequency_factor = high,
                                      .length = length});
}

// YaRN's factor with the weight that DeepSeek gives it; 1 for a weight of 0.
double mscale(double factor, double weight) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}
double mscale_of_all(JsonReader& r) {
  return mscale(r.number("factor", 1), r.number("mscale_all_dim", 0));
}

void read_yarn(JsonReader& r, RotaryOptions& o, double length) {
  const double factor = positive(r, "factor");
  o.frequencies = yarn_frequencies({.dims = o.dims,
                                    .base = o.base,
                                    .factor = factor,
                                    .length = length,
                                    .beta_fast = positive(r, "beta_fast", 32),
                                    .beta_slow = positive(r, "beta_slow", 1),
                                    .truncate = r.flag("truncate", !r.is_present("truncate"))});
  const double one = mscale(factor, r.number("mscale", 0)), all = mscale_of_all(r);
  const bool both = one != 1 && all != 1;
  o.attention_factor =
      r.number("attention_factor", both ? one / all : yarn_attention_factor(factor));
}

// Reads the object `r` with the parameters of RoPE. theta and share: values of absent fields.
RotaryOptions read_rope(JsonReader& c, JsonReader& r, int64_t d, const RopeFields& f, double theta,
                        double share) {
  theta = r.number("rope_theta", theta);
  if (theta <= 0) c.refuse(str("\"rope_theta\" is ", theta, "; must be positive"));
  share = r.number("partial_rotary_factor", share);
  std::string type = r.text("rope_type", r.text("type", "default"));
  r.ignore({"type"});
  if (f.multimodal) r.ignore({"mrope_section", "mrope_interleaved"});
  if (f.phi3 && (type == "su" || type == "yarn")) type = "longrope";  // former names
  const bool proportional = type == "proportional";
  RotaryOptions o{.dims = proportional ? rotated_features(c, d, 1, true)
                                       : rotated_features(c, d, share, f.share_field != nullptr),
                  .base = theta};
  const int64_t max_length = c.integer("max_position_embeddings", f.max_length);
  if (f.phi3 && type != "default" && type != "longrope")
    c.refuse(
        str("\"rope_type\" is ", in_quotes(type), "; Phi-3 supports \"default\", \"longrope\""));
  if (type == "linear") {
    o.scale = positive(r, "factor");
  } else if (type == "dynamic") {  // the base grows with the length of longer sequences
    positive(r, "factor");
    o.max_length = c.size("max_position_embeddings", f.max_length, INT32_MAX);
  } else if (type == "longrope") {
    read_longrope(r, o, trained_length(c, r, f, max_length), max_length);
  } else if (proportional) {  // the pairs after the share do not turn
    o.scale = positive(r, "factor", 1);
    if (share < 0 || share > 1)
      c.refuse(str("\"partial_rotary_factor\" is ", share, "; must be 0 … 1"));
    const auto turned = int64_t(share * double(d) / 2);
    for (int64_t i = 0; i < d / 2; ++i)
      o.frequencies.push_back(i < turned ? std::pow(theta, -2 * double(i) / double(d)) : 0);
  } else if (type == "llama3") {
    read_llama3(r, o, double(trained_length(c, r, f, max_length)));
  } else if (type == "yarn") {
    read_yarn(r, o, double(trained_length(c, r, f, max_length)));
  } else if (type != "default") {
    c.refuse(str("\"rope_type\" is ", in_quotes(type),
                 "; supported are \"default\", \"linear\", \"dynamic\", \"llama3\", \"yarn\", "
                 "\"longrope\", \"proportional\""));
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

bool has_null_theta(JsonReader& c) {
  const std::optional<JsonReader> given = rope_object(c);
  const JsonReader& r = given && given->is_present("rope_theta") ? *given : c;
  return r.is_present("rope_theta") && !r.has("rope_theta");
}

double rope_score_factor(JsonReader& c) {
  std::optional<JsonReader> given = rope_object(c);
  const double factor = given ? mscale_of_all(*given) : 1;
  return factor * factor;
}

RotaryOptions rotary_options_of(const char* layer_type, JsonReader& c, int64_t d,
                                const RopeFields& f) {
  const double theta = f.theta_field ? c.number(f.theta_field, f.theta) : f.theta;
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
