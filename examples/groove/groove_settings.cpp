#include "examples/groove/groove_settings.h"

#include "examples/common/settings.h"
#include "examples/groove/groove_tokens.h"

namespace stretto::examples {

void GrooveSettings::check() const {
  require_number("--held-out", held_out, held_out > 0 && held_out < 1, "above 0 and below 1");
  require_range("--skip-bars", skip_bars, 0, 1000);
  check_model();
  require_range("--features", features, 2, 1 << 20);
  require_range("--redraw", redraw, 0, INT64_MAX);
  check_spe(65536);
  require_range("--length", length, 2, 1 << 20);
  require(features % 2 == 0,
          "--features " + as_text(features) + ": come in pairs, so their number must be even");
  require(position != "sinusoid" || d_model % 2 == 0,
          "--d-model " + as_text(d_model) + ": sinusoids need an even number");
  require(position != "rope" || d_model / heads % 2 == 0,
          "--position rope: turns pairs, and a head has " + as_text(d_model / heads) + " numbers");
  require_share("--attention-dropout", attention_dropout);
  require(attention == "softmax" || attention_dropout == 0,
          "--attention-dropout " + as_text(attention_dropout) + ": only softmax attention has it");
  require_not_negative("--weight-decay", weight_decay);
  groove_model(*this);
}

double GrooveSettings::least_memory() const {
  const double d = double(d_model), hidden = double(d_hidden), vocabulary = groove_vocabulary;
  const double table = position == "music" ? double(length) * d : 0;
  const double parameters =
      double(layers) * (4 * d * d + 2 * d * hidden + table) + 2 * vocabulary * d;
  const double activations =
      double(batch) * double(length - 1) * (double(layers) * (6 * d + hidden) + vocabulary);
  return sizeof(float) * (4 * parameters + activations);
}

GrooveSettings published_groove() {
  GrooveSettings s;
  s.skip_bars = 2;
  s.published_eos = true;
  s.attention = "performer";
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
