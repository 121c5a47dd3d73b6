// The precompiled header of the library: headers that most sources include. Sources still include
// every header they use, because the CI step libcxx compiles them without this one.
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
