// The precompiled header of the tests (tests/CMakeLists.txt). Tests still include what they use.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "core/tensor.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/catch.h"
