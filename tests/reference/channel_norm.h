// Group and batch normalization by their definitions.
#pragma once

#include "tests/support/op_table.h"

namespace stretto::reference {

/// Computes group_norm(): x [N, C, ..]; weight and bias [C] or null.
testing::Array group_norm(const testing::Array& x, int64_t groups, const testing::Array* weight,
                          const testing::Array* bias, double eps);

/// Computes batch_norm() in training: x [N, C, ..]; weight and bias [C] or null.
testing::Array batch_norm(const testing::Array& x, const testing::Array* weight,
                          const testing::Array* bias, double eps);

}  // namespace stretto::reference
