// The CSV files of the position study: one per task, with one row per finished run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "benchmarks/position_study/run.h"

namespace stretto::study {

/// Returns the value of a column. Throws Error if the row does not have the column.
const std::string& value_of(const Row& row, const std::string& column);
/// Returns the value of a column as a number; NaN if it is empty or no number.
double number_of(const Row& row, const std::string& column);

/// Returns the rows of a CSV file whose columns are `columns`; no rows if there is no such file. A
/// last line without a line end is not returned, because its process was killed while it wrote it.
/// Throws examples::UsageError, naming file and line, for other columns and for damaged lines.
std::vector<Row> read_rows(const std::string& path, const std::vector<std::string>& columns);

/// Appends a row, with the names of its columns as the first line of a new file. Several processes
/// may append at once. A last line without a line end is removed first.
void append_row(const std::string& path, const Row& row);

/// The exclusive right to make a run, as a lock on one byte of the file `path`. It ends with this
/// object or its process, in whatever way the process ends.
class Claim {
 public:
  /// Tries to claim the run that `key` identifies.
  Claim(const std::string& path, const std::string& key);
  ~Claim();
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  /// True unless another process has claimed the run.
  bool held() const { return held_; }

 private:
  int file_ = -1;
  bool held_ = false;
};

}  // namespace stretto::study
