#include "nn/pretrained/generation_config.h"

#include <nlohmann/json.hpp>
#include <tuple>

#include "nn/files/json_reader.h"

namespace stretto::nn::pretrained {

using files::JsonReader;

namespace {

// The options that a generation_config.json has; without sampling some have no effect.
auto stored(const GenerationOptions& o) {
  const SamplingOptions s =
      o.sampling.temperature == 0
          ? SamplingOptions{.temperature = 0, .repetition_penalty = o.sampling.repetition_penalty}
          : o.sampling;
  return std::tuple(s.temperature, s.top_k, s.top_p, s.min_p, s.repetition_penalty, o.end_tokens);
}

}  // namespace

GenerationOptions generation_options(const std::string& folder, const std::string& config,
                                     const std::string& generation_config) {
  GenerationOptions o{
      .end_tokens = JsonReader::parse("load_pretrained", folder + "/config.json", config)
                        .integers("eos_token_id"),
      .sampling = {.temperature = 0}};
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
  if (const std::vector<int64_t> ends = c.integers("eos_token_id"); !ends.empty())
    o.end_tokens = ends;
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
  if (options.end_tokens.empty())
    c.erase("eos_token_id");
  else
    c["eos_token_id"] = options.end_tokens;
  return c.dump(2) + "\n";
}

}  // namespace stretto::nn::pretrained
