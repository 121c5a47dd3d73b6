// --position: names for the positions of nn, with what each makes of the settings.

#include <algorithm>
#include <map>

#include "examples/common/settings.h"
#include "examples/text/lm_settings.h"
#include "nn/positions/dense_bias.h"
#include "nn/positions/disentangled.h"
#include "nn/positions/relative_bias.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/rotary.h"

namespace stretto::examples {
namespace {

class NoPosition : public nn::Position {
 public:
  NoPosition(nn::Module& parent, nn::HeadShape) : Position(parent) {}
  void apply(nn::AttentionCall&) const override {}
};

// Music Transformer, §3.5: a query sees its own block and the one before.
class MusicLocal : public nn::MusicRelative {
 public:
  MusicLocal(nn::Module& parent, nn::HeadShape shape, int64_t block)
      : MusicRelative(parent, shape, {.length = 2 * block}), block_(block) {}
  void apply(nn::AttentionCall& call) const override {
    MusicRelative::apply(call);
    call.options.block = block_;
  }

 private:
  const int64_t block_;
};

using Make = nn::MakePosition (*)(const LmSettings&);

int64_t reach(const LmSettings& s, int64_t otherwise) { return s.reach > 0 ? s.reach : otherwise; }

const std::map<std::string, Make>& schemes() {
  static const std::map<std::string, Make> all{
      {"none", [](const LmSettings&) { return nn::position<NoPosition>(); }},
      {"sinusoid", [](const LmSettings&) { return nn::MakePosition(); }},
      {"xl", [](const LmSettings&) { return nn::MakePosition(); }},
      {"bert",
       [](const LmSettings& s) {
         return nn::bert_relative({.length = reach(s, s.length + s.memory), .keys_too = true});
       }},
      {"deberta",
       [](const LmSettings& s) {
         return nn::disentangled({.max_distance = reach(s, s.length + s.memory), .buckets = 0});
       }},
      {"shaw", [](const LmSettings& s) { return nn::shaw_relative({.clip = reach(s, 16)}); }},
      {"music",
       [](const LmSettings& s) {
         return nn::music_relative({.length = reach(s, s.length + s.memory),
                                    .beyond = s.beyond == "clip" ? Beyond::clip : Beyond::zero});
       }},
      {"music-local",
       [](const LmSettings& s) {
         return nn::position<MusicLocal>(reach(s, std::max<int64_t>(1, s.length / 2)));
       }},
      {"t5", [](const LmSettings&) { return nn::shared_by_layers(nn::t5()); }},
      {"alibi", [](const LmSettings&) { return nn::alibi(); }},
      {"kerple", [](const LmSettings&) { return nn::kerple(); }},
      {"kerple-power",
       [](const LmSettings&) { return nn::kerple({.kind = nn::Kerple::Kind::power}); }},
      {"fire",
       [](const LmSettings& s) {
         return nn::fire({.length = double(reach(s, s.length + s.memory))});
       }},
      {"rope", [](const LmSettings&) { return nn::rotary(); }},
      {"xpos", [](const LmSettings&) { return nn::rotary({.xpos = true}); }}};
  return all;
}

}  // namespace

std::vector<std::string> lm_positions() { return names_of(schemes()); }

nn::MakePosition lm_position(const LmSettings& settings) {
  return schemes().at(settings.position)(settings);
}

}  // namespace stretto::examples
