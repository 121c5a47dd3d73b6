#include "examples/training/model_settings.h"

#include <CLI/CLI.hpp>

namespace stretto::examples {

void ModelSettings::check_model(bool heads_of_d_model) const {
  require_range("--layers", layers, 1, 1000);
  require_range("--d-model", d_model, 1, 65536);
  require_range("--heads", heads, 1, heads_of_d_model ? d_model : 65536);
  require_range("--d-hidden", d_hidden, 1, 1 << 20);
  require_range("--batch", batch, 1, 1 << 20);
  require_range("--warmup", warmup, 0, INT64_MAX);
  require_range("--steps", steps, 0, INT64_MAX);
  require(!heads_of_d_model || d_model % heads == 0,
          "--d-model " + as_text(d_model) + " is not a multiple of --heads " + as_text(heads));
  require_share("--dropout", dropout);
  require_positive("--learning-rate", learning_rate);
  require_number("--clip", clip, clip > 0, "above 0");
}

void describe_model(CLI::App& app, ModelSettings& s) {
  app.add_option("--layers", s.layers, "Layers");
  app.add_option("--d-model", s.d_model, "Width of the model");
  app.add_option("--heads", s.heads, "Attention heads");
  app.add_option("--d-hidden", s.d_hidden, "Width of the feed-forward networks");
  app.add_option("--dropout", s.dropout, "Dropout on every residual branch");
  app.add_option("--batch", s.batch, "Sequences of a step");
  app.add_option("--learning-rate", s.learning_rate, "Highest learning rate of AdamW");
  app.add_option("--warmup", s.warmup, "Steps of linear warm-up");
  app.add_option("--clip", s.clip, "Largest norm of a step's gradient");
}

}  // namespace stretto::examples
