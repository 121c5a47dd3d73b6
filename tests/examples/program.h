// Our programs, run as a user runs them.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "tests/examples/temp_dir.h"

namespace stretto::examples::testing {

/// Where the program `name` lies: in the folder that the environment variable STRETTO_BIN_DIR
/// names, else where this build puts it; "" if it is in neither.
std::string find_program(const std::string& name);

/// How a program ended.
struct Ended {
  int status = 0;  ///< its exit code, or 128 + the signal that ended it
  std::string out, err;
  double seconds = 0;
  /// The last line on standard error, which is where a complaint stands.
  std::string complaint() const;
  /// Whether `complaint` is all there is on standard error.
  bool one_line() const;
};

/// What a program finds when it starts.
struct Surroundings {
  long largest_file = 0;  ///< > 0: writing beyond so many bytes of a file fails, as on a full disk
  long memory = 0;        ///< > 0: so many bytes of its own; files that are mapped do not count
  std::string output = {};       ///< where its standard output goes, in place of Ended::out
  bool broken_pipe = false;      ///< standard output is a pipe that nobody reads
  std::vector<int> closed = {};  ///< standard streams that it does not have
  bool nohup = false;            ///< SIGHUP is ignored
  bool nobody = false;           ///< it may write only what everybody may, if the tests may do more
};

/// A running program, ended with this object at the latest.
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

/// Every file below a folder with its content; empty for a missing folder.
std::map<std::string, std::string> contents(const std::string& folder);

}  // namespace stretto::examples::testing
