#include "nn/tokenizers/components/decoder.h"

#include <charconv>

#include "core/error.h"
#include "core/one_line.h"
#include "nn/tokenizers/components/normalizer.h"
#include "nn/tokenizers/text/byte_level.h"
#include "nn/tokenizers/text/utf8.h"

namespace stretto::nn::tokenizers {
namespace {

using Tokens = std::vector<std::string>;

std::string joined(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

class ByteLevel : public Decoder {
 public:
  void apply(Tokens& tokens, MatchScratch&) const override {
    std::string bytes, text;
    for (const std::string& token : tokens) bytes += byte_level_bytes(token);
    append_repaired(text, bytes);
    tokens = {std::move(text)};
  }
  bool is_byte_level() const override { return true; }
};

class ByteFallback : public Decoder {
 public:
  void apply(Tokens& tokens, MatchScratch&) const override {
    Tokens result;
    std::string bytes;
    const auto flush = [&] {
      if (find_invalid_utf8(bytes).at == bytes.size()) {
        if (!bytes.empty()) result.push_back(bytes);
      } else {
        for (size_t i = 0; i < bytes.size(); ++i) result.emplace_back("\xEF\xBF\xBD");
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      unsigned byte = 0;
      const bool is_byte =
          token.size() == 6 && token.starts_with("<0x") && token[5] == '>' &&
          std::from_chars(token.data() + 3, token.data() + 5, byte, 16).ptr == token.data() + 5;
      if (is_byte) {
        bytes += char(byte);
      } else {
        flush();
        result.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(result);
  }
};

class Metaspace : public Decoder {
 public:
  Metaspace(std::string replacement, bool drops_first)
      : replacement_(std::move(replacement)), drops_first_(drops_first) {}
  void apply(Tokens& tokens, MatchScratch&) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], replacement_, i == 0 && drops_first_ ? "" : " ");
  }

 private:
  std::string replacement_;
  bool drops_first_;
};

class WordPiece : public Decoder {
 public:
  WordPiece(std::string prefix, bool cleans_up)
      : prefix_(std::move(prefix)), cleans_up_(cleans_up) {}
  void apply(Tokens& tokens, MatchScratch&) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0) {
        if (token.starts_with(prefix_)) {
          token.erase(0, prefix_.size());
        } else {
          token.insert(0, " ");
        }
      }
      if (cleans_up_) clean_up(token);
    }
  }

 private:
  static void clean_up(std::string& token) {
    for (const char* mark : {".", "?", "!", ","}) replace_all(token, std::string(" ") + mark, mark);
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

class BpeDecoder : public Decoder {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(Tokens& tokens, MatchScratch&) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], suffix_, i + 1 < tokens.size() ? " " : "");
  }

 private:
  std::string suffix_;
};

class Fuse : public Decoder {
 public:
  void apply(Tokens& tokens, MatchScratch&) const override { tokens = {joined(tokens)}; }
};

class Strip : public Decoder {
 public:
  Strip(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(Tokens& tokens, MatchScratch&) const override {
    for (std::string& token : tokens) {
      const size_t n = content_.size();
      size_t begin = 0, end = token.size();
      for (int64_t i = 0; i < start_ && end - begin >= n && token.compare(begin, n, content_) == 0;
           ++i)
        begin += n;
      for (int64_t i = 0; i < stop_ && end - begin >= n && token.compare(end - n, n, content_) == 0;
           ++i)
        end -= n;
      token = token.substr(begin, end - begin);
    }
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

class Replace : public Decoder {
 public:
  Replace(Needle needle, std::string content)
      : needle_(std::move(needle)), content_(std::move(content)) {}
  void apply(Tokens& tokens, MatchScratch& scratch) const override {
    for (std::string& token : tokens) {
      std::string result;
      append_replaced(result, token, needle_, content_, scratch);
      token = std::move(result);
    }
  }

 private:
  Needle needle_;
  std::string content_;
};

class InSequence : public Decoder {
 public:
  explicit InSequence(std::vector<std::unique_ptr<Decoder>> parts) : parts_(std::move(parts)) {}
  void apply(Tokens& tokens, MatchScratch& scratch) const override {
    for (const auto& part : parts_) part->apply(tokens, scratch);
  }
  bool is_byte_level() const override { return parts_.size() == 1 && parts_[0]->is_byte_level(); }

 private:
  std::vector<std::unique_ptr<Decoder>> parts_;
};

std::unique_ptr<Decoder> component(const Json& json, const std::string& name);

std::unique_ptr<Decoder> metaspace(JsonReader& fields) {
  const std::string replacement = fields.text("replacement");
  if (replacement.empty()) fields.refuse("replacement must be one character");
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
    if (content.empty()) fields.refuse("content is empty");
    const int64_t start = fields.integer("start", 0, 0, INT32_MAX);
    return std::make_unique<Strip>(content, start, fields.integer("stop", 0, 0, INT32_MAX));
  }
  if (type == "Replace") {
    Needle needle(fields.value("pattern"), fields, name);
    return std::make_unique<Replace>(std::move(needle), fields.text("content"));
  }
  if (type == "Sequence") {
    const Json& list = fields.value("decoders");
    if (!list.is_list()) fields.refuse("decoders must be a list");
    std::vector<std::unique_ptr<Decoder>> parts;
    for (const Json& item : list.items) parts.push_back(component(item, name));
    return std::make_unique<InSequence>(std::move(parts));
  }
  return nullptr;
}

std::unique_ptr<Decoder> component(const Json& json, const std::string& name) {
  const Json& type = json["type"];
  JsonReader fields(op, name + ": decoder " + one_line(type.text, 80), json);
  fields.ignore({"type"});
  auto made = of_type(type.text, fields, name);
  if (!made) fields.refuse("is not supported");
  fields.finish();
  return made;
}

}  // namespace

std::string byte_level_bytes(std::string_view token) {
  auto bytes = bytes_of_characters(token);
  return bytes ? std::move(*bytes) : std::string(token);
}

std::unique_ptr<Decoder> make_decoder(const Definition& definition) {
  if (definition.decoder.is_null()) return nullptr;
  return component(definition.decoder, definition.name);
}

}  // namespace stretto::nn::tokenizers
