// Makes every possible call fail once in a short training run. Each function prints its complaints
// and returns their number. If a call hangs, the process ends with SIGALRM.
#pragma once

namespace stretto::testing {

/// Fails every request for memory while a model is created, trained for a step, saved and loaded.
int fail_memory();
/// Fails the creation of threads.
int fail_threads();
/// Fails every call for a file while a checkpoint is saved and loaded.
int fail_files();
/// Trains in processes with limited address space.
int fail_address_space();
/// The training in those processes. Returns an exit code.
int train_or_complain();

}  // namespace stretto::testing
