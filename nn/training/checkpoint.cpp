#include "nn/training/checkpoint.h"

#include <charconv>
#include <unordered_map>
#include <utility>

#include "autograd/tape.h"
#include "ops/create.h"

namespace stretto::nn {
namespace {

constexpr const char* reserved = "stretto.";
const std::string own_prefix = "state.";  // of the program's own tensors
constexpr const char* format_key = "stretto.format";
constexpr const char* format = "checkpoint-2";
constexpr const char* format_without_digest = "checkpoint-1";  // read as before
constexpr const char* optimizer_key = "stretto.optimizer";
constexpr const char* step_key = "stretto.step";
constexpr const char* seed_key = "stretto.random_seed";
constexpr const char* stream_key = "stretto.random_stream";

// Throws where a checkpoint has lost its digest, as one damaged bit of its key would do.
bool is_checkpoint(const std::string& path, const Metadata& metadata) {
  const auto found = metadata.find(format_key);
  if (found == metadata.end()) return false;
  check(found->second != format || metadata.contains(digest_key), "load", path, ": metadata \"",
        digest_key, "\" is missing");
  return found->second == format || found->second == format_without_digest;
}

template <class T>
T number(const std::string& path, const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  check(found != metadata.end(), "load", path, ": metadata \"", key, "\" is missing");
  const std::string& text = found->second;
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size(), "load", path, ": metadata \"",
        key, "\" is no number");
  return value;
}

TrainingState state_from(const std::string& path, const Metadata& metadata) {
  check(is_checkpoint(path, metadata), "load", path, ": is not a checkpoint (no ", format_key,
        " = ", format, "); load_weights reads other files");
  TrainingState state{.step = number<int64_t>(path, metadata, step_key),
                      .random = {.seed = number<uint64_t>(path, metadata, seed_key),
                                 .next_stream = number<uint64_t>(path, metadata, stream_key)}};
  for (const auto& [key, value] : metadata)
    if (!key.starts_with(reserved)) state.notes[key] = value;
  return state;
}

std::vector<NamedTensor> state_of(const Module& model) {
  std::vector<NamedTensor> all = model.named_parameters();
  for (NamedTensor& n : model.named_buffers()) all.push_back(std::move(n));
  return all;
}

// The model's name of each of the optimiser's parameters, or its number there.
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

bool is_finite(const Tensor& value) {
  if (!is_floating(value.dtype())) return true;
  const Tensor x = value.contiguous();
  bool finite = true;
  dispatch_floating(x.dtype(), "load", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* values = x.data<T>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      const auto v = compute_t<T>(values[i]);
      finite &= v - v == 0;
    }
  });
  return finite;
}

bool equal(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         a.to_vector<double>() == b.to_vector<double>();
}

// A file's tensors against what is wanted. Collects all that does not fit before it throws.
class Matcher {
 public:
  Matcher(std::string path, LoadOptions options) : path_(std::move(path)), options_(options) {}

  /// `name_in_file`: where it differs, it is told when the tensor is not wanted or does not fit.
  /// Weights that two layers share may be in the file once for each.
  void offer(const NamedTensor& value, const std::string& name_in_file) {
    const std::string origin = value.name == name_in_file ? "" : " (" + name_in_file + ")";
    if (found_.emplace(value.name, value.tensor).second) {
      origins_[value.name] = origin;
      order_.push_back(value.name);
    } else if (!equal(found_.at(value.name), value.tensor)) {
      problem(value.name + origin + ": in the file twice, with other values");
    }
  }
  void offer(const NamedTensor& value) { offer(value, value.name); }

  /// The name, and in brackets the one in the file where that is another.
  std::string named(const std::string& name) const { return name + origins_.at(name); }

  /// The tensor of that name, which counts as wanted; undefined when it is missing.
  Tensor take(const std::string& name) {
    const auto it = found_.find(name);
    if (it == found_.end()) {
      problem(name + ": not in the file");
      return {};
    }
    Tensor value = std::move(it->second);
    found_.erase(it);
    return value;
  }

  void problem(std::string text) { problems_.push_back(std::move(text)); }

  void need_finite(const std::string& name, const Tensor& value) {
    if (!options_.allow_not_finite && !is_finite(value))
      problem(name + ": holds values that are not finite");
  }

  /// Call when all is taken: what is left over is one more problem each.
  void finish() {
    for (const std::string& name : order_)
      if (found_.contains(name)) problem(named(name) + ": in the file, but not wanted here");
    if (problems_.empty()) return;
    constexpr size_t shown = 3;
    std::string text = problems_[0];
    for (size_t i = 1; i < std::min(shown, problems_.size()); ++i) text += "; " + problems_[i];
    if (problems_.size() > shown) text += str("; and ", problems_.size() - shown, " more");
    fail("load", text, " (", path_, ")");
  }

 private:
  std::string path_;
  LoadOptions options_;
  std::unordered_map<std::string, Tensor> found_;
  std::unordered_map<std::string, std::string> origins_;
  std::vector<std::string> order_, problems_;
};

struct Assignment {
  Tensor to, from;
};

// Pairs the model's tensors with the file's.
std::vector<Assignment> match_model(const Module& model, Matcher& matcher, bool convert) {
  std::vector<Assignment> assignments;
  for (const NamedTensor& n : state_of(model)) {
    const Tensor value = matcher.take(n.name);
    if (!value.defined()) continue;
    const bool dtypes_fit =
        value.dtype() == n.tensor.dtype() ||
        (convert && is_floating(value.dtype()) && is_floating(n.tensor.dtype()));
    if (value.shape() != n.tensor.shape() || !dtypes_fit)
      matcher.problem(str(matcher.named(n.name), ": file has ", value, ", the model ",
                          n.tensor.dtype(), " ", n.tensor.shape()));
    assignments.push_back({n.tensor, dtypes_fit ? value.to(n.tensor.dtype()).contiguous() : value});
    matcher.need_finite(matcher.named(n.name), assignments.back().from);
  }
  return assignments;
}

std::vector<ParameterState> match_optimizer(const Module& model, const Optimizer& optimizer,
                                            Matcher& matcher) {
  const std::vector<std::string> names = parameter_names(model, optimizer);
  const Tensors parameters = optimizer.parameters();
  std::vector<ParameterState> states(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string prefix = "optim." + names[i] + ".";
    const Tensor steps = matcher.take(prefix + "steps");
    if (!steps.defined()) continue;
    if (steps.dtype() != i64 || steps.dim() != 0) {
      matcher.problem(str(prefix, "steps: file has ", steps, ", expected i64 []"));
      continue;
    }
    states[i].steps = *steps.data<int64_t>();
    if (states[i].steps == 0) continue;
    const DType dtype = parameters[i].dtype() == f64 ? f64 : f32;
    for (const std::string& slot : optimizer.state_names(i)) {
      const Tensor value = matcher.take(prefix + slot);
      if (!value.defined()) continue;
      if (value.shape() != parameters[i].shape() || value.dtype() != dtype)
        matcher.problem(str(prefix, slot, ": file has ", value, ", the optimiser ", dtype, " ",
                            parameters[i].shape()));
      matcher.need_finite(prefix + slot, value);
      states[i].tensors.push_back({slot, value});
    }
  }
  return states;
}

// On the CPU this cannot fail, so that a model is never left half loaded.
void assign(const std::vector<Assignment>& assignments) {
  NoGrad guard;
  for (const auto& [to, from] : assignments) {
    if (to.device().is_cpu() && to.is_contiguous()) {
      copy_bytes(to.raw_data(), cpu, from.raw_data(), cpu, to.numel() * item_size(to.dtype()));
      ++to.storage().version;
    } else {
      Tensor(to).copy_(from);
    }
  }
}

}  // namespace

void save_checkpoint(const std::string& path, const Module& model, const Optimizer* optimizer,
                     const TrainingState& state) {
  Metadata metadata = state.notes;
  for (const auto& [key, value] : metadata)
    check(!key.starts_with(reserved), "save", path, ": the note \"", key,
          "\" begins with \"stretto.\", which is reserved");
  metadata[format_key] = format;
  metadata[digest_key] = "";
  metadata[step_key] = std::to_string(state.step);
  metadata[seed_key] = std::to_string(state.random.seed);
  metadata[stream_key] = std::to_string(state.random.next_stream);

  std::vector<NamedTensor> tensors;
  for (const NamedTensor& n : state_of(model)) tensors.push_back({"model." + n.name, n.tensor});
  if (optimizer) {
    metadata[optimizer_key] = optimizer->name();
    const std::vector<std::string> names = parameter_names(model, *optimizer);
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string prefix = "optim." + names[i] + ".";
      const auto& [steps, kept] = optimizer->state()[i];
      tensors.push_back({prefix + "steps", tensor(std::vector<int64_t>{steps}, {})});
      for (const NamedTensor& n : kept) tensors.push_back({prefix + n.name, n.tensor});
    }
  }
  for (const NamedTensor& n : state.tensors) tensors.push_back({own_prefix + n.name, n.tensor});
  save_safetensors(path, tensors, metadata);
}

TrainingState load_checkpoint(const std::string& path, Module& model, Optimizer* optimizer,
                              LoadOptions options) {
  const Safetensors file = load_safetensors(path);
  TrainingState state = state_from(path, file.metadata);
  if (optimizer) {
    const auto found = file.metadata.find(optimizer_key);
    const std::string saved = found == file.metadata.end() ? "none" : found->second;
    check(saved == optimizer->name(), "load", path, ": holds the state of the optimiser ", saved,
          ", asked for is ", optimizer->name());
  }

  // The model's tensors go by their own names, the optimiser's keep their prefix.
  Matcher matcher(path, options);
  for (const NamedTensor& n : file.tensors) {
    if (n.name.starts_with("model.")) {
      matcher.offer({n.name.substr(6), n.tensor});
    } else if (n.name.starts_with(own_prefix)) {
      state.tensors.push_back({n.name.substr(own_prefix.size()), n.tensor});
    } else if (optimizer || !n.name.starts_with("optim.")) {
      matcher.offer(n);
    }
  }
  const std::vector<Assignment> assignments = match_model(model, matcher, false);
  std::vector<ParameterState> states;
  if (optimizer) states = match_optimizer(model, *optimizer, matcher);
  matcher.finish();
  if (optimizer) optimizer->load_state(states);  // checks the rest before it changes anything
  assign(assignments);
  set_random_state(state.random);
  return state;
}

TrainingState load_training_state(const std::string& path) {
  return state_from(path, load_safetensors_metadata(path));
}

void load_weights(const std::string& path, Module& model, const NameMap& names,
                  LoadOptions options) {
  Safetensors file = load_safetensors(path);
  if (is_checkpoint(path, file.metadata)) {
    std::erase_if(file.tensors, [](const auto& n) { return !n.name.starts_with("model."); });
    for (NamedTensor& n : file.tensors) n.name.erase(0, 6);
  }
  Matcher matcher(path, options);
  for (const NameMap::Mapped& m : names(file.tensors)) matcher.offer(m.tensor, m.origin);
  const std::vector<Assignment> assignments = match_model(model, matcher, true);
  matcher.finish();
  assign(assignments);
}

}  // namespace stretto::nn
