// What every example does around its work: options by CLI11, errors as one clear line.
//
// Exit codes: 0 done, 2 bad input or options (nothing was changed), 130 stopped by Ctrl-C after
// saving, 1 anything else.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace stretto::examples {

/// Lets `describe` declare the options, parses the command line and calls `run`, whose result is
/// the exit code. `--help` prints and ends with 0. UsageError ends with 2; every other exception
/// with 1. Messages are one line, with spaces for control characters. An option given twice has its
/// last value.
int run_program(int argc, char** argv, const std::string& name, const std::string& about,
                const std::function<void(CLI::App&)>& describe, const std::function<int()>& run);

}  // namespace stretto::examples
