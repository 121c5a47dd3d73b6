#include "nn/leaf_owners.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "autograd/last_leaves.h"
#include "autograd/tape.h"
#include "nn/module.h"

namespace stretto::nn {
namespace {

struct Record {
  const Module* module = nullptr;  // null if only an optimizer has the leaf
  const std::type_info* type = nullptr;
  std::string name = {};  // of the parameter in the module: "weight"
  int optimizers = 0;
  // As long as the record exists, no other leaf can have this address.
  std::weak_ptr<const TapeEntry> leaf = {};
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

Record record_of(const TapeEntry* leaf) {
  const std::lock_guard lock(owners().mutex);
  const auto found = owners().records.find(leaf);
  return found == owners().records.end() ? Record() : found->second;
}

void erase_if_unused(const TapeEntry* leaf) noexcept {
  const auto found = owners().records.find(leaf);
  if (found->second.optimizers == 0 && !found->second.module) owners().records.erase(found);
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

const std::string& nearest_name(const std::string& pattern, const std::vector<std::string>& names) {
  // The number of characters of the name to insert, remove or replace.
  const auto distance = [&](const std::string& name) {
    std::vector<size_t> row(name.size() + 1);  // distances of the first characters of the pattern
    std::iota(row.begin(), row.end(), size_t(0));
    for (const char c : pattern) {
      const size_t cost = c == '*' ? 0 : 1;
      size_t diagonal = std::exchange(row[0], row[0] + cost);
      for (size_t j = 1; j <= name.size(); ++j) {
        const size_t replaced = diagonal + (c == name[j - 1] ? 0 : cost);
        diagonal = std::exchange(row[j], std::min({row[j] + cost, row[j - 1] + cost, replaced}));
      }
    }
    return row.back();
  };
  return *std::min_element(names.begin(), names.end(),
                           [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
}

void add_owner(const Tensor& leaf, const Module& module, const std::string& name) {
  const std::lock_guard lock(owners().mutex);
  Record& record = owners().records[leaf.tape().get()];
  if (!record.module) record = {&module, &typeid(module), name, record.optimizers, leaf.tape()};
}

void remove_owner(const Tensor& leaf, const Module& module) noexcept {
  const std::lock_guard lock(owners().mutex);
  const auto found = owners().records.find(leaf.tape().get());
  if (found == owners().records.end() || found->second.module != &module) return;
  found->second.module = nullptr;
  erase_if_unused(found->first);
}

void count_optimizers(const Tensor& leaf, int change) {
  const TapeEntry* const entry = leaf.tape().get();
  if (!entry) return;
  const std::lock_guard lock(owners().mutex);
  Record& record = owners().records[entry];
  record.leaf = leaf.tape();
  record.optimizers = std::max(record.optimizers + change, 0);
  erase_if_unused(entry);
}

int optimizers_of(const Tensor& leaf) { return record_of(leaf.tape().get()).optimizers; }

void check_trained(const char* op, const Tensors& parameters, uint64_t since) {
  const auto leaves = last_leaves();
  std::unordered_set<const TapeEntry*> own;
  for (const Tensor& p : parameters) own.insert(p.tape().get());
  if (std::none_of(leaves.begin(), leaves.end(), [&](auto& l) { return own.contains(l.get()); }))
    return;
  std::unordered_set<const Module*> trained;
  for (const auto& leaf : leaves) {
    const Record record = record_of(leaf.get());
    if (record.optimizers > 0) continue;
    if (!record.module) {
      check(leaf->number >= since, op, "a leaf ", leaf->dtype, " ", leaf->shape,
            " got a gradient, but belongs to no module and to no optimizer; make it by "
            "parameter(\"name\", …) in a module, or, if your program itself uses the gradient, "
            "after the optimizer");
      continue;
    }
    const Module& root = record.module->root();
    if (trained.contains(&root)) continue;
    const Tensors all = root.parameters();
    check(std::any_of(all.begin(), all.end(), [](auto& p) { return optimizers_of(p) > 0; }), op,
          "the ", record.name, " ", leaf->dtype, " ", leaf->shape, " of a ",
          type_name(*record.type),
          " got a gradient, but no optimizer updates it or another "
          "parameter of its model; declare the module as a child, ",
          type_name(*record.type),
          " name{*this, \"name\", …}, or freeze() it if it must not be trained");
    trained.insert(&root);
  }
}

}  // namespace stretto::nn
