// Runs the example programs as a user does.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "tests/examples/temp_dir.h"

namespace stretto::examples::testing {

/// Returns the path of the program `name` in the directory of the environment variable
/// STRETTO_BIN_DIR, else in the build directory; "" if it is in neither.
std::string find_program(const std::string& name);

using Arguments = std::vector<std::string>;

/// Returns the words of a text, such as a command line.
Arguments words(const std::string& text);

/// The result of a program.
struct Ended {
  int status = 0;  ///< its exit code, or 128 + the signal that ended it
  std::string out, err;
  double seconds = 0;
  /// Returns the last line of standard error, which has the error message.
  std::string complaint() const;
  /// True if standard error has only the line of complaint().
  bool one_line() const;
};

/// The environment of a program.
struct Surroundings {
  long largest_file = 0;         ///< > 0: limit of bytes per file, as on a full disk
  long memory = 0;               ///< > 0: limit of its memory; mapped files do not count
  std::string input = {};        ///< a file for standard input; "": nothing can be read
  std::string output = {};       ///< a file for standard output, instead of Ended::out
  bool broken_pipe = false;      ///< standard output is a pipe without a reader
  std::vector<int> closed = {};  ///< closed standard streams
  bool nohup = false;            ///< SIGHUP is ignored
  bool nobody = false;           ///< runs as an unprivileged user if the tests run as root
};

/// A running program; the destructor ends it.
class Program {
 public:
  Program(const std::string& path, const std::vector<std::string>& arguments,
          const Surroundings& surroundings = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void signal(int number);
  pid_t pid() const { return pid_; }
  /// Waits until it has a handler for the signal; false if it ends first.
  bool wait_for_handler(int number);
  /// Waits until its standard error contains `text`; false if it ends first.
  bool wait_for(const std::string& text);
  Ended wait();

 private:
  bool ended();

  TempDir folder_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
  double started_ = 0;
};

Ended run(const std::string& path, const std::vector<std::string>& arguments,
          const Surroundings& surroundings = {});

/// Returns the content of every file below a directory, by path; empty if it does not exist.
std::map<std::string, std::string> contents(const std::string& folder);

}  // namespace stretto::examples::testing
