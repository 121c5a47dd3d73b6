#include "nn/files/weights.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "core/one_line.h"
#include "nn/files/checkpoint_format.h"
#include "nn/files/matcher.h"
#include "nn/files/safetensors_header.h"
#include "nn/files/value_format.h"

namespace stretto::nn {

using namespace files;

namespace {

// Tensors in memory as a file.
class TensorsInMemory : public WeightsFile {
 public:
  explicit TensorsInMemory(const Safetensors& content)
      : WeightsFile("load", "tensors in memory"), tensors_(content.tensors) {
    for (const NamedTensor& n : tensors_)
      entries_.push_back({n.name, format_name(n.tensor.dtype()), n.tensor.shape()});
    metadata_ = content.metadata;
  }
  void visit(const Wanted& wanted, const Use& use, const ReadAs&) const override {
    for (const NamedTensor& n : tensors_)
      if (wanted(n.name)) use({n.name, n.tensor.detach().to(cpu)});
  }

 private:
  const std::vector<NamedTensor>& tensors_;
};

// Passes the tensors of a file one by one to the matcher, converted to the dtype of the model, or to
// `dtype` if they are parameters. Only one of them is in memory in another form.
class Reader {
 public:
  Reader(const Module& model, const NameMap& names, Matcher& matcher, const std::string& prefix,
         std::optional<DType> dtype)
      : names_(names), first_name_(model), matcher_(matcher), prefix_(prefix) {
    for (const NamedTensor& n : model.named_parameters())
      model_.emplace(n.name, Target{n.tensor.shape(), dtype.value_or(n.tensor.dtype())});
    for (const NamedTensor& n : model.persistent_buffers())
      model_.emplace(n.name, Target{n.tensor.shape(), n.tensor.dtype()});
    int64_t bytes = 0;
    for (const auto& [name, x] : model_) bytes += x.shape.numel() * item_size(x.dtype);
    if (bytes >= least_bytes_in_pool) pool_.emplace(cpu);
  }

  // Decides which tensors are read; reports the others.
  void choose(const WeightsFile& file, LoadReport& report) {
    for (const WeightsFile::Entry& e : file.entries()) {
      if (!e.name.starts_with(prefix_)) continue;
      const std::string name = e.name.substr(prefix_.size());
      const std::vector<std::string> targets = names_.targets(name);
      if (targets.empty()) report.dropped.push_back(e.name);
      const bool any = std::any_of(targets.begin(), targets.end(), [&](const std::string& target) {
        return model_.contains(first_name_(target));
      });
      if (any) wanted_.emplace(e.name, dtype_of(name, e.shape));
      if (any || targets.empty()) continue;
      const ValueFormat* format = find_format(e.dtype);
      const std::string dtype =
          format && format->supported ? stretto::name(format->dtype) : e.dtype;
      matcher_.leave(targets[0], name, str(dtype, " ", e.shape));
    }
  }

  void read(const WeightsFile& file) {
    std::vector<NamedTensor> joined;
    file.visit([&](const std::string& name) { return wanted_.contains(name); },
               [&](NamedTensor n) {
                 n.name.erase(0, prefix_.size());
                 if (names_.is_joined(n.name))
                   joined.push_back(std::move(n));
                 else
                   offer(names_({n}));
               },
               [&](const std::string& name) { return wanted_.at(name); });
    offer(names_(joined));
  }

 private:
  // A parameter or buffer of the model.
  struct Target {
    Shape shape;
    DType dtype;
  };

  void offer(const std::vector<NameMap::Mapped>& mapped) {
    for (const NameMap::Mapped& m : mapped) {
      const std::string& name = first_name_(m.tensor.name);
      const auto target = model_.find(name);
      Tensor value = m.tensor.tensor;
      if (target != model_.end() && value.shape() == target->second.shape &&
          is_floating(value.dtype()) && is_floating(target->second.dtype))
        value = placed(value.to(target->second.dtype).contiguous());
      matcher_.check_finite({name, value});
      matcher_.offer({name, value}, m.origin);
    }
  }

  // A copy in the pool, which makes decoding about 10 % faster; x itself if it is large.
  Tensor placed(const Tensor& x) const {
    if (!pool_ || x.numel() * item_size(x.dtype()) > most_bytes_of_copy) return x;
    const MemoryPool::Use use(*pool_);
    return x.clone();
  }

  // The dtype in which a tensor is read: that of its targets, if its values are only moved and it
  // has the size of the targets. (Otherwise the error shows the dtype of the file.)
  std::optional<DType> dtype_of(const std::string& name, const Shape& shape) const {
    if (!names_.moves_only(name) || names_.is_joined(name)) return {};
    std::optional<DType> dtype;
    int64_t elements = 0;
    for (const std::string& target : names_.targets(name)) {
      const auto found = model_.find(first_name_(target));
      if (found == model_.end()) continue;
      const Target& x = found->second;
      if (!is_floating(x.dtype) || dtype.value_or(x.dtype) != x.dtype) return {};
      dtype = x.dtype;
      elements += x.shape.numel();
    }
    return elements == shape.numel() ? dtype : std::nullopt;
  }

  static constexpr int64_t least_bytes_in_pool = int64_t{64} << 20,
                           most_bytes_of_copy = int64_t{8} << 20;
  const NameMap& names_;
  const FirstNames first_name_;
  Matcher& matcher_;
  const std::string prefix_;
  std::optional<MemoryPool> pool_;                 // for the parameters of a large model
  std::unordered_map<std::string, Target> model_;  // by first names
  // The tensors of the file that are read, by name, and the dtype to read them in.
  std::unordered_map<std::string, std::optional<DType>> wanted_;
};

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

LoadReport load_weights(const WeightsFile& file, Module& model, const NameMap& names,
                        WeightOptions options) {
  if (options.dtype) check_floating("load", *options.dtype);
  LoadReport report;
  Matcher matcher(file.path(), options.allow_not_finite);
  std::vector<Assignment> assignments;
  {
    const bool checkpoint = is_checkpoint(file.path(), file.metadata());
    Reader reader(model, names, matcher, std::string(checkpoint ? model_prefix : ""),
                  options.dtype);
    reader.choose(file, report);
    reader.read(file);
    assignments = match_tensors(state_of(model), matcher, true, options.dtype);
  }
  matcher.finish(options.strict || assignments.empty());
  assign(assignments, true);
  if (options.dtype) model.to(*options.dtype);
  report.missing = matcher.missing();
  report.unused = matcher.unused();
  const std::set<std::string> missing(report.missing.begin(), report.missing.end());
  for (const NamedTensor& n : state_of(model))
    if (!missing.contains(n.name)) report.loaded.push_back(n.name);
  return report;
}

LoadReport load_weights(const std::string& path, Module& model, const NameMap& names,
                        WeightOptions options) {
  return load_weights(SafetensorsFile(path), model, names, options);
}

LoadReport load_weights(const Safetensors& file, Module& model, const NameMap& names,
                        WeightOptions options) {
  return load_weights(TensorsInMemory(file), model, names, options);
}

void save_weights(const std::string& path, const Module& model, const NameMap& names,
                  const Metadata& metadata) {
  save_safetensors(path, names.backwards(state_of(model)), metadata);
}

}  // namespace stretto::nn
