// Published models, and tokenizers of text and music, for Python. Ids are i64 tensors [N].
#include "music/midi_reader.h"
#include "music/midi_writer.h"
#include "music/tokenizer.h"
#include "nn/models/language_model.h"
#include "ops/create.h"
#include "pretrained/pretrained.h"
#include "python/call.h"

namespace stretto::python {
namespace {

using Model = std::shared_ptr<const nn::Pretrained>;
using MusicTokenizer = std::shared_ptr<const music::Tokenizer>;
using nn::files::quoted_json;

Returned returned(const std::vector<int64_t>& ids) {
  return {{tensor(ids, {int64_t(ids.size())})}};
}

std::vector<int64_t> ids_of(Arguments& a, const std::string& name) {
  return a.tensor(name).to_vector<int64_t>();
}

Returned call_load_tokenizer(Arguments& a) {
  return {{}, "null", nn::SubwordTokenizer::load(a.get<std::string>("path"))};
}

Returned call_encode(Arguments& a) {
  const nn::EncodeOptions options{.add_special_tokens = a.get("add_special_tokens", true),
                                  .allow_special = a.get("allow_special", true)};
  return returned(a.object<nn::SubwordTokenizer>().encode(a.get<std::string>("text"), options));
}

Returned call_decode(Arguments& a) {
  const nn::DecodeOptions options{.skip_special_tokens = a.get("skip_special_tokens", true)};
  return {{}, quoted_json(a.object<nn::SubwordTokenizer>().decode(ids_of(a, "ids"), options))};
}

Returned call_load_pretrained(Arguments& a) {
  const DType dtype = a.choice<DType>("dtype", {{"f32", f32}, {"f64", f64}, {"bf16", bf16}});
  const Model model = std::make_shared<const nn::Pretrained>(
      nn::load_pretrained(a.get<std::string>("path"), {.dtype = dtype}));
  return {{}, str('[', quoted_json(model->model_type), ", ", model->max_length, ']'), model};
}

Returned call_tokenizer_of(Arguments& a) {
  const auto& tokenizer = a.object<Model>()->tokenizer;
  check(tokenizer.has_value(), "tokenizer", "the folder of the model has no tokenizer; pass ids");
  return {{}, "null", *tokenizer};
}

// The options of generation of the model, changed by those of the call, whose last arguments they are.
nn::GenerationOptions generation_of(Arguments& a) {
  nn::GenerationOptions o = a.object<Model>()->generation;
  o.max_tokens = a.get("max_tokens", o.max_tokens);
  if (const Tensor ends = a.tensor("end_tokens"); ends.defined())
    o.end_tokens = ends.to_vector<int64_t>();
  o.seed = uint64_t(a.get("seed", int64_t(o.seed)));
  o.sampling.temperature = a.get("temperature", o.sampling.temperature);
  o.sampling.top_k = a.get("top_k", o.sampling.top_k);
  o.sampling.top_p = a.get("top_p", o.sampling.top_p);
  o.sampling.min_p = a.get("min_p", o.sampling.min_p);
  o.sampling.repetition_penalty = a.get("repetition_penalty", o.sampling.repetition_penalty);
  a.finish();
  return o;
}

Returned call_generate(Arguments& a) {
  const std::vector<int64_t> prompt = ids_of(a, "prompt");
  return returned(nn::generate(a.object<Model>()->language_model(), prompt, generation_of(a)));
}

Returned call_chat(Arguments& a) {
  std::vector<nn::ChatMessage> messages;
  for (const auto& message : a.json("messages").items)
    messages.push_back({message["role"].text, message["content"].text});
  return {{}, quoted_json(a.object<Model>()->chat(messages, {}, generation_of(a)))};
}

Returned call_logits(Arguments& a) {
  return {{a.object<Model>()->language_model()(a.tensor("tokens"))}};
}

Returned call_music_tokenizer(Arguments& a) {
  const MusicTokenizer tokenizer = music::tokenizer(
      a.get<std::string>("name"), {.pedal = a.get<bool>("pedal"),
                                   .chords = a.get<bool>("chords"),
                                   .time_signatures = a.get<bool>("time_signatures"),
                                   .rests = a.get<bool>("rests"),
                                   .sustain_pedals = a.get<bool>("sustain_pedals"),
                                   .sustain_pedal_duration = a.get<bool>("sustain_pedal_duration"),
                                   .pitch_bends = a.get<bool>("pitch_bends")});
  std::string names;
  for (int64_t id = 0; id < tokenizer->size(); ++id)
    names += (id > 0 ? ", " : "") + quoted_json(tokenizer->token_name(id));
  return {{}, '[' + names + ']', tokenizer};
}

Returned call_encode_midi(Arguments& a) {
  const auto path = a.get<std::string>("path");
  const music::MidiFile file = music::read_midi(path);
  a.object<MusicTokenizer>()->check_file(file, path);
  return returned(a.object<MusicTokenizer>()->encode(file));
}

Returned call_decode_midi(Arguments& a) {
  music::write_midi(a.get<std::string>("path"),
                    a.object<MusicTokenizer>()->decode(ids_of(a, "ids")));
  return {};
}

}  // namespace

const Functions model_functions{{"load_tokenizer", call_load_tokenizer},
                                {"encode", call_encode},
                                {"decode", call_decode},
                                {"load_pretrained", call_load_pretrained},
                                {"tokenizer_of", call_tokenizer_of},
                                {"generate", call_generate},
                                {"chat", call_chat},
                                {"logits", call_logits},
                                {"music_tokenizer", call_music_tokenizer},
                                {"encode_midi", call_encode_midi},
                                {"decode_midi", call_decode_midi}};

}  // namespace stretto::python
