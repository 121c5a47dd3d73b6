#include "examples/piano/piano_report.h"

#include <algorithm>

#include "examples/piano/piano_training.h"

namespace stretto::examples {

std::vector<PositionBucket> position_buckets(const std::vector<double>& losses, int64_t trained,
                                             int64_t width) {
  const int64_t n = int64_t(losses.size());
  std::vector<PositionBucket> buckets;
  for (int64_t first = 0; first < n;) {
    int64_t last = std::min(first + width, n);
    if (first < trained) last = std::min(last, trained);
    buckets.push_back({first, last, mean_of(losses, first, last)});
    first = last;
  }
  return buckets;
}

Image position_chart(const std::string& title, const std::vector<PositionBucket>& buckets,
                     int64_t trained) {
  std::vector<Series> curves{{"within the trained length", {}, {}}, {"beyond it", {}, {}}};
  for (const PositionBucket& b : buckets) {
    Series& curve = curves[b.first < trained ? 0 : 1];
    curve.x.push_back(double(b.first + b.last) / 2);
    curve.y.push_back(b.loss);
  }
  if (curves[1].x.empty()) curves.pop_back();
  return line_chart({.title = title, .x_label = "position", .y_label = "nats per token"}, curves);
}

Image song_roll(const Song& song, const std::string& title) {
  constexpr int steps = 12;  // of a beat
  RollVoice voice{"Piano", {0, 104, 170}, {}};
  const auto step = [&](int tick) { return int(int64_t(tick) * steps / song.ticks_per_quarter); };
  for (const Track& track : song.tracks)
    for (const Note& note : track.notes) {
      const int begin = step(note.start);
      const int end = std::max(begin + 1, step(note.start + note.duration));
      if (end <= 2000 * steps) voice.notes.push_back({begin, end, note.pitch});
    }
  return piano_roll({.title = title, .steps_per_beat = steps}, {voice});
}

Image attention_picture(nn::MusicTransformer& model, const Tensor& tokens,
                        const AttentionPictureOptions& o) {
  model.eval();
  const std::vector<Tensor> weights = model.attention_weights(tokens);
  std::vector<int64_t> layers = o.layers;
  if (layers.empty()) layers = {1, int64_t(weights.size())};
  if (o.layers.empty() && weights.size() == 1) layers.pop_back();
  const int n = int(tokens.size(1));
  std::vector<HeatMap> maps;
  for (const int64_t layer : layers)
    for (int64_t head = 0; head < std::min(o.heads, model.options.n_heads); ++head)
      maps.push_back({"layer " + std::to_string(layer) + ", head " + std::to_string(head + 1), n, n,
                      weights[size_t(layer - 1)][0][head].to_vector<float>()});
  return heat_maps("Attention: query downwards, key to the right", maps, 0.4);
}

}  // namespace stretto::examples
