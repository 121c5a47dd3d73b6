#include "pretrained/files/json_lines.h"

#include <algorithm>
#include <string_view>

#include "core/error.h"
#include "core/input_file.h"
#include "core/one_line.h"
#include "nn/files/json.h"

namespace stretto::nn {

std::vector<std::map<std::string, std::string>> read_json_lines(const std::string& path) {
  std::vector<std::map<std::string, std::string>> rows;
  files::for_each_json_line("read_json_lines", path,
                            [&](const files::Json& json, const std::string&) {
                              std::map<std::string, std::string>& row = rows.emplace_back();
                              for (const auto& [key, value] : json.members)
                                row[key] = value.is_string() ? value.text : files::json_text(value);
                            });
  return rows;
}

void files::for_each_json_line(const char* op, const std::string& path,
                               const std::function<void(const Json&, const std::string&)>& visit) {
  const std::string text = read_file(path);
  std::string_view rest = text;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string name = str(one_line(path), ", line ", number);
    const Json json = parse_json(op, line, name);
    check(json.is_object(), op, name, ": is ", kind_of(json), ", not an object");
    visit(json, name);
  }
}

}  // namespace stretto::nn
