// Training curves on disk: one CSV row per measurement, safe to continue after a crash.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace stretto::examples {

/// A CSV file of numbers. The first column is the step. Every row reaches the operating system
/// before row() returns.
class MetricsCsv {
 public:
  /// Starts the file afresh with a header of `columns`. Throws UsageError if `path` cannot be
  /// opened, std::runtime_error on a write error, std::invalid_argument for no columns or for a
  /// name with a comma, quote or line break.
  MetricsCsv(const std::string& path, std::vector<std::string> columns);

  /// Continues the file at `path` after a restart from `step`: rows of later steps go, and so does
  /// a last line that a crash cut short. A missing or empty file is started afresh. Throws as the
  /// constructor does, and UsageError if the file has other columns or a row that is not numbers.
  static MetricsCsv resume(const std::string& path, std::vector<std::string> columns,
                           std::int64_t step);

  /// Appends one row of as many values as there are columns, each with enough digits to read back
  /// equal (nan and inf in words). Throws std::invalid_argument for another number of values and
  /// std::runtime_error on a write error.
  void row(const std::vector<double>& values);

  /// All rows of the file, those of earlier runs too.
  std::vector<std::vector<double>> rows() const;

 private:
  MetricsCsv() = default;

  std::string path_;
  std::vector<std::string> columns_;
  std::ofstream out_;
};

}  // namespace stretto::examples
