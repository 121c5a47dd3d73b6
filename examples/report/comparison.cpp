// Comparison of several runs in one page.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "core/parse_number.h"
#include "examples/common/file.h"
#include "examples/common/settings.h"
#include "examples/common/text_file.h"
#include "examples/common/words.h"
#include "examples/report/page.h"
#include "examples/report/report.h"

namespace stretto::examples {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Limits of a page, over all runs: numbers of runs and cells, and bytes of the other parts.
constexpr size_t most_runs = 100, most_cells = 40'000, most_music = 1'200'000,
                 most_charts = 500'000, most_text = 200'000, most_tables = 200'000;
// Limits of a metrics.csv.
constexpr size_t most_columns = 200;
constexpr int64_t most_header = 20'000;

// Returns the text without surrounding white space.
std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

struct Metrics {
  std::vector<std::string> columns;
  json rows = json::array();
  int64_t measured = 0, last_step = 0;
  std::string problem;  // why rows are missing
};

// Parses a number; NaN for an empty cell, nothing for anything else.
std::optional<double> number_of(std::string_view cell) {
  cell = trimmed(cell);
  if (cell.empty()) return NAN;
  return parse_double(cell);
}

json row_of(std::string_view line, size_t columns) {
  json row = json::array();
  for (const std::string_view cell : fields_of(line, ',', columns + 1)) {
    const std::optional<double> value = number_of(cell);
    if (!value) return nullptr;
    row.push_back(std::isfinite(*value) ? json(*value) : json());
  }
  const bool whole = row.size() == columns && row[0].is_number();
  return whole && std::abs(row[0].get<double>()) < 0x1p53 ? row : json();
}

std::vector<std::string> columns_of(std::string_view line) {
  std::vector<std::string> names;
  bool named = false;
  const std::vector<std::string_view> cells = fields_of(line, ',', most_columns + 1);
  require(cells.size() <= most_columns && int64_t(line.size()) <= most_header,
          "metrics.csv has more than " + std::to_string(most_columns) + " columns or " +
              grouped(most_header) + " bytes of their names");
  for (const std::string_view cell : cells) {
    named = named || !number_of(cell);
    names.emplace_back(trimmed(cell));
    if (names.back().empty()) names.back() = "column " + std::to_string(names.size());
  }
  require(named, "line 1 of metrics.csv does not name its columns");
  return names;
}

void check_program_columns(const std::vector<std::string>& columns) {
  for (const char* needed : {"step", "seconds", "train_loss", "valid_loss"})
    require(std::count(columns.begin(), columns.end(), needed) == 1 && columns[0] == "step",
            "metrics.csv must have exactly one column " + std::string(needed) +
                ", and its first column must be step");
}

// Reads up to the first line that is not a row, such as one truncated by a crash.
Metrics read_metrics(const std::string& path, bool of_program, size_t room) {
  const std::string text = read_whole_file(path);
  std::string_view rest = text;
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);
  const std::string_view header = rest.substr(0, rest.find('\n'));
  rest.remove_prefix(std::min(header.size() + 1, rest.size()));
  Metrics m;
  require(!of_program || !header.empty(),
          "metrics.csv must have exactly one column step, and its first column must be step");
  m.columns = columns_of(header);
  if (of_program) check_program_columns(m.columns);
  const size_t columns = m.columns.size();

  std::vector<std::string_view> lines;
  json last;
  const auto blank = [&] { return trimmed(rest).empty(); };
  for (size_t end; !blank() && (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1)) {
    json row = row_of(rest.substr(0, end), columns);
    if (row.is_null()) {
      m.problem = "line " + grouped(int64_t(lines.size() + 2)) +
                  " of metrics.csv is not a row of " + counted(int64_t(columns), "number");
      break;
    }
    last = std::move(row);
    lines.push_back(rest.substr(0, end));
  }
  const bool header_ended = header.data() + header.size() < text.data() + text.size();
  if (m.problem.empty() && (!blank() || !header_ended))
    m.problem = "metrics.csv is truncated within line " +
                grouped(int64_t(header_ended ? lines.size() + 2 : 1));
  require(of_program || !lines.empty(), m.problem.empty() ? "metrics.csv has no rows" : m.problem);
  m.measured = int64_t(lines.size());
  if (!lines.empty()) m.last_step = int64_t(last[0].get<double>());
  const size_t n = std::min(lines.size(), std::max<size_t>(2, room / columns));
  for (size_t i = 0; i < n; ++i)
    m.rows.push_back(n == 1 ? last : row_of(lines[i * (lines.size() - 1) / (n - 1)], columns));
  return m;
}

// Removes the parts of the list that exceed the remaining space.
void keep(json& list, size_t& room) {
  json kept = json::array();
  for (json& part : list) {
    const size_t size = part.dump().size();
    if (size > room) continue;
    room -= size;
    kept.push_back(std::move(part));
  }
  list = std::move(kept);
}

struct Room {
  size_t cells, music = most_music, charts = most_charts, text = most_text, tables = most_tables;
};

// Describes how a run ended early; "" for a complete run.
std::string cut_off(const json& run, int64_t step) {
  const std::string state = run.at("state"), at = " at step " + grouped(step);
  if (state == "done") return "";
  if (state == "failed") return "failed" + at + ": " + run.at("failure").get<std::string>();
  if (state == "stopped") return "was stopped" + at;
  return state == "scoring" ? "was interrupted after training"
                            : "was interrupted, or is still running," + at;
}

// Returns a path as the address of a link, whatever bytes it has; it never has a scheme.
std::string address_of(const std::string& path) {
  constexpr const char* digits = "0123456789ABCDEF";
  std::string address = path.starts_with('/') ? "" : "./";
  for (const char c : path) {
    const auto byte = uint8_t(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("/-._~").find(c) != std::string_view::npos;
    if (plain)
      address += c;
    else
      (address += '%') += {digits[byte >> 4], digits[byte & 15]};
  }
  return address;
}

// Returns a run that only has a metrics.csv, such as a run of an nn::Trainer without report.html.
json run_without_page() {
  json run{
      {"loss", {{"title", "Loss"}, {"unit", "loss"}, {"scale", 1}, {"references", json::array()}}}};
  for (const char* name : {"program", "about", "version", "written", "state", "failure"})
    run[name] = "";
  for (const char* name : {"settings", "tables", "charts", "music", "texts"})
    run[name] = json::array();
  return run;
}

json read_run(const std::string& folder, const fs::path& out, Room& room, std::string& problem) {
  require(fs::is_directory(folder), "no such folder");
  const std::string page = (fs::path(folder) / "report.html").string(),
                    measured = (fs::path(folder) / "metrics.csv").string();
  std::error_code none;
  const bool has_page = fs::exists(fs::symlink_status(page, none));
  require(has_page || fs::exists(measured, none), "has no metrics.csv");
  json run = has_page ? checked_run(run_of_page(page)) : run_without_page();
  const Metrics metrics = read_metrics(measured, has_page, room.cells);
  run["metrics"] = {
      {"columns", metrics.columns}, {"rows", metrics.rows}, {"measured", metrics.measured}};
  run["name"] = folder;
  if (has_page)
    run["link"] =
        address_of(fs::proximate(fs::absolute(page), fs::absolute(out).parent_path()).string());
  keep(run["music"], room.music);
  keep(run["charts"], room.charts);
  keep(run["texts"], room.text);
  keep(run["tables"], room.tables);
  if (has_page) problem = cut_off(run, metrics.last_step);
  if (!metrics.problem.empty())
    problem += (problem.empty() ? "" : "; ") + metrics.problem + ", shown up to step " +
               grouped(metrics.last_step);
  return run;
}

}  // namespace

Comparison compare_runs(const std::vector<std::string>& folders, const std::string& out) {
  require(folders.size() <= most_runs,
          str(int64_t(folders.size()), " folders; at most ", int64_t(most_runs), " are accepted"));
  Comparison c;
  json runs = json::array();
  Room room{.cells = most_cells / std::max<size_t>(1, folders.size())};
  for (const std::string& folder : folders) {
    std::string problem;
    try {
      runs.push_back(read_run(folder, out, room, problem));
    } catch (const json::exception&) {
      problem = "report.html is broken";
    } catch (const UsageError& e) {
      problem = e.what();
    }
    if (!problem.empty()) c.problems.push_back(folder + ": " + problem);
  }
  c.shown = int64_t(runs.size());
  const json data{{"kind", "comparison"}, {"runs", runs}, {"problems", c.problems}};
  c.page =
      page_with(counted(c.shown, "run"), data.dump(-1, ' ', false, json::error_handler_t::replace));
  return c;
}

bool is_comparison(const std::string& path) {
  try {
    return data_of_page(path).starts_with(R"({"kind":"comparison")");
  } catch (const UsageError&) {
    return false;
  }
}

}  // namespace stretto::examples
