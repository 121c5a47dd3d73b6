#include "pretrained/tokenizers/components/decoder.h"

#include <charconv>

#include "core/error.h"
#include "core/one_line.h"
#include "core/utf8.h"
#include "pretrained/tokenizers/components/normalizer.h"
#include "pretrained/tokenizers/text/byte_level.h"

namespace stretto::nn::tokenizers {
namespace {

constexpr size_t most_decoders = 100;  // each one calls the next one

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

// A decoder that needs whole tokens.
class OfWholeTokens : public Decoder {
 public:
  void add(const TokenText& token, DecoderState& s, NextDecoder next) const final {
    if (token.starts && token.ends) return add_whole(token.text, s, next);
    s.token += token.text;
    if (token.ends) add_whole(std::exchange(s.token, {}), s, next);
  }

 private:
  virtual void add_whole(std::string_view token, DecoderState& s, NextDecoder next) const = 0;
};

// Joins all bytes to one token. `held` are bytes, `count` is the number of parts passed on.
class ByteLevel : public OfWholeTokens {
 public:
  void finish(DecoderState& s, NextDecoder next) const override {
    pass(s.held.size(), true, s, next);
  }

 private:
  void add_whole(std::string_view token, DecoderState& s, NextDecoder next) const override {
    const auto bytes = bytes_of_characters(token);
    const std::string_view text = bytes ? std::string_view(*bytes) : token;
    if (next.decoding.is_stream && s.held.empty() && !text.empty() &&
        find_invalid_utf8(text).at == text.size())
      return next(text, s.count++ == 0, false);
    s.held += text;
    if (!next.decoding.is_stream) return;
    size_t end = 0;
    for (;;) {  // up to a character that more bytes could complete
      const InvalidUtf8 bad = find_invalid_utf8(s.held, end);
      end = bad.at;
      if (end == s.held.size() || bad.incomplete) break;
      end += bad.size;
    }
    if (end > 0) pass(end, false, s, next);
  }
  static void pass(size_t size, bool ends, DecoderState& s, NextDecoder next) {
    std::string storage;
    next(repaired_utf8(std::string_view(s.held).substr(0, size), storage), s.count == 0, ends);
    s.held.erase(0, size);
    ++s.count;
  }
};

// Joins neighboring bytes to a token. `held` are bytes: a later one can make all of them invalid.
class ByteFallback : public OfWholeTokens {
 public:
  void finish(DecoderState& s, NextDecoder next) const override {
    if (s.held.empty()) return;
    const std::string held = std::exchange(s.held, {});
    if (find_invalid_utf8(held).at == held.size()) return next(held);
    for (size_t i = 0; i < held.size(); ++i) next("\xEF\xBF\xBD");
  }

 private:
  void add_whole(std::string_view token, DecoderState& s, NextDecoder next) const override {
    unsigned byte = 0;
    const bool is_byte =
        token.size() == 6 && token.starts_with("<0x") && token[5] == '>' &&
        std::from_chars(token.data() + 3, token.data() + 5, byte, 16).ptr == token.data() + 5;
    if (!is_byte) {
      finish(s, next);
      return next(token);
    }
    s.held += char(byte);
  }
};

// `count` is the number of tokens.
class Metaspace : public Decoder {
 public:
  Metaspace(std::string replacement, bool drops_first)
      : replacement_(std::move(replacement)), drops_first_(drops_first) {}
  void add(const TokenText& token, DecoderState& s, NextDecoder next) const override {
    if (token.starts) ++s.count;
    std::string text(token.text);
    const bool drops = s.count == 1 && drops_first_;
    replace_all(text, replacement_, drops ? std::string_view() : " ");
    next(text, token.starts, token.ends);
  }

 private:
  std::string replacement_;
  bool drops_first_;
};

// `count` is the number of tokens.
class WordPiece : public OfWholeTokens {
 public:
  WordPiece(std::string prefix, bool cleans_up)
      : prefix_(std::move(prefix)), cleans_up_(cleans_up) {}

 private:
  void add_whole(std::string_view token, DecoderState& s, NextDecoder next) const override {
    std::string text(token);
    if (s.count++ > 0) {
      if (text.starts_with(prefix_)) {
        text.erase(0, prefix_.size());
      } else {
        text.insert(0, " ");
      }
    }
    if (cleans_up_) clean_up(text);
    next(text);
  }
  static void clean_up(std::string& token) {
    replace_all(token, " .", ".");
    replace_all(token, " ?", "?");
    replace_all(token, " !", "!");
    replace_all(token, " ,", ",");
    replace_all(token, " ' ", "'");
    replace_all(token, " n't", "n't");
    replace_all(token, " 'm", "'m");
    replace_all(token, " do not", " don't");
    replace_all(token, " 's", "'s");
    replace_all(token, " 've", "'ve");
    replace_all(token, " 're", "'re");
  }

  std::string prefix_;
  bool cleans_up_;
};

// `held` is the end of a token from its first suffix on, `count` the number of tokens.
class BpeDecoder : public Decoder {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void add(const TokenText& token, DecoderState& s, NextDecoder next) const override {
    if (token.starts && s.count++ > 0) end(s, " ", next);
    s.held += token.text;
    size_t certain = s.held.find(suffix_);
    if (certain == std::string::npos && !token.ends) certain = s.held.find(suffix_[0]);
    certain = std::min(certain, s.held.size());
    next(std::string_view(s.held).substr(0, certain), token.starts, false);
    s.held.erase(0, certain);
  }
  void finish(DecoderState& s, NextDecoder next) const override {
    if (s.count > 0) end(s, "", next);
  }

 private:
  void end(DecoderState& s, const char* by, NextDecoder next) const {
    replace_all(s.held, suffix_, by);
    next(s.held, false, true);
    s.held.clear();
  }

  std::string suffix_;
};

// `count` is the number of tokens.
class Fuse : public Decoder {
 public:
  void add(const TokenText& token, DecoderState& s, NextDecoder next) const override {
    next(token.text, s.count++ == 0, false);
  }
  void finish(DecoderState& s, NextDecoder next) const override { next("", s.count == 0, true); }
};

// `count` is the number of characters that were removed at the start of a token, or −1 behind it.
// `held` are characters that may be removed at its end.
class Strip : public Decoder {
 public:
  Strip(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void add(const TokenText& token, DecoderState& s, NextDecoder next) const override {
    if (token.starts) s.count = 0;
    std::string_view text = token.text;
    const size_t n = content_.size();
    for (; s.count >= 0 && s.count < start_ && text.starts_with(content_); ++s.count)
      text.remove_prefix(n);
    if (!text.empty()) s.count = -1;
    if (stop_ == 0) return next(text, token.starts, token.ends);
    s.held += text;
    size_t end = s.held.size();
    for (int64_t i = 0; i < stop_ && std::string_view(s.held).substr(0, end).ends_with(content_);
         ++i)
      end -= n;
    next(std::string_view(s.held).substr(0, end), token.starts, token.ends);
    s.held.erase(0, token.ends ? s.held.size() : end);
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

// `held` is the end of a token that could begin a match.
class Replace : public Decoder {
 public:
  Replace(Needle needle, std::string content)
      : needle_(std::move(needle)), content_(std::move(content)) {}
  void add(const TokenText& token, DecoderState& s, NextDecoder next) const override {
    if (token.starts && token.ends) return pass(token.text, true, true, next);
    s.held += token.text;
    const size_t end = token.ends ? s.held.size() : certain(s.held);
    pass(std::string_view(s.held).substr(0, end), token.starts, token.ends, next);
    s.held.erase(0, end);
  }

 private:
  void pass(std::string_view text, bool starts, bool ends, NextDecoder next) const {
    std::string changed;
    size_t first = 0;
    if (replace(text, needle_, content_, first, next.decoding.scratch, changed)) text = changed;
    next(text, starts, ends);
  }
  // Returns the end of the text that later text does not change.
  size_t certain(std::string_view text) const {
    const std::string_view literal = needle_.literal();
    if (literal.empty()) return 0;
    size_t end = 0;  // of the last match
    for (size_t at; (at = text.find(literal, end)) != std::string_view::npos;)
      end = at + literal.size();
    end = std::max(end, text.size() - std::min(text.size(), literal.size() - 1));
    while (!literal.starts_with(text.substr(end))) ++end;
    return end;
  }

  Needle needle_;
  std::string content_;
};

// Without a decoder: blanks between tokens. `count` is the number of tokens.
class Blanks : public Decoder {
 public:
  void add(const TokenText& token, DecoderState& s, NextDecoder next) const override {
    if (s.count++ > 0) next(" ");
    next(token.text);
  }
};

// The last decoder: appends tokens to the text.
class Text : public Decoder {
 public:
  void add(const TokenText& token, DecoderState&, NextDecoder next) const override {
    next.decoding.text += token.text;
  }
};

std::unique_ptr<Decoder> metaspace(JsonReader& fields) {
  const std::string replacement = fields.text("replacement");
  if (replacement.empty() || utf8_size(replacement[0]) != replacement.size())
    fields.refuse("replacement must be one character");
  const bool add = fields.flag("add_prefix_space", true);
  const std::string scheme = fields.text("prepend_scheme", add ? "always" : "never");
  fields.ignore({"split", "str_rep"});
  return std::make_unique<Metaspace>(replacement, scheme != "never");
}

std::unique_ptr<Decoder> of_type(const std::string& type, JsonReader& fields,
                                 const std::string& name) {
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Metaspace") return metaspace(fields);
  if (type == "BPEDecoder") {
    const std::string suffix = fields.text("suffix", "</w>");
    if (suffix.empty()) fields.refuse("suffix is empty");
    return std::make_unique<BpeDecoder>(suffix);
  }
  if (type == "ByteLevel") {
    fields.ignore({"add_prefix_space", "trim_offsets", "use_regex"});
    return std::make_unique<ByteLevel>();
  }
  if (type == "WordPiece") {
    const std::string prefix = fields.text("prefix", "##");
    return std::make_unique<WordPiece>(prefix, fields.flag("cleanup", true));
  }
  if (type == "Strip") {
    const std::string content = fields.text("content");
    if (content.empty() || utf8_size(content[0]) != content.size())
      fields.refuse("content must be one character");
    const int64_t start = fields.integer("start", 0, 0, INT32_MAX);
    return std::make_unique<Strip>(content, start, fields.integer("stop", 0, 0, INT32_MAX));
  }
  if (type == "Replace") {
    Needle needle(fields.value("pattern"), fields, name);
    return std::make_unique<Replace>(std::move(needle), fields.text("content"));
  }
  fields.refuse("is not supported");
}

void add(const Json& json, const std::string& name, std::vector<std::unique_ptr<Decoder>>& to) {
  const Json& type = json["type"];
  JsonReader fields(op, name + ": decoder " + one_line(type.text, 80), json);
  fields.ignore({"type"});
  if (to.size() >= most_decoders)
    fields.refuse("more than " + std::to_string(most_decoders) + " decoders");
  if (type.text == "Sequence") {
    const Json& list = fields.value("decoders");
    if (!list.is_list()) fields.refuse("decoders must be a list");
    for (const Json& item : list.items) add(item, name, to);
  } else {
    to.push_back(of_type(type.text, fields, name));
  }
  fields.finish();
}

}  // namespace

void Decoding::pass(size_t decoder, const TokenText& token) {
  DecoderState& state = states[decoder];
  state.bytes += token.text.size();
  if (decoder == 0) scratch.limit_growth(state.bytes);
  scratch.check_growth(state.bytes);
  decoders[decoder]->add(token, state, {*this, decoder + 1});
}

void Decoding::finish() {
  scratch.limit_growth(states[0].bytes);
  for (size_t i = 0; i < decoders.size(); ++i) decoders[i]->finish(states[i], {*this, i + 1});
}

std::vector<std::unique_ptr<Decoder>> make_decoders(const Definition& definition) {
  std::vector<std::unique_ptr<Decoder>> made;
  if (definition.decoder.is_null()) {
    made.push_back(std::make_unique<Blanks>());
  } else {
    add(definition.decoder, definition.name, made);
  }
  made.push_back(std::make_unique<Text>());
  return made;
}

}  // namespace stretto::nn::tokenizers
