// groove_model(): --position by name. A new one is a line here.

#include <map>
#include <string>
#include <vector>

#include "examples/common/kernels.h"
#include "examples/common/settings.h"
#include "examples/groove/groove_settings.h"
#include "examples/groove/groove_tokens.h"
#include "nn/relative_bias.h"
#include "nn/rotary.h"

namespace stretto::examples {
namespace {

using Settings = GrooveSettings;
using Options = nn::MusicTransformer::Options;

struct Position {
  bool needs_scores;
  void (*put)(const Settings&, Options&);
};

const std::map<std::string, Position>& positions() {
  static const std::map<std::string, Position> all{
      {"none", {false, [](const Settings&, Options&) {}}},
      {"sinusoid",
       {false, [](const Settings&, Options& o) { o.sinusoid = nn::Sinusoid::interleaved; }}},
      {"learned", {false, [](const Settings& s, Options& o) { o.learned_length = s.length; }}},
      {"rope", {false, [](const Settings&, Options& o) { o.position = nn::rotary(); }}},
      {"alibi", {true, [](const Settings&, Options& o) { o.position = nn::alibi(); }}},
      {"music", {true, [](const Settings& s, Options& o) {
                   o.relative = true;
                   o.relative_length = s.length;
                 }}}};
  return all;
}

}  // namespace

std::string groove_positions() { return joined(names_of(positions())); }

Options groove_model(const Settings& s) {
  const Kernel kernel = kernel_of(s.attention, {.performer = {.features = s.features,
                                                              .kind = nn::FavorKind::hyperbolic,
                                                              .redraw = s.redraw}});
  const Position& position = find_name(positions(), "--position", s.position);
  if (position.needs_scores && !kernel.scores) {
    std::vector<std::string> possible;
    for (const auto& [name, other] : positions())
      if (!other.needs_scores) possible.push_back(name);
    throw UsageError("--position " + s.position + ": acts on scores, which --attention " +
                     s.attention + " does not have; accepted with it are " + joined(possible));
  }
  Options o{};
  if (s.published_model) o = nn::music_performer(groove_vocabulary);
  o.vocabulary = groove_vocabulary;
  o.d_model = s.d_model;
  o.n_layers = s.layers;
  o.n_heads = s.heads;
  o.d_hidden = s.d_hidden;
  o.dropout = s.dropout;
  o.attention_dropout = s.attention_dropout;
  o.relative = false;
  o.kernel = kernel.make;
  position.put(s, o);
  return o;
}

}  // namespace stretto::examples
