// Registration: calls that nvcc puts into the host code of every .cu file, before main.
#include "modules.h"

#include <cstdio>
#include <cstdlib>
#include <optional>

namespace interpreter {
namespace {

struct Binary {
  std::string text;
  std::optional<Module> module;
  std::map<std::string, u64> symbols;
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
  std::map<std::string, int> registers;  // of each kernel, from ptxas

  void open() {
    if (module) return;
    if (text.empty()) throw Unknown("a binary without PTX: build with code=[compute_90,sm_90]");
    module.emplace(std::move(text));
    auto& memory = DeviceMemory::get();
    for (const Variable& v : module->variables()) {
      if (v.space != Space::global && v.space != Space::constant) continue;
      const u64 at = memory.allocate(std::max<u64>(v.size, 1));
      memory.live -= std::max<u64>(v.size, 1);  // not counted as the program's
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

template <class T>
T number(const u8* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// For an ELF file of machine code: section ".nv.info" is a list of attributes; attribute 0x2f has
/// the number of registers of a kernel, which its index among the symbols identifies.
void read_registers(const u8* elf, std::map<std::string, int>& registers) {
  if (std::memcmp(elf, "\177ELF", 4) != 0) return;  // compressed
  struct Section {
    const u8* at;
    u64 size;
  };
  std::map<std::string, Section> sections;
  const u8* const headers = elf + number<u64>(elf + 40);
  const u16 size = number<u16>(elf + 58), count = number<u16>(elf + 60);
  const u8* const names = elf + number<u64>(headers + number<u16>(elf + 62) * size + 24);
  for (const u8* s = headers; s < headers + count * size; s += size)
    sections[reinterpret_cast<const char*>(names + number<u32>(s))] = {elf + number<u64>(s + 24),
                                                                       number<u64>(s + 32)};
  const Section info = sections[".nv.info"], symbols = sections[".symtab"];
  const Section texts = sections[".strtab"];
  if (!info.at || !symbols.at || !texts.at) return;
  for (const u8* p = info.at; p + 4 <= info.at + info.size;) {
    const u16 n = p[0] == 4 ? number<u16>(p + 2) : u16(0);  // kind 4 is followed by bytes
    if (p[0] == 4 && p[1] == 0x2f) {
      const u8* symbol = symbols.at + 24 * u64(number<u32>(p + 4));
      const char* name = reinterpret_cast<const char*>(texts.at + number<u32>(symbol));
      registers[name] = int(number<u32>(p + 8));
    }
    p += 4 + n;
  }
}

/// A fat binary's entries: a header, then PTX (kind 1) and machine code (kind 2).
void read(const u8* fat, Binary& binary) {
  const u8* p = fat + number<u16>(fat + 6);
  const u8* const end = p + number<u64>(fat + 8);
  while (p < end) {
    const u32 head = number<u32>(p + 4);
    const u64 size = number<u64>(p + 8);
    if (number<u16>(p) == 1) {
      binary.text.assign(reinterpret_cast<const char*>(p + head), size);
      binary.text.resize(std::min(binary.text.find('\0'), binary.text.size()));
      if (binary.text.find(".version") == std::string::npos) {
        std::fprintf(stderr, "ptx: the PTX is compressed: build with nvcc --no-compress\n");
        std::abort();
      }
    } else {
      read_registers(p + head, binary.registers);
    }
    p += head + size;
  }
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
    const auto found = r.binary->registers.find(r.name);
    if (found != r.binary->registers.end()) r.kernel->counters->registers = u64(found->second);
  }
  return r.kernel;
}

void each_kernel(const std::function<void(Kernel&)>& f) {
  for (const auto& [function, registered] : functions()) {
    try {
      f(*kernel_of(function));
    } catch (const Unknown&) {
    }
  }
}

u64 address_of(const void* host_variable) {
  const auto it = variables().find(host_variable);
  if (it == variables().end()) return 0;
  it->second.binary->open();
  const auto symbol = it->second.binary->symbols.find(it->second.name);
  return symbol == it->second.binary->symbols.end() ? 0 : symbol->second;
}

}  // namespace interpreter

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  struct {
    int magic, version;
    const interpreter::u8* data;
  } w;
  std::memcpy(&w, wrapper, sizeof w);
  auto* binary = new interpreter::Binary;
  interpreter::read(w.data, *binary);
  return reinterpret_cast<void**>(binary);
}
/// PTX_DECODE: reports at once which kernels the interpreter cannot run, launched or not.
void __cudaRegisterFatBinaryEnd(void** binary) {
  if (!std::getenv("PTX_DECODE")) return;
  for (const auto& [function, registered] : interpreter::functions()) {
    if (registered.binary != reinterpret_cast<interpreter::Binary*>(binary)) continue;
    try {
      interpreter::kernel_of(function);
    } catch (const std::exception& e) {
      interpreter::verdict("unknown: " + std::string(e.what()) + "; kernel " +
                           interpreter::readable(registered.name));
    }
  }
}
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void** binary, const char* host, char*, const char* name, int, void*,
                            void*, void*, void*, int*) {
  interpreter::functions()[host] = {reinterpret_cast<interpreter::Binary*>(binary), name};
}
void __cudaRegisterVar(void** binary, char* host, char*, const char* name, int, size_t, int, int) {
  interpreter::variables()[host] = {reinterpret_cast<interpreter::Binary*>(binary), name};
}

}  // extern "C"
