// Open MPI as an engine of ProcessGroup.
#pragma once

#include <memory>

#include "process_group.h"

namespace stretto::nn {

/// The processes that mpirun has started; throws Error where Open MPI's library cannot be opened.
std::unique_ptr<ProcessGroup> open_mpi();

}  // namespace stretto::nn
