// Several runs in one page.
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
#include "examples/report/page.h"
#include "examples/report/report.h"

namespace stretto::examples {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// What a page has room for, of all runs together; bytes but for the rows.
constexpr size_t most_runs = 100, most_rows = 4000, most_music = 1'200'000, most_charts = 500'000,
                 most_text = 200'000;

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> all;
  for (size_t begin = 0, end; begin <= text.size(); begin = end + 1) {
    end = std::min(text.find(at, begin), text.size());
    all.push_back(text.substr(begin, end - begin));
  }
  return all;
}

struct Metrics {
  std::vector<std::string> columns;
  json rows = json::array();
  int64_t measured = 0, last_step = 0;
  std::string problem;  // of what is left out
};

json row_of(std::string_view line, size_t columns) {
  json row = json::array();
  for (const std::string_view cell : split(line, ',')) {
    const std::optional<double> value = parse_double(cell);
    if (!value) return nullptr;
    row.push_back(std::isfinite(*value) ? json(*value) : json());
  }
  const bool whole = row.size() == columns && row[0].is_number();
  return whole && std::abs(row[0].get<double>()) < 0x1p53 ? row : json();
}

// Up to the first line that is no row: one that a crash cut short, or worse.
Metrics read_metrics(const std::string& path, size_t most) {
  const std::string text = read_whole_file(path);
  std::vector<std::string_view> lines = split(text, '\n');
  Metrics m;
  for (const std::string_view name : split(lines[0], ',')) m.columns.emplace_back(name);
  for (const char* needed : {"step", "seconds", "train_loss", "valid_loss"})
    require(std::count(m.columns.begin(), m.columns.end(), needed) == 1 && m.columns[0] == "step",
            "metrics.csv has no column " + std::string(needed));
  const bool ended = lines.back().empty();
  lines.pop_back();
  std::vector<json> rows;
  for (size_t i = 1; i < lines.size(); ++i) {
    rows.push_back(row_of(lines[i], m.columns.size()));
    if (!rows.back().is_null()) continue;
    rows.pop_back();
    m.problem = str("line ", int64_t(i + 1), " of metrics.csv is not a row of ",
                    int64_t(m.columns.size()), " numbers");
    break;
  }
  if (m.problem.empty() && !ended)
    m.problem = str("metrics.csv was cut off within line ", int64_t(lines.size() + 1));
  m.measured = int64_t(rows.size());
  if (!rows.empty()) m.last_step = int64_t(rows.back()[0].get<double>());
  const size_t n = std::min(rows.size(), most);
  for (size_t i = 0; i < n; ++i)
    m.rows.push_back(n == 1 ? rows.back() : rows[i * (rows.size() - 1) / (n - 1)]);
  return m;
}

// Takes from the list what no longer fits into the room that is left.
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
  size_t rows, music = most_music, charts = most_charts, text = most_text;
};

// What the scripts rely on. json::exception for anything else.
void check_run(const json& run) {
  for (const char* name : {"program", "about", "version", "written", "state", "failure"})
    run.at(name).get_ref<const std::string&>();
  for (const char* name : {"commands", "tables", "charts", "music", "texts"})
    run.at(name).get_ref<const json::array_t&>();
  for (const json& setting : run.at("settings").get_ref<const json::array_t&>()) {
    setting.at(0).get_ref<const std::string&>();
    setting.at(1).get_ref<const std::string&>();
  }
  for (const char* name : {"title", "unit"}) run.at("loss").at(name).get_ref<const std::string&>();
  run.at("loss").at("scale").get<double>();
  run.at("loss").at("references").get_ref<const json::array_t&>();
}

// How a run ended that did not come to its end; empty for one that did.
std::string cut_off(const json& run, int64_t step) {
  const std::string state = run.at("state"), at = str(" at step ", step);
  if (state == "done") return "";
  if (state == "failed") return "failed" + at + ": " + run.at("failure").get<std::string>();
  if (state == "stopped") return "was stopped" + at;
  return state == "scoring" ? "was cut off after its training" : "was cut off, or goes on," + at;
}

json read_run(const std::string& folder, const fs::path& out, Room& room, std::string& problem) {
  require(fs::is_directory(folder), "no such folder");
  const std::string page = (fs::path(folder) / "report.html").string();
  const auto shallow = [](int depth, json::parse_event_t, json&) {
    require(depth < 20, "report.html is broken");  // what is to be written again nests no deeper
    return true;
  };
  json run = json::parse(data_of_page(page), shallow).at("runs").at(0);
  check_run(run);
  const Metrics metrics =
      read_metrics((fs::path(folder) / "metrics.csv").string(), std::max<size_t>(2, room.rows));
  run["metrics"] = {
      {"columns", metrics.columns}, {"rows", metrics.rows}, {"measured", metrics.measured}};
  run["name"] = folder;
  run["link"] = fs::proximate(fs::absolute(page), fs::absolute(out).parent_path()).string();
  run.erase("maps");
  keep(run["music"], room.music);
  keep(run["charts"], room.charts);
  keep(run["texts"], room.text);
  problem = cut_off(run, metrics.last_step);
  if (!metrics.problem.empty())
    problem += (problem.empty() ? "" : "; ") + metrics.problem + ", shown up to step " +
               std::to_string(metrics.last_step);
  return run;
}

}  // namespace

Comparison compare_runs(const std::vector<std::string>& folders, const std::string& out) {
  require(folders.size() <= most_runs,
          str(int64_t(folders.size()), " folders: at most ", int64_t(most_runs), " can be shown"));
  Comparison c;
  json runs = json::array();
  Room room{.rows = most_rows / std::max<size_t>(1, folders.size())};
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
  c.page = page_with(str(c.shown, c.shown == 1 ? " run" : " runs"),
                     data.dump(-1, ' ', false, json::error_handler_t::replace));
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
