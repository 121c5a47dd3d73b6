#include "nn/training/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "core/parse_number.h"
#include "nn/files/checkpoint_format.h"
#include "nn/files/matcher.h"
#include "nn/training/metrics.h"
#include "ops/create.h"

namespace stretto::nn {

using namespace files;

namespace {

constexpr const char* reserved = "stretto.";
constexpr std::string_view own_prefix = "state.";  // tensors of the program
constexpr std::string_view optimizer_prefix = "optim.";
constexpr const char* optimizer_key = "stretto.optimizer";
constexpr const char* rate_key = "stretto.learning_rate";
constexpr const char* frozen_key = "stretto.frozen";                  // names, one per line
constexpr const char* without_frozen_key = "stretto.without_frozen";  // "1" or missing
constexpr const char* step_key = "stretto.step";
constexpr const char* seed_key = "stretto.random_seed";
constexpr const char* stream_key = "stretto.random_stream";

template <class T>
T number(const std::string& path, const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  check(found != metadata.end(), "load", path, ": metadata \"", key, "\" is missing");
  const std::string& text = found->second;
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size(), "load", path, ": metadata \"",
        key, "\" is not a number");
  return value;
}

TrainingState state_from(const std::string& path, const Metadata& metadata) {
  check(is_checkpoint(path, metadata), "load", path,
        ": is not a checkpoint; load_weights reads other safetensors files");
  TrainingState state{.step = number<int64_t>(path, metadata, step_key),
                      .random = {.seed = number<uint64_t>(path, metadata, seed_key),
                                 .next_stream = number<uint64_t>(path, metadata, stream_key)}};
  for (const auto& [key, value] : metadata)
    if (!key.starts_with(reserved)) state.metadata[key] = value;
  return state;
}

// The model's name of each parameter of the optimizer; "#INDEX" if the model does not have it.
std::vector<std::string> parameter_names(const Module& model, const Optimizer& optimizer) {
  std::unordered_map<const void*, std::string> names;
  for (const NamedTensor& n : model.named_parameters()) names[n.tensor.id()] = n.name;
  std::vector<std::string> result;
  for (const Tensor& p : optimizer.parameters()) {
    const auto found = names.find(p.id());
    result.push_back(found != names.end() ? found->second : "#" + std::to_string(result.size()));
  }
  return result;
}

// Returns the parameters that are not frozen, then the persistent buffers.
std::vector<NamedTensor> without_frozen(const Module& model) {
  std::vector<NamedTensor> all = model.named_parameters();
  std::erase_if(all, [](const NamedTensor& p) { return !p.tensor.requires_grad(); });
  for (NamedTensor& n : model.persistent_buffers()) all.push_back(std::move(n));
  return all;
}

std::string frozen_names(const Module& model, const Optimizer& optimizer) {
  const std::vector<std::string> names = parameter_names(model, optimizer);
  const Tensors parameters = optimizer.parameters();
  std::string all;
  for (size_t i = 0; i < names.size(); ++i)
    if (!parameters[i].requires_grad()) all += (all.empty() ? "" : "\n") + names[i];
  return all;
}

// "3 parameters (a, b, …)"
std::string some_of(const std::vector<std::string>& names) {
  std::string text =
      str(int64_t(names.size()), names.size() == 1 ? " parameter (" : " parameters (");
  for (size_t i = 0; i < std::min<size_t>(names.size(), 2); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  return text + (names.size() > 2 ? ", …)" : ")");
}

// Checks that the saved run and this run train the same parameters, among the parameters that both
// model and file have.
void check_trained(const std::string& path, const Safetensors& file, const Module& model,
                   const Optimizer& optimizer) {
  std::set<std::string> in_file, trained_in_file, trained_here;
  for (const NamedTensor& n : file.tensors) {
    const std::string& name = n.name;
    if (name.starts_with(model_prefix)) in_file.insert(name.substr(model_prefix.size()));
    if (name.starts_with("optim.") && name.ends_with(".steps"))
      trained_in_file.insert(name.substr(6, name.size() - 12));
  }
  if (const auto frozen = file.metadata.find(frozen_key); frozen != file.metadata.end()) {
    std::istringstream lines(frozen->second);
    for (std::string name; std::getline(lines, name);) trained_in_file.erase(name);
  }
  const std::vector<std::string> names = parameter_names(model, optimizer);
  const Tensors parameters = optimizer.parameters();
  for (size_t i = 0; i < names.size(); ++i)
    if (parameters[i].requires_grad()) trained_here.insert(names[i]);
  std::vector<std::string> only_saved, only_here;
  for (const NamedTensor& p : model.named_parameters()) {
    if (!in_file.contains(p.name) ||
        trained_in_file.contains(p.name) == trained_here.contains(p.name))
      continue;
    (trained_here.contains(p.name) ? only_here : only_saved).push_back(p.name);
  }
  if (only_here.empty() && only_saved.empty()) return;
  std::string text;
  if (!only_saved.empty()) text = " trained " + some_of(only_saved) + " that this one does not";
  if (!only_here.empty())
    text += str(text.empty() ? "" : ", and", " did not train ", some_of(only_here),
                " that this one trains");
  fail("load", path, ": the saved run", text,
       "; freeze the same parameters and pass the same ones to the optimizer before loading");
}

std::vector<ParameterState> match_optimizer(const Module& model, const Optimizer& optimizer,
                                            Matcher& matcher) {
  const std::vector<std::string> names = parameter_names(model, optimizer);
  const Tensors parameters = optimizer.parameters();
  std::vector<ParameterState> states(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string prefix = std::string(optimizer_prefix) + names[i] + ".";
    const Tensor steps = matcher.take(prefix + "steps");
    if (!steps.defined()) continue;
    if (steps.dtype() != i64 || steps.dim() != 0) {
      matcher.problem(
          str(prefix, "steps: file has ", steps.dtype(), " ", steps.shape(), ", expected i64 []"));
      continue;
    }
    states[i].steps = *steps.data<int64_t>();
    if (states[i].steps == 0) continue;
    const DType dtype = compute_type(parameters[i].dtype());
    for (const std::string& slot : optimizer.state_names(i)) {
      const Tensor value = matcher.take(prefix + slot);
      if (!value.defined()) continue;
      const Shape shape = optimizer.slot_shape(slot, parameters[i].shape());
      if (value.shape() != shape || value.dtype() != dtype)
        matcher.problem(str(prefix, slot, ": file has ", value.dtype(), " ", value.shape(),
                            ", the optimizer ", dtype, " ", shape));
      matcher.need_finite(prefix + slot, value);
      states[i].tensors.push_back({slot, value});
    }
  }
  return states;
}

}  // namespace

void save_checkpoint(const std::string& path, const Module& model, const Optimizer* optimizer,
                     const TrainingState& state, SaveOptions options) {
  Metadata metadata = state.metadata;
  for (const auto& [key, value] : metadata)
    check(!key.starts_with(reserved), "save", path, ": metadata key \"", key,
          "\" begins with \"stretto.\", which is reserved");
  metadata.merge(checkpoint_texts());
  metadata[step_key] = std::to_string(state.step);
  metadata[seed_key] = std::to_string(state.random.seed);
  metadata[stream_key] = std::to_string(state.random.next_stream);

  std::vector<NamedTensor> saved = state_of(model), tensors;
  if (!options.frozen) {
    const size_t all = saved.size();
    saved = without_frozen(model);
    if (saved.size() < all) metadata[without_frozen_key] = "1";
  }
  for (const NamedTensor& n : saved)
    tensors.push_back({std::string(model_prefix) + n.name, n.tensor});
  if (optimizer) {
    metadata[optimizer_key] = optimizer->name();
    metadata[rate_key] = exact_text(optimizer->learning_rate());
    if (const std::string frozen = frozen_names(model, *optimizer); !frozen.empty())
      metadata[frozen_key] = frozen;
    const std::vector<std::string> names = parameter_names(model, *optimizer);
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string prefix = std::string(optimizer_prefix) + names[i] + ".";
      const auto& [steps, state_tensors] = optimizer->state()[i];
      tensors.push_back({prefix + "steps", tensor(std::vector<int64_t>{steps}, {}, cpu)});
      for (const NamedTensor& n : state_tensors) tensors.push_back({prefix + n.name, n.tensor});
    }
  }
  for (const NamedTensor& n : state.tensors)
    tensors.push_back({std::string(own_prefix) + n.name, n.tensor});
  save_safetensors(path, tensors, metadata);
}

TrainingState load_checkpoint(const SafetensorsFile& opened, Module& model, Optimizer* optimizer,
                              LoadOptions options) {
  const std::string& path = opened.path();
  TrainingState state = state_from(path, opened.metadata());
  const Safetensors file{opened.read([](const std::string&) { return true; }), opened.metadata()};
  if (optimizer) {
    const auto found = file.metadata.find(optimizer_key);
    const std::string saved = found == file.metadata.end() ? "none" : found->second;
    check(saved == optimizer->name(), "load", path, ": was saved with optimizer ", saved,
          ", this run uses ", optimizer->name());
    check_trained(path, file, model, *optimizer);
  }

  // In the matcher, model tensors have no prefix and optimizer state keeps its own.
  Matcher matcher(path, options.allow_not_finite);
  const FirstNames first_name(model);
  for (const NamedTensor& n : file.tensors) {
    if (n.name.starts_with(model_prefix)) {
      const std::string name = n.name.substr(model_prefix.size());
      matcher.offer({first_name(name), n.tensor}, name);
    } else if (n.name.starts_with(own_prefix)) {
      state.tensors.push_back({n.name.substr(own_prefix.size()), n.tensor});
    } else if (!n.name.starts_with(optimizer_prefix)) {
      matcher.offer(n);
    } else if (optimizer) {  // "optim.NAME.slot"
      const size_t begin = optimizer_prefix.size(), dot = std::max(begin, n.name.rfind('.'));
      const std::string name = first_name(n.name.substr(begin, dot - begin));
      matcher.offer({std::string(optimizer_prefix) + name + n.name.substr(dot), n.tensor}, n.name);
    }
  }
  const bool complete = !file.metadata.contains(without_frozen_key);
  const std::vector<Assignment> assignments =
      match_tensors(complete ? state_of(model) : without_frozen(model), matcher, false);
  std::vector<ParameterState> states;
  if (optimizer) states = match_optimizer(model, *optimizer, matcher);
  std::optional<double> rate;
  if (const auto found = file.metadata.find(rate_key); optimizer && found != file.metadata.end()) {
    rate = parse_double(found->second);
    check(rate && *rate >= 0 && std::isfinite(*rate), "load", path, ": the learning rate is \"",
          found->second, "\"; must be a number ≥ 0");
  }
  matcher.finish();
  if (optimizer) optimizer->load_state(states);  // checks the rest before it changes anything
  assign(assignments);
  if (rate) optimizer->set_learning_rate(*rate);
  set_random_state(state.random);
  return state;
}

TrainingState load_checkpoint(const std::string& path, Module& model, Optimizer* optimizer,
                              LoadOptions options) {
  return load_checkpoint(SafetensorsFile(path), model, optimizer, options);
}

TrainingState load_training_state(const SafetensorsFile& file) {
  return state_from(file.path(), file.metadata());
}

TrainingState load_training_state(const std::string& path) {
  return load_training_state(SafetensorsFile(path));
}

}  // namespace stretto::nn
