// What most sources of the library include, compiled once. A source still includes what it uses:
// the CI step libcxx reads each of them without this.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "core/tensor.h"
