// Tables that the host makes of a few numbers (angles of positions, buckets of lags, masks), as
// tensors on any device: a GPU keeps them, so that a step brings none of them there.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "tensor.h"

namespace stretto {

/// What `make()` returned for this key, on `device`. The tables that were used last are kept, up to
/// 256 MiB on each device, until release_cached_memory().
Tensor kept_table(const std::string& key, Device device, const std::function<Tensor()>& make);

/// Forgets those of a device.
void drop_tables(Device device);

inline void append_key(std::string& key, const char* name) { key.append(name).push_back('\0'); }
template <class T>
requires std::is_arithmetic_v<T> || std::is_enum_v<T>
void append_key(std::string& key, T number) {
  key.append(reinterpret_cast<const char*>(&number), sizeof(T));
}
template <class T>
void append_key(std::string& key, const std::vector<T>& numbers) {
  append_key(key, numbers.size());
  for (const T& number : numbers) append_key(key, number);
}

/// make() on the CPU; on a GPU a copy of what it returned when it was called with the same key: its
/// name, then all numbers that it depends on. Not to be written to.
template <class Make, class... Key>
Tensor device_table(Device device, Make&& make, const Key&... parts) {
  const DefaultDevice host(cpu);
  if (device.is_cpu()) return make();
  std::string key;
  (append_key(key, parts), ...);
  return kept_table(key, device, make);
}

}  // namespace stretto
