#include "watch.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "mutations.h"

namespace interpreter {
namespace {

int verdicts = 0;

void* reserve(u64 bytes, int protection) {
  void* p = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    std::fprintf(stderr, "ptx: no %llu GiB of addresses\n", (unsigned long long)(bytes >> 30));
    std::abort();
  }
  return p;
}

/// Fills n bytes, at the beginning of a page, with `value`, without occupying memory until they are
/// written: maps the same pages again and again. The bytes up to the end of the last page stay.
void map_pages(u8* at, u64 n, u8 value) {
  static const u64 chunk = u64(16) << 20;
  const int file = memfd_create("ptx", 0);
  const std::vector<u8> bytes(chunk, value);
  if (file < 0 || write(file, bytes.data(), chunk) != ssize_t(chunk)) std::abort();
  for (; n >= chunk; n -= chunk, at += chunk)
    if (mmap(at, chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED)
      std::abort();
  close(file);
  std::memset(at, value, n);
}

std::string counters_text() {
  constexpr const char* names[] = {"integer", "floating", "f64",  "convert", "special", "memory",
                                   "shared",  "matrix",   "warp", "control", "folded"};
  std::string text = "kernel\tlaunches\tblocks\tregisters\tthreads\tshared_bytes";
  auto cell = [&](const std::string& s) { text += '\t' + s; };
  for (const char* pipe : names) cell(pipe);
  for (const char* column :
       {"diverged", "barriers", "warp_syncs", "load_requests", "load_bytes", "load_sectors",
        "load_missed", "copied_sectors", "load_unique", "store_requests", "store_bytes",
        "store_sectors", "store_unique", "shared_requests", "wavefronts", "wavefronts_ideal",
        "local", "atomics", "us"})
    cell(column);
  for (u64 i = 0; i < Counters::shares; ++i) cell("work_" + std::to_string(i));
  for (const auto& [kernel, c] : counters()) {
    text += '\n' + kernel;
    cell(std::to_string(c.launches));
    cell(std::to_string(c.blocks));
    cell(std::to_string(c.registers));
    cell(std::to_string(c.threads));
    cell(std::to_string(c.shared_bytes));
    for (u64 count : c.instructions) cell(std::to_string(count));
    for (u64 x :
         {c.diverged, c.barriers, c.warp_synchronizations, c.load.requests, c.load.bytes,
          c.load.sectors, c.load_missed, c.copied_sectors, c.load.unique_bytes, c.store.requests,
          c.store.bytes, c.store.sectors, c.store.unique_bytes, c.shared_requests,
          c.shared_wavefronts, c.shared_ideal, c.local_requests, c.atomics, u64(c.microseconds)})
      cell(std::to_string(x));
    for (u64 x : c.work) cell(std::to_string(x));
  }
  for (const auto& [type, p] : products()) {
    text += "\nproducts of " + type;
    cell(std::to_string(p.calls)), cell(std::to_string(p.multiply_adds));
    cell(std::to_string(p.bytes));
  }
  text += "\nmemory";
  cell(std::to_string(DeviceMemory::get().peak));
  const Traffic& t = traffic();
  text += "\nuploads";
  cell(std::to_string(t.uploads)), cell(std::to_string(t.upload_bytes));
  text += "\ndownloads";
  cell(std::to_string(t.downloads)), cell(std::to_string(t.download_bytes));
  text += "\nsynchronizations";
  cell(std::to_string(t.synchronizations));
  return text + '\n';
}

std::string lines_text() {
  std::string text = "kernel\tline\tinstruction\tcount\n";
  for (const auto& [kernel, c] : counters()) {
    std::vector<std::pair<u64, std::string>> most;
    for (const auto& [line, count] : c.lines) most.emplace_back(count, line);
    std::sort(most.rbegin(), most.rend());
    for (const auto& [count, line] : most)
      text += kernel + '\t' + line + '\t' + std::to_string(count) + '\n';
  }
  return text;
}

void write_to_file_of(const char* variable, std::string (*text)()) {
  const char* const name = std::getenv(variable);
  if (FILE* f = name ? std::fopen(name, "w") : nullptr) {
    std::fputs(text().c_str(), f);
    std::fclose(f);
  }
}

struct AtExit {
  ~AtExit() {
    write_mutations();
    write_to_file_of("PTX_COUNTERS", counters_text);
    write_to_file_of("PTX_LINES", lines_text);
    if (verdicts == 0) return;
    std::fflush(nullptr);
    _exit(verdict_status);
  }
} at_exit;

}  // namespace

void verdict(const std::string& text) {
  report_mutation(text);
  ++verdicts;
  std::fprintf(stderr, "ptx: %s\n", text.c_str());
}

std::string hex(u64 x) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", (unsigned long long)x);
  return text;
}

std::map<std::string, Counters>& counters() {
  static auto* all = new std::map<std::string, Counters>;
  return *all;
}
bool counting_lines() {
  static const bool on = std::getenv("PTX_LINES") != nullptr;
  return on;
}
bool& counting() {
  static bool on = std::getenv("PTX_COUNTERS") != nullptr;
  return on;
}
std::map<std::string, Products>& products() {
  static auto* all = new std::map<std::string, Products>;
  return *all;
}
Traffic& traffic() {
  static Traffic t;
  return t;
}

DeviceMemory& DeviceMemory::get() {
  static auto* memory = new DeviceMemory;
  return *memory;
}

DeviceMemory::DeviceMemory() {
  size = u64(1) << 40;
  const int both = PROT_READ | PROT_WRITE;
  base = u64(reserve(size, PROT_NONE));
  data = static_cast<u8*>(reserve(size, both));
  state = static_cast<u8*>(reserve(size, both));
  writer = static_cast<u32*>(reserve(4 * size, both));
  reader = static_cast<u32*>(reserve(4 * size, both));
  next_ = base + (u64(1) << 20);
}

u64 DeviceMemory::limit() {
  const char* const gib = std::getenv("PTX_MEMORY");
  return (gib ? std::strtoull(gib, nullptr, 10) : 1) << 30;
}

u64 DeviceMemory::allocate(u64 bytes) {
  constexpr u64 page = 4096;
  const u64 room = (bytes + page - 1) / page * page + 4 * page;  // nothing else near its end
  if (live + bytes > limit() || next_ + room > base + size) return 0;
  const u64 address = next_;
  next_ += room;
  allocations_[address] = {bytes, false};
  live += bytes;
  peak = std::max(peak, live);
  if (is_sparse(bytes)) {
    map_pages(state + (address - base), bytes, unwritten);
    return address;
  }
  mark(address, bytes, unwritten);
  std::memset(this->bytes(address), 0xff, bytes);
  return address;
}

bool DeviceMemory::release(u64 address) {
  const auto it = allocations_.find(address);
  if (it == allocations_.end() || it->second.freed) return false;
  it->second.freed = true;
  live -= it->second.bytes;
  constexpr u64 page = 4096;
  const u64 at = address - base, n = (it->second.bytes + page - 1) / page * page;
  madvise(data + at, n, MADV_DONTNEED);
  if (is_sparse(it->second.bytes)) {  // its pages would return
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (mmap(state + at, n, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) std::abort();
  } else {
    madvise(state + at, n, MADV_DONTNEED);
  }
  for (int granule = 0; granule < 4; ++granule) {
    const u64 first = (at >> granule) * 4 / page * page, last = ((at + n) >> granule) * 4;
    madvise(reinterpret_cast<u8*>(writer) + first, last - first, MADV_DONTNEED);
    madvise(reinterpret_cast<u8*>(reader) + first, last - first, MADV_DONTNEED);
  }
  return true;
}

void DeviceMemory::mark(u64 address, u64 n, State s) {
  std::memset(state + (address - base), s, n);
}

u64 DeviceMemory::allocated(u64 address, u64 n) const {
  const u64 at = address - base;
  if (at >= size || n > size - at) return 0;
  if (const auto it = allocations_.upper_bound(address); it != allocations_.begin()) {
    const auto& [begin, block] = *std::prev(it);
    if (!block.freed && address + n <= begin + block.bytes) return n;
  }
  for (u64 i = 0; i < n; ++i)
    if (state[at + i] == absent) return i;
  return n;
}

std::pair<u64, u64> DeviceMemory::block(u64 address) const {
  auto it = allocations_.upper_bound(address);
  if (it == allocations_.begin()) return {0, 0};
  --it;
  return {it->first, it->first + it->second.bytes};
}

std::string DeviceMemory::place(u64 address) const {
  auto it = allocations_.upper_bound(address);
  const std::string at = hex(address);
  if (it == allocations_.begin() || !owns(address)) return at + ", no address of this device";
  --it;
  const auto& [start, a] = *it;
  const std::string block = (a.freed ? "freed block of " : "block of ") + std::to_string(a.bytes) +
                            " bytes at " + hex(start);
  if (address < start + a.bytes)
    return at + ", byte " + std::to_string(address - start) + " of the " + block;
  return at + ", " + std::to_string(address - start - a.bytes) + " bytes past the end of the " +
         block;
}

}  // namespace interpreter

// For tests, which find them with dlsym: the table of PTX_COUNTERS so far, and a
// reset of the counters.
extern "C" {

const char* ptx_counters() {
  static std::string text;
  text = interpreter::counters_text();
  return text.c_str();
}
void ptx_reset_counters() {
  interpreter::counting() = true;
  for (auto& [kernel, c] : interpreter::counters()) c = {.registers = c.registers};
  interpreter::products().clear();
  interpreter::traffic() = {};
}
int ptx_verdicts() { return interpreter::verdicts; }

}  // extern "C"
