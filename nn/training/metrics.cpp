#include "nn/training/metrics.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "core/atomic_file.h"
#include "core/error.h"
#include "core/input_file.h"
#include "core/parse_number.h"

namespace stretto::nn {
namespace {

namespace fs = std::filesystem;
constexpr const char* op = "MetricsCsv";

std::string header_line(const std::vector<std::string>& columns) {
  check(!columns.empty(), op, "a file needs at least one column");
  std::string line;
  for (const std::string& column : columns) {
    check(!column.empty() && column.find_first_of(",\"\r\n") == std::string::npos, op, "\"", column,
          "\" cannot name a column");
    line += (line.empty() ? "" : ",") + column;
  }
  return line;
}

// The number of columns in a header: all, or the first few of an older program; 0 for others.
size_t columns_named(std::string_view line, const std::string& header) {
  const bool beginning = (header + ",").starts_with(std::string(line) + ",");
  return beginning ? size_t(1 + std::count(line.begin(), line.end(), ',')) : 0;
}

// The values of a row; unset unless it has exactly `columns` numbers.
std::optional<std::vector<double>> row_values(std::string_view line, size_t columns) {
  std::vector<double> values;
  for (size_t column = 0; column < columns; ++column) {
    const bool last = column + 1 == columns;
    const size_t end = last ? line.size() : line.find(',');
    if (end == std::string_view::npos) return std::nullopt;
    const std::optional<double> value = parse_double(line.substr(0, end));
    if (!value) return std::nullopt;
    values.push_back(*value);
    line.remove_prefix(last ? end : end + 1);
  }
  return values;
}

// The header of `text` and its complete rows of steps up to `step`.
std::string kept_rows(const std::string& path, std::string_view text, const std::string& header,
                      size_t columns, int64_t step) {
  std::string kept, missing;
  size_t named = columns;
  for (int64_t number = 1;; ++number) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) break;  // the end, or a line that a crash cut short
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (number == 1) {
      named = columns_named(line, header);
      check(named > 0, op, "cannot resume '", path, "': its columns are not '", header, "'");
      for (size_t i = named; i < columns; ++i) missing += ",nan";
      kept = header + "\n";
      continue;
    }
    const std::optional<std::vector<double>> values = row_values(line, named);
    check(values.has_value(), op, "cannot resume '", path, "': line ", number, " is not a row of ",
          int64_t(named), " numbers");
    if (values->front() <= double(step)) kept.append(line).append(missing).push_back('\n');
  }
  return kept.empty() ? header + "\n" : kept;
}

// Replaces a regular file and returns true; false if there is none. Follows a symbolic link, as
// opening a file does.
bool replace_old(const std::string& path, const std::string& text) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return false;
  write_atomically(path, text);
  return true;
}

}  // namespace

std::string exact_text(double value) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

MetricsCsv::MetricsCsv(const std::string& path, std::vector<std::string> columns, std::string text,
                       const char* mode)
    : path_(path),
      columns_(std::move(columns)),
      text_(std::move(text)),
      out_(std::fopen(path.c_str(), mode)) {
  check(out_ != nullptr, op, "cannot write '", path_, "': ", std::strerror(errno));
}

// Replaces an existing file atomically: hard links to it keep the old content.
MetricsCsv::MetricsCsv(const std::string& path, const std::vector<std::string>& columns)
    : MetricsCsv(path, columns, header_line(columns) + "\n",
                 replace_old(path, header_line(columns) + "\n") ? "abe" : "wbe") {
  const bool has_header = std::fseek(out_.get(), 0, SEEK_END) == 0 && std::ftell(out_.get()) > 0;
  if (!has_header) write(text_);
}

MetricsCsv MetricsCsv::resume(const std::string& path, std::vector<std::string> columns,
                              int64_t step) {
  const std::string header = header_line(columns);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return MetricsCsv(path, columns);
  const std::string kept =
      kept_rows(path, read_text(op, path, INT64_MAX), header, columns.size(), step);
  write_atomically(path, kept);
  return MetricsCsv(path, std::move(columns), kept, "abe");
}

void MetricsCsv::write(const std::string& text) {
  errno = 0;
  const bool written = std::fputs(text.c_str(), out_.get()) >= 0;
  if (std::fflush(out_.get()) == 0 && written) return;
  failed_ = true;
  fail(op, "cannot write '", path_, "': ", std::strerror(errno != 0 ? errno : EIO));
}

void MetricsCsv::row(const std::vector<double>& values) {
  check(values.size() == columns_.size(), op, "the row has ", int64_t(values.size()),
        " values, the file ", int64_t(columns_.size()), " columns");
  std::string line;
  for (const double value : values) line += (line.empty() ? "" : ",") + exact_text(value);
  line += '\n';
  std::error_code none;
  const fs::path folder = fs::absolute(path_, none).parent_path();
  const bool named = fs::exists(fs::symlink_status(path_, none));
  const bool partial = failed_ && fs::is_regular_file(path_, none);  // may end in part of a row
  if ((named && !partial) || !fs::exists(folder, none)) {
    write(line);
    text_ += line;
    return;
  }
  write_atomically(path_, text_ + line);
  *this = MetricsCsv(path_, columns_, text_ + line, "abe");
}

std::vector<std::vector<double>> MetricsCsv::rows() const {
  std::vector<std::vector<double>> rows;
  for (size_t begin = 0, end; begin < text_.size(); begin = end + 1) {
    end = text_.find('\n', begin);
    const std::string_view line = std::string_view(text_).substr(begin, end - begin);
    if (auto values = row_values(line, columns_.size())) rows.push_back(std::move(*values));
  }
  return rows;
}

}  // namespace stretto::nn
