// Command-line handling that all example programs share: options by CLI11, errors as one line.
//
// Exit codes: 0 success; 2 bad input or options (nothing was changed); 128 + the number of the
// signal that stopped the program (130 Ctrl-C, 143 SIGTERM, 129 SIGHUP); 1 any other failure, such
// as a failed write or too little memory.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "examples/common/options.h"

namespace CLI {
class App;
}

namespace stretto::examples {

/// Lets `describe` declare the options, parses the command line and calls `run`, whose result is
/// the exit code. `--help` and `--version` print and exit with 0. UsageError exits with 2; every
/// other exception, and a failed write to standard output, with 1.
///
/// An error message is one line that begins with the program's name as the user typed it
/// (argv[0]). Control characters in it become spaces, and the middle of a message longer than
/// 2000 bytes is left out. Control characters other than line breaks and tabs become spaces on
/// standard output, too.
///
/// If an option is given twice, the last value counts. Values are parsed as a whole by read_text(),
/// in decimal. An empty value, and a value given to a flag, are rejected. The environment
/// (STRETTO_CPU) is checked before run().
///
/// First of all, closed standard streams are opened on /dev/null, so that no other file gets their
/// descriptors. SIGPIPE and SIGXFSZ are ignored, so that a failed write returns an error.
int run_program(int argc, char** argv, const std::string& name, const std::string& about,
                const std::function<void(CLI::App&)>& describe, const std::function<int()>& run);

/// Returns `text` with control characters, including C1 (the control characters above ASCII),
/// replaced by spaces; `lines` keeps line breaks and tabs. The contents or the name of a file then
/// cannot move the terminal's cursor.
std::string printable(std::string text, bool lines = false);

/// Returns a word as typed into a shell, in quotes if it needs them.
std::string quoted(const std::string& word);

/// Returns the `name` passed to run_program.
std::string program_name();

/// Returns the command line as typed into a shell: "train_lm --prompt 'a b'". Under mpirun it
/// starts with "mpirun -n N".
std::string command_line();

/// run_program for a class with declare(OptionList&) and run(), which is called after all options
/// have been checked.
template <class Program>
int run_program(int argc, char** argv, const std::string& name, const std::string& about) {
  auto program = std::make_unique<Program>();
  std::optional<OptionList> options;
  return run_program(
      argc, argv, name, about, [&](CLI::App& app) { program->declare(options.emplace(app)); },
      [&] {
        const auto running = std::move(program);  // ends before an error is reported
        options->check();
        return running->run();
      });
}

}  // namespace stretto::examples
