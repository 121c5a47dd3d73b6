#include "examples/piano/piano_settings.h"

#include "examples/common/settings.h"
#include "examples/training/kernels.h"
#include "nn/init.h"

namespace stretto::examples {

void PianoSettings::check() const {
  language();
  require_name("--attention", attention, kernel_names());
  require_name("--norm", norm, {"post", "pre"});
  check_model();
  require_range("--features", features, 2, 65536);
  require(features % 2 == 0, "--features " + as_text(features) + ": come in pairs");
  require_range("--redraw", redraw, 0, INT64_MAX);
  check_spe(65536);
  require_range("--length", length, 1, 1 << 20);
  require_range("--transpose", transpose, 0, 24);
  require_range("--stretch", stretch, 0, 50);
  require(tokens == "performance" || (stretch == 0 && !pedal),
          std::string(pedal ? "--pedal" : "--stretch") + ": goes with --tokens performance");
  require(position != "rope" || d_model / heads % 2 == 0,
          "--position rope: turns pairs, and a head has " + as_text(d_model / heads) + " numbers");
  nn::MusicTransformer::Options unused;
  add_position(unused, *this);
  require_not_negative("--init-std", init_std);
  require_not_negative("--weight-decay", weight_decay);
}

nn::MusicTransformer::Options PianoSettings::model() const {
  nn::MusicTransformer::Options o = nn::music_performer(language().vocabulary);
  o.d_model = d_model;
  o.n_layers = layers;
  o.n_heads = heads;
  o.d_hidden = d_hidden;
  const nn::FavorOptions performer{
      .features = features, .kind = nn::FavorKind::hyperbolic, .redraw = redraw};
  o.kernel = kernel_of(attention, {.performer = performer}).make;
  o.norm = norm == "post" ? nn::NormPlace::post : nn::NormPlace::pre;
  o.dropout = dropout;
  o.init_std = init_std;
  add_position(o, *this);
  return o;
}

int64_t PianoSettings::longest() const {
  return position == "learned" ? 2 * length : int64_t(1) << 20;
}

double PianoSettings::least_memory() const {
  const double d = double(d_model);
  const double vocabulary = double(language().vocabulary);
  const double parameters =
      double(layers) * (4 * d * d + 2 * d * double(d_hidden)) + 2 * vocabulary * d;
  const double activations =
      double(batch) * double(length) * (double(layers) * (6 * d + double(d_hidden)) + vocabulary);
  return sizeof(float) * (4 * parameters + activations);
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
  s.d_model = model.d_model;
  s.heads = model.n_heads;
  s.d_hidden = model.d_hidden;
  s.norm = "post";
  s.init_std = model.init_std;
  s.length = 2048;
  s.batch = 4;
  s.taps = position == "conv-ungated" ? 512 : 128;
  s.learning_rate = is_stochastic(position) ? 2e-4 : 1e-4;
  s.warmup = 200;
  s.weight_decay = 0;
  s.clip = 0.5;
  s.steps = (is_stochastic(position) ? 140 : 160) * 393;  // epochs
  return s;
}

}  // namespace stretto::examples
