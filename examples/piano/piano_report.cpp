#include "examples/piano/piano_report.h"

#include <algorithm>
#include <map>
#include <utility>

#include "autograd/tape.h"
#include "examples/piano/piano_program.h"
#include "nn/training/evaluate.h"
#include "ops/spe/spe.h"

namespace stretto::examples {
namespace {

std::vector<int64_t> chosen_layers(const nn::LanguageModel& model,
                                   const AttentionPictureOptions& o) {
  if (!o.layers.empty()) return o.layers;
  if (model.options.n_layers == 1) return {1};
  return {1, model.options.n_layers};
}

// Adds a map per head of values [H, rows, columns], each row repeated `thick` times.
void add_maps(std::vector<HeatMap>& maps, int64_t layer, const Tensor& values, int64_t heads,
              int64_t thick = 1) {
  const int64_t rows = values.size(1), columns = values.size(2);
  for (int64_t head = 0; head < std::min(heads, values.size(0)); ++head)
    maps.push_back({"layer " + std::to_string(layer) + ", head " + std::to_string(head + 1),
                    int(rows * thick), int(columns),
                    values[head].unsqueeze(1).expand({rows, thick, columns}).to_vector<float>()});
}

}  // namespace

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

std::vector<Series> position_curves(const std::vector<PositionBucket>& buckets, int64_t trained) {
  std::vector<Series> curves{{"within the trained length", {}, {}}, {"extrapolation", {}, {}}};
  for (const PositionBucket& b : buckets) {
    Series& curve = curves[b.first < trained ? 0 : 1];
    curve.x.push_back(double(b.first + b.last) / 2);
    curve.y.push_back(b.loss);
  }
  if (curves[1].x.empty()) curves.pop_back();
  return curves;
}

std::string song_roll(const music::Song& song, const std::string& title) {
  constexpr int steps = 12;  // steps per beat
  RollVoice voice{"Piano", "#0068aa", {}};
  const auto step = [&](int tick) { return int(int64_t(tick) * steps / song.ticks_per_quarter); };
  for (const music::Track& track : song.tracks)
    for (const music::Note& note : track.notes) {
      const int begin = step(note.start);
      voice.notes.push_back(
          {begin, std::max(begin + 1, step(note.start + note.duration)), note.pitch});
    }
  return piano_roll({.title = title, .steps_per_beat = steps}, {voice});
}

ReportMaps attention_maps(nn::LanguageModel& model, const Tensor& tokens,
                          const AttentionPictureOptions& o) {
  const nn::EvalMode guard(model);
  const std::vector<Tensor> weights = model.attention_weights(tokens);
  std::vector<HeatMap> maps;
  for (const int64_t layer : chosen_layers(model, o))
    add_maps(maps, layer, weights[size_t(layer - 1)][0], o.heads);
  return {.title = "Attention weights: queries downwards, keys to the right",
          .rows = "query",
          .columns = "key",
          .maps = std::move(maps)};
}

std::optional<ReportMaps> template_maps(const nn::LanguageModel& model, int64_t n,
                                        const AttentionPictureOptions& o) {
  NoGrad guard;
  std::map<std::string, Tensor> of_any_layer;  // parameters of a shared code are in one layer only
  std::vector<std::map<std::string, Tensor>> of(size_t(model.options.n_layers));
  for (const auto& [name, value] : model.named_parameters()) {
    const size_t at = name.find(".position.");
    if (at == name.npos) continue;
    const std::string part = name.substr(name.rfind('.') + 1);
    of[std::stoul(name.substr(std::string("layers.").size()))][part] = value;
    of_any_layer.emplace(part, value);
  }
  std::vector<HeatMap> maps;
  for (const int64_t layer : chosen_layers(model, o)) {
    std::map<std::string, Tensor>& own = of[size_t(layer - 1)];
    const Tensor gate = own["gate"];
    if (!own.contains("freqs") && !own.contains("filter_q")) own = of_any_layer;
    const SpeNoise none(RandomKey{}, 1);
    std::optional<SpeCode> code;
    if (own.contains("freqs"))
      code = SpeCode::sine(own["freqs"], own["offsets"], own["gains"], none);
    else if (own.contains("filter_q"))
      code = SpeCode::conv(own["filter_q"], own["filter_k"], none);
    else
      return std::nullopt;
    const Tensor p = spe_template(*code, n, gate).slice(2, n - 1);
    add_maps(maps, layer, p, o.heads, std::max<int64_t>(1, n / (2 * p.size(1))));
  }
  return ReportMaps{.title = "SPE templates: features downwards, distances from 0 to the right",
                    .rows = "row",
                    .columns = "distance",
                    .maps = std::move(maps)};
}

}  // namespace stretto::examples
