#include "pretrained/pretrained.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <map>

#include "core/input_file.h"
#include "core/one_line.h"
#include "nn/files/weights.h"
#include "nn/init.h"
#include "pretrained/files/gguf/gguf.h"
#include "pretrained/files/open_weights.h"
#include "pretrained/generation_config.h"
#include "pretrained/gguf_model.h"
#include "pretrained/language_models.h"
#include "pretrained/music_transformer.h"
#include "pretrained/other_models.h"

namespace stretto::nn {

using namespace pretrained;

namespace {

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Constructs a model without initial values and loads its weights; without a file, with the values.
template <class M>
std::unique_ptr<M> loaded(const WeightsFile* file, const typename M::Options& model_options,
                          const NameMap& names, const PretrainedOptions& options) {
  std::unique_ptr<M> model;
  {
    std::optional<SkipInit> skip;
    if (file) skip.emplace(options.dtype);
    const DefaultDevice host(cpu);
    model = std::make_unique<M>(model_options);
  }
  model->to(options.dtype);  // buffers
  if (file) load_weights(*file, *model, names);
  model->to(options.device).eval();
  return model;
}

bool has_tensor(const WeightsFile& file, const std::string& suffix) {
  return std::any_of(file.entries().begin(), file.entries().end(),
                     [&](const WeightsFile::Entry& e) { return e.name.ends_with(suffix); });
}

// True if the folder has a file from which SubwordTokenizer::load() reads.
bool has_tokenizer(const std::string& folder) {
  for (const char* file : {"tokenizer.json", "vocab.json", "encoder.json", "vocab.txt",
                           "tokenizer.model", "spiece.model", "spm.model"})
    if (std::filesystem::exists(folder + "/" + file)) return true;
  return false;
}

// Reads the tokenizer and the chat template, if there are any.
void read_tokenizer(const std::string& folder, Pretrained& p) {
  if (has_tokenizer(folder)) p.tokenizer = SubwordTokenizer::load(folder);
  if (std::filesystem::exists(folder + "/chat_template.jinja")) {
    p.chat_template = read_text("load_pretrained", folder + "/chat_template.jinja");
  } else if (const std::string path = folder + "/tokenizer_config.json";
             std::filesystem::exists(path)) {
    JsonReader c = JsonReader::of_file("load_pretrained", path);
    if (c.is_text("chat_template")) {
      p.chat_template = c.text("chat_template");
    } else {
      for (JsonReader& named : c.objects("chat_template"))
        if (named.text("name") == "default") p.chat_template = named.text("template");
    }
  }
}

// Reads the defaults of generation, after the tokenizer; the file may be absent.
void read_generation(const std::string& folder, Pretrained& p) {
  if (const std::string path = folder + "/generation_config.json"; std::filesystem::exists(path))
    p.files.generation_config = read_text("load_pretrained", path);
  p.generation = generation_options(folder, p.files.config, p.files.generation_config);
  if (!p.generation.stop_strings.empty() && p.tokenizer)
    p.generation.decode = [tokenizer = *p.tokenizer](const std::vector<int64_t>& tokens) {
      return tokenizer.decode(tokens);
    };
}

const char* class_of(const Module& model) {
  if (dynamic_cast<const LanguageModel*>(&model)) return "LanguageModel";
  if (dynamic_cast<const SequenceToSequence*>(&model)) return "SequenceToSequence";
  return "Bert";
}

template <class M>
M& as(const Pretrained& p, const char* wanted) {
  M* const model = dynamic_cast<M*>(p.model.get());
  check(model != nullptr, "Pretrained", "a ", p.model_type, " model is a ", class_of(*p.model),
        ", not a ", wanted);
  return *model;
}

}  // namespace

std::string Pretrained::chat(const std::vector<ChatMessage>& messages,
                             const std::function<void(const std::string&)>& on_text,
                             const std::optional<GenerationOptions>& given) const {
  const std::vector<int64_t> prompt = parsed_template().encode(messages, *tokenizer);
  GenerationOptions options = given.value_or(generation);
  if (!options.decode)
    options.decode = [&](const std::vector<int64_t>& ids) { return tokenizer->decode(ids); };
  DecodeStream stream(*tokenizer);
  std::string answer, rest;  // rest: text that may begin a stop string
  bool stopped = false;
  const auto add = [&](const std::string& piece) {
    rest += piece;
    const TextBeforeStop found = before_stop(rest, options.stop_strings);
    stopped = stopped || found.stopped;
    answer += found.text;
    rest.erase(0, found.text.size());
    if (on_text && !found.text.empty()) on_text(found.text);
  };
  generate(language_model(), prompt, options, [&](int64_t token) {
    add(stream.add(token));
    return !stopped;
  });
  if (!stopped) add(stream.finish());
  if (!stopped && !rest.empty()) {
    answer += rest;
    if (on_text) on_text(rest);
  }
  return answer;
}

ChatTemplate Pretrained::parsed_template() const {
  check(!chat_template.empty() && tokenizer, "Pretrained", "a ", model_type,
        " model without a chat template");
  std::map<std::string, std::string> special;
  const auto add = [&](const char* name, std::optional<int64_t> id) {
    if (id) special[name] = tokenizer->token(*id).value_or("");
  };
  add("bos_token", tokenizer->bos());
  add("eos_token", tokenizer->eos());
  add("pad_token", tokenizer->pad());
  add("unk_token", tokenizer->unk());
  return ChatTemplate::parse(chat_template, special);
}

LanguageModel& Pretrained::language_model() const {
  return as<LanguageModel>(*this, "LanguageModel");
}
SequenceToSequence& Pretrained::sequence_to_sequence() const {
  return as<SequenceToSequence>(*this, "SequenceToSequence");
}
Bert& Pretrained::bert() const { return as<Bert>(*this, "Bert"); }

namespace {

Pretrained from_gguf(const GgufFile& file, const PretrainedOptions& options) {
  GgufModelConfig m = gguf_model_config(file);
  const GgufVocabulary vocabulary = gguf_vocabulary(file);
  Pretrained p{.model_type = m.model_type,
               .model = loaded<LanguageModel>(&file, m.config.options, m.names, options),
               .tokenizer = SubwordTokenizer::from_gguf(vocabulary),
               .chat_template = file.get<std::string>("tokenizer.chat_template", ""),
               .names = m.config.names,
               .max_length = m.config.max_length,
               .generation = {.sampling = {.temperature = 0}}};
  p.generation.end_tokens = gguf_end_tokens(file, vocabulary);
  p.files = gguf_files(file, m, *p.tokenizer);
  return p;
}

// A folder that is being loaded.
struct Folder {
  JsonReader config;
  const WeightsFile* file;  // null: initial values, of a LanguageModel
  const PretrainedOptions& options;
};

// Loads the model of which all fields have been read: `m` has its options, names and trained length.
template <class M, class Config>
void load_model(Pretrained& p, Folder& folder, Config m) {
  if constexpr (std::is_same_v<M, LanguageModel>)
    if (!folder.file) m.options.init_std = folder.config.number("initializer_range", 0.02);
  folder.config.finish();
  p.names = m.names;
  p.max_length = m.max_length;
  p.model = loaded<M>(folder.file, m.options, m.names, folder.options);
}

constexpr std::array roberta_types{"roberta", "xlm-roberta", "camembert"};  // one architecture

// Reads the configuration of a model type and loads the model.
using LoadType = std::function<void(Pretrained&, Folder&)>;

std::map<std::string, LoadType> loaders() {
  const auto load_bert = [](Pretrained& p, Folder& f, ModelConfig<Bert> m) {
    m.options.pooler = has_tensor(*f.file, "pooler.dense.weight");
    load_model<Bert>(p, f, m);
  };
  std::map<std::string, LoadType> all{
      {"t5",
       [](Pretrained& p, Folder& f) { load_model<SequenceToSequence>(p, f, t5_config(f.config)); }},
      {"bert", [=](Pretrained& p, Folder& f) { load_bert(p, f, bert_config(f.config)); }},
      {"mpnet", [=](Pretrained& p, Folder& f) { load_bert(p, f, mpnet_config(f.config)); }},
      {"modernbert",
       [](Pretrained& p, Folder& f) { load_model<Bert>(p, f, modernbert_config(f.config)); }},
      {"deberta-v2",
       [](Pretrained& p, Folder& f) { load_model<Bert>(p, f, deberta_config(f.config)); }},
      {"transfo-xl", [](Pretrained& p, Folder& f) {
         load_model<LanguageModel>(p, f, transformer_xl_config(f.config));
       }}};
  for (const char* type : roberta_types)
    all[type] = [=](Pretrained& p, Folder& f) { load_bert(p, f, roberta_config(f.config)); };
  for (const std::string& type : language_model_types())
    all[type] = [](Pretrained& p, Folder& f) {
      f.config.require("is_encoder_decoder", false);
      load_model<LanguageModel>(p, f, language_model_config(p.model_type, f.config));
    };
  return all;
}

// The model of a config.json; `source` names it in errors.
Pretrained from_config(const char* op, const std::string& text, const std::string& source,
                       const WeightsFile* file, const PretrainedOptions& options) {
  Folder folder{JsonReader::parse(op, source, text), file, options};
  JsonReader& config = folder.config;
  Pretrained p{.model_type = config.text("model_type", ""), .files = {.config = text}};
  ignore_general_fields(config);
  const std::vector<std::string> types = file ? pretrained_model_types() : language_model_types();
  if (std::find(types.begin(), types.end(), p.model_type) == types.end())
    config.refuse(
        str("\"model_type\" is ", in_quotes(p.model_type), "; supported are ", list(types)));
  loaders().at(p.model_type)(p, folder);
  return p;
}

Pretrained from_folder(const std::string& path, const WeightsFile& file,
                       const PretrainedOptions& options) {
  const std::string source = path + "/config.json";
  Pretrained p =
      from_config("load_pretrained", read_text("load_pretrained", source), source, &file, options);
  if (p.model_type != "transfo-xl") read_tokenizer(path, p);  // its vocab.txt is not WordPiece
  read_generation(path, p);
  return p;
}

Pretrained from_state_dict(const WeightsFile& file, const PretrainedOptions& options) {
  std::optional<MusicTransformerConfig> m = music_transformer_config(file);
  check(
      m.has_value(), "load_pretrained", one_line(file.path()),
      ": neither a folder with config.json, nor a GGUF file, nor the state dict of gwinndr's Music "
      "Transformer; load_weights() loads weights alone");
  Pretrained p{.model_type = music_transformer_type,
               .model = loaded<LanguageModel>(&file, m->config.options, m->config.names, options),
               .names = m->config.names,
               .max_length = m->config.max_length,
               .generation = {.sampling = {.temperature = 0}}};
  if (m->end_token) p.generation.end_tokens = {*m->end_token};
  return p;
}

void check_dtype(const char* op, const PretrainedOptions& options) {
  check(is_floating(options.dtype), op, "dtype ", options.dtype, "; must be f32, f64 or bf16");
}

}  // namespace

std::vector<std::string> pretrained_model_types() {
  std::vector<std::string> names = language_model_types();
  names.insert(names.end(), {"t5", "bert", "mpnet", "modernbert", "deberta-v2", "transfo-xl"});
  names.insert(names.end(), roberta_types.begin(), roberta_types.end());
  return names;
}

Pretrained initialize_pretrained(const std::string& config, const PretrainedOptions& options) {
  constexpr const char* op = "initialize_pretrained";
  check_dtype(op, options);
  return from_config(op, config, "config", nullptr, options);
}

Pretrained load_pretrained(const std::string& path, const PretrainedOptions& options) {
  check_dtype("load_pretrained", options);
  const std::string weights = state_dict_in(path);
  const std::unique_ptr<WeightsFile> file = open_weights(weights);
  const GgufFile* gguf = dynamic_cast<const GgufFile*>(file.get());
  if (gguf) return from_gguf(*gguf, options);
  return std::filesystem::is_directory(weights) ? from_folder(path, *file, options)
                                                : from_state_dict(*file, options);
}

}  // namespace stretto::nn
