#include "nn/models/registry.h"

#include <algorithm>
#include <functional>

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

using Settings = PositionSettings;
using L = LayerOptions;
using I = InputOptions;
using Positions = std::vector<PositionEntry>;

int64_t max_distance(const Settings& s, int64_t fallback) {
  return s.max_distance > 0 ? s.max_distance : fallback;
}
int64_t longest(const Settings& s) { return s.longest > 0 ? s.longest : s.length; }

template <bool gated>
void add_sine(const Settings& s, LayerOptions& layer, InputOptions&) {
  layer.attention.position = sine_spe(
      {.realizations = s.realizations, .sines = s.sines, .gated = gated, .shared = s.share_sine});
}

template <bool gated>
void add_conv(const Settings& s, LayerOptions& layer, InputOptions&) {
  layer.attention.position = conv_spe(
      {.realizations = s.realizations, .taps = {s.taps}, .gated = gated, .shared = s.share_conv});
}

// The entry without positions, and the absolute positions that are added to the token vectors.
Positions input_positions() {
  return {
      {.name = "none",
       .scores = false,
       .add = [](const Settings&, L& l, I&) { l.attention.position = no_position(); }},
      {.name = "sinusoid",
       .scores = false,
       .added = true,
       .memory = false,
       .add = [](const Settings& s, L&, I& i) { i.sinusoid = s.layout; }},
      {.name = "learned",
       .scores = false,
       .added = true,
       .memory = false,
       .add = [](const Settings& s, L&, I& i) { i.learned_length = longest(s); }},
  };
}

// One vector per relative position, multiplied by the queries.
Positions relative_vectors() {
  return {
      {.name = "music",
       .add =
           [](const Settings& s, L& l, I&) {
             l.attention.position = music_relative({.max_length = max_distance(s, s.length),
                                                    .bidirectional = s.bidirectional,
                                                    .out_of_range = s.out_of_range});
           }},
      {.name = "music-local",
       .direction = Direction::causal,
       .memory = false,
       .add =
           [](const Settings& s, L& l, I&) {
             const int64_t block = max_distance(s, std::max<int64_t>(1, s.length / 2));
             l.attention.position = music_relative({.max_length = 2 * block, .block = block});
           }},
      {.name = "shaw",
       .add =
           [](const Settings& s, L& l, I&) {
             l.attention.position = shaw_relative({.max_distance = max_distance(s, 16)});
           }},
      {.name = "shaw-keys",
       .add =
           [](const Settings& s, L& l, I&) {
             l.attention.position =
                 shaw_relative({.max_distance = max_distance(s, 16), .values = false});
           }},
      {.name = "xl",
       .add = [](const Settings&, L& l, I&) { l.attention.position = relative_sinusoid(); }},
  };
}

// One scalar per relative position, added to the scores.
Positions relative_biases() {
  return {
      {.name = "t5",
       .add = [](const Settings&, L& l,
                 I&) { l.attention.position = shared_by_layers(t5_bias()); }},
      {.name = "alibi", .add = [](const Settings&, L& l, I&) { l.attention.position = alibi(); }},
      {.name = "kerple", .add = [](const Settings&, L& l, I&) { l.attention.position = kerple(); }},
      {.name = "kerple-power",
       .add = [](const Settings&, L& l,
                 I&) { l.attention.position = kerple({.kind = Kerple::Kind::power}); }},
      {.name = "fire",
       .counted = true,
       .add =
           [](const Settings& s, L& l, I&) {
             l.attention.position = fire({.threshold = double(max_distance(s, s.length))});
           }},
  };
}

// Rotations of queries and keys.
Positions rotary_positions() {
  return {
      {.name = "rope",
       .scores = false,
       .pairs = true,
       .add = [](const Settings&, L& l, I&) { l.attention.position = rotary(); }},
      {.name = "xpos",
       .direction = Direction::causal,
       .pairs = true,
       .add = [](const Settings&, L& l, I&) { l.attention.position = rotary({.xpos = true}); }},
  };
}

// One vector per relative position, multiplied by the queries and by the keys.
Positions query_key_vectors() {
  return {
      {.name = "bert",
       .add =
           [](const Settings& s, L& l, I&) {
             l.attention.position =
                 bert_relative({.max_length = max_distance(s, longest(s)), .keys_too = true});
           }},
      {.name = "deberta",
       .add =
           [](const Settings& s, L& l, I&) {
             l.attention.position =
                 disentangled({.max_distance = max_distance(s, s.length), .buckets = 0});
           }},
  };
}

// Positions of tokens in a plane.
Positions plane_positions() {
  return {
      {.name = "window",
       .direction = Direction::bidirectional,
       .memory = false,
       .plane = true,
       .add =
           [](const Settings& s, L& l, I&) {
             l.attention.position = window_bias(
                 {.height = s.plane[0], .width = s.plane[1], .class_tokens = s.class_tokens});
           }},
      {.name = "grid",
       .direction = Direction::bidirectional,
       .memory = false,
       .plane = true,
       .add =
           [](const Settings& s, L& l, I&) {
             l.attention.position = grid_relative(
                 {.height = s.plane[0], .width = s.plane[1], .class_tokens = s.class_tokens});
           }},
      {.name = "rope-2d",
       .direction = Direction::bidirectional,
       .scores = false,
       .memory = false,
       .plane = true,
       .pairs = true,
       .add =
           [](const Settings& s, L& l, I&) {
             l.attention.position = rotary_2d(
                 {.height = s.plane[0], .width = s.plane[1], .class_tokens = s.class_tokens});
           }},
  };
}

// Stochastic positional encoding.
Positions stochastic_positions() {
  return {
      {.name = "sine", .scores = false, .memory = false, .add = add_sine<true>},
      {.name = "sine-ungated", .scores = false, .memory = false, .add = add_sine<false>},
      {.name = "conv", .scores = false, .memory = false, .add = add_conv<true>},
      {.name = "conv-ungated", .scores = false, .memory = false, .add = add_conv<false>},
  };
}

Positions make_positions() {
  Positions all;
  for (const auto& kind : {input_positions, relative_vectors, relative_biases, rotary_positions,
                           query_key_vectors, plane_positions, stochastic_positions}) {
    const Positions entries = kind();
    all.insert(all.end(), entries.begin(), entries.end());
  }
  return all;
}

template <FavorKind kind>
MakeKernel performer(const KernelSettings& s) {
  return linear_kernel(favor({.features = s.features, .kind = kind, .redraw = s.redraw}),
                       {.eps = 1e-6});
}

std::vector<KernelEntry> make_kernels() {
  return {
      {.name = "softmax",
       .scores = true,
       .segments = true,
       .make = [](const KernelSettings&) { return softmax_kernel(); }},
      {.name = "performer", .make = performer<FavorKind::positive>},
      {.name = "performer-hyperbolic", .make = performer<FavorKind::hyperbolic>},
      {.name = "linear-elu",
       .make = [](const KernelSettings&) { return linear_kernel(elu_plus_one(), {.eps = 1e-6}); }},
      {.name = "linear-relu",
       .make =
           [](const KernelSettings& s) { return linear_kernel(relu_plus(), {.eps = s.relu_eps}); }},
      {.name = "retention",
       .segments = true,
       .make = [](const KernelSettings&) { return retention_kernel(); }},
      {.name = "gla", .segments = true, .make = [](const KernelSettings&) { return gla_kernel(); }},
      {.name = "delta",
       .memory = false,
       .segments = true,
       .make = [](const KernelSettings&) { return gated_delta_kernel(); }},
  };
}

template <class Entry>
std::vector<std::string> names_of(const std::vector<Entry>& entries,
                                  const std::function<bool(const Entry&)>& chosen = {}) {
  std::vector<std::string> names;
  for (const Entry& entry : entries)
    if (!chosen || chosen(entry)) names.push_back(entry.name);
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
  check(first.added && !second.added, "position", name,
        ": needs an encoding of the input (sinusoid, learned) before the +, and one of the "
        "attention after it");
  return {&first, &second};
}

// The number of features that are rotated together, of which a head needs a multiple.
int64_t features_of(const PositionEntry& rotary) { return rotary.plane ? 4 : 2; }

bool fits(const PositionEntry& p, const KernelEntry& kernel, const Settings& s,
          const LayerOptions& layer) {
  const int64_t width =
      layer.attention.d_key > 0 ? layer.attention.d_key : layer.d_model / layer.attention.n_heads;
  return (kernel.scores || !p.scores) &&
         (p.direction == Direction::any ||
          (p.direction == Direction::bidirectional) == s.bidirectional) &&
         (!p.plane || s.plane.dim() == 2) && (!p.pairs || width % features_of(p) == 0);
}

}  // namespace

const std::vector<PositionEntry>& positions() {
  static const std::vector<PositionEntry> all = make_positions();
  return all;
}
const std::vector<KernelEntry>& kernels() {
  static const std::vector<KernelEntry> all = make_kernels();
  return all;
}
std::vector<std::string> position_names() { return names_of(positions()); }
std::vector<std::string> kernel_names() { return names_of(kernels()); }

const PositionEntry& find_position(const std::string& name) {
  return find("position", positions(), name);
}
const KernelEntry& find_kernel(const std::string& name) { return find("kernel", kernels(), name); }

std::string refusal(const std::string& name, const std::string& kernel_name, const Settings& s,
                    const LayerOptions& layer) {
  const KernelEntry& kernel = find_kernel(kernel_name);
  for (const PositionEntry* p : parts_of(name)) {
    if (fits(*p, kernel, s, layer)) continue;
    const int64_t width =
        layer.attention.d_key > 0 ? layer.attention.d_key : layer.d_model / layer.attention.n_heads;
    std::string why;
    if (p->scores && !kernel.scores)
      why = str("acts on scores, which ", kernel_name, " attention does not have");
    else if (p->direction == Direction::causal && s.bidirectional)
      why = "is for causal attention only";
    else if (p->direction == Direction::bidirectional && !s.bidirectional)
      why = "is for bidirectional attention only";
    else if (p->plane && s.plane.dim() != 2)
      why = "is for tokens in a plane only";
    else
      why = str("rotates ", p->plane ? "two pairs" : "pairs",
                " of features, but the head dimension is ", width);
    return str(p->name, " ", why, "; accepted here: ",
               listed(names_of<PositionEntry>(positions(), [&](const PositionEntry& other) {
                 return fits(other, kernel, s, layer);
               })));
  }
  return "";
}

void add_position(const std::string& name, const Settings& settings, LayerOptions& layer,
                  InputOptions& input) {
  const std::string why = refusal(name, "softmax", settings, layer);
  check(why.empty(), "position", why, " (PositionSettings: bidirectional ", settings.bidirectional,
        ", plane ", settings.plane, ")");
  for (const PositionEntry* p : parts_of(name)) p->add(settings, layer, input);
}

}  // namespace stretto::nn
