#include "pretrained/lora.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "autograd/tape.h"
#include "core/atomic_file.h"
#include "core/one_line.h"
#include "nn/files/matcher.h"
#include "nn/files/safetensors.h"
#include "nn/linear.h"
#include "nn/models/bert.h"
#include "nn/models/language_model.h"
#include "nn/models/sequence_to_sequence.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "pretrained/files/json_reader.h"

namespace stretto::nn {
namespace {

constexpr const char* peft_prefix = "base_model.model.";

struct NamedLinear {
  std::string name;
  Linear* linear;
};

std::vector<NamedLinear> linears_of(const Module& model) {
  std::vector<NamedLinear> found;
  const std::function<void(const Module&, const std::string&)> visit =
      [&](const Module& module, const std::string& prefix) {
        for (const auto& [name, child] : module.children()) {
          if (auto* linear = dynamic_cast<Linear*>(child)) found.push_back({prefix + name, linear});
          visit(*child, prefix + name + ".");
        }
      };
  visit(model, "");
  return found;
}

// True if the target is the whole name or its end after a dot, or "all" for a layer below a child.
bool is_target(const std::string& name, const std::string& target) {
  if (target == "all") return name.find('.') != name.npos;
  return name == target || name.ends_with("." + target);
}

// Returns PEFT's name of the layer whose weight has this name in the file; empty if it has none.
// The name has no prefix for models without a head.
std::string peft_name(const Module& model, std::string name) {
  const std::string ending = ".weight";
  name.resize(name.ends_with(ending) ? name.size() - ending.size() : 0);
  if (!dynamic_cast<const Bert*>(&model)) return name;
  for (const std::string prefix : {"bert.", "roberta.", "deberta.", "mpnet.", "model."})
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  return name;
}

// Returns the name in the file of a layer, "model.layers.0.self_attn.q_proj"; empty if its weight is
// not one tensor of the file.
std::string name_in_file(const NameMap& names, const Module& model, const std::string& layer) {
  return peft_name(model, names.source(layer + ".weight").value_or(""));
}

// PEFT's name of the model's purpose, which selects its class.
nlohmann::ordered_json task_of(const Module& model) {
  if (dynamic_cast<const LanguageModel*>(&model)) return "CAUSAL_LM";
  if (dynamic_cast<const SequenceToSequence*>(&model)) return "SEQ_2_SEQ_LM";
  if (dynamic_cast<const Bert*>(&model)) return "FEATURE_EXTRACTION";
  return nullptr;
}

// Returns the adapters of the model by the names of their layers in the file.
std::vector<std::pair<std::string, const LoraAdapter*>> adapters_in_file(const Module& model,
                                                                         const NameMap& names) {
  std::vector<std::pair<std::string, const LoraAdapter*>> all;
  for (const NamedLinear& layer : linears_of(model)) {
    const LoraAdapter* lora = layer.linear->lora();
    if (!lora) continue;
    const LoraAdapterOptions& first = all.empty() ? lora->options : all[0].second->options;
    check(lora->options.rank == first.rank && lora->options.scale == first.scale, "save_lora",
          layer.name, ": all adapters must have the same rank and scale");
    all.emplace_back(name_in_file(names, model, layer.name), lora);
    check(!all.back().first.empty(), "save_lora", layer.name,
          ": its weight is not one tensor of the file");
    check(
        layer.name.find(".experts.") == std::string::npos && !layer.name.ends_with(".router"),
        "save_lora", layer.name,
        ": PEFT cannot adapt one expert or a router of transformers, whose experts are one tensor; "
        "accepted: adapters of other layers");
  }
  check(!all.empty(), "save_lora", "the model has no adapters; see add_lora()");
  return all;
}

// Returns PEFT's names of the layers with adapters: the last part of each name, or the whole names
// if other layers have the same last part.
std::set<std::string> target_modules(const Module& model, const NameMap& names) {
  std::set<std::string> all, last_parts, others;
  for (const NamedLinear& layer : linears_of(model)) {
    const std::string name = name_in_file(names, model, layer.name);
    const std::string last = name.substr(name.rfind('.') + 1);
    if (layer.linear->lora()) {
      all.insert(name);
      last_parts.insert(last);
    } else {
      others.insert(last);
    }
  }
  const bool is_unique =
      std::none_of(last_parts.begin(), last_parts.end(),
                   [&](const std::string& last) { return others.contains(last); });
  return is_unique ? last_parts : all;
}

std::string in_folder(const std::string& folder, const char* file) {
  return (std::filesystem::path(folder) / file).string();
}

// The adapters of a file, by the name of their layer in the file.
struct Adapter {
  Tensor a, b;
};
std::map<std::string, Adapter> read_adapters(const std::string& path) {
  std::map<std::string, Adapter> found;
  for (const auto& [full, tensor] : load_safetensors(path).tensors) {
    std::string name = full;
    if (name.starts_with(peft_prefix)) name.erase(0, std::string(peft_prefix).size());
    const bool is_a = name.ends_with(".lora_A.weight"), is_b = name.ends_with(".lora_B.weight");
    check(is_a || is_b, "load_lora", one_line(path), ": the tensor ", in_quotes(full),
          " is not supported; supported are …lora_A.weight and …lora_B.weight");
    name.erase(name.size() - std::string(".lora_A.weight").size());
    (is_a ? found[name].a : found[name].b) = tensor;
  }
  check(!found.empty(), "load_lora", one_line(path), ": has no adapters");
  return found;
}

// The settings in adapter_config.json.
struct AdapterConfig {
  LoraAdapter::Options options = {};
  // The layers with adapters, as far as the file lists them: names or their ends.
  std::vector<std::string> targets = {};
  bool all_linear = false;  // all layers except the output
};

AdapterConfig read_config(const std::string& path) {
  files::JsonReader c = files::JsonReader::of_file("load_lora", path);
  c.require("peft_type", "LORA");
  c.require("bias", "none");
  for (const char* name : {"use_dora", "use_qalora", "lora_bias"}) c.require(name, false);
  for (const char* name : {"alpha_pattern", "rank_pattern"})
    if (const auto pattern = c.object(name)) pattern->finish();
  LoraAdapter::Options o{.rank = c.size("r"), .dropout = c.number("lora_dropout", 0)};
  const double alpha = c.number("lora_alpha", 8);
  o.scale = alpha / (c.flag("use_rslora", false) ? std::sqrt(double(o.rank)) : double(o.rank));
  // PEFT changes the model's weights when it loads an adapter with another initialization.
  if (c.is_text("init_lora_weights")) {
    const std::string start = c.text("init_lora_weights");
    if (start != "gaussian" && start != "eva" && start != "orthogonal")
      c.refuse(str("\"init_lora_weights\" is ", in_quotes(start),
                   "; supported are true, false, \"gaussian\", \"eva\", \"orthogonal\""));
  }
  for (const char* name : {"modules_to_save", "target_parameters"})
    if (!c.texts(name).empty()) c.refuse(str(in_quotes(name), " is not supported"));
  AdapterConfig config{.options = o};
  const bool selects = c.has("layers_to_transform") || c.has("exclude_modules");
  if (c.is_text("target_modules"))  // otherwise a regular expression
    config.all_linear = c.text("target_modules") == "all-linear" && !selects;
  else if (const auto targets = c.texts("target_modules"); !selects)
    config.targets = targets;
  c.ignore({"auto_mapping",
            "base_model_name_or_path",
            "corda_config",
            "ensure_weight_tying",
            "eva_config",
            "exclude_modules",
            "fan_in_fan_out",
            "inference_mode",
            "init_lora_weights",
            "layers_pattern",
            "layers_to_transform",
            "loftq_config",
            "lora_ga_config",
            "megatron_config",
            "megatron_core",
            "merge_weights",
            "peft_version",
            "qalora_group_size",
            "revision",
            "task_type"});
  c.finish();
  return config;
}

// A layer of the model and the adapter that a file has for it.
struct Match {
  std::string name;
  Linear* linear;
  Adapter adapter;
};

// Finds the layers of the adapters. One of a fused matrix is split: all parts have its A. One of a
// matrix that the map drops is ignored, as the matrix is.
std::vector<Match> match_adapters(const std::string& path, const Module& model,
                                  const NameMap& names, int64_t rank) {
  std::map<std::string, Linear*> linears;
  for (const auto& [name, linear] : linears_of(model)) linears[name] = linear;
  std::vector<Match> matches;
  for (const auto& [in_file, adapter] : read_adapters(path)) {
    check(adapter.a.defined() && adapter.b.defined() && adapter.b.dim() == 2, "load_lora",
          one_line(path), ": ", in_quotes(in_file), " has lora_A ", adapter.a, " and lora_B ",
          adapter.b, "; expected two matrices");
    for (const auto& [weight, b] : names.split_outputs(in_file + ".weight", adapter.b)) {
      const std::string ending = ".weight";
      const auto layer = linears.find(weight.substr(0, weight.size() - ending.size()));
      check(weight.ends_with(ending) && layer != linears.end(), "load_lora", one_line(path), ": ",
            in_quotes(in_file), " is not a Linear of the model");
      const LinearOptions& o = layer->second->options;
      const Shape expected_a{rank, o.in}, expected_b{o.out, rank};
      check(adapter.a.shape() == expected_a && b.shape() == expected_b &&
                is_floating(adapter.a.dtype()) && is_floating(b.dtype()),
            "load_lora", one_line(path), ": ", in_quotes(in_file), " has lora_A ", adapter.a,
            " and lora_B ", b, " for ", layer->first, "; expected ", expected_a, " and ",
            expected_b);
      const DType dtype = layer->second->weight.dtype();
      const Adapter values{adapter.a.to(dtype), b.to(dtype)};
      check(files::has_finite_values(values.a) && files::has_finite_values(values.b), "load_lora",
            one_line(path), ": ", in_quotes(in_file), " holds values that are not finite");
      matches.push_back({layer->first, layer->second, values});
    }
  }
  check(!matches.empty(), "load_lora", one_line(path),
        ": all adapters belong to matrices that the model does not use");
  return matches;
}

// Throws if a layer that adapter_config.json lists has no adapter in the file. Layers outside of the
// stacks, such as a pooler, are not in all variants of a model.
void need_all_targets(const std::string& path, const Module& model, const NameMap& names,
                      const AdapterConfig& config, const std::vector<Match>& matches) {
  std::set<std::string> found;
  for (const Match& m : matches) found.insert(m.name);
  for (const auto& [name, linear] : linears_of(model)) {
    if (found.contains(name) || name.find("layers.") == name.npos) continue;
    const std::string in_file = peft_name(model, names.whole(name + ".weight").value_or(""));
    const bool expected = config.all_linear ||
                          std::any_of(config.targets.begin(), config.targets.end(),
                                      [&](const std::string& t) { return is_target(in_file, t); });
    check(!expected, "load_lora", one_line(path), ": has no adapter for ", in_quotes(in_file),
          ", one of the \"target_modules\" of adapter_config.json");
  }
}

// Throws if the model has adapters, which others would replace in some layers only.
void need_no_adapters(const char* op, const Module& model) {
  for (const auto& [name, linear] : linears_of(model))
    check(!linear->lora(), op, in_quotes(name),
          " has an adapter; merge_lora() adds it to the weight, Linear::remove_lora() removes it");
}

}  // namespace

std::vector<std::string> add_lora(Module& model, const LoraOptions& o) {
  check(o.rank >= 1, "add_lora", "rank ", o.rank, "; must be at least 1");
  need_no_adapters("add_lora", model);
  const std::vector<NamedLinear> linears = linears_of(model);
  std::set<std::string> unused(o.targets.begin(), o.targets.end());
  std::vector<NamedLinear> chosen;
  for (const NamedLinear& layer : linears) {
    bool any = false;
    for (const std::string& target : o.targets)
      if (is_target(layer.name, target)) {
        any = true;
        unused.erase(target);
      }
    if (any) chosen.push_back(layer);
  }
  check(unused.empty() && !chosen.empty(), "add_lora", "no Linear is named ",
        unused.empty() ? "…" : in_quotes(*unused.begin()), "; the model has ",
        linears.empty() ? "none" : "for example " + in_quotes(linears[0].name));
  model.freeze();
  std::vector<std::string> names;
  for (const auto& [name, linear] : chosen) {
    linear->set_lora({.rank = o.rank, .scale = o.alpha / double(o.rank), .dropout = o.dropout});
    names.push_back(name);
  }
  return names;
}

void merge_lora(Module& model) {
  const NoGrad guard;
  for (const auto& [name, linear] : linears_of(model)) {
    if (!linear->lora()) continue;
    const Tensor weight = linear->weight.detach();
    const DType wide = weight.dtype() == bf16 ? f32 : weight.dtype();
    const Tensor delta =
        matmul(linear->lora()->b.detach().to(wide), linear->lora()->a.detach().to(wide));
    weight.copy_(weight.to(wide) + delta * linear->lora()->options.scale);
    linear->remove_lora();
  }
}

std::vector<NamedTensor> lora_parameters(const Module& model) {
  std::vector<NamedTensor> all;
  for (const auto& [name, linear] : linears_of(model))
    if (const LoraAdapter* lora = linear->lora()) {
      all.push_back({name + ".lora.a", lora->a});
      all.push_back({name + ".lora.b", lora->b});
    }
  return all;
}

std::vector<NamedTensor> peft_tensors(const Module& model, const NameMap& names) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, lora] : adapters_in_file(model, names.modules())) {
    tensors.push_back({peft_prefix + name + ".lora_A.weight", lora->a.detach()});
    tensors.push_back({peft_prefix + name + ".lora_B.weight", lora->b.detach()});
  }
  return tensors;
}

void save_lora(const std::string& folder, const Module& model, const NameMap& names,
               const std::string& base_model) {
  const std::vector<NamedTensor> tensors = peft_tensors(model, names);
  const LoraAdapterOptions options = adapters_in_file(model, names.modules())[0].second->options;
  const double alpha = options.scale * double(options.rank);
  nlohmann::ordered_json config{{"peft_type", "LORA"},
                                {"task_type", task_of(model)},
                                {"base_model_name_or_path", base_model},
                                {"r", options.rank},
                                {"lora_alpha", alpha},
                                {"lora_dropout", options.dropout},
                                {"target_modules", target_modules(model, names.modules())},
                                {"bias", "none"},
                                {"fan_in_fan_out", false},
                                {"inference_mode", true}};
  if (alpha == std::round(alpha)) config["lora_alpha"] = int64_t(alpha);
  std::filesystem::create_directories(folder);
  save_safetensors(in_folder(folder, "adapter_model.safetensors"), tensors, {{"format", "pt"}});
  const std::string text = config.dump(2) + "\n";
  write_atomically(in_folder(folder, "adapter_config.json"), text);
}

std::vector<std::string> load_lora(const std::string& folder, Module& model, const NameMap& names) {
  need_no_adapters("load_lora", model);
  const AdapterConfig config = read_config(in_folder(folder, "adapter_config.json"));
  const std::string path = in_folder(folder, "adapter_model.safetensors");
  const NameMap& modules = names.modules();
  const std::vector<Match> matches = match_adapters(path, model, modules, config.options.rank);
  need_all_targets(path, model, modules, config, matches);
  const NoGrad guard;
  model.freeze();
  std::vector<std::string> loaded;
  for (const Match& m : matches) {
    m.linear->set_lora(config.options);
    m.linear->lora()->a.detach().copy_(m.adapter.a);
    m.linear->lora()->b.detach().copy_(m.adapter.b);
    loaded.push_back(m.name);
  }
  return loaded;
}

}  // namespace stretto::nn
