// What most files of the examples include, compiled once (examples/CMakeLists.txt). A file still
// includes what it uses.
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
