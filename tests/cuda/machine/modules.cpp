// Registration: calls that nvcc puts into the host code of every .cu file, before main.
#include "modules.h"

#include <cstdio>
#include <cstdlib>
#include <optional>

namespace machine {
namespace {

struct Binary {
  std::string text;
  std::optional<Module> module;
  std::map<std::string, u64> symbols;
  std::map<std::string, std::unique_ptr<Kernel>> kernels;

  void open() {
    if (module) return;
    if (text.empty()) throw Unknown("a binary without PTX: build with code=[compute_90,sm_90]");
    module.emplace(std::move(text));
    auto& memory = DeviceMemory::get();
    for (const Variable& v : module->variables()) {
      if (v.space != Space::global && v.space != Space::constant) continue;
      const u64 at = memory.allocate(std::max<u64>(v.size, 1));
      memory.live -= std::max<u64>(v.size, 1);  // not the program's
      if (v.values.empty()) {
        std::memset(memory.bytes(at), 0, v.size);
      } else {
        std::memcpy(memory.bytes(at), v.values.data(), v.size);
      }
      memory.mark(at, v.size, written);
      symbols[v.name] = at;
    }
  }
};

struct Registered {
  Binary* binary;
  std::string name;
  Kernel* kernel = nullptr;
};
std::map<const void*, Registered>& functions() {
  static auto* all = new std::map<const void*, Registered>;
  return *all;
}
std::map<const void*, Registered>& variables() {
  static auto* all = new std::map<const void*, Registered>;
  return *all;
}

/// The PTX among a fat binary's entries: a header, then entries of kind 1 (PTX) and 2 (code).
std::string ptx_of(const u8* fat) {
  auto number = [](const u8* at, auto value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  const u8* p = fat + number(fat + 6, u16());
  const u8* const end = p + number(fat + 8, u64());
  while (p < end) {
    const u32 head = number(p + 4, u32());
    const u64 size = number(p + 8, u64());
    if (number(p, u16()) == 1) {
      std::string text(reinterpret_cast<const char*>(p + head), size);
      text.resize(std::min(text.find('\0'), text.size()));
      if (text.find(".version") == std::string::npos) {
        std::fprintf(stderr, "machine: the PTX is compressed: build with nvcc --no-compress\n");
        std::abort();
      }
      return text;
    }
    p += head + size;
  }
  return {};
}

}  // namespace

Kernel* kernel_of(const void* host_function) {
  const auto it = functions().find(host_function);
  if (it == functions().end()) return nullptr;
  Registered& r = it->second;
  if (!r.kernel) {
    r.binary->open();
    auto& kernel = r.binary->kernels[r.name];
    if (!kernel) kernel = decode(*r.binary->module, r.name, r.binary->symbols);
    r.kernel = kernel.get();
  }
  return r.kernel;
}

u64 address_of(const void* host_variable) {
  const auto it = variables().find(host_variable);
  if (it == variables().end()) return 0;
  it->second.binary->open();
  const auto symbol = it->second.binary->symbols.find(it->second.name);
  return symbol == it->second.binary->symbols.end() ? 0 : symbol->second;
}

}  // namespace machine

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  struct {
    int magic, version;
    const machine::u8* data;
  } w;
  std::memcpy(&w, wrapper, sizeof w);
  auto* binary = new machine::Binary;
  binary->text = machine::ptx_of(w.data);
  return reinterpret_cast<void**>(binary);
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void** binary, const char* host, char*, const char* name, int, void*,
                            void*, void*, void*, int*) {
  machine::functions()[host] = {reinterpret_cast<machine::Binary*>(binary), name};
}
void __cudaRegisterVar(void** binary, char* host, char*, const char* name, int, size_t, int, int) {
  machine::variables()[host] = {reinterpret_cast<machine::Binary*>(binary), name};
}

}  // extern "C"
