#include "benchmarks/position_study/results.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "examples/common/file.h"
#include "examples/common/text_file.h"

namespace stretto::study {
namespace {

[[noreturn]] void fail(const std::string& path) {
  throw std::runtime_error(path + ": " + std::strerror(errno));
}

// A file that is open for reading and appending, and locked against other appenders.
class LockedFile {
 public:
  explicit LockedFile(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
    if (file_ < 0) fail(path);
    while (::flock(file_, LOCK_EX) != 0)
      if (errno != EINTR) fail(path);
  }
  ~LockedFile() { ::close(file_); }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  std::string content() const {
    std::string all(size_t(::lseek(file_, 0, SEEK_END)), '\0');
    if (::pread(file_, all.data(), all.size(), 0) != ssize_t(all.size())) fail(path_);
    return all;
  }
  void truncate(size_t size) const {
    if (::ftruncate(file_, off_t(size)) != 0) fail(path_);
  }
  void append(const std::string& bytes) const {
    if (::write(file_, bytes.data(), bytes.size()) != ssize_t(bytes.size()) || ::fsync(file_) != 0)
      fail(path_);
  }

 private:
  const std::string path_;
  const int file_;
};

}  // namespace

const std::string& value_of(const Row& row, const std::string& column) {
  for (const auto& [name, value] : row)
    if (name == column) return value;
  throw Error("[study] column " + column + "; the row does not have it");
}

double number_of(const Row& row, const std::string& column) {
  double number = std::nan("");
  examples::read_text(value_of(row, column), number);
  return number;
}

std::vector<Row> read_rows(const std::string& path, const std::vector<std::string>& columns) {
  std::vector<Row> rows;
  if (!std::filesystem::exists(path)) return rows;
  const std::string text = examples::read_whole_file(path);
  int64_t number = 0;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const std::string where = path + ", line " + std::to_string(++number) + ": ";
    const auto fields = examples::fields_of(std::string_view(text).substr(begin, end - begin), ',');
    if (number == 1) {
      examples::require(std::equal(fields.begin(), fields.end(), columns.begin(), columns.end()),
                        where +
                            "has other columns than this program writes; choose "
                            "another --out, or remove the file");
      continue;
    }
    examples::require(fields.size() == columns.size(),
                      where + "has " + std::to_string(fields.size()) + " fields; must be " +
                          std::to_string(columns.size()) + "; remove the line to repeat the run");
    Row row;
    for (size_t i = 0; i < columns.size(); ++i) row.emplace_back(columns[i], fields[i]);
    rows.push_back(std::move(row));
  }
  return rows;
}

void append_row(const std::string& path, const Row& row) {
  const LockedFile file(path);
  const std::string before = file.content();
  const size_t complete = before.rfind('\n') + 1;  // npos + 1 is 0
  if (complete < before.size()) file.truncate(complete);
  std::string names, values;
  for (const auto& [name, value] : row) {
    names += (names.empty() ? "" : ",") + name;
    values += (&value == &row.front().second ? "" : ",") + value;
  }
  file.append((complete == 0 ? names + "\n" : "") + values + "\n");
}

Claim::Claim(const std::string& path, const std::string& key)
    : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (file_ < 0) fail(path);
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = off_t(std::hash<std::string>()(key) >> 2);
  range.l_len = 1;
  held_ = ::fcntl(file_, F_OFD_SETLK, &range) == 0;
  if (!held_ && errno != EAGAIN && errno != EACCES) {
    ::close(file_);
    fail(path);
  }
}

Claim::~Claim() { ::close(file_); }

}  // namespace stretto::study
