// The version of the library, here and nowhere else: CMake reads these lines.
#pragma once

#define STRETTO_VERSION_MAJOR 0
#define STRETTO_VERSION_MINOR 3
#define STRETTO_VERSION_PATCH 0
