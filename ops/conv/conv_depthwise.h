// Depthwise convolutions with stride 1 on the CPU: one input and one output channel for each group.
// Internal to ops/conv/.
#pragma once

#include "conv_kernels.h"

namespace stretto::conv_cpu {

/// Computes y; bias may be null.
template <class T>
void depthwise_forward(const ConvSizes& s, const T* x, const T* w, const T* bias, T* y);
/// Computes the gradient of x.
template <class T>
void depthwise_input_gradient(const ConvSizes& s, const T* g, const T* w, T* dx);
/// Computes the gradient of w.
template <class T>
void depthwise_weight_gradient(const ConvSizes& s, const T* x, const T* g, T* dw);

}  // namespace stretto::conv_cpu
