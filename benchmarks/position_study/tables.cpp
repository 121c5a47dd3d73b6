#include "benchmarks/position_study/tables.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>

#include "benchmarks/position_study/study.h"
#include "examples/common/file.h"
#include "examples/common/words.h"
#include "examples/plot/chart.h"

namespace stretto::study {
namespace {

namespace fs = std::filesystem;

// The mean of a column over the seeds, with its sample standard deviation.
struct Mean {
  double value = std::nan(""), spread = std::nan("");
  double count = 0;
};

// The rows of one position with one kernel, one per seed.
struct Group {
  std::string position;
  std::vector<Row> rows;

  Mean mean(const std::string& column) const {
    std::vector<double> values;
    for (const Row& row : rows)
      if (const double x = number_of(row, column); !std::isnan(x)) values.push_back(x);
    Mean m{.count = double(values.size())};
    if (values.empty()) return m;
    m.value = 0;
    for (const double x : values) m.value += x / m.count;
    double squares = 0;
    for (const double x : values) squares += (x - m.value) * (x - m.value);
    if (values.size() > 1) m.spread = std::sqrt(squares / (m.count - 1));
    return m;
  }
};

// A measure of quality: a column, its factor in tables, and whether larger values are better.
struct Measure {
  std::string title, column;
  bool larger = false;
  double factor() const { return larger ? 100 : 1; }
  int decimals() const { return larger ? 1 : 3; }
};

std::vector<Measure> measures_of(const TaskInfo& task) {
  const auto columns = [](const std::string& name, bool larger) {
    return std::vector<Measure>{
        {"L", name + "_1x", larger}, {"2 L", name + "_2x", larger}, {"4 L", name + "_4x", larger}};
  };
  std::vector<Measure> all = columns(task.accuracy ? "accuracy" : "bits", task.accuracy);
  if (task.accuracy)
    all.push_back({"bits at L", "bits_1x"});
  else
    all.push_back({"past L, at 4 L", "beyond_4x"});
  return all;
}

std::string fixed(double value, int decimals) {
  if (std::isnan(value)) return "–";
  char text[40];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

bool is_better(const Measure& measure, double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  return measure.larger ? a > b : a < b;
}

bool is_tie(const Mean& a, const Mean& best) {
  if (!(a.count > 1 && best.count > 1)) return false;
  const double error =
      std::sqrt(a.spread * a.spread / a.count + best.spread * best.spread / best.count);
  return std::fabs(a.value - best.value) <= std::max({a.spread, best.spread, 2 * error});
}

// The groups of a kernel, the best at the trained length first.
std::vector<Group> groups_of(const TaskInfo& task, const std::vector<Row>& rows,
                             const std::string& kernel) {
  std::vector<Group> groups;
  for (const Row& row : rows) {
    if (value_of(row, "kernel") != kernel) continue;
    const std::string& position = value_of(row, "position");
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& g) { return g.position == position; });
    if (group == groups.end()) group = groups.insert(group, Group{position, {}});
    group->rows.push_back(row);
  }
  const Measure first = measures_of(task)[0];
  std::stable_sort(groups.begin(), groups.end(), [&](const Group& a, const Group& b) {
    return is_better(first, a.mean(first.column).value, b.mean(first.column).value);
  });
  return groups;
}

const Group& best_of(const std::vector<Group>& groups, const Measure& measure) {
  return *std::min_element(groups.begin(), groups.end(), [&](const Group& a, const Group& b) {
    return is_better(measure, a.mean(measure.column).value, b.mean(measure.column).value);
  });
}

std::string quality_cell(const Group& group, const Group& best, const Measure& measure) {
  const Mean m = group.mean(measure.column);
  std::string text = fixed(measure.factor() * m.value, measure.decimals());
  if (m.count > 1) text += " ± " + fixed(measure.factor() * m.spread, measure.decimals());
  if (group.position == best.position) return std::isnan(m.value) ? text : "**" + text + "**";
  return is_tie(m, best.mean(measure.column)) ? text + " ≈" : text;
}

std::string line_of(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += " " + cell + " |";
  return line + "\n";
}

// The first two lines of a table; with `numbers` all columns but the first are right-aligned.
std::string head_of(const std::vector<std::string>& titles, bool numbers = true) {
  std::string rule = "| --- |";
  for (size_t i = 1; i < titles.size(); ++i) rule += numbers ? " ---: |" : " --- |";
  return line_of(titles) + rule + "\n";
}

std::string quality_table(const TaskInfo& task, const std::vector<Group>& groups) {
  const std::vector<Measure> measures = measures_of(task);
  std::vector<std::string> titles{"position"};
  for (const Measure& measure : measures) titles.push_back(measure.title);
  std::string text = head_of(titles);
  for (const Group& group : groups) {
    std::vector<std::string> cells{group.position};
    for (const Measure& measure : measures)
      cells.push_back(quality_cell(group, best_of(groups, measure), measure));
    text += line_of(cells);
  }
  for (const Group& group : groups)
    for (const Row& row : group.rows)
      if (const std::string& error = value_of(row, "error"); !error.empty())
        text += "\n" + group.position + ", seed " + value_of(row, "seed") + ": " + error + "\n";
  return text;
}

// A column of the costs, divided by that of no position; the value itself without that.
std::string ratio(const Group& group, const std::vector<Group>& groups, const std::string& column) {
  const auto none = std::find_if(groups.begin(), groups.end(),
                                 [](const Group& g) { return g.position == "none"; });
  if (none == groups.end()) return "–";
  return fixed(group.mean(column).value / none->mean(column).value, 2);
}

std::string cost_table(const TaskInfo& task, const std::vector<Group>& groups) {
  std::vector<std::string> titles{"position", "parameters", "time of a step", "memory of a step"};
  if (!task.classifies) {
    titles.insert(titles.end(), {"time of a decoded token", "cache at L, bytes per token",
                                 "each further token, bytes"});
  }
  std::string text = head_of(titles);
  for (const Group& group : groups) {
    const double parameters = group.mean("parameters").value;
    std::vector<std::string> cells{
        group.position, std::isnan(parameters) ? "–" : examples::grouped(std::llround(parameters)),
        ratio(group, groups, "step_seconds"), ratio(group, groups, "step_bytes")};
    if (!task.classifies) {
      const double length = group.mean("length").value;
      const double cache = group.mean("cache_bytes").value;
      const double longer = group.mean("cache_bytes_4x").value;
      cells.insert(cells.end(), {ratio(group, groups, "token_seconds"), fixed(cache / length, 0),
                                 fixed((longer - cache) / (3 * length), 0)});
    }
    text += line_of(cells);
  }
  return text;
}

std::vector<std::string> kernels_of(const std::vector<Row>& rows) {
  std::vector<std::string> kernels;
  for (const nn::KernelEntry& kernel : nn::kernels())
    if (std::any_of(rows.begin(), rows.end(),
                    [&](const Row& row) { return value_of(row, "kernel") == kernel.name; }))
      kernels.push_back(kernel.name);
  return kernels;
}

std::string settings_line(const TaskInfo& task, const std::vector<Row>& rows) {
  const auto value = [&](const char* column) { return value_of(rows.at(0), column); };
  std::vector<std::string> seeds;
  for (const Row& row : rows)
    if (const std::string& seed = value_of(row, "seed");
        std::count(seeds.begin(), seeds.end(), seed) == 0)
      seeds.push_back(seed);
  return std::string(task.accuracy ? "Accuracy in percent" : "Bits per token") +
         "; L = " + value("length") + ". " + value("layers") + " layers of width " +
         value("d_model") + ", " + value("heads") + " heads; " + value("steps") + " steps of " +
         value("batch") + " × " + value("length") + " tokens; seeds " + examples::joined(seeds) +
         ".\n";
}

void write_chart(const std::string& path, const TaskInfo& task, const std::vector<Row>& rows,
                 bool softmax) {
  const std::vector<Measure> measures = measures_of(task);
  std::vector<examples::Series> series;
  double worst = 0;  // at the trained length
  for (const std::string& kernel : kernels_of(rows)) {
    if ((kernel == "softmax") != softmax) continue;
    for (const Group& group : groups_of(task, rows, kernel)) {
      examples::Series s{softmax ? group.position : group.position + ", " + kernel, {}, {}};
      for (size_t i = 0; i < 3; ++i) {
        s.x.push_back(double(1 << i));
        s.y.push_back(measures[i].factor() * group.mean(measures[i].column).value);
      }
      if (std::isfinite(s.y[0])) worst = std::max(worst, s.y[0]);
      series.push_back(std::move(s));
    }
  }
  if (series.empty()) return;
  examples::ChartOptions options{
      .title = task.title + (softmax ? ": softmax" : ": linear kernels"),
      .x_label = "tested length / trained length",
      .y_label = task.accuracy ? "accuracy in percent" : "bits per token"};
  // Bits far above the trained length's would hide the differences between the others.
  if (!task.accuracy && worst > 0) options.y_max = 1.25 * worst;
  examples::write_file_atomically(path, line_chart(options, series));
}

// The best position by one measure, then those within the spread of it: "**rope**, xpos".
std::string best_cell(const std::vector<Group>& groups, const Measure& measure) {
  const Group& best = best_of(groups, measure);
  std::string text = "**" + best.position + "**";
  for (const Group& group : groups)
    if (group.position != best.position &&
        is_tie(group.mean(measure.column), best.mean(measure.column)))
      text += ", " + group.position;
  return text;
}

}  // namespace

std::string task_tables(const TaskInfo& task, const std::vector<Row>& rows) {
  std::string title = task.title;
  title[0] = char(std::toupper(title[0]));
  std::string text = "## " + title + "\n\n" + settings_line(task, rows);
  for (const std::string& kernel : kernels_of(rows)) {
    const std::vector<Group> groups = groups_of(task, rows, kernel);
    text += "\n### " + title + ": " + kernel + "\n\n" + quality_table(task, groups) +
            "\nCosts; times and memory of a step are divided by those of `none`:\n\n" +
            cost_table(task, groups);
  }
  return text;
}

std::string best_table(const std::vector<std::pair<TaskInfo, std::vector<Row>>>& results) {
  std::string text = head_of({"task", "kernel", "at L", "at 4 L"}, false);
  for (const auto& [task, rows] : results)
    for (const std::string& kernel : kernels_of(rows)) {
      const std::vector<Group> groups = groups_of(task, rows, kernel);
      const std::vector<Measure> measures = measures_of(task);
      text += line_of(
          {task.title, kernel, best_cell(groups, measures[0]), best_cell(groups, measures[2])});
    }
  return text;
}

void write_tables(const std::string& out, const std::string& to) {
  std::vector<std::pair<TaskInfo, std::vector<Row>>> results;
  for (const TaskInfo& task : tasks()) {
    std::vector<Row> rows = read_rows(csv_path(out, task.name), csv_columns());
    if (!rows.empty()) results.emplace_back(task, std::move(rows));
  }
  examples::require(!results.empty(), "--out " + out + ": has no results");
  fs::create_directories(to);
  std::string text =
      "# Position study\n\n"
      "Written by `position_study --tables` from the CSV files. L is the trained length. Values "
      "are "
      "mean ± sample\nstandard deviation over the seeds. The best mean of a column is bold; ≈ "
      "marks "
      "means that tie with it: they\ndiffer by at most the larger deviation or two standard errors "
      "of the difference.\n\n" +
      best_table(results);
  for (const auto& [task, rows] : results) {
    text += "\n" + task_tables(task, rows);
    for (const bool softmax : {true, false})
      write_chart(
          (fs::path(to) / (task.name + (softmax ? "-softmax.svg" : "-linear.svg"))).string(), task,
          rows, softmax);
  }
  examples::write_file_atomically((fs::path(to) / "tables.md").string(), text);
}

}  // namespace stretto::study
