#include "pretrained/tokenizers/tokenizer_data.h"

#include <algorithm>

#include "core/error.h"
#include "core/one_line.h"
#include "core/utf8.h"

namespace stretto::nn::tokenizers {

Compiled::Lease::Lease(const Compiled& data) : data_(data) {
  {
    const std::lock_guard lock(data.mutex_);
    if (!data.free_.empty()) {
      scratch_ = std::move(data.free_.back());
      data.free_.pop_back();
    }
  }
  if (!scratch_) scratch_ = std::make_unique<Scratch>();
  scratch_->buffers.resize(data.pre_tokenizers.stages.size());
}

Compiled::Lease::~Lease() {
  constexpr size_t most = 16, largest = 1 << 20;  // long texts do not stay in memory
  for (std::string& buffer : scratch_->buffers)
    if (buffer.size() > largest) buffer = {};
  if (scratch_->model.path.size() + scratch_->model.symbols.size() > largest) scratch_->model = {};
  const std::lock_guard lock(data_.mutex_);
  if (data_.free_.size() < most) data_.free_.push_back(std::move(scratch_));
}

Compiled::Compiled(Definition of) : definition(std::move(of)) {
  normalizer = make_normalizer(definition);
  pre_tokenizers = make_pre_tokenizers(definition);
  model = make_model(definition, pre_tokenizers.byte_level);
  decoders = make_decoders(definition);
  around = make_template(definition);
  size = model->vocabulary.size();
  add_tokens();
  check_ids();
  const auto role = [&](const std::string& text, const char* which) -> std::optional<int64_t> {
    if (text.empty()) return std::nullopt;
    const auto found = id(text);
    check(found.has_value(), op, definition.name, ": the ", which, " token ", in_quotes(text),
          " is not in the vocabulary");
    return found;
  };
  bos = role(definition.special.bos, "bos");
  eos = role(definition.special.eos, "eos");
  pad = role(definition.special.pad, "pad");
  const Json& unknown = definition.model["unk_token"];
  unk = role(definition.special.unk.empty() ? unknown.text : definition.special.unk, "unk");
  if (!definition.sentencepiece) definition.vocabulary = {};
  definition.merges = {};
}

void Compiled::add_tokens() {
  MatchScratch scratch;
  std::vector<AddedToken> raw, normalized;
  std::vector<std::string> raw_texts, normalized_texts, written_texts;
  for (size_t i = 0; i < definition.added.size(); ++i) {
    const AddedToken& token = definition.added[i];
    const std::string shown = in_quotes(token.content);
    const int32_t in_model = model->vocabulary.find(token.content);
    check(in_model < 0 || in_model == token.id, op, definition.name, ": the added token ", shown,
          " has the id ", token.id, ", but ", in_model, " in the vocabulary");
    check(in_model == token.id || !model->vocabulary.has(token.id), op, definition.name,
          ": the added token ", shown, " has the id ", token.id, " of another token");
    check(added_by_id.emplace(token.id, i).second &&
              added_by_text.emplace(token.content, token.id).second,
          op, definition.name, ": the added token ", shown, " or its id ", token.id,
          " occurs twice");
    size = std::max(size, int64_t(token.id) + 1);
    std::string content = token.content;
    if (token.normalized && normalizer) {
      size_t first = std::min(utf8_size(content[0]), content.size());
      scratch.limit_growth(content.size());
      normalizer->apply(content, first, scratch);
      check(!content.empty(), op, definition.name,
            ": the normalizer removes all of the added token ", shown);
    }
    decoded.push_back(content);
    written_texts.push_back(token.content);
    (token.normalized ? normalized : raw).push_back(token);
    (token.normalized ? normalized_texts : raw_texts).push_back(content);
  }
  // As in `tokenizers`: a token that is found in normalized text is decoded to the normalized text,
  // which also decides whether it is special.
  for (const std::string& text : decoded) {
    const auto same = added_by_text.find(text);
    skipped.push_back(same != added_by_text.end() &&
                      definition.added[added_by_id.at(same->second)].special);
  }
  if (!raw.empty()) raw_tokens = AddedTokens(std::move(raw), raw_texts);
  if (!normalized.empty()) normalized_tokens = AddedTokens(std::move(normalized), normalized_texts);
  if (!definition.added.empty()) written_tokens = AddedTokens(definition.added, written_texts);
}

std::vector<bool> Compiled::control_tokens(std::string_view source) const {
  std::vector<bool> chosen(definition.added.size());
  written_tokens.mark_all(source, chosen);
  for (size_t i = 0; i < chosen.size(); ++i) {
    const AddedToken& token = definition.added[i];
    chosen[i] = token.special || (chosen[i] && is_marker(token.content));
  }
  return chosen;
}

void Compiled::check_ids() const {
  for (const auto* ids : {&around.before, &around.after})
    for (const int64_t i : *ids)
      check(token(i).has_value(), op, definition.name, ": the post_processor adds the id ", i,
            ", which has no token");
}

std::optional<std::string_view> Compiled::token(int64_t id) const {
  if (const auto found = added_by_id.find(id); found != added_by_id.end())
    return definition.added[found->second].content;
  if (model->vocabulary.has(id)) return model->vocabulary.text(int32_t(id));
  return std::nullopt;
}

std::optional<int64_t> Compiled::id(std::string_view token) const {
  if (const auto found = added_by_text.find(std::string(token)); found != added_by_text.end())
    return found->second;
  const int32_t id = model->vocabulary.find(token);
  return id < 0 ? std::nullopt : std::optional<int64_t>(id);
}

void Compiled::pass(int64_t id, DecodeOptions options, Decoding& to) const {
  if (const auto added = added_by_id.find(id); added != added_by_id.end()) {
    if (!options.skip_special_tokens || !skipped[added->second])
      to.pass(0, {decoded[added->second]});
  } else if (model->vocabulary.has(id)) {
    to.pass(0, {model->vocabulary.text(int32_t(id))});
  }
}

std::string Compiled::text_of(const std::vector<int64_t>& ids, DecodeOptions options) const {
  const Lease scratch(*this);
  std::vector<DecoderState> states(decoders.size());
  std::string text;
  Decoding decoding{decoders, states, (*scratch).match, text};
  for (const int64_t id : ids) pass(id, options, decoding);
  decoding.finish();
  return text;
}

}  // namespace stretto::nn::tokenizers
