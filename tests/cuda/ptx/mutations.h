// Mutation testing: would the tests fail if a barrier or a test of a kernel were missing?
//
// A mutation replaces a barrier by nothing, a comparison of integers by true or false, or a minimum
// or maximum by one of its operands. It applies to a source line in a kernel, to all copies that
// the compiler made of it, in all instantiations. A first run (PTX_REMOVE_PLAN=PLAN) writes which
// launches each mutation would change: one per test case, of the quickest. In a second run
// (PTX_REMOVE=FILE too) the process forks before such a launch. The child continues with the
// mutation, and ends at the first verdict or with its test case. The parent continues without it,
// and writes the outcome of each child. PTX_REMOVE_KIND=barriers excludes all other mutations.
#pragma once

#include "interpreter.h"

namespace interpreter {

void before_launch(const Launch&);
void after_launch(const Launch&);
/// In a child: reports the verdict to its parent and ends the process.
void report_mutation(const std::string& verdict);
void write_mutations();

}  // namespace interpreter
