// The program `conformance`, which evaluates worked examples of single functions; see README.md.
#include <iostream>

#include "tests/conformance/program.h"

int main(int argc, char** argv) {
  return stretto::conformance::run_program({argv + 1, argv + argc}, std::cout, std::cerr);
}
