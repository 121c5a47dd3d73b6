#include "nn/files/name_map.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string_view>

#include "ops/indexing.h"

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
    if (digits == 0 || digits > 9) return {};
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

NameMap& NameMap::join(std::string from, std::string to) {
  check(holes(from) >= 1, "NameMap", "\"", from, "\" has no {}: nothing to order the parts by");
  return add({std::move(from), {std::move(to)}, {}, true});
}

NameMap& NameMap::convert(std::string from, std::string to,
                          std::function<Tensor(const Tensor&)> f) {
  return add({std::move(from), {std::move(to)}, std::move(f)});
}

std::vector<NameMap::Mapped> NameMap::operator()(const std::vector<NamedTensor>& file) const {
  std::vector<Mapped> result;
  std::map<std::string, std::map<int64_t, NamedTensor>> joined;  // by target, then by number
  for (const NamedTensor& source : file) {
    const auto add = [&](std::string name, const Tensor& value) {
      result.push_back({{std::move(name), value}, source.name});
    };
    const Rule* rule = nullptr;
    std::optional<Numbers> numbers;
    for (size_t i = 0; i < rules_.size() && !numbers; ++i) {
      rule = &rules_[i];
      numbers = match(rule->from, source.name);
    }
    if (!numbers) {
      add(source.name, source.tensor);
      continue;
    }
    const Tensor value = rule->f ? rule->f(source.tensor) : source.tensor;
    if (rule->joins) {
      joined[fill(rule->to[0], *numbers)][std::stoll(numbers->back())] = source;
    } else if (rule->to.size() == 1) {
      add(fill(rule->to[0], *numbers), value);
    } else if (rule->to.size() > 1) {
      const int64_t parts = int64_t(rule->to.size());
      check(value.dim() >= 1 && value.size(0) % parts == 0, "load", source.name, ": file has ",
            value, ", which cannot be cut in ", parts, " equal parts");
      const int64_t rows = value.size(0) / parts;
      for (int64_t i = 0; i < parts; ++i)
        add(fill(rule->to[size_t(i)], *numbers), value.slice(0, i * rows, (i + 1) * rows));
    }
  }
  for (const auto& [name, sources] : joined) {
    const NamedTensor& first = sources.begin()->second;
    Tensors pieces;
    for (const auto& [number, source] : sources) {
      const Tensor& x = source.tensor;
      Shape rest = x.shape();
      if (x.dim() >= 1) rest[0] = first.tensor.dim() >= 1 ? first.tensor.size(0) : 0;
      check(x.dim() >= 1 && rest == first.tensor.shape() && x.dtype() == first.tensor.dtype(),
            "load", source.name, ": file has ", x, ", which cannot follow ", first.name, ", ",
            first.tensor);
      pieces.push_back(x);
    }
    const std::string origin =
        sources.size() == 1 ? first.name : first.name + " and those after it";
    result.push_back({{name, cat(pieces, 0)}, origin});
  }
  return result;
}

}  // namespace stretto::nn
