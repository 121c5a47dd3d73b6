#include "nn/module.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "autograd/tape.h"
#include "nn/leaf_owners.h"

namespace stretto::nn {
namespace {

std::vector<Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<Tensor> tensors;
  for (const NamedTensor& n : named) tensors.push_back(n.tensor);
  return tensors;
}

std::string with_commas(int64_t n) {
  std::string text = std::to_string(n);
  for (int64_t at = int64_t(text.size()) - 3; at > 0; at -= 3) text.insert(size_t(at), ",");
  return text;
}

// Returns the width of a UTF-8 text in terminal columns; all characters of labels have width 1.
size_t columns(const std::string& text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

Module::Module(Module& parent, std::string name) : parent_(&parent), training_(parent.training_) {
  parent.add("Module", {.name = std::move(name), .child = this});
}

Module::~Module() {
  for (Member& m : members_) {
    if (m.child) m.child->parent_ = nullptr;
    if (m.tensor.defined()) remove_owner(m.tensor, *this);
  }
  if (parent_) std::erase_if(parent_->members_, [&](const Member& m) { return m.child == this; });
}

uint64_t Module::next_serial() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

void Module::add(const char* op, Member member) {
  check(!member.name.empty() && member.name.find('.') == std::string::npos, op, "\"", member.name,
        "\" cannot be a name: it must not be empty and not contain dots");
  for (const Member& m : members_)
    check(m.name != member.name, op, "the name \"", m.name, "\" is taken in this module");
  members_.push_back(std::move(member));
}

Tensor Module::parameter(std::string name, const Tensor& value) {
  check(value.defined() && is_floating(value.dtype()), "parameter", "\"", name,
        "\" must be a floating-point tensor; got ", value);
  check(value.is_leaf(), "parameter", "\"", name,
        "\" must be a leaf, but is the result of a recorded op; detach() it first");
  // SkipInit's dtype: replaces the data for all handles, since the module may have another one.
  if (const std::optional<DType> dtype = thread_state.parameter_dtype)
    value.set_data(empty(value.shape(), {.dtype = *dtype, .device = value.device()}));
  add("parameter", {.name = std::move(name), .tensor = Tensor(value).set_requires_grad()});
  add_owner(value, *this, members_.back().name);
  return value;
}

Tensor Module::shared_parameter(std::string name, const Tensor& value) {
  check(value.defined() && value.is_leaf() && is_floating(value.dtype()), "shared_parameter",
        "needs the parameter of a module; got ", value);
  add("shared_parameter", {.name = std::move(name), .tensor = value});
  return value;
}

Tensor Module::buffer(std::string name, const Tensor& value, BufferOptions options) {
  check(value.defined() && !value.requires_grad(), "buffer", "\"", name,
        "\" must be a tensor that requires no gradient; got ", value);
  add("buffer", {.name = std::move(name), .tensor = value, .is_buffer = true, .options = options});
  return value;
}

Tensor Module::host_buffer(std::string name, const Tensor& value) {
  Tensor handle = buffer(std::move(name), value);
  check(value.device().is_cpu(), "host_buffer", "got ", value, "; must be on the CPU");
  members_.back().on_host = true;
  return handle;
}

void Module::pack_parameters(const Tensors& parameters) {
  packed_.push_back(parameters);
  pack(parameters);
}

// Moves the parameters of one pack_parameters() to one block, on a GPU.
void Module::pack(const Tensors& group) {
  const Tensor& first = group.front();
  Shape shape = first.shape(), sizes;
  shape[0] = 0;
  for (const Tensor& x : group) {
    // Products need operands at multiples of 16 bytes.
    const bool fits = x.dtype() == first.dtype() && x.device() == first.device() &&
                      x.numel() * item_size(x.dtype()) % 16 == 0;
    if (x.device().is_cpu() || !fits) return;
    sizes.push_back(x.size(0));
    shape[0] += x.size(0);
  }
  if (join_parts(group, 0).defined()) return;
  NoGrad guard;
  const Tensors parts = split_into_parts(empty(shape, options_of(first)), 0, sizes);
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].copy_(group[i].detach());
    group[i].set_data(parts[i]);
  }
}

// Calls pack() for the groups of the tree.
void Module::pack_all() const {
  for (const Tensors& group : packed_) pack(group);
  for (const Member& m : members_)
    if (m.child) m.child->pack_all();
}

void Module::apply(const std::function<void(Module&)>& f) {
  for (const Member& m : members_)
    if (m.child) m.child->apply(f);
  f(*this);
}

std::vector<std::pair<std::string, Module*>> Module::children() const {
  std::vector<std::pair<std::string, Module*>> all;
  for (const Member& m : members_)
    if (m.child) all.emplace_back(m.name, m.child);
  return all;
}

// Calls f(prefix, member) for all members of the tree in the order of declaration, a child before
// its own members.
template <class F>
void Module::visit(const std::string& prefix, F& f) const {
  for (const Member& m : members_) {
    f(prefix, m);
    if (m.child) m.child->visit(prefix + m.name + ".", f);
  }
}

// Returns the chosen parameters and buffers, each under its first name.
std::vector<NamedTensor> Module::first_named(bool (*chosen)(const Member&)) const {
  std::vector<NamedTensor> all = tensors_if(chosen);
  std::unordered_set<const void*> seen;
  std::erase_if(all, [&](const NamedTensor& n) { return !seen.insert(n.tensor.id()).second; });
  return all;
}

// Returns the chosen parameters and buffers, under all their names.
std::vector<NamedTensor> Module::tensors_if(bool (*chosen)(const Member&)) const {
  std::vector<NamedTensor> all;
  auto collect = [&](const std::string& prefix, const Member& m) {
    if (!m.child && chosen(m)) all.push_back({prefix + m.name, m.tensor});
  };
  visit("", collect);
  return all;
}

// Returns all tensors except host buffers.
std::vector<NamedTensor> Module::movable() const {
  return tensors_if([](const Member& m) { return !m.on_host; });
}

std::vector<NamedTensor> Module::named_tensors() const {
  return tensors_if([](const Member&) { return true; });
}

// Throws if only the list of members, and optimizers, have handles of a parameter.
void Module::check_held(const std::string& prefix) const {
  for (const Member& m : members_) {
    if (m.child) m.child->check_held(prefix + m.name + ".");
    if (m.child || m.is_buffer) continue;
    const int64_t handles = m.tensor.n_handles();
    check(handles > 2 || handles > 1 + optimizers_of(m.tensor), "parameters", "the member of ",
          prefix, m.name, " of a ", type_name(typeid(*this)),
          " refers to another tensor, which would not be trained; declare it `const Tensor`, and "
          "change values by copy_() under NoGrad");
  }
}

std::vector<NamedTensor> Module::named_parameters() const {
  check_held("");
  return first_named([](const Member& m) { return !m.is_buffer; });
}

std::vector<NamedTensor> Module::named_buffers() const {
  return first_named([](const Member& m) { return m.is_buffer; });
}

std::vector<NamedTensor> Module::persistent_buffers() const {
  return first_named([](const Member& m) { return m.is_buffer && m.options.persistent; });
}

Tensors Module::parameters() const { return tensors_of(named_parameters()); }

Tensor Module::get_parameter(const std::string& name) const {
  Tensor found;
  std::vector<std::string> others;
  auto compare = [&](const std::string& prefix, const Member& m) {
    if (m.child || m.is_buffer) return;
    others.push_back(prefix + m.name);
    if (others.back() == name) found = m.tensor;
  };
  visit("", compare);
  if (found.defined()) return found;
  fail("get_parameter", "no parameter \"", name, "\"",
       others.empty() ? "; the module has none"
                      : "; a similar one is \"" + nearest_name(name, others) + "\"");
}

int64_t Module::parameter_count() const {
  int64_t count = 0;
  for (const NamedTensor& p : named_parameters()) count += p.tensor.numel();
  return count;
}

// Must not allocate: guards call it to restore training mode even when memory has run out.
void Module::train(bool on) {
  training_ = on;
  for (const Member& m : members_)
    if (m.child) m.child->train(on);
}

void Module::zero_grad() {
  for (const Tensor& p : parameters()) p.set_grad({});
}

void Module::freeze(bool on) {
  for (const Tensor& p : parameters()) {
    if (on) p.set_grad({});
    p.set_requires_grad(!on);
  }
}

Module& Module::to(Device device) {
  NoGrad guard;
  for (const NamedTensor& n : movable())
    if (n.tensor.device() != device) n.tensor.set_data(n.tensor.to(device));
  pack_all();
  return *this;
}

Device Module::device() const {
  std::optional<NamedTensor> first;
  for (const NamedTensor& n : movable()) {
    if (!first) first = n;
    check(n.tensor.device() == first->tensor.device(), "Module::device", first->name, " is on ",
          first->tensor.device(), ", ", n.name, " on ", n.tensor.device(),
          "; use Tensor::device() of one of them");
  }
  return first ? first->tensor.device() : cpu;
}

Module& Module::to(DType dtype) {
  check_floating("Module::to", dtype);
  NoGrad guard;
  auto convert = [&](const std::string&, const Member& m) {
    if (m.child || m.on_host || !is_floating(m.tensor.dtype())) return;
    if (m.options.dtype == BufferDtype::unchanged) return;
    const bool wide = m.options.dtype == BufferDtype::at_least_f32;
    const DType target = wide ? compute_type(dtype) : dtype;
    if (m.tensor.dtype() != target) m.tensor.set_data(m.tensor.to(target));
  };
  visit("", convert);
  pack_all();
  return *this;
}

std::string Module::label() const { return type_name(typeid(*this)); }

std::string Module::describe() const {
  struct Line {
    std::string text, count;
  };
  const auto count_of = [](const Module& m) {
    const int64_t count = m.parameter_count();
    return count > 0 ? with_commas(count) : "";
  };
  std::vector<Line> lines = {{label(), count_of(*this)}};
  std::unordered_map<const void*, std::string> first_names;
  auto describe_member = [&](const std::string& prefix, const Member& m) {
    const auto depth = size_t(std::count(prefix.begin(), prefix.end(), '.')) + 1;
    std::string text = std::string(2 * depth, ' ') + m.name;
    if (m.child) {
      lines.push_back({text + ": " + m.child->label(), count_of(*m.child)});
      return;
    }
    text += str(' ', m.tensor.shape(), m.is_buffer ? " buffer" : "");
    if (!m.options.persistent) text += ", not saved";
    if (m.tensor.dtype() != f32) text += str(' ', m.tensor.dtype());
    const auto [first, inserted] = first_names.try_emplace(m.tensor.id(), prefix + m.name);
    if (!inserted) text += " = " + first->second;
    lines.push_back({text, ""});
  };
  visit("", describe_member);

  size_t width = 0;
  for (const Line& line : lines)
    if (!line.count.empty()) width = std::max(width, columns(line.text) + 2 + line.count.size());
  std::string all;
  for (const Line& line : lines) {
    all += line.text;
    if (!line.count.empty())
      all += std::string(width - columns(line.text) - line.count.size(), ' ') + line.count;
    all += '\n';
  }
  return all;
}

std::vector<Module::Pair> Module::pairs(const Module& from, const Module& to) {
  std::vector<Pair> all;
  for (const auto named : {&Module::named_parameters, &Module::named_buffers}) {
    std::unordered_map<std::string, Tensor> destinations;
    for (const NamedTensor& n : (to.*named)()) destinations[n.name] = n.tensor;
    for (const NamedTensor& n : (from.*named)()) {
      const auto found = destinations.find(n.name);
      check(found != destinations.end(), "copy_state", "the destination has no ", n.name);
      check(n.tensor.shape() == found->second.shape(), "copy_state", n.name, ": source ", n.tensor,
            ", destination ", found->second);
      all.push_back({n.tensor, found->second});
      destinations.erase(found);
    }
    for (const NamedTensor& n : (to.*named)())
      check(!destinations.contains(n.name), "copy_state", "the source has no ", n.name);
  }
  return all;
}

void copy_state(const Module& from, Module& to) {
  NoGrad guard;
  for (auto& [source, destination] : Module::pairs(from, to)) destination.copy_(source);
}

void clone_state(const Module& from, Module& to) {
  NoGrad guard;
  auto copy_modes = [](auto&& self, const Module& a, Module& b) -> void {
    b.training_ = a.training_;
    if (typeid(a) == typeid(b)) b.copy_settings(a);
    const auto from_children = a.children(), to_children = b.children();
    for (size_t i = 0; i < std::min(from_children.size(), to_children.size()); ++i)
      self(self, *from_children[i].second, *to_children[i].second);
  };
  copy_modes(copy_modes, from, to);  // first, since settings may add children
  for (auto& [source, destination] : Module::pairs(from, to)) {
    destination.set_data(source.detach().clone());
    destination.set_requires_grad(source.requires_grad());
  }
  to.pack_all();
}

EvalMode::EvalMode(Module& model) {
  before_.push_back({&model, model.training()});
  for (size_t i = 0; i < before_.size(); ++i)
    for (const auto& [name, child] : before_[i].module->children())
      before_.push_back({child, child->training()});
  model.eval();
}

EvalMode::~EvalMode() {
  for (const Mode& mode : before_) mode.module->train(mode.training);
}

}  // namespace stretto::nn
