// Every point of a short training fails once. Each function returns the number of complaints, which
// it prints, and ends the process with SIGALRM where something hangs.
#pragma once

namespace stretto::testing {

/// Every request for memory while a model is made, trained for a step, saved and loaded.
int fail_memory();
/// Threads that are not to be had.
int fail_threads();
/// Every call for a file while a checkpoint is saved and loaded.
int fail_files();
/// Trainings in processes that may have so much address space and no more.
int fail_address_space();
/// What those processes do; an exit code.
int train_or_complain();

}  // namespace stretto::testing
