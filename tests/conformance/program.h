// The program `conformance`, callable from a test.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace stretto::conformance {

/// Runs the program with these arguments (without its name) and returns the exit status. Prints
/// results to `out`, and errors of files or of the command line to `err`, one line each.
int run_program(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace stretto::conformance
