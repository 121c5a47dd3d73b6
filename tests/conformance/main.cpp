// conformance: evaluates worked examples of single functions. README.md beside this says how.
#include <iostream>

#include "tests/conformance/program.h"

int main(int argc, char** argv) {
  return stretto::conformance::run_program({argv + 1, argv + argc}, std::cout, std::cerr);
}
