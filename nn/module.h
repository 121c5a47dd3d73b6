// Module: something with parameters, and modules inside it.
//
// A module declares each child and parameter once, as a member that registers itself:
//
//     struct Classifier : nn::Module {
//       nn::Linear hidden{*this, "hidden", {.in = 784, .out = 256}};
//       nn::Linear out{*this, "out", {.in = 256, .out = 10}};
//       Tensor operator()(const Tensor& x) { return out(relu(hidden(x))); }
//     };
//
// Its parameters are then named hidden.weight, hidden.bias, out.weight, out.bias. Children know
// their parent by address, so modules are neither copied nor moved; `clone` makes another one.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../core/random.h"
#include "../core/tensor.h"

namespace stretto::nn {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// What Module::to(DType) makes of a buffer: the module's dtype, or f32 where that is bf16.
enum class BufferDtype { as_module, at_least_f32 };

class Module {
 public:
  /// A module of its own.
  Module() = default;
  /// A child: registers with its parent, under a name without dots that nothing else has there.
  Module(Module& parent, std::string name);
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Parameters in the order of declaration, children included; one that is shared is listed once,
  /// under its first name.
  std::vector<NamedTensor> named_parameters() const;
  Tensors parameters() const;
  /// The parameter of a name, "layers.0.norm1.weight"; a shared one has several. Throws, naming one
  /// like it, where there is none.
  Tensor get_parameter(const std::string& name) const;
  /// Tensors that are saved with the module but not trained.
  std::vector<NamedTensor> named_buffers() const;
  /// Parameters and buffers in the order of declaration; one that is shared is listed under each of
  /// its names.
  std::vector<NamedTensor> named_tensors() const;
  /// Numbers in all parameters.
  int64_t parameter_count() const;

  /// Training mode (dropout active, the default) or evaluation, for this and all children.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }

  /// Drops all gradients.
  void zero_grad();
  /// Whether the parameters require gradients: after freeze() they get none, and optimisers leave
  /// them as they are. A gradient that is there is dropped.
  void freeze(bool on = true);
  void unfreeze() { freeze(false); }

  /// Moves or converts all parameters and floating buffers (moves also the others, but for those
  /// that the host reads), in place: handles stay valid, shared
  /// parameters stay shared. Gradients are dropped. Returns the module.
  Module& to(Device device);
  Module& to(DType dtype);
  /// Where its parameters and buffers are, those that the host reads apart: one device, else an
  /// error; the CPU where it has none.
  Device device() const;

  /// The tree with types, names, shapes and counts of parameters, one line each:
  ///     Classifier                       203,530
  ///       hidden: Linear(784 → 256)      200,960
  ///         weight [256, 784]
  std::string describe() const;

  /// What `describe` calls this module: the name of its class, or more: "Linear(784 → 256)".
  virtual std::string label() const;

  /// The module without a parent above this one, or this one itself.
  const Module& root() const { return parent_ ? parent_->root() : *this; }
  /// A number that no other module of the program has or had.
  uint64_t serial() const { return serial_; }

  /// Direct children with their names, in the order of declaration.
  std::vector<std::pair<std::string, Module*>> children() const;

 protected:
  /// Registers `value`, a leaf of floating dtype, as a parameter: it requires a gradient from now
  /// on. Returns it, for a member that is a `const Tensor`: another tensor assigned to it would be
  /// unknown to parameters(), optimisers and files.
  Tensor parameter(std::string name, const Tensor& value);
  /// Registers a parameter of another module once more, under a name here (weight tying).
  Tensor shared_parameter(std::string name, const Tensor& value);
  /// Registers a tensor that is saved but not trained, and returns it. One that must not be rounded
  /// to bf16 with the module, as numbers that are summed up or used in f32, is at_least_f32.
  Tensor buffer(std::string name, const Tensor& value, BufferDtype dtype = BufferDtype::as_module);
  /// The same for numbers that the host reads, as seeds and counts of calls: to() leaves it on the
  /// CPU, in its dtype.
  Tensor host_buffer(std::string name, const Tensor& value);
  /// Takes over from `from`, a module of the same type, what can be set after construction and is
  /// neither parameter nor buffer: clone() calls it for the module and each below. A module that
  /// has such settings overrides it; not those of its children.
  virtual void copy_settings(const Module& /*from*/) {}

 private:
  friend void copy_state(const Module& from, Module& to);
  friend void clone_state(const Module& from, Module& to);

  /// A child, a parameter or a buffer.
  struct Member {
    std::string name;
    Module* child = nullptr;  // null for a tensor
    Tensor tensor = {};
    bool is_buffer = false;
    bool on_host = false;
    bool at_least_f32 = false;
  };
  void add(const char* op, Member member);
  template <class F>
  void visit(const std::string& prefix, F& f) const;
  std::vector<NamedTensor> all_named(bool buffers) const;
  std::vector<NamedTensor> tensors_if(bool (*chosen)(const Member&)) const;
  std::vector<NamedTensor> movable() const;
  struct Pair {
    Tensor source, destination;
  };
  static std::vector<Pair> pairs(const Module& from, const Module& to);
  static uint64_t next_serial();

  Module* parent_ = nullptr;
  const uint64_t serial_ = next_serial();
  std::vector<Member> members_;  // in the order of declaration
  bool training_ = true;
};

/// n modules of one type, named 0, 1, …: `nn::List<Layer> layers{*this, "layers", n, options}`.
template <class M>
class List : public Module {
 public:
  template <class Options>
  List(Module& parent, std::string name, int64_t n, const Options& options)
      : Module(parent, std::move(name)) {
    for (int64_t i = 0; i < n; ++i)
      items_.push_back(std::make_unique<M>(*this, std::to_string(i), options));
  }
  int64_t size() const { return int64_t(items_.size()); }
  M& operator[](int64_t i) { return *items_[size_t(i)]; }
  const M& operator[](int64_t i) const { return *items_[size_t(i)]; }
  /// Over M, or const M.
  template <class Item>
  struct Iterator {
    typename std::vector<std::unique_ptr<M>>::const_iterator at;
    Item& operator*() const { return **at; }
    Iterator& operator++() {
      ++at;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at != other.at; }
  };
  Iterator<M> begin() { return {items_.begin()}; }
  Iterator<M> end() { return {items_.end()}; }
  Iterator<const M> begin() const { return {items_.begin()}; }
  Iterator<const M> end() const { return {items_.end()}; }
  std::string label() const override { return "List"; }

 private:
  std::vector<std::unique_ptr<M>> items_;
};

/// Copies values of parameters and buffers by name, into `to`'s dtypes and devices. Throws before
/// anything is changed unless names and shapes agree.
void copy_state(const Module& from, Module& to);

/// The same, and dtypes, devices, training modes, which parameters require a gradient, and settings
/// made after construction (Module::copy_settings) too.
void clone_state(const Module& from, Module& to);

/// Another module of the same type with the same values, modes and settings: made from `m.options`
/// where M has them, else by M's default constructor, then clone_state. What a module of your own
/// lets its users change is cloned if it overrides copy_settings. The random state of the program
/// is left as it was.
template <class M>
std::unique_ptr<M> clone(const M& m) {
  const RandomState random = random_state();
  std::unique_ptr<M> copy;
  if constexpr (requires { M(m.options); }) {
    copy = std::make_unique<M>(m.options);
  } else {
    copy = std::make_unique<M>();
  }
  set_random_state(random);
  clone_state(m, *copy);
  return copy;
}

}  // namespace stretto::nn
