// Puts data into the page and reads them back.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "examples/common/file.h"
#include "examples/common/settings.h"
#include "examples/plot/svg.h"
#include "examples/report/page.h"

namespace stretto::examples {
namespace {

using nlohmann::json;

// A page has less than 3 MB (report.h), at most about 200,000 values, and 8 levels.
constexpr uint64_t most_bytes = 4'000'000;
constexpr int64_t most_values = 1'000'000;
constexpr int most_levels = 20;

constexpr std::string_view data_begin = R"(<script type="application/json" id="data">)",
                           data_end = "</script>";

// Returns JSON in which every < is escaped, so that no text of a run can end the script element or
// begin another one. In JSON a < occurs only in strings.
std::string without_tags(const std::string& text) {
  std::string safe;
  for (const char c : text) c == '<' ? safe += "\\u003c" : safe += c;
  return safe;
}

}  // namespace

std::string page_with(const std::string& title, const std::string& data) {
  std::string page;
  std::string_view rest = page_html;
  const auto fill = [&](std::string_view mark, const std::string& with) {
    const size_t at = rest.find(mark);
    page.append(rest.substr(0, at)).append(with);
    rest.remove_prefix(at + mark.size());
  };
  fill("{{title}}", escaped(title));
  fill("{{style}}", page_style);
  fill("{{data}}", without_tags(data));
  fill("{{script}}", page_script);
  return page.append(rest);
}

std::string data_of_page(const std::string& path) {
  std::error_code none;
  const uint64_t size = std::filesystem::file_size(path, none);
  require(none || size <= most_bytes, path + ": has " + std::to_string(size) +
                                          " bytes; the page of a run has at most " +
                                          std::to_string(most_bytes));
  const std::string page = read_whole_file(path);
  const size_t begin = page.find(data_begin);
  const size_t end = begin == page.npos ? begin : page.find(data_end, begin);
  require(end != page.npos, path + ": not the page of a run");
  return page.substr(begin + data_begin.size(), end - begin - data_begin.size());
}

json run_of_page(const std::string& path) {
  const std::string broken = std::filesystem::path(path).filename().string() + " is broken";
  int64_t values = 0;
  const auto bounded = [&](int depth, json::parse_event_t, json&) {
    require(depth < most_levels && ++values <= most_values, broken);
    return true;
  };
  try {
    return json::parse(data_of_page(path), bounded).at("runs").at(0);
  } catch (const json::exception&) {
    throw UsageError(broken);
  }
}

}  // namespace stretto::examples
