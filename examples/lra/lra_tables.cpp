// --task: names, with what each stands for. A new one is a line here.

#include <map>

#include "examples/common/settings.h"
#include "examples/lra/image.h"
#include "examples/lra/lra_settings.h"
#include "examples/lra/text.h"

namespace stretto::examples {
namespace {

using Settings = LraSettings;

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

}  // namespace

std::vector<std::string> lra_tasks() { return names_of(tasks()); }
const LraTask& lra_task(const std::string& name) { return find_name(tasks(), "--task", name); }

}  // namespace stretto::examples
