#include "examples/groove/groove_settings.h"

#include "examples/common/settings.h"
#include "examples/groove/groove_tokens.h"

namespace stretto::examples {

void GrooveSettings::check() const {
  check_each(*this);
  check_model();
  check_position(position_settings(length));
}

nn::LanguageModel::Options GrooveSettings::model() const {
  nn::LanguageModel::Options o;
  if (published_model) o = nn::music_performer(groove_vocabulary);
  o.vocabulary = groove_vocabulary;
  o.n_layers = layers;
  o.layer = layer();
  if (published_model) {
    o.layer.norm = nn::NormPlace::post;
    o.layer.attention.bias = true;
  }
  nn::add_position(position, position_settings(length), o.layer, o.input);
  return o;
}

double GrooveSettings::least_memory() const {
  return least_memory_of<nn::LanguageModel>(model(), double(batch) * double(length - 1),
                                            groove_vocabulary);
}

GrooveSettings published_groove() {
  GrooveSettings s;
  s.skip_bars = 2;
  s.published_eos = true;
  s.attention = "performer-hyperbolic";
  s.position = "sinusoid";
  s.published_model = true;
  s.layers = 24;
  s.d_model = 512;
  s.heads = 8;
  s.d_hidden = 2048;
  s.features = 128;
  s.sines = 8;
  s.batch = 10;
  s.learning_rate = 4e-4;
  s.warmup = 1000;
  s.weight_decay = 0;
  s.steps = 13'272;
  return s;
}

}  // namespace stretto::examples
