#include "examples/piano/piano_settings.h"

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "examples/common/settings.h"

namespace stretto::examples {

void PianoSettings::check() const {
  check_each(*this);
  check_model();
  check_position(positions());
  const music::TokenizerOptions& o = token_options;
  require(tokens == "performance" || (stretch == 0 && !o.pedal),
          std::string(o.pedal ? "--pedal" : "--stretch") + ": needs --tokens performance");
  require(tokens == "remi" || !o.chords, "--chords: needs --tokens remi");
  for (const auto& [given, option] : {std::pair{o.time_signatures, "--time-signatures"},
                                      {o.rests, "--rests"},
                                      {o.sustain_pedals, "--sustain-pedals"},
                                      {o.pitch_bends, "--pitch-bends"}})
    require(!given || (tokens != "remi" && tokens != "performance"),
            std::string(option) + ": needs --tokens tsd, tsd-multitrack or remi-multitrack");
  require(o.sustain_pedals || !o.sustain_pedal_duration,
          "--sustain-pedal-duration: needs --sustain-pedals");
  require(!infill || language().bar >= 0,
          "--infill: needs tokens with bars, such as --tokens remi");
  require(!infill || !pack, "--infill: needs --pack 0");
  require(!infill || length >= 64, "--infill: needs --length 64 or more");
  require(!pack || nn::find_kernel(attention).traits().segments,
          "--pack: --attention " + attention + " does not support packed documents");
  require(!pack || stretch == 0, "--pack: needs --stretch 0");
}

const music::Tokenizer& PianoSettings::language() const {
  static std::mutex mutex;
  struct Made {
    std::string tokens;
    music::TokenizerOptions options;
    std::shared_ptr<const music::Tokenizer> tokenizer;
  };
  static std::vector<Made> all;
  const std::lock_guard lock(mutex);
  for (const Made& made : all)
    if (made.tokens == tokens && made.options == token_options) return *made.tokenizer;
  const auto made = plain_usage([&] { return music::tokenizer(tokens, token_options); });
  all.push_back({tokens, token_options, made});
  return *made;
}

nn::LanguageModel::Options PianoSettings::model() const {
  nn::LanguageModel::Options o = nn::music_performer(vocabulary());
  o.n_layers = layers;
  o.layer = layer();
  o.layer.attention.bias = true;
  o.init_std = init_std;
  nn::add_position(position, positions(), o.layer, o.input);
  return o;
}

nn::PositionSettings PianoSettings::positions() const {
  nn::PositionSettings p = position_settings(length);
  p.longest = 2 * length;
  return p;
}

double PianoSettings::least_memory() const {
  return least_memory_of<nn::LanguageModel>(model(), double(batch) * double(length),
                                            double(vocabulary()));
}

PianoSettings piano_settings(const std::string& preset, const std::string& tokens,
                             const std::string& position) {
  require_name("--preset", preset, {"published", "small"});
  PianoSettings s;
  s.tokens = tokens;
  s.position = position;
  if (tokens == "performance") {
    s.transpose = 3;
    s.stretch = 5;
  }
  if (preset == "small") return s;
  const auto model = nn::music_performer(1);
  s.features = 128;
  s.layers = model.n_layers;
  s.d_model = model.layer.d_model;
  s.heads = model.layer.attention.n_heads;
  s.d_hidden = model.layer.feed_forward.d_hidden;
  s.norm = "post";
  s.init_std = model.init_std;
  s.length = 2048;
  s.batch = 4;
  s.taps = position == "conv-ungated" ? 512 : 128;
  s.learning_rate = is_stochastic(position) ? 2e-4 : 1e-4;
  s.warmup = 200;
  s.weight_decay = 0;
  s.max_grad_norm = 0.5;
  s.steps = (is_stochastic(position) ? 140 : 160) * 393;  // epochs
  return s;
}

}  // namespace stretto::examples
