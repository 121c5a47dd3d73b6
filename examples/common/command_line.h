// What every example does around its work: options by CLI11, errors as one clear line.
//
// Exit codes: 0 done, 2 bad input or options (nothing was changed), 128 + a signal that stopped it
// (130 Ctrl-C, 143 SIGTERM, 129 SIGHUP), 1 anything else: writing that fails, too little memory.
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
/// the exit code. `--help` and `--version` print and end with 0. UsageError ends with 2; every
/// other exception, and standard output that cannot be written, with 1. Messages are one line, with
/// spaces for control characters, and begin with what the user calls the program (argv[0]); of a
/// message of more than 2000 bytes the middle is left out. An option given twice has its last
/// value. Values are read as read_text() does, in decimal and whole; an empty one, and one for a
/// flag, is refused. What is printed has spaces for control characters too, except line breaks and
/// tabs. Before run(), the environment is checked (STRETTO_CPU).
///
/// Before anything else, standard streams that are closed become /dev/null, so that no file gets
/// their numbers, and SIGPIPE and SIGXFSZ are ignored, so that writing reports its failure.
int run_program(int argc, char** argv, const std::string& name, const std::string& about,
                const std::function<void(CLI::App&)>& describe, const std::function<int()>& run);

/// `text` with spaces for control characters, those of a terminal above ASCII (C1) too; with
/// `lines` line breaks and tabs stay. What a file or its name says must not move a cursor.
std::string printable(std::string text, bool lines = false);

/// A word as one types it into a shell: in quotes where it needs them.
std::string quoted(const std::string& word);

/// The `name` that run_program was given.
std::string program_name();

/// And its command line, as one types it into a shell: "train_lm --prompt 'a b'"; of mpirun's
/// processes with mpirun in front.
std::string command_line();

/// run_program for a class with declare(OptionList&) and run(), which is called when all options
/// have passed their checks.
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
