// groove_model(): --position by name. A new one is a line here or, for other programs too, in
// examples/training/music_positions.cpp.

#include <string>
#include <vector>

#include "examples/common/settings.h"
#include "examples/groove/groove_settings.h"
#include "examples/groove/groove_tokens.h"
#include "examples/training/kernels.h"
#include "examples/training/music_positions.h"
#include "nn/positions/relative_bias.h"

namespace stretto::examples {
namespace {

using Options = nn::MusicTransformer::Options;

const MusicPositions& positions() {
  static const MusicPositions all = music_positions(
      {{"sinusoid", {add_sinusoids}},
       {"alibi",
        {[](Options& o, const MusicPositionSettings&) { o.position = nn::alibi(); }, true}},
       {"music",
        {[](Options& o, const MusicPositionSettings& s) {
           o.relative = true;
           o.relative_length = s.length;
         },
         true}}});
  return all;
}

}  // namespace

std::string groove_positions() { return joined(names_of(positions())); }

Options groove_model(const GrooveSettings& s) {
  const Kernel kernel = kernel_of(s.attention, {.performer = {.features = s.features,
                                                              .kind = nn::FavorKind::hyperbolic,
                                                              .redraw = s.redraw}});
  const MusicPosition& position = find_name(positions(), "--position", s.position);
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
  position.add(o, {s.position, s.length, s.length, s});
  return o;
}

}  // namespace stretto::examples
