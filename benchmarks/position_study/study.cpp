#include "benchmarks/position_study/study.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>

namespace stretto::study {
namespace {

namespace fs = std::filesystem;
using examples::as_text;
using Clock = std::chrono::steady_clock;

constexpr double typical_seconds = 25;  // of a run, as long as no run of its task is finished

const std::vector<std::string> default_kernels{"softmax", "performer", "linear-elu", "retention"};

std::vector<std::string> position_names() {
  std::vector<std::string> names = nn::position_names();
  names.push_back(memory_position);
  return names;
}

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const TaskInfo& task : tasks()) names.push_back(task.name);
  return names;
}

// The chosen names, or all of them; UsageError for a name that does not exist.
std::vector<std::string> chosen(const std::string& option, const std::vector<std::string>& given,
                                const std::vector<std::string>& all,
                                const std::vector<std::string>& fallback) {
  for (const std::string& name : given) examples::require_name(option, name, all);
  return given.empty() ? fallback : given;
}

std::vector<TaskInfo> chosen_tasks(const StudyOptions& o) {
  const std::vector<std::string> all = task_names(), names = chosen("--tasks", o.tasks, all, all);
  std::vector<TaskInfo> infos;
  for (TaskInfo task : tasks()) {
    if (std::count(names.begin(), names.end(), task.name) == 0) continue;
    if (o.steps > 0) task.steps = o.steps;
    if (o.length > 0) task.length = o.length;
    if (o.batch > 0) task.batch = o.batch;
    if (o.lr > 0) task.lr = o.lr;
    task.steps = std::max<int64_t>(1, std::llround(o.longer * double(task.steps)));
    infos.push_back(task);
  }
  return infos;
}

// The task of a condition, with the number of steps that the options give.
TaskInfo info_of(const StudyOptions& o, const std::string& name) {
  for (const TaskInfo& task : chosen_tasks(o))
    if (task.name == name) return task;
  throw Error("[study] task " + name + "; it is not one of the study's");
}

std::string text_of(const Condition& c) {
  return c.task + " " + c.position + " " + c.kernel + " seed " + as_text(c.seed);
}

Condition condition_of(const Row& row) {
  return {value_of(row, "task"), value_of(row, "position"), value_of(row, "kernel"),
          int64_t(number_of(row, "seed"))};
}

// The rows of a task's file, which must have the settings of this study.
std::vector<Row> finished_rows(const StudyOptions& o, const std::string& task) {
  std::vector<Row> rows = read_rows(csv_path(o.out, task), csv_columns());
  const TaskInfo info = info_of(o, task);
  for (const Row& row : rows)
    for (const auto& [name, value] : settings_of(condition_of(row), info, o.size))
      examples::require(value_of(row, name) == value,
                        csv_path(o.out, task) + ": the run " + text_of(condition_of(row)) +
                            " has " + name + " " + value_of(row, name) + ", this study " + value +
                            "; choose another --out");
  return rows;
}

bool is_finished(const std::vector<Row>& rows, const Condition& condition) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const Row& row) { return condition_of(row) == condition; });
}

// The finished rows of each task of the plan.
std::map<std::string, std::vector<Row>> all_finished(const StudyOptions& o) {
  std::map<std::string, std::vector<Row>> rows;
  for (const TaskInfo& task : chosen_tasks(o)) rows[task.name] = finished_rows(o, task.name);
  return rows;
}

// The data of the task that was used last; tasks take turns rarely.
class Loaded {
 public:
  explicit Loaded(const StudyOptions& o) : options_(o) {}
  const Task& operator()(const std::string& name) {
    if (!task_ || task_->info.name != name) {
      task_.reset();
      task_ = load(info_of(options_, name), options_.data);
    }
    return *task_;
  }

 private:
  const StudyOptions& options_;
  std::unique_ptr<Task> task_;
};

class Budget {
 public:
  explicit Budget(double minutes) : minutes_(minutes) {}
  bool spent() const {
    return minutes_ > 0 &&
           std::chrono::duration<double>(Clock::now() - start_).count() >= 60 * minutes_;
  }

 private:
  const double minutes_;
  const Clock::time_point start_ = Clock::now();
};

void print(const StudyOptions& o, const std::string& line) {
  if (o.print) o.print(line);
}

std::string report(const Row& row) {
  const std::string error = value_of(row, "error");
  std::string text = text_of(condition_of(row)) + ": ";
  if (!error.empty()) return text + error;
  const auto list = [&](const char* measure, double factor) {
    for (const char* suffix : {"_1x", "_2x", "_4x"}) {
      char number[32];
      std::snprintf(number, sizeof number, " %.3f",
                    factor * number_of(row, measure + std::string(suffix)));
      text += number;
    }
  };
  text += "bits";
  list("bits", 1);
  text += ", accuracy";
  list("accuracy", 1);
  return text + ", " + as_text(int64_t(number_of(row, "run_seconds"))) + " s";
}

}  // namespace

std::string csv_path(const std::string& out, const std::string& task) {
  return (fs::path(out) / (task + ".csv")).string();
}

std::vector<std::string> csv_columns() {
  std::vector<std::string> names;
  for (const auto& [name, value] : settings_of({}, {}, {})) names.push_back(name);
  names.insert(names.end(), result_columns().begin(), result_columns().end());
  names.insert(names.end(), {"commit", "processor"});
  return names;
}

Plan plan_of(const StudyOptions& o) {
  const std::vector<std::string> positions =
      chosen("--positions", o.positions, position_names(), position_names());
  const std::vector<std::string> kernels =
      chosen("--kernels", o.kernels, nn::kernel_names(), default_kernels);
  Plan plan;
  std::vector<TaskInfo> present;
  for (const TaskInfo& task : chosen_tasks(o)) {
    if (has_data(task, o.data))
      present.push_back(task);
    else
      plan.skipped.push_back(task.name + ": " + task.file + " is missing");
  }
  bool first = true;
  for (const int64_t seed : o.seeds) {
    for (const bool softmax : {true, false})
      for (const TaskInfo& task : present)
        for (const std::string& kernel : kernels) {
          if ((kernel == "softmax") != softmax) continue;
          for (const std::string& position : positions) {
            const Condition condition{task.name, position, kernel, seed};
            const std::string reason = refusal(condition, task, o.size);
            if (reason.empty())
              plan.runs.push_back(condition);
            else if (first)
              plan.refused.push_back({{task.name, position, kernel, 0}, reason});
          }
        }
    first = false;
  }
  return plan;
}

int64_t make_missing(const StudyOptions& o) {
  fs::create_directories(o.out);
  const Plan plan = plan_of(o);
  for (const std::string& text : plan.skipped) print(o, "skipped " + text);
  const std::map<std::string, std::vector<Row>> before = all_finished(o);
  const Budget budget(o.budget);
  Loaded loaded(o);
  int64_t made = 0;
  for (const Condition& condition : plan.runs) {
    if (is_finished(before.at(condition.task), condition)) continue;
    if (budget.spent()) break;
    const Claim claim((fs::path(o.out) / "claims").string(), text_of(condition));
    if (!claim.held() || is_finished(finished_rows(o, condition.task), condition)) continue;
    Row row = run(condition, loaded(condition.task), o.size);
    row.insert(row.end(), o.origin.begin(), o.origin.end());
    append_row(csv_path(o.out, condition.task), row);
    print(o, report(row));
    ++made;
  }
  return made;
}

int64_t repeat_runs(const StudyOptions& o, double fraction) {
  const Budget budget(o.budget);
  Loaded loaded(o);
  int64_t i = 0, repeated = 0, different = 0;
  for (const auto& [task, rows] : all_finished(o))
    for (const Row& row : rows) {
      ++i;
      if (std::floor(double(i) * fraction) == std::floor(double(i - 1) * fraction)) continue;
      if (budget.spent()) break;
      const Condition condition = condition_of(row);
      const Row again = run(condition, loaded(task), o.size);
      ++repeated;
      std::string changes;
      for (const std::string& name : reproducible_results())
        if (value_of(again, name) != value_of(row, name))
          changes += "; " + name + " " + value_of(row, name) + ", again " + value_of(again, name);
      if (!changes.empty()) ++different;
      print(o, text_of(condition) + (changes.empty() ? ": the same" : ": DIFFERENT" + changes));
    }
  print(o, as_text(repeated) + " runs repeated, " + as_text(different) + " with other results");
  return different;
}

std::string overview(const StudyOptions& o) {
  const Plan plan = plan_of(o);
  const std::map<std::string, std::vector<Row>> rows = all_finished(o);
  std::string text;
  double total = 0;
  int64_t missing_runs = 0;
  for (const auto& [task, finished] : rows) {
    double seconds = 0;
    for (const Row& row : finished) seconds += number_of(row, "run_seconds");
    const double mean = finished.empty() ? typical_seconds : seconds / double(finished.size());
    int64_t runs = 0, missing = 0;
    for (const Condition& condition : plan.runs) {
      if (condition.task != task) continue;
      ++runs;
      missing += is_finished(finished, condition) ? 0 : 1;
    }
    char line[200];
    std::snprintf(line, sizeof line, "%-9s %4ld runs, %4ld missing, about %.0f s each\n",
                  task.c_str(), long(runs), long(missing), mean);
    text += line;
    total += mean * double(missing);
    missing_runs += missing;
  }
  char line[200];
  std::snprintf(line, sizeof line, "%ld runs are missing: about %.1f hours of one processor\n",
                long(missing_runs), total / 3600);
  text += line;
  for (const std::string& skipped : plan.skipped) text += "skipped " + skipped + "\n";
  std::map<std::string, std::string> tasks_of;  // by position, kernel and reason
  for (const auto& [condition, reason] : plan.refused) {
    std::string& names = tasks_of[condition.position + " with " + condition.kernel + " (" +
                                  reason.substr(0, reason.find(';')) + ")"];
    names += (names.empty() ? "" : ", ") + condition.task;
  }
  for (const auto& [what, names] : tasks_of) text += "refused " + what + ": " + names + "\n";
  return text;
}

}  // namespace stretto::study
