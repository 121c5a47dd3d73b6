// Where a program computes, and in what: --device and --dtype of its command line.
//
//     int main(int argc, char** argv) {
//       const nn::DeviceConfig config = nn::parse_device_args(argc, argv);
//       model.to(config.device).to(config.dtype);
#pragma once

#include <string>

#include "../../core/device.h"
#include "../../core/dtype.h"

namespace stretto::nn {

struct DeviceConfig {
  Device device;
  DType dtype = f32;
};

/// The device that "cpu", "cuda" or "cuda:N" names, as `op`; "cuda" gives each of mpirun's
/// processes on a host a GPU of its own, as far as they go. Throws Error where it cannot be used.
Device take_device(const char* op, const std::string& text);

/// How many of mpirun's processes a program can be. Of `several` the first alone has a standard
/// output, and each ends by process_group().finish().
enum class Processes { one, several };

/// Takes "--device cpu|cuda|cuda:N" and "--dtype f32|bf16" out of the arguments; the program's own
/// move up. `own` lists those as the help prints them: "[FILE]", or "[--steps N] FILE". "--help"
/// and "-h" print what is accepted, and end the program with status 0.
///
/// The program ends with status 2 after a line on standard error if an option is not known, there
/// are more arguments than words in `own`, an option has no value or one that is not accepted, the
/// device cannot be used, or a launcher has started more processes than the program can be (other
/// launchers than Open MPI's mpirun: more than one).
DeviceConfig parse_device_args(int& argc, char** argv, Processes processes = Processes::one,
                               const std::string& own = "");

}  // namespace stretto::nn
