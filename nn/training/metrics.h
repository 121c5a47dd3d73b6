// Training curves on disk: one CSV row per measurement, safe to continue after a crash.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace stretto::nn {

/// A CSV file of numbers. The first column is the step. Every row reaches the operating system
/// before row() returns.
class MetricsCsv {
 public:
  /// Starts the file afresh with a header of `columns`. Throws Error for a file that cannot be
  /// written, for no columns, and for a name with a comma, quote or line break.
  MetricsCsv(const std::string& path, std::vector<std::string> columns);

  /// Continues the file at `path` after a restart from `step`: rows of later steps go, and so does
  /// a last line that a crash cut short. A missing or empty file is started afresh; one with the
  /// first of the columns alone gets the others, of which its rows know nothing (nan). Throws as
  /// the constructor does, and where the file has other columns or a row that is not numbers.
  static MetricsCsv resume(const std::string& path, std::vector<std::string> columns, int64_t step);

  /// Appends one row of as many values as there are columns, each with enough digits to read back
  /// equal (nan and inf in words).
  void row(const std::vector<double>& values);

  /// To be called when the file was renamed to `path`.
  void moved_to(const std::string& path) { path_ = path; }

  /// All rows of the file, those of earlier runs too.
  std::vector<std::vector<double>> rows() const;
  const std::vector<std::string>& columns() const { return columns_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  MetricsCsv(const std::string& path, std::vector<std::string> columns, const char* mode);
  void write_line(const std::string& line);

  std::string path_;
  std::vector<std::string> columns_;
  std::unique_ptr<std::FILE, Close> out_;
};

}  // namespace stretto::nn
