#include "core/available_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace stretto {
namespace {

// The number in a file, or after `name` in a file of names and numbers; −1 if there is none.
int64_t number_in(const std::string& path, const std::string& name = "") {
  std::ifstream file(path);
  int64_t number = -1;
  if (name.empty()) return file >> number ? number : -1;  // the text may also be "max"
  for (std::string word; file >> word;)
    if (word == name) return file >> number ? number : -1;
  return -1;
}

}  // namespace

int64_t memory_left_in_cgroup(const std::string& folder) {
  struct Version {
    const char *limit, *usage, *statistics, *cache;
  };
  constexpr Version versions[] = {
      {"/memory.max", "/memory.current", "/memory.stat", "inactive_file"},
      {"/memory/memory.limit_in_bytes", "/memory/memory.usage_in_bytes", "/memory/memory.stat",
       "total_inactive_file"}};
  int64_t left = INT64_MAX;
  for (const auto& [limit_file, usage, statistics, cache] : versions) {
    const int64_t limit = number_in(folder + limit_file);
    if (limit <= 0) continue;
    const int64_t used = std::max<int64_t>(0, number_in(folder + usage)),
                  freed = std::max<int64_t>(0, number_in(folder + statistics, cache));
    left = std::min(left, std::max<int64_t>(0, limit - std::max<int64_t>(0, used - freed)));
  }
  return left;
}

int64_t available_memory() {
  int64_t bytes = int64_t(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE);
  std::ifstream meminfo("/proc/meminfo");
  int64_t kibibytes = 0;
  for (std::string word; meminfo >> word;)
    if (word == "MemAvailable:" && meminfo >> kibibytes) bytes = kibibytes * 1024;
  bytes = std::min(bytes, memory_left_in_cgroup("/sys/fs/cgroup"));
  rlimit space{};
  int64_t pages = 0;
  if (::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur < rlim_t(bytes) &&
      std::ifstream("/proc/self/statm") >> pages)
    bytes = std::max<int64_t>(0, int64_t(space.rlim_cur) - pages * ::sysconf(_SC_PAGE_SIZE));
  return bytes;
}

}  // namespace stretto
