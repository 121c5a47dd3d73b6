// --task, --attention and --position: names, with what each stands for. A new one is a line here.

#include <map>

#include "examples/common/settings.h"
#include "examples/lra/image.h"
#include "examples/lra/lra_settings.h"
#include "examples/lra/text.h"
#include "nn/relative_bias.h"
#include "nn/relative_table.h"
#include "nn/rotary.h"

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

using MakeAttention = nn::MakeKernel (*)(const Settings&);

const std::map<std::string, MakeAttention>& attentions() {
  static const std::map<std::string, MakeAttention> all{
      {"softmax", [](const Settings&) { return nn::softmax_kernel(); }}};
  return all;
}

using Position = LraPosition (*)(const Settings&);

LraPosition inside(nn::MakePosition make) { return {AddedPosition::none, std::move(make)}; }

const std::map<std::string, Position>& positions() {
  static const std::map<std::string, Position> all{
      {"none", [](const Settings&) { return LraPosition(); }},
      {"ape", [](const Settings&) { return LraPosition{AddedPosition::sinusoid}; }},
      {"learned", [](const Settings&) { return LraPosition{AddedPosition::learned}; }},
      {"rope", [](const Settings&) { return inside(nn::rotary()); }},
      {"shaw", [](const Settings&) { return inside(nn::shaw_relative({.values = false})); }},
      {"t5",
       [](const Settings&) { return inside(nn::shared_by_layers(nn::t5({.two_sided = true}))); }}};
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

nn::MakeKernel lra_attention(const LraSettings& s) {
  return find(attentions(), "--attention", s.attention)(s);
}

LraPosition lra_position(const LraSettings& s) {
  return find(positions(), "--position", s.position)(s);
}

}  // namespace stretto::examples
