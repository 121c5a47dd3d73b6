#include "nn/leaf_owners.h"

#include <cxxabi.h>

#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "nn/module.h"

namespace stretto::nn {
namespace {

struct Record {
  const Module* module;
  const std::type_info* type;
  std::string name;
  int optimizers = 0;
};

// Modules are constructed and destroyed by several threads, also during the exit of the program.
struct Owners {
  std::mutex mutex;
  std::unordered_map<const TapeEntry*, Record> records;
};

Owners& owners() {
  static auto* all = new Owners;
  return *all;
}

}  // namespace

std::string type_name(const std::type_info& type) {
  int status = 0;
  char* readable = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? readable : "Module";
  std::free(readable);
  // Namespaces end before the first template argument.
  const size_t colon = name.rfind(':', name.find('<'));
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

void add_owner(const Tensor& leaf, const Module& module, const std::string& name) {
  const std::lock_guard lock(owners().mutex);
  owners().records.insert({leaf.tape().get(), {&module, &typeid(module), name}});
}

void remove_owner(const Tensor& leaf, const Module& module) noexcept {
  const std::lock_guard lock(owners().mutex);
  const auto found = owners().records.find(leaf.tape().get());
  if (found != owners().records.end() && found->second.module == &module)
    owners().records.erase(found);
}

void count_optimizers(const Tensor& leaf, int change) noexcept {
  const std::lock_guard lock(owners().mutex);
  const auto found = owners().records.find(leaf.tape().get());
  if (found != owners().records.end()) found->second.optimizers += change;
}

std::optional<LeafOwner> owner_of(const TapeEntry* leaf) {
  const std::lock_guard lock(owners().mutex);
  const auto found = owners().records.find(leaf);
  if (found == owners().records.end()) return std::nullopt;
  const Record& r = found->second;
  return LeafOwner{type_name(*r.type), r.name, r.optimizers > 0};
}

}  // namespace stretto::nn
