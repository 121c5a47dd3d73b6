// The host memory that a program can still allocate.
#pragma once

#include <cstdint>
#include <string>

namespace stretto {

/// Returns the number of bytes of host memory that can be allocated now without swapping: the
/// system's estimate (MemAvailable), but at most what the limits of the container (cgroup) and of
/// the process (ulimit -v) leave. For set_memory_limit().
int64_t available_memory();

/// Returns what the memory limit of a container leaves: the limit minus the memory in use, without
/// files that the system can drop from its cache. `folder` is where cgroups (version 1 or 2) are
/// mounted; INT64_MAX without a limit.
int64_t memory_left_in_cgroup(const std::string& folder);

}  // namespace stretto
