// Headers that most files of the examples include; CMake compiles them once
// (examples/CMakeLists.txt). Each file still includes the headers that it uses.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "nn/module.h"
#include "ops/create.h"
#include "ops/elementwise.h"
