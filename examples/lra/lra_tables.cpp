// --task, --attention and --position: names, with what each stands for. A new one is a line here.

#include <map>

#include "examples/common/settings.h"
#include "examples/lra/image.h"
#include "examples/lra/lra_settings.h"
#include "examples/lra/text.h"
#include "nn/linear_attention.h"
#include "nn/relative_bias.h"
#include "nn/relative_table.h"
#include "nn/rotary.h"
#include "nn/spe.h"

namespace stretto::examples {
namespace {

using Settings = LraSettings;
using nn::AddedPosition;

const std::map<std::string, LraTask>& tasks() {
  static const std::map<std::string, LraTask> all{
      {"listops",
       {.n_classes = 10,
        .vocabulary = [](const Settings& s) { return listops_vocabulary(s.strip_brackets); },
        .published = nn::lra_listops}},
      {"text",
       {.vocabulary = [](const Settings&) { return byte_vocabulary; }, .published = nn::lra_text}},
      {"retrieval",
       {.pairs = true,
        .vocabulary = [](const Settings&) { return byte_vocabulary; },
        .published = nn::lra_retrieval}},
      {"image",
       {.n_classes = 10,
        .vocabulary = [](const Settings&) { return grey_vocabulary; },
        .published = nn::lra_image}}};
  return all;
}

using Attention = LraAttention (*)(const Settings&);

LraAttention linear(nn::MakeFeatureMap map, double eps) {
  return {false, nn::linear_kernel(std::move(map), {.eps = eps})};
}

// Features and eps as published: Choromanski et al.'s for performer and linear-relu (the latter
// without a projection), Katharopoulos et al.'s for linear-elu.
const std::map<std::string, Attention>& attentions() {
  static const std::map<std::string, Attention> all{
      {"softmax",
       [](const Settings&) {
         return LraAttention{true, nn::softmax_kernel()};
       }},
      {"performer",
       [](const Settings& s) {
         return linear(nn::favor({.features = 256, .redraw = s.redraw}), 1e-6);
       }},
      {"linear-relu", [](const Settings&) { return linear(nn::relu_plus(1e-3), 0); }},
      {"linear-elu", [](const Settings&) { return linear(nn::elu_plus_one(), 1e-6); }}};
  return all;
}

using Position = LraPosition (*)(const Settings&);

LraPosition inside(nn::MakePosition make) { return {AddedPosition::none, std::move(make)}; }
LraPosition of_scores(nn::MakePosition make) {
  return {AddedPosition::none, std::move(make), true};
}

// As published: sines of each layer's own; filters that all layers share, with draws of their own.
LraPosition sine(const Settings& s, bool gated) {
  return inside(nn::sine_spe({.realizations = s.realizations, .sines = s.sines, .gated = gated}));
}
LraPosition conv(const Settings& s, bool gated) {
  return inside(nn::conv_spe({.realizations = s.realizations,
                              .taps = {s.taps},
                              .gated = gated,
                              .shared = nn::SpeShare::parameters}));
}

const std::map<std::string, Position>& positions() {
  static const std::map<std::string, Position> all{
      {"none", [](const Settings&) { return LraPosition(); }},
      {"ape", [](const Settings&) { return LraPosition{AddedPosition::sinusoid}; }},
      {"learned", [](const Settings&) { return LraPosition{AddedPosition::learned}; }},
      {"rope", [](const Settings&) { return inside(nn::rotary()); }},
      {"sine", [](const Settings& s) { return sine(s, true); }},
      {"sine-ungated", [](const Settings& s) { return sine(s, false); }},
      {"conv", [](const Settings& s) { return conv(s, true); }},
      {"conv-ungated", [](const Settings& s) { return conv(s, false); }},
      {"shaw", [](const Settings&) { return of_scores(nn::shaw_relative({.values = false})); }},
      {"t5", [](const Settings&) {
         return of_scores(nn::shared_by_layers(nn::t5({.two_sided = true})));
       }}};
  return all;
}

template <class T>
std::vector<std::string> names(const std::map<std::string, T>& table) {
  std::vector<std::string> all;
  for (const auto& entry : table) all.push_back(entry.first);
  return all;
}

template <class T>
const T& find(const std::map<std::string, T>& table, const std::string& option,
              const std::string& name) {
  const auto it = table.find(name);
  if (it != table.end()) return it->second;
  std::string all;
  for (const std::string& known : names(table)) all += (all.empty() ? "" : ", ") + known;
  throw UsageError(option + " " + name + ": accepted are " + all);
}

}  // namespace

std::vector<std::string> lra_tasks() { return names(tasks()); }
std::vector<std::string> lra_attentions() { return names(attentions()); }
std::vector<std::string> lra_positions() { return names(positions()); }

const LraTask& lra_task(const std::string& name) { return find(tasks(), "--task", name); }

LraAttention lra_attention(const LraSettings& s) {
  return find(attentions(), "--attention", s.attention)(s);
}

LraPosition lra_position(const LraSettings& s) {
  return find(positions(), "--position", s.position)(s);
}

}  // namespace stretto::examples
