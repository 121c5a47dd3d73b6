// The version of the library. CMake reads it from these lines.
#pragma once

/// The major version.
#define STRETTO_VERSION_MAJOR 0
/// The minor version.
#define STRETTO_VERSION_MINOR 3
/// The patch version.
#define STRETTO_VERSION_PATCH 0
