// The position study: which runs there are, which are finished, and making the missing ones.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/position_study/results.h"

namespace stretto::study {

/// Options of a study.
struct StudyOptions {
  std::string out;                      ///< Folder of the CSV files, one per task.
  std::string data;                     ///< Folder of the data sets; empty: generated data only.
  std::vector<std::string> tasks;       ///< Names of tasks; empty: all.
  std::vector<std::string> positions;   ///< Names of positions; empty: all.
  std::vector<std::string> kernels;     ///< Names of kernels; empty: softmax and three linear ones.
  std::vector<int64_t> seeds{1, 2, 3};  ///< Seeds.
  double longer = 1;                    ///< Factor of the training steps.
  int64_t steps = 0;                    ///< TaskInfo::steps of all tasks; 0: those of each task.
  int64_t length = 0;                   ///< TaskInfo::length, likewise.
  int64_t batch = 0;                    ///< TaskInfo::batch, likewise.
  double lr = 0;                        ///< TaskInfo::lr, likewise.
  double budget = 0;                    ///< Minutes after which no run is started; 0: no limit.
  Size size = {};                       ///< Size of all models.
  Row origin = {};                      ///< Columns `commit` and `processor` of new rows.
  std::function<void(const std::string&)> print = {};  ///< Receives lines about the progress.
};

/// A condition that cannot be run, and why.
struct Refused {
  Condition condition;
  std::string reason;
};

/// The runs of a study.
struct Plan {
  std::vector<Condition> runs;       ///< In the order in which they are made.
  std::vector<Refused> refused;      ///< With seed 0.
  std::vector<std::string> skipped;  ///< "TASK: FILE is missing".
};

/// Returns the runs: softmax with all positions for the first seed, then linear kernels, then the
/// other seeds. Throws examples::UsageError for unknown names.
Plan plan_of(const StudyOptions& options);

/// Returns the path of the CSV file of a task in the folder `out`.
std::string csv_path(const std::string& out, const std::string& task);
/// Returns the columns of a CSV file.
std::vector<std::string> csv_columns();

/// Makes the runs of the plan that have no row yet and returns their number. Runs that another
/// process is making are skipped. Throws examples::UsageError for a CSV file that cannot be read or
/// whose rows have other settings than this study.
int64_t make_missing(const StudyOptions& options);

/// Repeats the share `fraction` of the finished runs and compares the columns of
/// reproducible_results(). Returns the number of runs whose results differ.
int64_t repeat_runs(const StudyOptions& options, double fraction);

/// Returns the state of the study as text: finished and missing runs of each task with an estimate
/// of their time, then what is refused and skipped.
std::string overview(const StudyOptions& options);

}  // namespace stretto::study
