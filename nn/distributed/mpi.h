// ProcessGroup over Open MPI.
#pragma once

#include <memory>

#include "process_group.h"

namespace stretto::nn {

/// Returns the group of the processes that mpirun has started. Throws Error if the shared library
/// of Open MPI cannot be opened.
std::unique_ptr<ProcessGroup> open_mpi();

}  // namespace stretto::nn
