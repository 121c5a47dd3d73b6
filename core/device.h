// Devices: the CPU and CUDA GPUs.
#pragma once

#include <cstdint>
#include <string>

#include "error.h"

namespace stretto {

/// The kinds of devices.
enum class DeviceType : uint8_t { cpu, cuda };

/// The CPU, or one CUDA GPU by index. Converts from a string: "cpu", "cuda", "cuda:1".
struct Device {
  DeviceType type = DeviceType::cpu;  ///< CPU or CUDA GPU.
  int index = 0;                      ///< Number of the GPU, from 0; 0 for the CPU.

  constexpr Device() = default;
  /// Makes the device of that kind and index. Does not check that it exists.
  constexpr Device(DeviceType t, int i = 0) : type(t), index(i) {}
  /// Parses "cpu", "cuda" (index 0) or "cuda:N"; throws for any other text.
  Device(const std::string& text);
  /// Parses the same texts.
  Device(const char* text) : Device(std::string(text)) {}

  /// True for the CPU.
  constexpr bool is_cpu() const { return type == DeviceType::cpu; }
  /// True for a CUDA GPU.
  constexpr bool is_cuda() const { return type == DeviceType::cuda; }
  constexpr bool operator==(const Device&) const = default;
};

/// The CPU, as an argument: `x.to(cpu)`.
inline constexpr Device cpu{DeviceType::cpu};

/// Appends "cpu" or "cuda:N".
void append_text(std::string& to, Device device);

/// True if the library was built with the CUDA Toolkit and a usable GPU is present.
bool cuda_available();

/// Returns a description of CUDA in one line: whether the library was built with it, driver errors,
/// and the GPUs found.
std::string cuda_description();

/// Throws unless `device` can be used now; the error contains cuda_description().
void check_device(const char* op, Device device);

/// Returns the device on which the calling thread makes tensors if none is given: the CPU, unless a
/// DefaultDevice is active.
Device default_device();

/// Sets the default device for a scope: `DefaultDevice scope("cuda");`. Applies to the calling
/// thread and to the bodies of its parallel_for.
class DefaultDevice {
 public:
  /// Makes `device` the default; throws if it cannot be used.
  explicit DefaultDevice(Device device);
  ~DefaultDevice();
  DefaultDevice(const DefaultDevice&) = delete;
  DefaultDevice& operator=(const DefaultDevice&) = delete;

 private:
  Device before_;
};

/// Waits until all work queued on `device` is done; returns at once for the CPU.
void synchronize(Device device);

}  // namespace stretto
