// Tables in Markdown and plots of the results of the position study.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/position_study/results.h"

namespace stretto::study {

/// Returns the tables of one task: for each kernel the quality and the costs of all positions, the
/// best at the trained length first.
///
/// Values are mean ± sample standard deviation over the seeds. The best mean of a column is bold. A
/// mean is marked "≈", as a tie, if it differs from the best one by at most the larger of both
/// deviations or by at most two standard errors of the difference.
std::string task_tables(const TaskInfo& task, const std::vector<Row>& rows);

/// Returns a table with the best position of each task and kernel, and those within its spread.
std::string best_table(const std::vector<std::pair<TaskInfo, std::vector<Row>>>& results);

/// Reads the CSV files of the folder `out` and writes to the folder `to`: all tables as tables.md,
/// and for each task a plot over the tested lengths for softmax and one for linear kernels, as
/// TASK-softmax.svg and TASK-linear.svg. Throws examples::UsageError if there are no results.
void write_tables(const std::string& out, const std::string& to);

}  // namespace stretto::study
