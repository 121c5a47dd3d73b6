#include "nn/name_map.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>


namespace stretto::nn {
namespace {

constexpr std::string_view hole = "{}";

using Numbers = std::vector<std::string>;

// The numbers in the pattern's holes; nothing when the name is another.
std::optional<Numbers> match(std::string_view pattern, std::string_view name) {
  Numbers numbers;
  while (true) {
    const size_t at = pattern.find(hole);
    if (name.substr(0, std::min(at, pattern.size())) != pattern.substr(0, at)) return {};
    if (at == std::string_view::npos)
      return name.size() == pattern.size() ? std::optional(numbers) : std::nullopt;
    name.remove_prefix(at);
    pattern.remove_prefix(at + hole.size());
    size_t digits = 0;
    while (digits < name.size() && std::isdigit(static_cast<unsigned char>(name[digits]))) ++digits;
    if (digits == 0) return {};
    numbers.emplace_back(name.substr(0, digits));
    name.remove_prefix(digits);
  }
}

size_t holes(std::string_view text) {
  size_t count = 0;
  for (size_t at = text.find(hole); at != std::string_view::npos; at = text.find(hole, at + 2))
    ++count;
  return count;
}

std::string fill(std::string text, const Numbers& numbers) {
  size_t at = 0;
  for (const std::string& number : numbers) {
    at = text.find(hole, at);
    if (at == std::string::npos) break;
    text.replace(at, hole.size(), number);
    at += number.size();
  }
  return text;
}

}  // namespace

NameMap::NameMap(std::initializer_list<std::pair<std::string, std::string>> renames) {
  for (const auto& [from, to] : renames) to.empty() ? drop(from) : rename(from, to);
}

NameMap& NameMap::add(Rule rule) {
  for (const std::string& to : rule.to)
    check(holes(to) <= holes(rule.from), "NameMap", "\"", to, "\" has more {} than \"", rule.from,
          "\"");
  rules_.push_back(std::move(rule));
  return *this;
}

NameMap& NameMap::rename(std::string from, std::string to) {
  return add({std::move(from), {std::move(to)}});
}

NameMap& NameMap::drop(std::string from) { return add({std::move(from), {}}); }

NameMap& NameMap::split(std::string from, std::vector<std::string> to) {
  return add({std::move(from), std::move(to)});
}

NameMap& NameMap::convert(std::string from, std::string to,
                          std::function<Tensor(const Tensor&)> f) {
  return add({std::move(from), {std::move(to)}, std::move(f)});
}

std::vector<NamedTensor> NameMap::operator()(const NamedTensor& source) const {
  for (const Rule& rule : rules_) {
    const std::optional<Numbers> numbers = match(rule.from, source.name);
    if (!numbers) continue;
    const int64_t parts = int64_t(rule.to.size());
    const Tensor value = rule.f ? rule.f(source.tensor) : source.tensor;
    if (parts == 1) return {{fill(rule.to[0], *numbers), value}};
    std::vector<NamedTensor> result;
    if (parts == 0) return result;
    check(value.dim() >= 1 && value.size(0) % parts == 0, "load", source.name, ": file has ", value,
          ", which cannot be cut in ", parts, " equal parts");
    const int64_t rows = value.size(0) / parts;
    for (int64_t i = 0; i < parts; ++i)
      result.push_back(
          {fill(rule.to[size_t(i)], *numbers), value.slice(0, i * rows, (i + 1) * rows)});
    return result;
  }
  return {source};
}

}  // namespace stretto::nn
