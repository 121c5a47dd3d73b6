#include "pretrained/tokenizers/components/normalizer.h"

#include <algorithm>

#include "core/error.h"
#include "core/one_line.h"
#include "core/utf8.h"
#include "pretrained/tokenizers/text/charsmap.h"
#include "pretrained/tokenizers/text/unicode.h"

namespace stretto::nn::tokenizers {
namespace {

// Applies a function (character, output) to every character.
template <class F>
std::string mapped(std::string_view text, size_t& first, F&& f) {
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  size_t at = 0;
  while (at < first) f(next_code_point(text, at), result);
  first = result.size();
  while (at < text.size()) f(next_code_point(text, at), result);
  return result;
}

std::string in_form(std::string_view text, size_t& first, Form form) {
  std::string result = normalized(text, form);
  if (first == 0) return result;
  first = std::min(normalized(text.substr(0, first), form).size(), result.size());
  while (first < result.size() && (uint8_t(result[first]) & 0xC0) == 0x80) ++first;
  return result;
}

class InForm : public Normalizer {
 public:
  explicit InForm(Form form) : form_(form) {}
  void apply(std::string& text, size_t& first, MatchScratch&) const override {
    text = in_form(text, first, form_);
  }

 private:
  Form form_;
};

class Lowercase : public Normalizer {
 public:
  void apply(std::string& text, size_t& first, MatchScratch&) const override {
    text = mapped(text, first, [](uint32_t c, std::string& to) { append_lower(to, c); });
  }
};

class StripAccents : public Normalizer {
 public:
  void apply(std::string& text, size_t& first, MatchScratch&) const override {
    text = mapped(text, first, [](uint32_t c, std::string& to) {
      if (!has(c, Property::mark)) append_utf8(to, c);
    });
  }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string& text, size_t& first, MatchScratch&) const override {
    size_t end = text.size(), begin = 0;
    while (right_ && end > 0) {
      const size_t start = previous_start(text, end);
      size_t at = start;
      if (!is_white_space(next_code_point(text, at))) break;
      end = start;
    }
    while (left_ && begin < end) {
      size_t at = begin;
      if (!is_white_space(next_code_point(text, at))) break;
      begin = at;
    }
    first = std::min(first, end) - std::min({first, begin, end});
    text = text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

class Replace : public Normalizer {
 public:
  Replace(Needle needle, std::string content)
      : needle_(std::move(needle)), content_(std::move(content)) {}
  void apply(std::string& text, size_t& first, MatchScratch& scratch) const override {
    std::string changed;
    if (replace(text, needle_, content_, first, scratch, changed)) text = std::move(changed);
  }

 private:
  Needle needle_;
  std::string content_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string text) : text_(std::move(text)) {}
  void apply(std::string& text, size_t& first, MatchScratch& scratch) const override {
    if (!text.empty()) text.insert(0, text_);
    if (first > 0) first += text_.size();
    scratch.check_growth(text.size());
  }

 private:
  std::string text_;
};

class Nmt : public Normalizer {
 public:
  void apply(std::string& text, size_t& first, MatchScratch&) const override {
    text = mapped(text, first, [](uint32_t c, std::string& to) {
      const bool removed = (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F ||
                           c == 0x8F || c == 0x9F;
      const bool blank = c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 ||
                         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
                         c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      if (!removed) append_utf8(to, blank ? ' ' : c);
    });
  }
};

class Bert : public Normalizer {
 public:
  explicit Bert(JsonReader& fields) {
    clean_ = fields.flag("clean_text", true);
    chinese_ = fields.flag("handle_chinese_chars", true);
    lower_ = fields.flag("lowercase", true);
    strip_ = fields.flag("strip_accents", lower_);
  }
  void apply(std::string& text, size_t& first, MatchScratch&) const override {
    if (clean_ || chinese_)
      text = mapped(text, first, [&](uint32_t c, std::string& to) { add(to, c); });
    if (strip_) {
      text = in_form(text, first, Form::nfd);
      text = mapped(text, first, [&](uint32_t c, std::string& to) {
        if (c < 0x80 || !has(c, Property::accent))
          lower_ ? append_lower(to, c) : append_utf8(to, c);
      });
    } else if (lower_) {
      text = mapped(text, first, [](uint32_t c, std::string& to) { append_lower(to, c); });
    }
  }

 private:
  void add(std::string& to, uint32_t c) const {
    if (clean_) {
      if (c >= 0x80 ? has(c, Property::control)
                    : (c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == 0x7F)
        return;
      if (is_white_space(c)) c = ' ';
    }
    const bool apart = chinese_ && is_chinese(c);
    if (apart) to += ' ';
    append_utf8(to, c);
    if (apart) to += ' ';
  }
  static bool is_chinese(uint32_t c) {
    return c >= 0x3400 &&
           (c <= 0x4DBF || (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0xF900 && c <= 0xFAFF) ||
            (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) ||
            (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0x2F800 && c <= 0x2FA1F));
  }

  bool clean_, chinese_, lower_, strip_;
};

class Precompiled : public Normalizer {
 public:
  explicit Precompiled(Charsmap map) : map_(std::move(map)) {}
  // As the crate spm_precompiled: a short grapheme cluster is replaced as a whole by the shortest
  // rule that begins it; else each of its characters.
  void apply(std::string& text, size_t& first, MatchScratch& scratch) const override {
    std::string result;
    result.reserve(text.size());
    const std::string_view in = text;
    size_t first_end = 0;
    for (size_t at = 0; at < in.size();) {
      const size_t end = end_of_short_cluster(in, at);
      const std::string_view cluster = in.substr(at, end - at);
      const Charsmap::Match whole = cluster.size() < 6 ? map_.shortest(cluster) : Charsmap::Match{};
      const auto add = [&](size_t begin, size_t size, std::string_view by) {
        result += by;
        if (begin < first) first_end = result.size();
        // The next character takes the place of characters that are removed at the start.
        if (result.empty() && begin < first && begin + size < in.size())
          first = begin + size + utf8_size(in[begin + size]);
      };
      if (whole.size > 0) {
        add(at, cluster.size(), whole.replacement);
      } else {
        for (size_t i = 0; i < cluster.size(); i += utf8_size(cluster[i])) {
          const std::string_view character = cluster.substr(i, utf8_size(cluster[i]));
          const Charsmap::Match match = map_.shortest(character);
          add(at + i, character.size(), match.size > 0 ? match.replacement : character);
        }
      }
      at = end;
      scratch.check_growth(result.size());
    }
    first = first_end;
    text = std::move(result);
  }

 private:
  Charsmap map_;
};

class InSequence : public Normalizer {
 public:
  explicit InSequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  void apply(std::string& text, size_t& first, MatchScratch& scratch) const override {
    for (const auto& part : parts_) part->apply(text, first, scratch);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

std::unique_ptr<Normalizer> component(const Json& json, const std::string& name);

std::unique_ptr<Normalizer> sequence(JsonReader& fields, const std::string& name) {
  const Json& list = fields.value("normalizers");
  if (!list.is_list()) fields.refuse("normalizers must be a list");
  std::vector<std::unique_ptr<Normalizer>> parts;
  for (const Json& item : list.items) parts.push_back(component(item, name));
  return std::make_unique<InSequence>(std::move(parts));
}

std::unique_ptr<Normalizer> of_type(const std::string& type, JsonReader& fields,
                                    const std::string& name) {
  if (type == "Sequence") return sequence(fields, name);
  if (type == "NFC") return std::make_unique<InForm>(Form::nfc);
  if (type == "NFD") return std::make_unique<InForm>(Form::nfd);
  if (type == "NFKC") return std::make_unique<InForm>(Form::nfkc);
  if (type == "NFKD") return std::make_unique<InForm>(Form::nfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Nmt") return std::make_unique<Nmt>();
  if (type == "BertNormalizer") return std::make_unique<Bert>(fields);
  if (type == "Prepend") return std::make_unique<Prepend>(fields.text("prepend"));
  if (type == "Strip") {
    const bool left = fields.flag("strip_left", true);
    return std::make_unique<Strip>(left, fields.flag("strip_right", true));
  }
  if (type == "Replace") {
    Needle needle(fields.value("pattern"), fields, name);
    return std::make_unique<Replace>(std::move(needle), fields.text("content"));
  }
  if (type == "Precompiled") {
    const auto data = from_base64(fields.text("precompiled_charsmap"));
    if (!data) fields.refuse("precompiled_charsmap must be base64");
    return std::make_unique<Precompiled>(Charsmap(*data, name));
  }
  return nullptr;
}

std::unique_ptr<Normalizer> component(const Json& json, const std::string& name) {
  const Json& type = json["type"];
  JsonReader fields(op, name + ": normalizer " + one_line(type.text, 80), json);
  fields.ignore({"type"});
  auto made = of_type(type.text, fields, name);
  if (!made) fields.refuse("is not supported");
  fields.finish();
  return made;
}

}  // namespace

Needle::Needle(const Json& json, const JsonReader& fields, const std::string& name) {
  if (json.is_object() && json.members.size() == 1 && json["String"].is_string()) {
    literal_ = json["String"].text;
    if (literal_.empty()) fields.refuse("the pattern is empty");
  } else if (json.is_object() && json.members.size() == 1 && json["Regex"].is_string()) {
    pattern_ = std::make_unique<Pattern>(json["Regex"].text, name);
  } else {
    fields.refuse("pattern must be {\"String\": …} or {\"Regex\": …}");
  }
}

bool Needle::find(std::string_view text, size_t from, Span& match, MatchScratch& scratch) const {
  if (pattern_) return pattern_->find(text, from, match, scratch);
  const size_t at = text.find(literal_, from);
  if (at == std::string_view::npos) return false;
  match = {at, at + literal_.size()};
  return true;
}

bool Matches::next(Span& match) {
  while (!text_.empty() && from_ <= text_.size() && needle_.find(text_, from_, match, scratch_)) {
    if (match.begin < match.end || match.end != last_end_) {
      from_ = last_end_ = match.end;
      return true;
    }
    from_ += from_ < text_.size() ? utf8_size(text_[from_]) : 1;
  }
  return false;
}

bool replace(std::string_view text, const Needle& needle, const std::string& replacement,
             size_t& first, MatchScratch& scratch, std::string& to) {
  size_t at = 0, first_end = 0;
  bool any = false;
  if (const std::string& literal = needle.literal(); !literal.empty() && first == 0) {
    for (size_t found; (found = text.find(literal, at)) != text.npos; at = found + literal.size()) {
      to.append(text, at, found - at).append(replacement);
      scratch.check_growth(to.size());
      any = true;
    }
  } else {
    Matches matches(needle, text, scratch);
    for (Span match{}; matches.next(match); at = match.end) {
      if (at < first) first_end = to.size() + std::min(first, match.begin) - at;
      to.append(text, at, match.begin - at).append(replacement);
      // The replacement takes the place of the last byte of the match.
      if (match.end <= first || match.end == 0) first_end = to.size();
      scratch.check_growth(to.size());
      any = true;
    }
    if (at < first) first_end = to.size() + first - at;
    first = first_end;
  }
  if (any) to.append(text, at);
  scratch.check_growth(any ? to.size() : text.size());
  return any;
}

std::unique_ptr<Normalizer> make_normalizer(const Definition& definition) {
  if (definition.sentencepiece) return make_sentencepiece_normalizer(definition);
  if (definition.normalizer.is_null()) return nullptr;
  return component(definition.normalizer, definition.name);
}

}  // namespace stretto::nn::tokenizers
