// The program `conformance`, callable from a test.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace stretto::conformance {

/// Runs the program on these arguments (without its name); returns the exit status. Results go to
/// `out`, whatever goes wrong with a file or the command line to `err`, a line each.
int run_program(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace stretto::conformance
