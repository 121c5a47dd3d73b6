#include "nn/models/registry.h"

#include <algorithm>

#include "nn/attention/gated_linear_attention.h"
#include "nn/attention/linear_attention.h"
#include "nn/positions/disentangled.h"
#include "nn/positions/fire.h"
#include "nn/positions/plane.h"
#include "nn/positions/relative_bias.h"
#include "nn/positions/relative_sinusoid.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/rotary.h"

namespace stretto::nn {
namespace {

using Settings = const PositionSettings&;
using Input = InputOptions&;

int64_t max_distance(Settings s, int64_t fallback) {
  return s.max_distance > 0 ? s.max_distance : fallback;
}
int64_t longest(Settings s) { return s.longest > 0 ? s.longest : s.length; }

// Options of an encoding of a plane.
template <class Options>
Options plane(Settings s) {
  const bool given = s.plane.dim() == 2;
  return {.height = given ? s.plane[0] : 0,
          .width = given ? s.plane[1] : 0,
          .class_tokens = s.class_tokens};
}

template <bool gated>
MakePositionalEncoding sine(Settings s) {
  return sine_spe(
      {.realizations = s.realizations, .sines = s.sines, .gated = gated, .shared = s.share_sine});
}

template <bool gated>
MakePositionalEncoding conv(Settings s) {
  return conv_spe(
      {.realizations = s.realizations, .taps = {s.taps}, .gated = gated, .shared = s.share_conv});
}

MakePositionalEncoding music(Settings s) {
  return music_relative({.max_length = max_distance(s, s.length),
                         .bidirectional = s.bidirectional,
                         .out_of_range = s.out_of_range});
}

MakePositionalEncoding music_local(Settings s) {
  const int64_t block = max_distance(s, std::max<int64_t>(1, s.length / 2));
  return music_relative({.max_length = 2 * block, .block = block});
}

template <bool values>
MakePositionalEncoding shaw(Settings s) {
  return shaw_relative({.max_distance = max_distance(s, 16), .values = values});
}

MakePositionalEncoding inkling(Settings s) {
  return inkling_relative({.extent = max_distance(s, std::min<int64_t>(s.length, 1024)),
                           .bidirectional = s.bidirectional});
}

MakePositionalEncoding bert(Settings s) {
  return bert_relative({.max_length = max_distance(s, longest(s)), .keys_too = true});
}

MakePositionalEncoding deberta(Settings s) {
  return disentangled({.max_distance = max_distance(s, s.length)});
}

std::vector<PositionEntry> make_positions() {
  return {
      {"none", [](Settings) { return no_position(); }},
      {.name = "sinusoid", .add = [](Settings s, Input input) { input.sinusoid = s.layout; }},
      {.name = "learned",
       .add = [](Settings s, Input input) { input.learned_length = longest(s); }},
      {"music", music},
      {"music-local", music_local},
      {"shaw", shaw<true>},
      {"shaw-keys", shaw<false>},
      {"inkling", inkling},
      {"xl", [](Settings) { return relative_sinusoid(); }},
      {"t5", [](Settings) { return t5_bias(); }},
      {"alibi", [](Settings) { return alibi(); }},
      {"kerple", [](Settings) { return kerple(); }},
      {"kerple-power", [](Settings) { return kerple({.kind = Kerple::Kind::power}); }},
      {"fire", [](Settings s) { return fire({.threshold = double(max_distance(s, s.length))}); }},
      {"rope", [](Settings) { return rotary(); }},
      {"xpos", [](Settings) { return rotary({.xpos = true}); }},
      {"bert", bert},
      {"deberta", deberta},
      {"swin", [](Settings s) { return swin_bias(plane<SwinBias::Options>(s)); }},
      {"grid", [](Settings s) { return grid_relative(plane<GridRelative::Options>(s)); }},
      {"rope-2d", [](Settings s) { return rotary_2d(plane<Rotary2d::Options>(s)); }},
      {"sine", sine<true>},
      {"sine-ungated", sine<false>},
      {"conv", conv<true>},
      {"conv-ungated", conv<false>},
  };
}

template <FavorKind kind>
MakeKernel performer(const KernelSettings& s) {
  return linear_kernel(favor({.features = s.features, .kind = kind, .redraw = s.redraw}));
}

std::vector<KernelEntry> make_kernels() {
  using K = const KernelSettings&;
  return {
      {"softmax", [](K) { return softmax_kernel(); }},
      {"performer", performer<FavorKind::positive>},
      {"performer-hyperbolic", performer<FavorKind::hyperbolic>},
      {"linear-elu", [](K) { return linear_kernel(elu_plus_one()); }},
      {"linear-relu", [](K) { return linear_kernel(relu_plus()); }},
      {"retention", [](K) { return retention_kernel(); }},
      {"gla", [](K) { return gla_kernel(); }},
      {"delta", [](K) { return delta_kernel(); }},
      {"gated-delta", [](K) { return gated_delta_kernel(); }},
      {"kda", [](K) { return kda_kernel(); }},
  };
}

template <class Entry>
std::vector<std::string> names_of(const std::vector<Entry>& entries) {
  std::vector<std::string> names;
  for (const Entry& entry : entries) names.push_back(entry.name);
  return names;
}

std::string listed(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

template <class Entry>
const Entry& find(const char* what, const std::vector<Entry>& entries, const std::string& name) {
  for (const Entry& entry : entries)
    if (entry.name == name) return entry;
  throw Error(str("[", what, "] ", name, ": accepted values are ", listed(names_of(entries))));
}

// Returns the encodings in a name: one, or for "A+B" the one added to the input and the one in the
// attention.
std::vector<const PositionEntry*> parts_of(const std::string& name) {
  const size_t plus = name.find('+');
  if (plus == std::string::npos) return {&find_position(name)};
  const PositionEntry& first = find_position(name.substr(0, plus));
  const PositionEntry& second = find_position(name.substr(plus + 1));
  check(first.add && second.make, "position", name,
        ": needs an encoding of the input (sinusoid, learned) before the +, and one of the "
        "attention after it");
  return {&first, &second};
}

// Returns why an encoding does not work with a kernel and heads of `width` features; empty if it
// does.
std::string reason(const PositionTraits& p, const KernelEntry& kernel, Settings s, int64_t width) {
  if (p.scores && kernel.traits().recurrent)
    return str("acts on scores, which ", kernel.name, " attention does not have");
  if (!p.bidirectional && s.bidirectional) return "is for causal attention only";
  if (!p.causal && !s.bidirectional) return "is for bidirectional attention only";
  if (p.plane && s.plane.dim() != 2) return "is for tokens in a plane only";
  if (width % p.multiple == 0) return "";
  return str("rotates ", p.plane ? "two pairs" : "pairs",
             " of features, but the head dimension is ", width);
}

}  // namespace

PositionTraits PositionEntry::traits(const PositionSettings& settings) const {
  if (make) return make(settings).traits;
  InputOptions input;
  add(settings, input);
  return input.traits();
}

const std::vector<PositionEntry>& positions() {
  // Outlives all other statics, as the next.
  static const auto& all = *new const std::vector<PositionEntry>(make_positions());
  return all;
}
const std::vector<KernelEntry>& kernels() {
  static const auto& all = *new const std::vector<KernelEntry>(make_kernels());
  return all;
}
std::vector<std::string> position_names() { return names_of(positions()); }
std::vector<std::string> kernel_names() { return names_of(kernels()); }

const PositionEntry& find_position(const std::string& name) {
  return find("position", positions(), name);
}
const KernelEntry& find_kernel(const std::string& name) { return find("kernel", kernels(), name); }

PositionTraits position_traits(const std::string& name, const PositionSettings& settings) {
  const std::vector<const PositionEntry*> parts = parts_of(name);
  const PositionTraits input = parts.front()->traits(settings);
  PositionTraits all = parts.back()->traits(settings);
  all.memory = all.memory && input.memory;
  all.relative = all.relative && input.relative;
  all.max_positions = std::min(all.max_positions, input.max_positions);
  return all;
}

std::string refusal(const std::string& name, const std::string& kernel_name,
                    const PositionSettings& s, const LayerOptions& layer) {
  const KernelEntry& kernel = find_kernel(kernel_name);
  const MultiHeadAttentionOptions& o = layer.attention;
  const int64_t width = o.d_key > 0 ? o.d_key : layer.d_model / o.n_heads;
  for (const PositionEntry* p : parts_of(name)) {
    const std::string why = reason(p->traits(s), kernel, s, width);
    if (why.empty()) continue;
    std::vector<std::string> accepted;
    for (const PositionEntry& other : positions())
      if (reason(other.traits(s), kernel, s, width).empty()) accepted.push_back(other.name);
    return str(p->name, " ", why, "; accepted here: ", listed(accepted));
  }
  return "";
}

void add_position(const std::string& name, const PositionSettings& settings, LayerOptions& layer,
                  InputOptions& input) {
  const std::string why = refusal(name, "softmax", settings, layer);
  check(why.empty(), "position", why, " (PositionSettings: bidirectional ", settings.bidirectional,
        ", plane ", settings.plane, ")");
  for (const PositionEntry* p : parts_of(name)) {
    if (p->make)
      layer.attention.position = p->make(settings);
    else
      p->add(settings, input);
  }
}

}  // namespace stretto::nn
