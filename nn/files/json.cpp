#include "nn/files/json.h"

#include <nlohmann/json.hpp>

#include "nn/files/json_builder.h"

namespace stretto::nn::files {

const Json& Json::operator[](std::string_view key) const {
  static const Json& none = *new const Json;  // outlives all other statics
  for (const auto& [name, value] : members)
    if (name == key) return value;
  return none;
}

Json parse_json(const char* op, std::string_view text, const std::string& name) {
  JsonBuilder builder(op, name);
  // JSON has no zero bytes, but the parser would treat one as the end.
  if (const size_t zero = text.find('\0'); zero != text.npos)
    builder.bad("is not JSON (byte ", zero + 1, ")");
  nlohmann::json::sax_parse(text, &builder);
  return std::move(builder.root);
}

const char* kind_of(const Json& value) {
  static constexpr const char* names[] = {"null",     "a boolean", "a number", "a number",
                                          "a string", "a list",    "an object"};
  return names[int(value.kind)];
}

std::string quoted_json(std::string_view text) {
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_text(const Json& value) {
  switch (value.kind) {
    case Json::Kind::null:
      return "null";
    case Json::Kind::boolean:
      return value.truth ? "true" : "false";
    case Json::Kind::integer:
      return std::to_string(value.integer);
    case Json::Kind::number:
      return nlohmann::json(value.number).dump();
    case Json::Kind::string:
      return quoted_json(value.text);
    case Json::Kind::list: {
      std::string text = "[";
      for (const Json& item : value.items) text += (text.size() > 1 ? "," : "") + json_text(item);
      return text + "]";
    }
    default: {
      std::string text = "{";
      for (const auto& [key, item] : value.members)
        text += (text.size() > 1 ? "," : "") + quoted_json(key) + ":" + json_text(item);
      return text + "}";
    }
  }
}

}  // namespace stretto::nn::files
