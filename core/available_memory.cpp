#include "core/available_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace stretto {

int64_t available_memory() {
  int64_t bytes = int64_t(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE);
  std::ifstream meminfo("/proc/meminfo");
  int64_t kibibytes = 0;
  for (std::string word; meminfo >> word;)
    if (word == "MemAvailable:" && meminfo >> kibibytes) bytes = kibibytes * 1024;
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    int64_t limit = 0;  // the text may also be "max"
    if (std::ifstream(path) >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  rlimit space{};
  int64_t pages = 0;
  if (::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur < rlim_t(bytes) &&
      std::ifstream("/proc/self/statm") >> pages)
    bytes = std::max<int64_t>(0, int64_t(space.rlim_cur) - pages * ::sysconf(_SC_PAGE_SIZE));
  return bytes;
}

}  // namespace stretto
