// Small constant tables computed on the host (angles of positions, buckets of relative positions,
// masks), cached on each GPU so that a training step uploads nothing.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "tensor.h"

namespace stretto {

/// Returns the table cached on `device` under this key, or caches make(). The most recently used
/// tables are cached, up to 256 MiB on each device, until release_cached_memory() or an allocation
/// that finds no memory. A table that was changed in place is made again.
Tensor kept_table(const std::string& key, Device device, const std::function<Tensor()>& make);

/// Drops the cached tables of a device.
void drop_tables(Device device);

/// Appends one part of a key: a name, a number or a list of numbers.
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

/// Returns make() on the CPU, and a cached copy of make() on a GPU. The key consists of a name and
/// all numbers that the table depends on.
template <class Make, class... Key>
Tensor device_table(Device device, Make&& make, const Key&... parts) {
  const DefaultDevice host(cpu);
  if (device.is_cpu()) return make();
  std::string key;
  (append_key(key, parts), ...);
  return kept_table(key, device, make);
}

}  // namespace stretto
