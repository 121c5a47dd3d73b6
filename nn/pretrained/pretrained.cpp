#include "nn/pretrained/pretrained.h"

#include <algorithm>
#include <filesystem>

#include "core/input_file.h"
#include "core/one_line.h"
#include "nn/files/weights.h"
#include "nn/init.h"
#include "nn/pretrained/language_models.h"
#include "nn/pretrained/other_models.h"

namespace stretto::nn {

using namespace pretrained;

namespace {

std::string text_of(const std::string& path) {
  constexpr int64_t most = 16 << 20;
  const InputFile file("load_pretrained", path);
  check(file.size() <= most, "load_pretrained", one_line(path), ": ", file.size(),
        " bytes; at most ", most, " allowed");
  std::string text(size_t(file.size()), '\0');
  file.read(text.data(), file.size(), 0);
  return text;
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Constructs a model without initial values and loads its weights.
template <class M>
std::unique_ptr<M> loaded(const std::string& path, const typename M::Options& model_options,
                          const NameMap& names, const PretrainedOptions& options) {
  std::unique_ptr<M> model;
  {
    const SkipInit skip(options.dtype);
    const DefaultDevice host(cpu);
    model = std::make_unique<M>(model_options);
  }
  model->to(options.dtype);  // buffers
  load_weights(path, *model, names);
  model->to(options.device).eval();
  return model;
}

bool has_tensor(const std::string& path, const std::string& suffix) {
  const SafetensorsFile file(path);
  return std::any_of(file.entries().begin(), file.entries().end(),
                     [&](const SafetensorsFile::Entry& e) { return e.name.ends_with(suffix); });
}

// Reads the defaults of generation; the file may be absent.
void read_generation(const std::string& folder, Pretrained& p) {
  const std::string path = folder + "/generation_config.json";
  if (!std::filesystem::exists(path)) return;
  ConfigReader c(path, text_of(path));
  SamplingOptions& s = p.generation.sampling;
  s.temperature = c.flag("do_sample", false) ? c.number("temperature", 1) : 0;
  s.top_k = c.integer("top_k", 50);
  s.top_p = c.number("top_p", 1);
  if (const std::vector<int64_t> ends = c.integers("eos_token_id"); !ends.empty())
    p.end_tokens = ends;
}

const char* class_name(const Module& model) {
  if (dynamic_cast<const LanguageModel*>(&model)) return "LanguageModel";
  if (dynamic_cast<const SequenceToSequence*>(&model)) return "SequenceToSequence";
  return "Bert";
}

template <class M>
M& as(const Pretrained& p, const char* wanted) {
  M* const model = dynamic_cast<M*>(p.model.get());
  check(model != nullptr, "Pretrained", "a ", p.model_type, " model is a ", class_name(*p.model),
        ", not a ", wanted);
  return *model;
}

}  // namespace

LanguageModel& Pretrained::language_model() const {
  return as<LanguageModel>(*this, "LanguageModel");
}
SequenceToSequence& Pretrained::sequence_to_sequence() const {
  return as<SequenceToSequence>(*this, "SequenceToSequence");
}
Bert& Pretrained::bert() const { return as<Bert>(*this, "Bert"); }

std::vector<std::string> pretrained_model_types() {
  std::vector<std::string> names = language_model_types();
  names.insert(names.end(), {"t5", "bert"});
  return names;
}

Pretrained load_pretrained(const std::string& path, const PretrainedOptions& options) {
  check(is_floating(options.dtype), "load_pretrained", "dtype ", options.dtype,
        "; must be f32, f64 or bf16");
  const std::string config_path = path + "/config.json";
  ConfigReader config(config_path, text_of(config_path));
  Pretrained p{.model_type = config.text("model_type", "")};
  const std::vector<std::string> types = language_model_types();
  ignore_general_fields(config);
  p.end_tokens = config.integers("eos_token_id");
  if (p.model_type == "t5") {
    const T5Config m = t5_config(config);
    config.finish();
    p.model = loaded<SequenceToSequence>(path, m.options, m.names, options);
  } else if (p.model_type == "bert") {
    BertConfig m = bert_config(config);
    config.finish();
    m.options.pooler = has_tensor(path, "pooler.dense.weight");
    p.max_length = m.options.max_length;
    p.model = loaded<Bert>(path, m.options, m.names, options);
  } else if (std::find(types.begin(), types.end(), p.model_type) != types.end()) {
    config.require("is_encoder_decoder", false);
    const LanguageModelConfig m = language_model_config(p.model_type, config);
    config.finish();
    p.max_length = m.max_length;
    p.model = loaded<LanguageModel>(path, m.options, m.names, options);
  } else {
    config.refuse(str("\"model_type\" is ", in_quotes(p.model_type), "; supported are ",
                      list(pretrained_model_types())));
  }
  read_generation(path, p);
  p.generation.end_tokens = p.end_tokens;
  return p;
}

}  // namespace stretto::nn
