#include "pretrained/tokenizers/components/pre_tokenizer.h"

#include "core/error.h"
#include "core/one_line.h"
#include "core/utf8.h"
#include "pretrained/tokenizers/components/normalizer.h"
#include "pretrained/tokenizers/models/model.h"
#include "pretrained/tokenizers/text/unicode.h"

namespace stretto::nn::tokenizers {
namespace {

constexpr size_t most_stages = 100;  // each one calls the next one

enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// Joins the parts of a text, which are matches of a delimiter or not, to words.
class Joiner {
 public:
  Joiner(const Word& word, Behavior behavior, WordSink sink)
      : word_(word), behavior_(behavior), sink_(sink) {}

  void add(size_t begin, size_t end, bool is_match) {
    switch (behavior_) {
      case Behavior::removed:
        if (!is_match) emit(begin, end);
        return;
      case Behavior::isolated:
        emit(begin, end);
        return;
      case Behavior::merged_with_previous:
        if (is_match && has_ && !was_match_) return emit_open(end);
        flush();
        open(begin, end, is_match);
        return;
      case Behavior::merged_with_next:
        if (has_ && was_match_ && !is_match) return emit_open(end);
        flush();
        open(begin, end, is_match);
        return;
      case Behavior::contiguous:
        if (has_ && was_match_ == is_match) {
          end_ = end;
          return;
        }
        flush();
        open(begin, end, is_match);
    }
  }
  void flush() {
    if (std::exchange(has_, false)) emit(begin_, end_);
  }

 private:
  void open(size_t begin, size_t end, bool is_match) {
    begin_ = begin;
    end_ = end;
    was_match_ = is_match;
    has_ = true;
  }
  void emit_open(size_t end) {
    has_ = false;
    emit(begin_, end);
  }
  void emit(size_t begin, size_t end) { sink_(word_.part(begin, end)); }

  const Word& word_;
  Behavior behavior_;
  WordSink sink_;
  size_t begin_ = 0, end_ = 0;
  bool has_ = false, was_match_ = false;
};

class Split : public PreTokenizer {
 public:
  Split(Needle needle, Behavior behavior, bool invert)
      : needle_(std::move(needle)), behavior_(behavior), invert_(invert) {}

  void split(const Word& word, WordSink sink, std::string&, MatchScratch& scratch) const override {
    Joiner joiner(word, behavior_, sink);
    size_t done = 0;
    Matches matches(needle_, word.text, scratch);
    for (Span match{}; matches.next(match); done = match.end) {
      if (done < match.begin) joiner.add(done, match.begin, invert_);
      joiner.add(match.begin, match.end, !invert_);
    }
    if (done < word.text.size()) joiner.add(done, word.text.size(), invert_);
    joiner.flush();
  }

 private:
  Needle needle_;
  Behavior behavior_;
  bool invert_;
};

// Splits at the characters for which `is_delimiter` is true.
template <class F>
class AtCharacters : public PreTokenizer {
 public:
  AtCharacters(F is_delimiter, Behavior behavior)
      : is_delimiter_(is_delimiter), behavior_(behavior) {}

  void split(const Word& word, WordSink sink, std::string&, MatchScratch&) const override {
    Joiner joiner(word, behavior_, sink);
    size_t done = 0;
    for (size_t at = 0; at < word.text.size();) {
      const size_t begin = at;
      if (!is_delimiter_(next_code_point(word.text, at))) continue;
      if (done < begin) joiner.add(done, begin, false);
      joiner.add(begin, at, true);
      done = at;
    }
    if (done < word.text.size()) joiner.add(done, word.text.size(), false);
    joiner.flush();
  }

 private:
  F is_delimiter_;
  Behavior behavior_;
};

template <class F>
std::unique_ptr<PreTokenizer> at_characters(F is_delimiter, Behavior behavior) {
  return std::make_unique<AtCharacters<F>>(is_delimiter, behavior);
}

bool is_punctuation(uint32_t c) {
  if (c < 0x80)
    return c > ' ' && c < 0x7F && (c < '0' || c > '9') && ((c | 32) < 'a' || (c | 32) > 'z');
  return has(c, Property::punctuation);
}

class Bert : public PreTokenizer {
 public:
  void split(const Word& word, WordSink sink, std::string&, MatchScratch&) const override {
    size_t done = 0;
    const auto emit = [&](size_t begin, size_t end) { sink(word.part(begin, end)); };
    for (size_t at = 0; at < word.text.size();) {
      const size_t begin = at;
      const uint32_t c = next_code_point(word.text, at);
      const bool blank = is_white_space(c);
      if (!blank && !is_punctuation(c)) continue;
      emit(done, begin);
      if (!blank) emit(begin, at);
      done = at;
    }
    emit(done, word.text.size());
  }
};

// \w+|[^\w\s]+
class Whitespace : public PreTokenizer {
 public:
  void split(const Word& word, WordSink sink, std::string&, MatchScratch&) const override {
    size_t done = 0;
    int kind = 0;
    for (size_t at = 0; at <= word.text.size();) {
      const size_t begin = at;
      int next = 0;
      if (at < word.text.size()) {
        const uint32_t c = next_code_point(word.text, at);
        next = is_white_space(c) ? 0 : has(c, Property::word) ? 1 : 2;
      } else {
        ++at;
      }
      if (next == kind) continue;
      if (kind != 0) sink(word.part(done, begin));
      done = begin;
      kind = next;
    }
  }
};

class Metaspace : public PreTokenizer {
 public:
  enum class Prepend { always, first, never };
  Metaspace(std::string replacement, Prepend prepend, bool splits)
      : replacement_(std::move(replacement)), prepend_(prepend), splits_(splits) {}

  void split(const Word& word, WordSink sink, std::string& buffer, MatchScratch&) const override {
    buffer.clear();
    const bool starts = word.text.starts_with(' ') || word.text.starts_with(replacement_);
    size_t first = word.first;
    if (!starts && (prepend_ == Prepend::always || (prepend_ == Prepend::first && first > 0))) {
      buffer += replacement_;
      if (first > 0) first += replacement_.size();
    }
    for (size_t at = 0;;) {
      const size_t blank = std::min(word.text.find(' ', at), word.text.size());
      buffer.append(word.text, at, blank - at);
      if (blank == word.text.size()) break;
      buffer += replacement_;
      if (blank < word.first) first += replacement_.size() - 1;
      at = blank + 1;
    }
    const Word marked{buffer, first};
    for (size_t at = 0; at < buffer.size();) {
      const size_t end =
          splits_ ? std::min(buffer.find(replacement_, at + 1), buffer.size()) : buffer.size();
      sink(marked.part(at, end));
      at = end;
    }
  }

 private:
  std::string replacement_;
  Prepend prepend_;
  bool splits_;
};

// Without the change to the alphabet, which is left to the model.
class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex, const std::string& name)
      : adds_blank_(add_prefix_space) {
    if (use_regex) pattern_ = std::make_unique<Pattern>(gpt2_pattern, name);
  }

  void split(const Word& word, WordSink sink, std::string& buffer,
             MatchScratch& scratch) const override {
    std::string_view text = word.text;
    if (adds_blank_ && !text.starts_with(' ')) {
      buffer.assign(" ").append(text);
      text = buffer;
    }
    if (!pattern_) return sink({text, 0});
    size_t at = 0;
    for (Span match{}; at < text.size() && pattern_->find(text, at, match, scratch);
         at = match.end) {
      sink({text.substr(at, match.begin - at), 0});
      sink({text.substr(match.begin, match.end - match.begin), 0});
    }
    sink({text.substr(at), 0});
  }

 private:
  bool adds_blank_;
  std::unique_ptr<Pattern> pattern_;
};

Behavior behavior_of(JsonReader& fields, const char* fallback) {
  const std::string name =
      fallback == nullptr ? fields.text("behavior") : fields.text("behavior", fallback);
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  fields.refuse("the behavior " + in_quotes(name) + " is not supported");
}

std::unique_ptr<PreTokenizer> metaspace(JsonReader& fields) {
  const std::string replacement = fields.text("replacement");
  if (replacement.empty() || utf8_size(replacement[0]) != replacement.size())
    fields.refuse("replacement must be one character");
  // Old files have add_prefix_space instead of prepend_scheme.
  const bool add = fields.flag("add_prefix_space", true);
  const std::string scheme = fields.text("prepend_scheme", add ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    fields.refuse("the prepend_scheme " + in_quotes(scheme) + " is not supported");
  if (!add && scheme != "never")
    fields.refuse("add_prefix_space and prepend_scheme contradict each other");
  fields.ignore({"str_rep"});
  const auto prepend = scheme == "always"  ? Metaspace::Prepend::always
                       : scheme == "first" ? Metaspace::Prepend::first
                                           : Metaspace::Prepend::never;
  return std::make_unique<Metaspace>(replacement, prepend, fields.flag("split", true));
}

std::unique_ptr<PreTokenizer> of_type(const std::string& type, JsonReader& fields,
                                      const std::string& name) {
  if (type == "BertPreTokenizer") return std::make_unique<Bert>();
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit") return at_characters(is_white_space, Behavior::removed);
  if (type == "Punctuation") return at_characters(is_punctuation, behavior_of(fields, "Isolated"));
  if (type == "Metaspace") return metaspace(fields);
  if (type == "Digits") {
    const bool each = fields.flag("individual_digits", false);
    return at_characters([](uint32_t c) { return has(c, Property::numeric); },
                         each ? Behavior::isolated : Behavior::contiguous);
  }
  if (type == "Split") {
    Needle needle(fields.value("pattern"), fields, name);
    const Behavior behavior = behavior_of(fields, nullptr);
    return std::make_unique<Split>(std::move(needle), behavior, fields.flag("invert", false));
  }
  if (type == "ByteLevel") {
    const bool add = fields.flag("add_prefix_space", true);
    fields.ignore({"trim_offsets"});
    return std::make_unique<ByteLevel>(add, fields.flag("use_regex", true), name);
  }
  return nullptr;
}

void add(const Json& json, const std::string& name, PreTokenizers& to) {
  const Json& type = json["type"];
  JsonReader fields(op, name + ": pre_tokenizer " + one_line(type.text, 80), json);
  fields.ignore({"type"});
  if (to.byte_level) fields.refuse("behind ByteLevel is not supported");
  if (to.stages.size() >= most_stages)
    fields.refuse("more than " + std::to_string(most_stages) + " pre-tokenizers");
  if (type.text == "Sequence") {
    const Json& list = fields.value("pretokenizers");
    if (!list.is_list()) fields.refuse("pretokenizers must be a list");
    for (const Json& item : list.items) add(item, name, to);
  } else {
    auto made = of_type(type.text, fields, name);
    if (!made) fields.refuse("is not supported");
    to.stages.push_back(std::move(made));
    to.byte_level = type.text == "ByteLevel";
  }
  fields.finish();
}

}  // namespace

PreTokenizers make_pre_tokenizers(const Definition& definition) {
  PreTokenizers made;
  if (!definition.pre_tokenizer.is_null()) add(definition.pre_tokenizer, definition.name, made);
  return made;
}

}  // namespace stretto::nn::tokenizers
