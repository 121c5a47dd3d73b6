// Where a program computes, and in what: --device and --dtype of its command line.
//
//     int main(int argc, char** argv) {
//       const nn::Place place = nn::take_place(argc, argv);
//       model.to(place.device).to(place.dtype);
#pragma once

#include "core/device.h"
#include "core/dtype.h"

namespace stretto::nn {

struct Place {
  Device device;
  DType dtype = f32;
};

/// Takes "--device cpu|cuda|cuda:N" and "--dtype f32|bf16" out of the arguments; the others move
/// up. Where an option has no or another value, or the device cannot be used, the program ends with
/// status 2 after a line on standard error.
Place take_place(int& argc, char** argv);

}  // namespace stretto::nn
