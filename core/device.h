// Where a tensor lives.
#pragma once

#include <cstdint>
#include <string>

#include "error.h"

namespace stretto {

enum class DeviceType : uint8_t { cpu, cuda };

/// The CPU, or one CUDA GPU by index. Implicit from a text: "cpu", "cuda", "cuda:1".
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  constexpr Device() = default;
  constexpr Device(DeviceType t, int i = 0) : type(t), index(i) {}
  Device(const std::string& text);
  Device(const char* text) : Device(std::string(text)) {}

  constexpr bool is_cpu() const { return type == DeviceType::cpu; }
  constexpr bool is_cuda() const { return type == DeviceType::cuda; }
  constexpr bool operator==(const Device&) const = default;
};

inline constexpr Device cpu{DeviceType::cpu};

void append_text(std::string& to, Device device);

/// True when the library was built with the CUDA Toolkit and a usable GPU is present.
bool cuda_available();

/// One line on CUDA for people: built or not, the driver's answer, the devices found.
std::string cuda_description();

/// Throws unless `device` can be used now; says why not.
void check_device(const char* op, Device device);

/// Where the calling thread makes tensors for which no device is named: the CPU, unless a
/// DefaultDevice says otherwise.
Device default_device();

/// Names another default device while it lives: `DefaultDevice here("cuda");`. For the calling
/// thread and the bodies of its parallel_for. Throws when the device cannot be used.
class DefaultDevice {
 public:
  explicit DefaultDevice(Device device);
  ~DefaultDevice();
  DefaultDevice(const DefaultDevice&) = delete;
  DefaultDevice& operator=(const DefaultDevice&) = delete;

 private:
  Device before_;
};

/// Waits until all work queued on `device` is done (nothing to do on the CPU).
void synchronize(Device device);

}  // namespace stretto
