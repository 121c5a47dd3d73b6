// ProcessGroup over Open MPI.
#pragma once

#include <memory>

#include "process_group.h"

namespace stretto::nn {

/// Returns the processes that mpirun has started. Throws Error if the library cannot be opened.
std::unique_ptr<ProcessGroup> open_mpi();

}  // namespace stretto::nn
