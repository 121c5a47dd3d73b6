// Training curves on disk: one CSV row per measurement, resumable after a crash.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace stretto::nn {

/// Returns the shortest text that parses to the same value.
std::string exact_text(double value);

/// A CSV file of numbers whose first column is the step. row() flushes every row to the operating
/// system before it returns. A file that was removed meanwhile is written again by the next row().
class MetricsCsv {
 public:
  /// Creates or overwrites the file with a header of `columns`. Throws Error if the file cannot be
  /// written, if there are no columns, or if a name has a comma, quote or line break.
  MetricsCsv(const std::string& path, const std::vector<std::string>& columns);

  /// Resumes the file at `path` from `step`: removes rows of later steps and a last line that a
  /// crash cut short. A missing or empty file is created. If the file has only the first few of
  /// the columns, the others are added, with nan in its rows. Throws Error as the constructor does,
  /// and if the file has other columns or a row that is not numeric.
  static MetricsCsv resume(const std::string& path, std::vector<std::string> columns, int64_t step);

  /// Appends a row with one value per column. Each is written with enough digits to read back
  /// equal; NaN and infinity are written as nan and inf. After an error the file may end in a part
  /// of the row; the next call removes it.
  void row(const std::vector<double>& values);

  /// Sets the path; for use after the file was renamed to `path`.
  void moved_to(const std::string& path) { path_ = path; }

  /// Returns all rows, including those of earlier runs.
  std::vector<std::vector<double>> rows() const;
  /// Returns the names of the columns.
  const std::vector<std::string>& columns() const { return columns_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  MetricsCsv(const std::string& path, std::vector<std::string> columns, std::string text,
             const char* mode);
  void write(const std::string& text);

  std::string path_;
  std::vector<std::string> columns_;
  std::string text_;     // the whole content of the file
  bool failed_ = false;  // a write failed since the file was opened
  std::unique_ptr<std::FILE, Close> out_;
};

}  // namespace stretto::nn
