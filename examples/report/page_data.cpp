// Data into the page, and out of it again.
#include <string_view>

#include "examples/common/file.h"
#include "examples/common/markup.h"
#include "examples/common/settings.h"
#include "examples/report/page.h"

namespace stretto::examples {
namespace {

constexpr std::string_view data_begin = R"(<script type="application/json" id="data">)",
                           data_end = "</script>";

// In JSON a < stands in strings alone: no text of a run can end the script or begin another.
std::string without_tags(const std::string& json) {
  std::string safe;
  for (const char c : json) c == '<' ? safe += "\\u003c" : safe += c;
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
  const std::string page = read_whole_file(path);
  const size_t begin = page.find(data_begin);
  const size_t end = begin == page.npos ? begin : page.find(data_end, begin);
  require(end != page.npos, path + ": not the page of a run");
  return page.substr(begin + data_begin.size(), end - begin - data_begin.size());
}

}  // namespace stretto::examples
