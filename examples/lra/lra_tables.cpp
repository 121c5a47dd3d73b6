// The table of tasks: each name accepted by --task, with its constants.

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
        .published = nn::lra_listops,
        .max_length = 2000,
        .base_rate = 0.0125,
        .warmup = 1000,
        .steps = 10'000}},
      {"text",
       {.vocabulary = [](const Settings&) { return byte_vocabulary; },
        .published = nn::lra_text,
        .max_length = 1000,
        .base_rate = 0.0125,
        .warmup = 8000,
        .steps = 30'000}},
      {"retrieval",
       {.pairs = true,
        .vocabulary = [](const Settings&) { return byte_vocabulary; },
        .published = nn::lra_retrieval,
        .max_length = 4000,
        .base_rate = 0.005,
        .warmup = 3000,
        .steps = 15'000}},
      {"image",
       {.n_classes = 10,
        .vocabulary = [](const Settings&) { return gray_vocabulary; },
        .published = nn::lra_image,
        .max_length = 1024,
        .batch = 96,
        .base_rate = 0.00025,
        .warmup = 468,
        .cycle = 35'000,
        .steps = 93'600,
        .weight_decay = 0}}};
  return all;
}

}  // namespace

std::vector<std::string> lra_tasks() { return names_of(tasks()); }
const LraTask& lra_task(const std::string& name) { return find_name(tasks(), "--task", name); }

}  // namespace stretto::examples
