// Whole files: reading one, and writing one so that readers see the old or the new one, never half.
#pragma once

#include <string>
#include <string_view>

namespace stretto::examples {

/// The bytes of the file at `path`. Throws UsageError where it cannot be opened or read.
std::string read_whole_file(const std::string& path);

/// Replaces the file at `path` by `bytes`: they go to a temporary file beside it, reach the disk
/// and take its name. A symbolic link is followed; an existing device or pipe is written directly.
/// Throws UsageError where the path cannot be opened (a directory, a missing folder, no
/// permission) and std::runtime_error where writing fails (disk full); the old file then stays.
void write_file_atomically(const std::string& path, std::string_view bytes);

}  // namespace stretto::examples
