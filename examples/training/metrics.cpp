#include "examples/training/metrics.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "examples/common/error.h"
#include "examples/common/file.h"

namespace stretto::examples {
namespace {

std::string header_line(const std::vector<std::string>& columns) {
  if (columns.empty()) throw std::invalid_argument("a metrics file needs at least one column");
  std::string line;
  for (const std::string& column : columns) {
    if (column.empty() || column.find_first_of(",\"\r\n") != std::string::npos) {
      throw std::invalid_argument("'" + column + "' cannot name a metrics column");
    }
    if (!line.empty()) line += ',';
    line += column;
  }
  return line;
}

std::string to_text(double value) {
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

/// The numbers of a row of exactly `columns` of them; nothing if it is not such a row.
std::optional<std::vector<double>> row_values(std::string_view line, std::size_t columns) {
  std::vector<double> values;
  for (std::size_t column = 0; column < columns; ++column) {
    double value = 0;
    const auto result = std::from_chars(line.data(), line.data() + line.size(), value);
    if (result.ec != std::errc()) return std::nullopt;
    line.remove_prefix(static_cast<std::size_t>(result.ptr - line.data()));
    values.push_back(value);
    if (column + 1 == columns) break;
    if (line.empty() || line.front() != ',') return std::nullopt;
    line.remove_prefix(1);
  }
  if (!line.empty()) return std::nullopt;
  return values;
}

/// The part of `text` to keep: the header and the complete rows of steps up to `step`.
std::string kept_rows(const std::string& path, std::string_view text, const std::string& header,
                      std::size_t columns, std::int64_t step) {
  std::string kept;
  std::size_t number = 0;
  while (true) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) break;  // nothing left, or a line a crash cut short
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    ++number;
    if (number == 1) {
      if (line != header) {
        throw UsageError("cannot resume '" + path + "': its columns are not '" + header + "'");
      }
    } else {
      const std::optional<std::vector<double>> values = row_values(line, columns);
      if (!values) {
        throw UsageError("cannot resume '" + path + "': line " + std::to_string(number) +
                         " is not a row of " + std::to_string(columns) + " numbers");
      }
      if (!(values->front() <= static_cast<double>(step))) continue;
    }
    kept.append(line).push_back('\n');
  }
  return kept.empty() ? header + "\n" : kept;
}

std::ofstream open_or_throw(const std::string& path, std::ios::openmode mode) {
  errno = 0;
  std::ofstream out(path, std::ios::binary | mode);
  if (!out) {
    throw UsageError("cannot write '" + path + "': " + std::strerror(errno != 0 ? errno : EIO));
  }
  return out;
}

void write_line(std::ofstream& out, const std::string& path, const std::string& line) {
  errno = 0;
  out << line << '\n' << std::flush;
  if (!out) {
    throw std::runtime_error("cannot write '" + path +
                             "': " + std::strerror(errno != 0 ? errno : EIO));
  }
}

}  // namespace

MetricsCsv::MetricsCsv(const std::string& path, std::vector<std::string> columns) : path_(path) {
  const std::string header = header_line(columns);
  columns_ = std::move(columns);
  out_ = open_or_throw(path, std::ios::trunc);
  write_line(out_, path_, header);
}

MetricsCsv MetricsCsv::resume(const std::string& path, std::vector<std::string> columns,
                              std::int64_t step) {
  const std::string header = header_line(columns);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return MetricsCsv(path, std::move(columns));
  const std::string kept = kept_rows(path, read_whole_file(path), header, columns.size(), step);
  write_file_atomically(path, kept);
  MetricsCsv csv;
  csv.path_ = path;
  csv.columns_ = std::move(columns);
  csv.out_ = open_or_throw(path, std::ios::app);
  return csv;
}

void MetricsCsv::row(const std::vector<double>& values) {
  if (values.size() != columns_.size()) {
    throw std::invalid_argument("a row of " + std::to_string(values.size()) + " values for " +
                                std::to_string(columns_.size()) + " metrics columns");
  }
  std::string line;
  for (const double value : values) {
    if (!line.empty()) line += ',';
    line += to_text(value);
  }
  write_line(out_, path_, line);
}

std::vector<std::vector<double>> MetricsCsv::rows() const {
  std::vector<std::vector<double>> rows;
  std::istringstream lines(read_whole_file(path_));
  for (std::string line; std::getline(lines, line);)
    if (auto values = row_values(line, columns_.size())) rows.push_back(std::move(*values));
  return rows;
}

}  // namespace stretto::examples
