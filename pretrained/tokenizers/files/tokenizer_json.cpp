// tokenizer.json: the large tables (vocabulary, merges) are read as a stream, the rest as Json.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/input_file.h"
#include "core/one_line.h"
#include "nn/files/json_builder.h"
#include "pretrained/tokenizers/files/definition.h"

namespace stretto::nn::tokenizers {
namespace {

// Returns a number as serde_json, which `tokenizers` uses: the digits are an integer, which a power of
// ten scales, each rounded. The last bit decides between segmentations of Unigram with equal scores.
double serde_number(const std::string& text) {
  const bool is_negative = text.starts_with('-');
  uint64_t digits = 0;
  int exponent = 0;
  bool in_fraction = false, is_full = false;
  size_t at = is_negative ? 1 : 0;
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '.') {
      in_fraction = true;
      continue;
    }
    const auto digit = uint64_t(text[at] - '0');
    is_full = is_full || digits > (UINT64_MAX - digit) / 10;
    if (!is_full) digits = 10 * digits + digit;
    if (is_full != in_fraction) exponent += is_full ? 1 : -1;
  }
  if (at < text.size())
    exponent += int(std::clamp(std::strtol(text.c_str() + at + 1, nullptr, 10), -10000L, 10000L));
  auto value = double(digits);
  for (; exponent < -308 && value != 0; exponent += 308) value /= 1e308;
  const double power = std::strtod(("1e" + std::to_string(std::abs(exponent))).c_str(), nullptr);
  value = exponent < 0 ? value / power : value * power;
  return is_negative ? -value : value;
}

// Passes events to a JsonBuilder, except those of model.vocab and model.merges.
class Reader {
 public:
  Reader(const std::string& path, Definition& to) : rest_(op, path), to_(to) {}

  files::JsonBuilder rest_;

  bool null() { return table_ == Table::none ? rest_.null() : bad_value(); }
  bool boolean(bool value) { return table_ == Table::none ? rest_.boolean(value) : bad_value(); }
  bool number_integer(int64_t value) {
    return table_ == Table::none ? rest_.number_integer(value) : number(double(value), value);
  }
  bool number_unsigned(uint64_t value) {
    return table_ == Table::none ? rest_.number_unsigned(value)
                                 : number(double(value), value <= INT32_MAX ? int64_t(value) : -1);
  }
  bool number_float(double value, const std::string& text) {
    return table_ == Table::none ? rest_.number_float(value, text) : number(serde_number(text), -1);
  }
  bool string(std::string& text) {
    if (table_ == Table::none) return rest_.string(text);
    if (text.size() > max_token_bytes) rest_.bad("a token of ", text.size(), " bytes");
    if (table_ == Table::merges) return merge_text(text);
    if (table_ != Table::pieces || table_depth_ != 2 || has_text_) return bad_value();
    to_.vocabulary.push_back({std::move(text), int32_t(to_.vocabulary.size()), 0});
    return has_text_ = true;
  }
  template <class Binary>
  bool binary(Binary& data) {
    return rest_.binary(data);
  }
  bool start_object(size_t n) {
    if (table_ != Table::none) return bad_value();
    if (in_model_ && rest_.depth() == 2 && key_ == "vocab") return start(Table::words);
    return rest_.start_object(n);
  }
  bool end_object() {
    if (table_ == Table::none) {
      if (rest_.depth() == 2) in_model_ = false;
      return rest_.end_object();
    }
    table_ = Table::none;
    return true;
  }
  bool start_array(size_t n) {
    if (table_ == Table::none) {
      if (in_model_ && rest_.depth() == 2 && key_ == "vocab") return start(Table::pieces);
      if (in_model_ && rest_.depth() == 2 && key_ == "merges") return start(Table::merges);
      return rest_.start_array(n);
    }
    if (table_ == Table::words || table_depth_ != 1) return bad_value();
    ++table_depth_;
    has_text_ = has_number_ = false;
    parts_.clear();
    return true;
  }
  bool end_array() {
    if (table_ == Table::none) return rest_.end_array();
    if (--table_depth_ == 0) {
      table_ = Table::none;
    } else if (table_ == Table::pieces) {
      if (!has_text_ || !has_number_) return bad_value();
    } else {
      if (parts_.size() != 2) return bad_value();
      to_.merges.emplace_back(std::move(parts_[0]), std::move(parts_[1]));
    }
    return true;
  }
  bool key(std::string& text) {
    if (table_ != Table::none) {
      if (text.size() > max_token_bytes) rest_.bad("a token of ", text.size(), " bytes");
      word_ = std::move(text);
      return true;
    }
    key_ = text;
    if (rest_.depth() == 1) in_model_ = text == "model";
    const bool large = in_model_ && rest_.depth() == 2 && (text == "vocab" || text == "merges");
    bool& seen = text == "vocab" ? has_vocabulary_ : has_merges_;
    if (large && std::exchange(seen, true))
      rest_.bad("the field ", in_quotes(text), " occurs twice");
    return large || rest_.key(text);
  }
  template <class Exception>
  bool parse_error(size_t at, const std::string& last, const Exception& error) {
    return rest_.parse_error(at, last, error);
  }

 private:
  enum class Table { none, words, pieces, merges };

  bool start(Table table) {
    table_ = table;
    table_depth_ = 1;
    return true;
  }

  [[noreturn]] bool bad_value() const {
    rest_.bad("model.", table_ == Table::merges ? "merges" : "vocab",
              table_ == Table::merges  ? " must contain pairs of tokens"
              : table_ == Table::words ? " must map tokens to ids"
                                       : " must contain pairs of a token and a score");
  }

  bool number(double value, int64_t id) {
    if (table_ == Table::words) {
      if (id < 0 || id >= max_ids)
        rest_.bad("the id of ", in_quotes(word_), " must be an integer of 0 to ", max_ids - 1);
      to_.vocabulary.push_back({std::move(word_), int32_t(id), 0});
      return true;
    }
    if (table_ != Table::pieces || table_depth_ != 2 || !has_text_ || has_number_)
      return bad_value();
    if (!std::isfinite(value)) rest_.bad("a score that is not finite");
    if (int64_t(to_.vocabulary.size()) > max_ids) rest_.bad("more than ", max_ids, " tokens");
    to_.vocabulary.back().score = value;
    return has_number_ = true;
  }

  bool merge_text(std::string& text) {
    if (table_depth_ == 2) {
      if (parts_.size() == 2) return bad_value();
      parts_.push_back(std::move(text));
      return true;
    }
    const size_t blank = text.find(' ');
    if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos)
      rest_.bad("the merge ", in_quotes(text), " must be two tokens with one blank between them");
    to_.merges.emplace_back(text.substr(0, blank), text.substr(blank + 1));
    return true;
  }

  Definition& to_;
  std::string key_, word_;
  std::vector<std::string> parts_;
  Table table_ = Table::none;
  int table_depth_ = 0;
  bool in_model_ = false, has_text_ = false, has_number_ = false;
  bool has_vocabulary_ = false, has_merges_ = false;
};

AddedToken added_token(const Json& json, const std::string& path) {
  JsonReader fields(op, path + ": added_tokens", json);
  AddedToken token;
  token.content = fields.text("content");
  token.id = int32_t(fields.integer("id", -1, 0, max_ids - 1));
  if (token.id < 0) fields.refuse("the token " + in_quotes(token.content) + " has no id");
  if (token.content.empty() || token.content.size() > max_token_bytes)
    fields.refuse("a token must have 1 to " + std::to_string(max_token_bytes) + " bytes");
  token.single_word = fields.flag("single_word", false);
  token.lstrip = fields.flag("lstrip", false);
  token.rstrip = fields.flag("rstrip", false);
  token.special = fields.flag("special", false);
  token.normalized = fields.flag("normalized", !token.special);
  fields.finish();
  return token;
}

// Reads a JSON file that maps tokens to ids, such as vocab.json.
class WordsReader : public files::JsonBuilder {
 public:
  WordsReader(const std::string& path, Definition& to) : files::JsonBuilder(op, path), to_(to) {}
  bool null() { return refuse(); }
  bool boolean(bool) { return refuse(); }
  bool number_integer(int64_t) { return refuse(); }
  bool number_float(double, const std::string&) { return refuse(); }
  bool string(std::string&) { return refuse(); }
  bool start_array(size_t) { return refuse(); }
  bool start_object(size_t) { return open_++ == 0 ? true : refuse(); }
  bool end_object() { return true; }
  bool key(std::string& text) {
    if (text.size() > max_token_bytes) bad("a token of ", text.size(), " bytes");
    word_ = std::move(text);
    return true;
  }
  bool number_unsigned(uint64_t id) {
    if (open_ == 0 || id >= uint64_t(max_ids)) return refuse();
    to_.vocabulary.push_back({std::move(word_), int32_t(id), 0});
    return true;
  }

 private:
  [[noreturn]] bool refuse() const { bad("must map tokens to ids of 0 to ", max_ids - 1); }

  Definition& to_;
  std::string word_;
  int open_ = 0;
};

}  // namespace

std::string read_text_file(const std::string& path) {
  return read_text(op, path, (int64_t(1) << 31) - 1);
}

Definition read_tokenizer_json(const std::string& path) {
  const std::string text = read_text_file(path);
  Definition definition;
  definition.name = path;
  Reader reader(path, definition);
  nlohmann::json::sax_parse(text, &reader);
  JsonReader fields(op, path + ": tokenizer.json", reader.rest_.root);
  fields.ignore({"version", "truncation", "padding"});  // encode() does neither
  const Json& added = fields.value("added_tokens");
  if (!added.is_null() && !added.is_list()) fields.refuse("added_tokens must be a list");
  for (const Json& token : added.items) definition.added.push_back(added_token(token, path));
  definition.normalizer = fields.value("normalizer");
  definition.pre_tokenizer = fields.value("pre_tokenizer");
  definition.post_processor = fields.value("post_processor");
  definition.decoder = fields.value("decoder");
  definition.model = fields.value("model");
  check(definition.model.is_object(), op, path, ": has no model");
  fields.finish();
  return definition;
}

void read_bpe_files(const std::string& vocabulary, const std::string& merges, Definition& to) {
  WordsReader reader(vocabulary, to);
  nlohmann::json::sax_parse(read_text_file(vocabulary), &reader);
  const std::string text = read_text_file(merges);
  for (size_t at = 0, line = 1; at < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view row = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (row.ends_with('\r')) row.remove_suffix(1);
    if (row.empty() || (line == 1 && row.starts_with("#version"))) continue;
    const size_t blank = row.find(' ');
    check(blank != std::string_view::npos && row.find(' ', blank + 1) == std::string_view::npos, op,
          merges, ": line ", line, " must be two tokens with one blank between them");
    to.merges.emplace_back(row.substr(0, blank), row.substr(blank + 1));
  }
}

}  // namespace stretto::nn::tokenizers
