#include "examples/lra/lra_settings.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "examples/common/settings.h"
#include "examples/lra/image.h"
#include "examples/training/optimizer.h"

namespace stretto::examples {
namespace {

const char* name_of(nn::Pooling pooling) {
  return pooling == nn::Pooling::cls ? "cls" : pooling == nn::Pooling::first ? "first" : "mean";
}

}  // namespace

nn::Pooling lra_pooling(const std::string& name) {
  if (name == "cls") return nn::Pooling::cls;
  if (name == "first") return nn::Pooling::first;
  require(name == "mean", "--pooling " + name + ": accepted values are cls, first and mean");
  return nn::Pooling::mean;
}

void LraSettings::check() const {
  check_each(*this);
  require(!strip_brackets || task == "listops", "--strip-brackets: only listops has brackets");
  require(task != "image" || max_length >= image_pixels,
          "--max-length " + as_text(max_length) + ": an image has 1024 pixels");
  require_range("--d-hidden", d_hidden, 2, 1 << 20);
  require_range("--warmup", warmup, schedule == "cosine" || schedule == "wsd" ? 0 : 1, INT64_MAX);
  check_model();
  check_position(positions());
}

nn::SequenceClassifier::Options LraSettings::model() const {
  const LraTask& t = lra_task(task);
  nn::SequenceClassifier::Options o{.vocabulary = t.vocabulary(*this),
                                    .n_classes = t.n_classes,
                                    .n_layers = layers,
                                    .layer = layer(),
                                    .input = {.scale = false},
                                    .pooling = lra_pooling(pooling),
                                    .pairs = t.pairs,
                                    .attend_to_padding = attend_to_padding};
  o.layer.norm_eps = 1e-6;
  o.layer.attention.kernel =
      nn::find_kernel(attention).make({.features = features, .redraw = redraw});
  nn::add_position(position, positions(), o.layer, o.input);
  return o;
}

nn::PositionSettings LraSettings::positions() const {
  nn::PositionSettings p = position_settings(max_length);
  p.bidirectional = true;
  p.share_sine = nn::SpeShare::nothing;
  p.share_conv = nn::SpeShare::parameters;
  if (task == "image") {
    p.plane = {32, 32};
    p.class_tokens = pooling == "cls" ? 1 : 0;
  }
  return p;
}

ListOpsOptions LraSettings::listops() const {
  return {.max_depth = int(max_depth),
          .max_args = int(max_args),
          .min_length = min_expression,
          .max_length = max_expression};
}

double LraSettings::rate(int64_t step, double progress) const {
  const bool cycles = schedule == "cycles";
  if (!cycles && schedule != "rsqrt") return schedule_of(*this).at(step + 1, progress);
  const double t = double(step), w = double(warmup);
  const double rising = learning_rate * (cycles ? 1 : std::sqrt(w)) * std::min(1.0, t / w);
  if (!cycles) return rising / std::sqrt(std::max(t, w));
  const double turns = std::max(0.0, t - w) / double(cycle);
  return rising * 0.5 * (1 + std::cos(std::numbers::pi * (turns - std::floor(turns))));
}

double LraSettings::least_memory(double length) const {
  const double rows = double(batch) * length * (lra_task(task).pairs ? 2 : 1);
  return least_memory_of<nn::SequenceClassifier>(model(), rows, 0);
}

namespace {

LraSettings published(const std::string& task) {
  LraSettings s;
  const LraTask& entry = lra_task(task);
  const nn::SequenceClassifier::Options model = entry.published();
  s.task = task;
  s.realizations = task == "image" ? 32 : 64;
  s.pooling = name_of(model.pooling);
  s.max_length = entry.max_length;
  s.layers = model.n_layers;
  const nn::LayerOptions& layer = model.layer;
  s.d_model = layer.d_model;
  s.heads = layer.attention.n_heads;
  s.d_head = layer.attention.d_key;
  s.d_hidden = layer.feed_forward.d_hidden;
  s.dropout = layer.dropout;
  s.attention_dropout = layer.attention.dropout;
  s.position = model.input.learned_length > 0 ? "learned" : "sinusoid";
  s.attend_to_padding = model.attend_to_padding;
  s.batch = entry.batch;
  s.warmup = entry.warmup;
  s.cycle = entry.cycle;
  s.schedule = entry.cycle > 0 ? "cycles" : "rsqrt";
  s.learning_rate = entry.base_rate / (entry.cycle > 0 ? 1 : std::sqrt(double(entry.warmup)));
  s.weight_decay = entry.weight_decay;
  s.max_grad_norm = std::numeric_limits<double>::infinity();
  s.steps = entry.steps;
  return s;
}

}  // namespace

LraSettings lra_settings(const std::string& task, bool small) {
  LraSettings s = published(task);
  if (!small) return s;
  const bool listops = task == "listops", image = task == "image";
  s.expressions = 20'000;
  s.layers = image ? 1 : 2;
  s.d_model = 64;
  s.d_head = 0;
  s.heads = listops ? 4 : 2;
  s.d_hidden = 128;
  s.dropout = 0.1;
  s.attention_dropout = 0;
  s.realizations = 32;
  s.attend_to_padding = false;
  s.batch = 16;
  if (task == "text" || task == "retrieval") s.max_length = 512;
  // In ListOps the outermost operator is the most informative token; pooling its
  // position learns fastest.
  s.pooling = listops ? "first" : "mean";
  s.schedule = "cosine";
  s.learning_rate = listops ? 1e-3 : 2e-3;
  s.warmup = 100;
  s.cycle = 0;
  s.weight_decay = 0.01;
  s.max_grad_norm = 1;
  s.steps = 0;
  return s;
}

}  // namespace stretto::examples
