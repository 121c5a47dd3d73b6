#include "core/device.h"

#include "core/gpu_runtime.h"
#include "core/thread_state.h"

namespace stretto {

Device::Device(const std::string& text) {
  if (text == "cpu") return;
  if (text == "cuda") {
    type = DeviceType::cuda;
    return;
  }
  if (text.rfind("cuda:", 0) == 0 && text.size() > 5 && text.size() < 8) {
    if (text.find_first_not_of("0123456789", 5) == std::string::npos) {
      type = DeviceType::cuda;
      index = std::stoi(text.substr(5));
      return;
    }
  }
  fail("Device", "\"", text, "\" is not a device; accepted: cpu, cuda, cuda:N");
}

void append_text(std::string& to, Device device) {
  if (device.is_cpu()) {
    to += "cpu";
  } else {
    to += "cuda:" + std::to_string(device.index);
  }
}

bool cuda_available() { return cuda::device_count() > 0; }

std::string cuda_description() { return cuda::description(); }

void check_device(const char* op, Device device) {
  if (device.is_cpu()) return;
  check(device.index < cuda::device_count(), op, "device ", device,
        " cannot be used: ", cuda::description());
}

Device default_device() { return thread_state.device; }

DefaultDevice::DefaultDevice(Device device) : before_(thread_state.device) {
  check_device("DefaultDevice", device);
  thread_state.device = device;
}

DefaultDevice::~DefaultDevice() { thread_state.device = before_; }

void synchronize(Device device) {
  if (device.is_cuda()) cuda::synchronize(device.index);
}

}  // namespace stretto
