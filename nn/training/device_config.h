// The device and dtype of a program, from its command line: --device and --dtype.
//
//     int main(int argc, char** argv) {
//       const nn::DeviceConfig config = nn::parse_device_args(argc, argv);
//       model.to(config.device).to(config.dtype);
#pragma once

#include <string>

#include "../../core/device.h"
#include "../../core/dtype.h"

namespace stretto::nn {

/// The device and dtype that a program computes with.
struct DeviceConfig {
  Device device;      ///< The CPU by default.
  DType dtype = f32;  ///< Dtype of the weights.
};

/// Returns the device named "cpu", "cuda" or "cuda:N". Under mpirun, "cuda" assigns one GPU per
/// process of a host, round-robin if there are too few. Throws Error, which begins with `op`, if
/// the device cannot be used.
Device take_device(const char* op, const std::string& text);

/// The number of processes that a program supports.
enum class Processes {
  one,     ///< Exits with status 2 if mpirun has started several processes.
  several  ///< Only rank 0 has a standard output; each rank ends by process_group().finish().
};

/// Parses and removes "--device cpu|cuda|cuda:N" and "--dtype f32|bf16"; the other arguments move
/// up. `own` lists the program's own arguments as the help text prints them, e.g. "[FILE]" or
/// "[--steps N] FILE". "--help" and "-h" print the usage and exit with status 0.
///
/// Prints one line on standard error and exits with status 2 if an option is unknown, lacks its
/// value or has an invalid value, if there are more arguments than words in `own`, if the device
/// cannot be used, if mpirun has started several processes and `processes` is Processes::one, or if
/// any other launcher has started more than one process. From then on an Error that main() does not
/// catch does the same, such as that of a file that cannot be used; any other exception, and
/// OutOfMemory, exits with status 1.
DeviceConfig parse_device_args(int& argc, char** argv, Processes processes = Processes::one,
                               const std::string& own = "");

}  // namespace stretto::nn
