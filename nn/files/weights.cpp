#include "nn/files/weights.h"

#include <functional>
#include <set>

#include "core/one_line.h"
#include "nn/files/checkpoint_format.h"
#include "nn/files/matcher.h"
#include "nn/files/safetensors_header.h"

namespace stretto::nn {

using namespace files;

namespace {

// A tensor that the file has.
struct Offer {
  std::string name, what;  // what: dtype and shape
};
using Wanted = std::function<bool(const std::string& name)>;

LoadReport load(const std::string& path, const Metadata& metadata, const std::vector<Offer>& offers,
                const std::function<std::vector<NamedTensor>(const Wanted&)>& read, Module& model,
                const NameMap& names, WeightOptions options) {
  const bool checkpoint = is_checkpoint(path, metadata);
  const FirstNames first_name(model);
  std::set<std::string> in_model;
  for (const NamedTensor& n : state_of(model)) in_model.insert(n.name);

  LoadReport report;
  Matcher matcher(path, options.allow_not_finite);
  std::set<std::string> wanted;
  for (const auto& [full, what] : offers) {
    if (checkpoint && !full.starts_with(model_prefix)) continue;
    const std::string name = checkpoint ? full.substr(model_prefix.size()) : full;
    const std::vector<std::string> targets = names.targets(name);
    if (targets.empty()) report.dropped.push_back(full);
    bool any = false;
    for (const std::string& target : targets) any |= in_model.contains(first_name(target));
    if (any) wanted.insert(full);
    if (!any && !targets.empty()) matcher.leave(targets[0], name, what);
  }
  std::vector<NamedTensor> file =
      read([&](const std::string& name) { return wanted.contains(name); });
  if (checkpoint)
    for (NamedTensor& n : file) n.name.erase(0, model_prefix.size());
  for (const NameMap::Mapped& m : names(file))
    matcher.offer({first_name(m.tensor.name), m.tensor.tensor}, m.origin);

  const std::vector<Assignment> assignments = match_model(model, matcher, true);
  matcher.finish(options.strict || assignments.empty());
  assign(assignments);
  report.missing = matcher.missing();
  report.unused = matcher.unused();
  const std::set<std::string> missing(report.missing.begin(), report.missing.end());
  for (const NamedTensor& n : state_of(model))
    if (!missing.contains(n.name)) report.loaded.push_back(n.name);
  return report;
}

std::string first_names(const std::vector<std::string>& names) {
  std::string text;
  constexpr size_t shown = 10;
  for (size_t i = 0; i < std::min(shown, names.size()); ++i)
    text += (i > 0 ? ", " : "") + one_line(names[i]);
  return names.size() > shown ? text + str(" and ", names.size() - shown, " more") : text;
}

}  // namespace

std::string LoadReport::describe() const {
  std::string text =
      str("loaded ", loaded.size(), " of ", loaded.size() + missing.size(), " tensors");
  if (!missing.empty()) text += "; not in the file: " + first_names(missing);
  if (!unused.empty()) text += "; not expected: " + first_names(unused);
  if (!dropped.empty()) text += "; dropped: " + first_names(dropped);
  return text;
}

LoadReport load_weights(const SafetensorsFile& file, Module& model, const NameMap& names,
                        WeightOptions options) {
  std::vector<Offer> offers;
  for (const SafetensorsFile::Entry& e : file.entries()) {
    const std::optional<FormatDType> known = find_dtype(e.dtype);
    const std::string dtype = known ? name(known->dtype) : e.dtype;
    offers.push_back({e.name, str(dtype, " ", e.shape)});
  }
  const auto read = [&](const Wanted& wanted) { return file.read(wanted); };
  return load(file.path(), file.metadata(), offers, read, model, names, options);
}

LoadReport load_weights(const std::string& path, Module& model, const NameMap& names,
                        WeightOptions options) {
  return load_weights(SafetensorsFile(path), model, names, options);
}

LoadReport load_weights(const Safetensors& file, Module& model, const NameMap& names,
                        WeightOptions options) {
  std::vector<Offer> offers;
  for (const NamedTensor& n : file.tensors) offers.push_back({n.name, str(n.tensor)});
  const auto read = [&](const Wanted& wanted) {
    std::vector<NamedTensor> chosen;
    for (const NamedTensor& n : file.tensors)
      if (wanted(n.name)) chosen.push_back({n.name, n.tensor.detach().to(cpu)});
    return chosen;
  };
  return load("tensors in memory", file.metadata, offers, read, model, names, options);
}

void save_weights(const std::string& path, const Module& model, const NameMap& names,
                  const Metadata& metadata) {
  save_safetensors(path, names.backwards(state_of(model)), metadata);
}

}  // namespace stretto::nn
