#include "nn/pretrained/config_reader.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/input_file.h"
#include "core/one_line.h"

namespace stretto::nn::pretrained {

using Json = nlohmann::json;

struct ConfigReader::Fields {
  std::string source;
  Json object;
  std::set<std::string> used;

  // Returns the value of a field that is present and not null, and marks it as used.
  const Json* find(const std::string& name) {
    used.insert(name);
    const auto at = object.find(name);
    return at == object.end() || at->is_null() ? nullptr : &*at;
  }
  [[noreturn]] void refuse(const std::string& text) const {
    fail("load_pretrained", one_line(source), ": ", text);
  }
  [[noreturn]] void refuse_type(const std::string& name, const char* expected) const {
    refuse(str(in_quotes(name), " is ", one_line(object[name].dump(-1, ' ', true), 80),
               "; expected ", expected));
  }
  [[noreturn]] void refuse_absent(const std::string& name) const {
    refuse(str("the field ", in_quotes(name), " is missing"));
  }
};

namespace {

// Bounds the depth of nesting, since the parser is recursive in it.
void check_depth(const std::string& source, const std::string& json) {
  constexpr int most = 32;
  int depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_text) {
      if (c == '\\') ++i;
      in_text = c != '"';
    } else if (c == '"') {
      in_text = true;
    } else if (c == '{' || c == '[') {
      check(++depth <= most, "load_pretrained", one_line(source), ": nested more than ", most,
            " levels deep");
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
}

Json parsed(const std::string& source, const std::string& json, bool list = false) {
  check_depth(source, json);
  Json value = Json::parse(json, nullptr, false);
  check(!value.is_discarded(), "load_pretrained", one_line(source), ": not valid JSON");
  check(list ? value.is_array() : value.is_object(), "load_pretrained", one_line(source),
        list ? ": not a list of JSON" : ": not an object of JSON");
  return value;
}

}  // namespace

std::string read_text(const std::string& path) {
  constexpr int64_t most = 16 << 20;
  const InputFile file("load_pretrained", path);
  check(file.size() <= most, "load_pretrained", one_line(path), ": ", file.size(),
        " bytes; at most ", most, " allowed");
  std::string text(size_t(file.size()), '\0');
  file.read(text.data(), file.size(), 0);
  return text;
}

ConfigReader ConfigReader::of_file(const std::string& path) { return {path, read_text(path)}; }

std::vector<ConfigReader> ConfigReader::list_of_file(const std::string& path) {
  std::vector<ConfigReader> all;
  for (const Json& item : parsed(path, read_text(path), true)) {
    check(item.is_object(), "load_pretrained", one_line(path), ": not a list of objects");
    all.push_back(ConfigReader(std::make_unique<Fields>(Fields{path, item, {}})));
  }
  return all;
}

ConfigReader::ConfigReader(const std::string& source, const std::string& json)
    : fields_(std::make_unique<Fields>(Fields{source, parsed(source, json), {}})) {}

ConfigReader::ConfigReader(std::unique_ptr<Fields> fields) : fields_(std::move(fields)) {}
ConfigReader::~ConfigReader() = default;
ConfigReader::ConfigReader(ConfigReader&&) noexcept = default;
ConfigReader& ConfigReader::operator=(ConfigReader&&) noexcept = default;

bool ConfigReader::has(const std::string& name) const {
  const auto at = fields_->object.find(name);
  return at != fields_->object.end() && !at->is_null();
}

bool ConfigReader::is_text(const std::string& name) const {
  const auto at = fields_->object.find(name);
  return at != fields_->object.end() && at->is_string();
}

int64_t ConfigReader::integer(const std::string& name, std::optional<int64_t> fallback) {
  const Json* value = fields_->find(name);
  if (!value) {
    if (!fallback) fields_->refuse_absent(name);
    return *fallback;
  }
  const double number = value->is_number() ? value->get<double>() : NAN;  // 64 or 64.0
  if (std::isnan(number) || number != std::floor(number) || std::abs(number) > 1e15)
    fields_->refuse_type(name, "an integer");
  return int64_t(number);
}

int64_t ConfigReader::size(const std::string& name, std::optional<int64_t> fallback,
                           int64_t largest) {
  const int64_t value = integer(name, fallback);
  if (value < 1 || value > largest)
    fields_->refuse(str(in_quotes(name), " is ", value, "; expected 1 … ", largest));
  return value;
}

double ConfigReader::number(const std::string& name, std::optional<double> fallback) {
  const Json* value = fields_->find(name);
  if (!value) {
    if (!fallback) fields_->refuse_absent(name);
    return *fallback;
  }
  if (!value->is_number() || !std::isfinite(value->get<double>()))
    fields_->refuse_type(name, "a number");
  return value->get<double>();
}

bool ConfigReader::flag(const std::string& name, std::optional<bool> fallback) {
  const Json* value = fields_->find(name);
  if (!value) {
    if (!fallback) fields_->refuse_absent(name);
    return *fallback;
  }
  if (!value->is_boolean()) fields_->refuse_type(name, "true or false");
  return value->get<bool>();
}

std::string ConfigReader::text(const std::string& name, std::optional<std::string> fallback) {
  const Json* value = fields_->find(name);
  if (!value) {
    if (!fallback) fields_->refuse_absent(name);
    return *fallback;
  }
  if (!value->is_string()) fields_->refuse_type(name, "a text");
  return value->get<std::string>();
}

std::vector<int64_t> ConfigReader::integers(const std::string& name) {
  const Json* value = fields_->find(name);
  if (!value) return {};
  std::vector<int64_t> all;
  for (const Json& item : value->is_array() ? *value : Json::array({*value})) {
    if (!item.is_number_integer()) fields_->refuse_type(name, "integers");
    all.push_back(item.get<int64_t>());
  }
  return all;
}

std::vector<bool> ConfigReader::flags(const std::string& name) {
  const Json* value = fields_->find(name);
  if (!value) return {};
  if (!value->is_array()) fields_->refuse_type(name, "a list of true and false");
  std::vector<bool> all;
  for (const Json& item : *value) {
    if (!item.is_boolean()) fields_->refuse_type(name, "a list of true and false");
    all.push_back(item.get<bool>());
  }
  return all;
}

std::vector<std::string> ConfigReader::texts(const std::string& name) {
  const Json* value = fields_->find(name);
  if (!value) return {};
  if (!value->is_array()) fields_->refuse_type(name, "a list of texts");
  std::vector<std::string> all;
  for (const Json& item : *value) {
    if (!item.is_string()) fields_->refuse_type(name, "a list of texts");
    all.push_back(item.get<std::string>());
  }
  return all;
}

std::optional<ConfigReader> ConfigReader::object(const std::string& name) {
  const Json* value = fields_->find(name);
  if (!value) return {};
  if (!value->is_object()) fields_->refuse_type(name, "an object");
  return ConfigReader(
      std::make_unique<Fields>(Fields{str(fields_->source, ": ", in_quotes(name)), *value, {}}));
}

void ConfigReader::ignore(std::initializer_list<const char*> names) {
  fields_->used.insert(names.begin(), names.end());
}

void ConfigReader::require(const std::string& name, bool value) {
  if (flag(name, value) != value)
    fields_->refuse(str(in_quotes(name), " is ", value ? "false" : "true", "; supported is ",
                        value ? "true" : "false"));
}

void ConfigReader::require(const std::string& name, const char* value) {
  if (const std::string given = text(name, value); given != value)
    fields_->refuse(
        str(in_quotes(name), " is ", in_quotes(given), "; supported is \"", value, '"'));
}

void ConfigReader::finish() const {
  constexpr size_t shown = 5;
  std::vector<std::string> unused;
  for (const auto& [name, value] : fields_->object.items())
    if (!value.is_null() && !fields_->used.contains(name))
      unused.push_back(str(in_quotes(name), " = ", one_line(value.dump(-1, ' ', true), 40)));
  if (unused.empty()) return;
  std::string list;
  for (size_t i = 0; i < std::min(shown, unused.size()); ++i)
    list += (i > 0 ? ", " : "") + unused[i];
  if (unused.size() > shown) list += str(" and ", unused.size() - shown, " more");
  fields_->refuse("these fields are not supported for this model: " + list);
}

void ConfigReader::refuse(const std::string& text) const { fields_->refuse(text); }

}  // namespace stretto::nn::pretrained
