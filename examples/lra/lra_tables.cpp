// --task and --position: names, with what each stands for. A new one is a line here.

#include <map>

#include "examples/common/settings.h"
#include "examples/lra/image.h"
#include "examples/lra/lra_settings.h"
#include "examples/lra/text.h"
#include "nn/positions/relative_bias.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/rotary.h"

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

using Position = LraPosition (*)(const Settings&);

LraPosition inside(nn::MakePosition make) { return {AddedPosition::none, std::move(make)}; }
LraPosition of_scores(nn::MakePosition make) {
  return {AddedPosition::none, std::move(make), true};
}

// As published: sines of each layer's own; filters that all layers share, with draws of their own.
LraPosition spe(const Settings& s) {
  return inside(spe_position(s.position, s, nn::SpeShare::nothing, nn::SpeShare::parameters));
}

const std::map<std::string, Position>& positions() {
  static const std::map<std::string, Position> all{
      {"none", [](const Settings&) { return LraPosition(); }},
      {"ape",
       [](const Settings& s) { return LraPosition{lra_task(s.task).published().model.added}; }},
      {"sinusoid", [](const Settings&) { return LraPosition{AddedPosition::sinusoid}; }},
      {"learned", [](const Settings&) { return LraPosition{AddedPosition::learned}; }},
      {"rope", [](const Settings&) { return inside(nn::rotary()); }},
      {"sine", spe},
      {"sine-ungated", spe},
      {"conv", spe},
      {"conv-ungated", spe},
      {"shaw", [](const Settings&) { return of_scores(nn::shaw_relative({.values = false})); }},
      {"t5", [](const Settings&) {
         return of_scores(nn::shared_by_layers(nn::t5({.two_sided = true})));
       }}};
  return all;
}

}  // namespace

std::vector<std::string> lra_tasks() { return names_of(tasks()); }
std::vector<std::string> lra_positions() { return names_of(positions()); }

const LraTask& lra_task(const std::string& name) { return find_name(tasks(), "--task", name); }

// As Choromanski et al. 2021: linear-relu adds its epsilon to the features, not to denominators.
Kernel lra_attention(const LraSettings& s) {
  return kernel_of(s.attention,
                   {.performer = {.features = 256, .redraw = s.redraw}, .relu_eps = 0});
}

LraPosition lra_position(const LraSettings& s) {
  return find_name(positions(), "--position", s.position)(s);
}

}  // namespace stretto::examples
