// The settings of a conformance case: a JSON object, read key by key.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace stretto::conformance {

/// Every reader throws an Error that names the key if its value has another type or, without a
/// fallback, if the key is missing. A value of null counts as missing.
class Config {
 public:
  /// Parses a JSON object, {} by default. Throws for any other text.
  explicit Config(const std::string& text = "{}");

  bool has(const std::string& key) const { return find(key) != nullptr; }
  int64_t integer(const std::string& key) const;
  int64_t integer(const std::string& key, int64_t fallback) const;
  double number(const std::string& key) const;
  double number(const std::string& key, double fallback) const;
  bool flag(const std::string& key, bool fallback) const;
  std::vector<int64_t> integers(const std::string& key) const;
  /// Returns a string that must be one of `accepted`; the first of them if the key is missing.
  std::string choice(const std::string& key, std::initializer_list<const char*> accepted) const;

 private:
  const nlohmann::json* find(const std::string& key) const;
  const nlohmann::json& at(const std::string& key) const;

  nlohmann::json values_;
};

}  // namespace stretto::conformance
