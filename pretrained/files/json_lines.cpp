#include "pretrained/files/json_lines.h"

#include <algorithm>
#include <string_view>

#include "core/error.h"
#include "core/input_file.h"
#include "core/one_line.h"
#include "nn/files/json.h"

namespace stretto::nn {

std::vector<std::map<std::string, std::string>> read_json_lines(const std::string& path) {
  constexpr const char* op = "read_json_lines";
  const std::string text = read_file(path);
  std::vector<std::map<std::string, std::string>> rows;
  std::string_view rest = text;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string name = str(one_line(path), ", line ", number);
    const files::Json json = files::parse_json(op, line, name);
    check(json.is_object(), op, name, ": is ", files::kind_of(json), ", not an object");
    std::map<std::string, std::string>& row = rows.emplace_back();
    for (const auto& [key, value] : json.members)
      row[key] = value.is_string() ? value.text : files::json_text(value);
  }
  return rows;
}

}  // namespace stretto::nn
