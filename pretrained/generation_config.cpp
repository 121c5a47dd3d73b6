#include "pretrained/generation_config.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/one_line.h"
#include "pretrained/files/json_reader.h"

namespace stretto::nn::pretrained {

using files::JsonReader;

namespace {

// The options that a generation_config.json has; without sampling some have no effect.
auto stored(const GenerationOptions& o) {
  const SamplingOptions s =
      o.sampling.temperature == 0
          ? SamplingOptions{.temperature = 0, .repetition_penalty = o.sampling.repetition_penalty}
          : o.sampling;
  return std::tuple(s.temperature, s.top_k, s.top_p, s.min_p, s.repetition_penalty,
                    o.sampling.forbidden, o.end_tokens, o.stop_strings, o.max_tokens);
}

// Returns the end tokens that transformers takes if no file names them.
std::vector<int64_t> default_end_tokens(const std::string& model_type) {
  static const std::map<std::string, int64_t> all{
      {"llama", 2},     {"mistral", 2},           {"smollm3", 128001},
      {"phi3", 32000},  {"granite", 2},           {"olmo2", 50279},
      {"olmo3", 50279}, {"olmo_hybrid", 100257},  {"mixtral", 2},
      {"gemma2", 1},    {"gemma3_text", 1},       {"gpt2", 50256},
      {"gpt_neox", 2},  {"gptj", 50256},          {"bloom", 2},
      {"t5", 1},        {"inkling2_text", 200006}};
  const auto found = all.find(model_type);
  return found == all.end() ? std::vector<int64_t>{} : std::vector<int64_t>{found->second};
}

// Fields of transformers that change the tokens and that no option expresses, with the value that
// has no effect. Those of the second list act in sampling only.
constexpr std::pair<const char*, double> unsupported[]{{"num_beams", 1},
                                                       {"min_length", 0},
                                                       {"min_new_tokens", 0},
                                                       {"no_repeat_ngram_size", 0},
                                                       {"encoder_no_repeat_ngram_size", 0},
                                                       {"encoder_repetition_penalty", 1},
                                                       {"guidance_scale", 1},
                                                       {"penalty_alpha", 0}};
constexpr std::pair<const char*, double> unsupported_in_sampling[]{
    {"typical_p", 1}, {"epsilon_cutoff", 0}, {"eta_cutoff", 0}, {"top_h", 1}};
// Fields without such a value; null is none.
constexpr const char* unsupported_objects[]{
    "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id",
    "sequence_bias",         "force_words_ids",     "constraints",
    "dola_layers",           "watermarking_config", "exponential_decay_length_penalty"};

// Reads the tokens that are never sampled: suppress_tokens, and bad_words_ids of one token each,
// except end tokens. Returns false if there are bad words of several tokens.
bool read_forbidden(JsonReader& c, GenerationOptions& o) {
  const std::vector<int64_t>& ends = o.end_tokens;
  std::vector<int64_t>& forbidden = o.sampling.forbidden;
  forbidden = c.integers("suppress_tokens");
  bool all_single = true;
  for (const files::Json& word : c.list("bad_words_ids")) {
    const auto& ids = word.items;
    if (ids.size() != 1 || ids[0].kind != files::Json::Kind::integer)
      all_single = false;
    else if (std::find(ends.begin(), ends.end(), ids[0].integer) == ends.end())
      forbidden.push_back(ids[0].integer);
  }
  return all_single;
}

// Returns the fields that change the tokens and that no option expresses, as `"name" = value`.
std::string unsupported_fields(JsonReader& c, bool samples) {
  std::string text;
  const auto add = [&](const char* name) {
    text += str(text.empty() ? "" : ", ", in_quotes(name), " = ",
                one_line(files::json_text(c.value(name)), 40));
  };
  const auto add_numbers = [&](const auto& fields) {
    for (const auto& [name, without_effect] : fields)
      if (c.number(name, without_effect) != without_effect) add(name);
  };
  add_numbers(unsupported);
  if (samples) add_numbers(unsupported_in_sampling);
  for (const char* name : unsupported_objects)
    if (const files::Json& value = c.value(name);
        value.is_object() || value.is_list() ? !value.members.empty() || !value.items.empty()
                                             : !value.is_null())
      add(name);
  return text;
}

// Reads stop_strings, one text or a list.
std::vector<std::string> read_stop_strings(JsonReader& c) {
  if (c.is_text("stop_strings")) return {c.text("stop_strings")};
  return c.texts("stop_strings");
}

}  // namespace

GenerationOptions generation_options(const std::string& folder, const std::string& config,
                                     const std::string& generation_config) {
  JsonReader model = JsonReader::parse("load_pretrained", folder + "/config.json", config);
  GenerationOptions o{.end_tokens = model.integers("eos_token_id"), .sampling = {.temperature = 0}};
  if (generation_config.empty() && !model.is_present("eos_token_id"))
    o.end_tokens = default_end_tokens(model.text("model_type", ""));
  // Without generation_config.json, the fields that transformers 4 wrote into config.json.
  JsonReader c = generation_config.empty()
                     ? JsonReader::parse("load_pretrained", folder + "/config.json", config)
                     : JsonReader::parse("load_pretrained", folder + "/generation_config.json",
                                         generation_config);
  if (generation_config.empty() && !c.flag("do_sample", false)) return o;
  SamplingOptions& s = o.sampling;
  s.temperature = c.flag("do_sample", false) ? c.number("temperature", 1) : 0;
  s.top_k = c.integer("top_k", 50);
  s.top_p = c.number("top_p", 1);
  s.min_p = c.number("min_p", 0);
  s.repetition_penalty = c.number("repetition_penalty", 1);
  o.max_tokens = c.integer("max_new_tokens", o.max_tokens);
  o.stop_strings = read_stop_strings(c);
  if (const std::vector<int64_t> ends = c.integers("eos_token_id"); !ends.empty())
    o.end_tokens = ends;
  const bool all_forbidden = read_forbidden(c, o);
  std::string others = unsupported_fields(c, s.temperature != 0);
  if (!all_forbidden)
    others += str(others.empty() ? "" : ", ", "\"bad_words_ids\" of several tokens");
  if (!others.empty())  // the model can be loaded, but not generate with these settings
    s.constrain = [=](std::span<double>, const std::vector<int64_t>&) {
      fail(
          "generate", one_line(folder),
          ": these settings of generation are not supported: ", others,
          "; set SamplingOptions::constrain to {} (chat: --ignore-unsupported) to generate without "
          "them");
    };
  return o;
}

std::string generation_config_with(const GenerationOptions& options, const std::string& config,
                                   const std::string& generation_config) {
  if (stored(generation_options("", config, generation_config)) == stored(options))
    return generation_config;
  using Json = nlohmann::ordered_json;
  Json c = generation_config.empty() ? Json::object() : Json::parse(generation_config);
  const SamplingOptions& s = options.sampling;
  const bool samples = s.temperature != 0;
  c["do_sample"] = samples;
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, Json>>{{"temperature", s.temperature},
                                                           {"top_k", s.top_k},
                                                           {"top_p", s.top_p},
                                                           {"min_p", s.min_p}}) {
    if (samples)
      c[name] = value;
    else
      c.erase(name);  // transformers warns about them
  }
  c["repetition_penalty"] = s.repetition_penalty;
  const GenerationOptions before = generation_options("", config, generation_config);
  if (options.max_tokens != before.max_tokens) c["max_new_tokens"] = options.max_tokens;
  if (options.stop_strings != before.stop_strings) c["stop_strings"] = options.stop_strings;
  if (s.forbidden != before.sampling.forbidden) {
    c.erase("bad_words_ids");
    c["suppress_tokens"] = s.forbidden;
  }
  if (options.end_tokens.empty())
    c.erase("eos_token_id");
  else
    c["eos_token_id"] = options.end_tokens;
  return c.dump(2) + "\n";
}

}  // namespace stretto::nn::pretrained
