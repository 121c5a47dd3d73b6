// What the tests would say if a barrier or a test of a kernel were not there.
//
// A mutation is a barrier that does nothing, a comparison of whole numbers that is true for good or
// false for good, or a minimum or maximum that is one of its operands: of a source line in a
// kernel, with all copies that the compiler made of it, in all instantiations. A first run
// (PTX_REMOVE_PLAN=PLAN) writes which launches each would change, one of a test case, of the
// quickest. In a second (PTX_REMOVE=FILE too) the process forks before such a launch: a child
// goes on without, and ends at the first verdict or with its test case. The parent goes on as ever
// and writes what became of each child. PTX_REMOVE_KIND=barriers leaves comparisons out.
#pragma once

#include "interpreter.h"

namespace interpreter {

void before_launch(const Launch&);
void after_launch(const Launch&);
/// In a child: tells its parent and ends the process.
void report_mutation(const std::string& verdict);
void write_mutations();

}  // namespace interpreter
