// Settings that every training on chorales has: their options, their checks, their names.
#pragma once

#include "examples/common/settings.h"

namespace stretto::examples {

/// Declares all but the length; that, --steps and --seed are the program's. App is CLI::App, which
/// only a program includes.
template <class App, class Settings>
void describe_training(App& app, Settings& s) {
  app.add_option("--layers", s.layers, "Layers");
  app.add_option("--d-model", s.d_model, "Width of the model");
  app.add_option("--heads", s.heads, "Attention heads");
  app.add_option("--d-hidden", s.d_hidden, "Width of the feed-forward networks");
  app.add_option("--dropout", s.dropout, "Dropout on every residual branch");
  app.add_option("--attention-dropout", s.attention_dropout, "Dropout on attention weights");
  app.add_option("--batch", s.batch, "Crops per step");
  app.add_option("--transpose", s.transpose, "Crops are moved by up to so many semitones");
  app.add_option("--learning-rate", s.learning_rate, "Highest learning rate of AdamW");
  app.add_option("--warmup", s.warmup, "Steps of linear warm-up");
  app.add_option("--weight-decay", s.weight_decay, "Decoupled weight decay");
  app.add_option("--clip", s.clip, "Largest norm of a step's gradient");
}

/// Calls f(name, value) for all of them, after the program's first ones.
template <class S, class F>
void each_training(S& s, F&& f) {
  f("layers", s.layers);
  f("d_model", s.d_model);
  f("heads", s.heads);
  f("d_hidden", s.d_hidden);
  f("dropout", s.dropout);
  f("attention_dropout", s.attention_dropout);
  f("length", s.length);
  f("batch", s.batch);
  f("transpose", s.transpose);
  f("learning_rate", s.learning_rate);
  f("warmup", s.warmup);
  f("weight_decay", s.weight_decay);
  f("clip", s.clip);
  f("steps", s.steps);
  f("seed", s.seed);
}

/// Throws UsageError, naming option and value, for what cannot be trained: sizes below 1, heads
/// that do not divide d_model, probabilities out of range.
template <class Settings>
void check_training(const Settings& s, int64_t least_length) {
  require_range("--layers", s.layers, 1, 1000);
  require_range("--d-model", s.d_model, 1, 65536);
  require_range("--heads", s.heads, 1, s.d_model);
  require_range("--d-hidden", s.d_hidden, 1, 1 << 20);
  require_range("--length", s.length, least_length, 1 << 20);
  require_range("--batch", s.batch, 1, 1 << 20);
  require_range("--transpose", s.transpose, 0, 24);
  require_range("--warmup", s.warmup, 0, INT64_MAX);
  require_range("--steps", s.steps, 0, INT64_MAX);
  require(s.d_model % s.heads == 0,
          "--d-model " + as_text(s.d_model) + " is not a multiple of --heads " + as_text(s.heads));
  require_share("--dropout", s.dropout);
  require_share("--attention-dropout", s.attention_dropout);
  require_positive("--learning-rate", s.learning_rate);
  require_number("--weight-decay", s.weight_decay,
                 s.weight_decay >= 0 && std::isfinite(s.weight_decay), "a number of at least 0");
  require_number("--clip", s.clip, s.clip > 0, "above 0");
}

}  // namespace stretto::examples
