// Module: the base class of everything with parameters. Modules contain parameters and modules.
//
// A module declares each child and parameter once, as a member that registers itself:
//
//     struct Classifier : nn::Module {
//       nn::Linear hidden{*this, "hidden", {.in = 784, .out = 256}};
//       nn::Linear out{*this, "out", {.in = 256, .out = 10}};
//       Tensor operator()(const Tensor& x) { return out(relu(hidden(x))); }
//     };
//
// The names of its parameters are then hidden.weight, hidden.bias, out.weight, out.bias. Children
// refer to their parent by address, so modules can be neither copied nor moved; use clone().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../autograd/tape.h"
#include "../core/random.h"
#include "../core/tensor.h"

namespace stretto::nn {

/// A tensor of a module and its name.
struct NamedTensor {
  std::string name;  ///< Path below the module, "layers.0.norm1.weight".
  Tensor tensor;     ///< The parameter or buffer.
};

/// The dtype of a buffer after Module::to(DType).
enum class BufferDtype {
  as_module,     ///< The dtype of the module.
  at_least_f32,  ///< The dtype of the module, but f32 in a bf16 module.
  unchanged      ///< The dtype that the buffer has.
};

/// Options of a buffer.
struct BufferOptions {
  BufferDtype dtype = BufferDtype::as_module;  ///< Its dtype after Module::to(DType).
  /// False: weights files and checkpoints leave the buffer out; the constructor of the module must
  /// compute its values, for example an index table.
  bool persistent = true;
};

/// Base class of layers and models: a tree of modules with parameters and buffers.
class Module {
 public:
  /// Constructs a root module.
  Module() = default;
  /// Constructs a child of `parent`. Throws if the name is empty, contains a dot or is already used
  /// in the parent.
  Module(Module& parent, std::string name);
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Returns the parameters of the module and its children, in the order of declaration. A shared
  /// parameter is listed once, under its first name. Throws if the tensor that parameter() has
  /// returned is not kept: a member was assigned, and would not be trained.
  std::vector<NamedTensor> named_parameters() const;
  /// Returns the tensors of named_parameters().
  Tensors parameters() const;
  /// Returns the parameter with this name, "layers.0.norm1.weight"; a shared parameter has several
  /// names. If there is none, throws an error with a similar name.
  Tensor get_parameter(const std::string& name) const;
  /// Returns the buffers: tensors that are part of the module but not trained.
  std::vector<NamedTensor> named_buffers() const;
  /// Returns the buffers that are saved with the module (BufferOptions::persistent).
  std::vector<NamedTensor> persistent_buffers() const;
  /// Returns parameters and buffers in the order of declaration. A shared tensor is listed under
  /// each of its names.
  std::vector<NamedTensor> named_tensors() const;
  /// Returns the number of elements in all parameters; shared ones count once.
  int64_t parameter_count() const;

  /// Sets training mode (dropout active, the default) or evaluation mode, for this module
  /// and all its children.
  void train(bool on = true);
  /// Sets evaluation mode.
  void eval() { train(false); }
  /// Returns true in training mode.
  bool training() const { return training_; }

  /// Removes the gradients of all parameters.
  void zero_grad();
  /// Freezes the parameters: they require no gradients, optimizers do not update them, and existing
  /// gradients are removed. With `on` = false they require gradients again.
  void freeze(bool on = true);
  /// Makes all parameters require gradients.
  void unfreeze() { freeze(false); }

  /// Moves all parameters and buffers to a device, in place, except host buffers. Handles stay
  /// valid and shared parameters stay shared; gradients are removed. Returns the module.
  Module& to(Device device);
  /// Converts all parameters and floating buffers to a floating dtype, in the same way.
  Module& to(DType dtype);
  /// Returns the device of the parameters and buffers, host buffers excepted; the CPU if there are
  /// none. Throws if they are on several devices.
  Device device() const;

  /// Returns the tree with types, names, shapes and parameter counts, one line each:
  ///
  ///     Classifier                       203,530
  ///       hidden: Linear(784 → 256)      200,960
  ///         weight [256, 784]
  std::string describe() const;

  /// Returns the module's text in describe(): the class name, or more: "Linear(784 → 256)".
  virtual std::string label() const;

  /// Returns the top of the tree: the ancestor without a parent, or this module.
  const Module& root() const { return parent_ ? parent_->root() : *this; }
  /// Returns the module that this one is a child of; null for the top of a tree.
  const Module* parent() const { return parent_; }
  /// Returns a number that no other module of the program has or had.
  uint64_t serial() const { return serial_; }

  /// Calls f with this module and all modules below it, children before their parents:
  ///
  ///     const NoGrad guard;
  ///     model.apply([](nn::Module& m) {
  ///       if (auto* linear = dynamic_cast<nn::Linear*>(&m)) linear->weight.mul_(0.5);
  ///     });
  void apply(const std::function<void(Module&)>& f);

  /// Returns the direct children with their names, in the order of declaration.
  std::vector<std::pair<std::string, Module*>> children() const;

 protected:
  /// Registers `value`, a leaf of floating dtype, as a parameter, which requires a gradient.
  /// Returns it, to initialize a `const Tensor` member: const, because a tensor assigned later
  /// would be unknown to optimizers and files; named_parameters() then throws.
  Tensor parameter(std::string name, const Tensor& value);
  /// Registers a parameter of another module under an additional name (weight tying).
  Tensor shared_parameter(std::string name, const Tensor& value);
  /// Registers a buffer, a tensor that is not trained, and returns it. By default it is saved and
  /// has the dtype of the module; at_least_f32 is for values that must not be rounded to bf16, such
  /// as running sums.
  Tensor buffer(std::string name, const Tensor& value, BufferOptions options = {});
  /// Registers a buffer that the host reads, such as seeds and counters. to() leaves it on the CPU
  /// and in its dtype.
  Tensor host_buffer(std::string name, const Tensor& value);
  /// Declares parameters [out_i, ..] of this module or its children that ops read together; only
  /// their first sizes may differ. On a GPU they are from now on parts of one block of memory, so
  /// that one matrix product can read them all (linear() of several weights).
  void pack_parameters(const Tensors& parameters);
  /// Copies the settings of `from`, a module of the same type, that can change after construction
  /// and are neither parameters nor buffers. Override it in modules with such settings, for the
  /// module itself only: clone() calls it for each module of the tree.
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
    bool on_host = false;  // to() does not move or convert it
    BufferOptions options = {};
  };
  void add(const char* op, Member member);
  template <class F>
  void visit(const std::string& prefix, F& f) const;
  std::vector<NamedTensor> first_named(bool (*chosen)(const Member&)) const;
  std::vector<NamedTensor> tensors_if(bool (*chosen)(const Member&)) const;
  std::vector<NamedTensor> movable() const;
  void check_held(const std::string& prefix) const;
  struct Pair {
    Tensor source, destination;
  };
  static std::vector<Pair> pairs(const Module& from, const Module& to);
  static void pack(const Tensors& group);
  void pack_all() const;
  static uint64_t next_serial();

  Module* parent_ = nullptr;
  const uint64_t serial_ = next_serial();
  std::vector<Member> members_;  // in the order of declaration
  std::vector<Tensors> packed_;  // the arguments of pack_parameters()
  bool training_ = true;
};

/// Base class of lists of modules of any type.
class AnyList : public Module {
 public:
  using Module::Module;
  std::string label() const override { return "List"; }
};

/// A list of n modules of one type with the names 0, 1, …:
/// `nn::List<Layer> layers{*this, "layers", n, options}`.
template <class M>
class List : public AnyList {
 public:
  /// Constructs n modules M(*this, index, options). `options` may be a function that returns the
  /// options of module i.
  template <class Options>
  List(Module& parent, std::string name, int64_t n, const Options& options)
      : AnyList(parent, std::move(name)) {
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_invocable_v<const Options&, int64_t>)
        items_.push_back(std::make_unique<M>(*this, std::to_string(i), options(i)));
      else
        items_.push_back(std::make_unique<M>(*this, std::to_string(i), options));
    }
  }
  /// Returns the number of modules.
  int64_t size() const { return int64_t(items_.size()); }
  /// Returns module i.
  M& operator[](int64_t i) { return *items_[size_t(i)]; }
  /// Returns module i.
  const M& operator[](int64_t i) const { return *items_[size_t(i)]; }
  /// Iterator over the modules; Item is M or const M.
  template <class Item>
  struct Iterator {
    typename std::vector<std::unique_ptr<M>>::const_iterator at;  ///< Current position.
    /// Returns the current module.
    Item& operator*() const { return **at; }
    /// Moves to the next module.
    Iterator& operator++() {
      ++at;
      return *this;
    }
    /// Returns true if the positions differ.
    bool operator!=(const Iterator& other) const { return at != other.at; }
  };
  /// Returns an iterator to the first module.
  Iterator<M> begin() { return {items_.begin()}; }
  /// Returns the end iterator.
  Iterator<M> end() { return {items_.end()}; }
  /// Returns an iterator to the first module.
  Iterator<const M> begin() const { return {items_.begin()}; }
  /// Returns the end iterator.
  Iterator<const M> end() const { return {items_.end()}; }

 private:
  std::vector<std::unique_ptr<M>> items_;
};

/// Copies the values of parameters and buffers by name, converted to the dtypes and devices of
/// `to`. If names or shapes differ, throws without changing anything.
void copy_state(const Module& from, Module& to);

/// Like copy_state(), but also copies dtypes, devices, training modes, requires_grad and settings
/// changed after construction (Module::copy_settings).
void clone_state(const Module& from, Module& to);

/// Returns a copy of a module with the same values, modes and settings: constructed from
/// `m.options` if M has them, else by the default constructor, followed by clone_state(). Settings
/// that change after construction are copied only if M overrides copy_settings(). The program's
/// random state does not change.
template <class M>
std::unique_ptr<M> clone(const M& m) {
  const RandomState random = random_state();
  std::unique_ptr<M> copy;
  if constexpr (requires { M(m.options); }) {
    copy = std::make_unique<M>(m.options);
  } else {
    static_assert(std::is_default_constructible_v<M>,
                  "clone() needs a default constructor, or a member `options` that a constructor "
                  "accepts");
    copy = std::make_unique<M>();
  }
  set_random_state(random);
  clone_state(m, *copy);
  return copy;
}

/// Sets evaluation mode (no dropout) and disables gradients for a scope. At its end, also after an
/// exception, the model and all modules below it are back in their previous modes.
///
///     nn::EvalMode guard(model);
class EvalMode {
 public:
  /// Puts the model into evaluation mode.
  explicit EvalMode(Module& model);
  ~EvalMode();
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  struct Mode {
    Module* module;
    bool training;
  };
  std::vector<Mode> before_;  // a parent before its children
  NoGrad no_grad_;
};

}  // namespace stretto::nn
