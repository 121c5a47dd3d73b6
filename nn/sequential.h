// A chain of modules and functions.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "module.h"

namespace stretto::nn {

/// A step of a Sequential: a module that it constructs and owns, or a function.
class SequentialStep {
 public:
  /// The function that computes a step.
  using Function = std::function<Tensor(const Tensor&)>;
  /// A factory that constructs a module with a name in its parent, and returns
  /// it with its function.
  using Make =
      std::function<std::pair<std::unique_ptr<Module>, Function>(Module& parent, std::string name)>;

  /// Constructs a step with a module; see step().
  SequentialStep(Make make) : make_(std::move(make)) {}
  /// Constructs a step from a function such as relu.
  SequentialStep(Tensor (*function)(const Tensor&)) : function_(function) {}
  /// Constructs a step from a callable.
  template <class F>
  requires std::is_invocable_r_v<Tensor, F, const Tensor&> SequentialStep(F function)
      : function_(std::move(function)) {}

 private:
  friend class Sequential;
  Make make_;
  Function function_;
};

/// Returns a step with a module M, whose operator() maps a Tensor to a Tensor.
template <class M>
SequentialStep step(typename M::Options options) {
  return SequentialStep::Make([options](Module& parent, std::string name) {
    auto made = std::make_unique<M>(parent, std::move(name), options);
    SequentialStep::Function call = [m = made.get()](const Tensor& x) { return (*m)(x); };
    return std::pair<std::unique_ptr<Module>, SequentialStep::Function>(std::move(made),
                                                                        std::move(call));
  });
}

/// Applies its steps in order:
///
///     nn::Sequential net({nn::step<nn::Linear>({.in = 784, .out = 256}), relu,
///                         nn::step<nn::Linear>({.in = 256, .out = 10})});
///
/// The name of a module is its index among all steps: 0.weight, 0.bias, 2.weight, 2.bias.
class Sequential : public Module {
 public:
  using Options = std::vector<SequentialStep>;  ///< The steps.
  /// Constructs a root module.
  explicit Sequential(Options steps);
  /// Constructs a child of `parent`.
  Sequential(Module& parent, std::string name, Options steps);

  /// Returns the result of the last step.
  Tensor operator()(const Tensor& x) const;
  std::string label() const override { return "Sequential"; }

  const Options options;  ///< The steps, as passed to the constructor.

 private:
  void make();
  std::vector<std::unique_ptr<Module>> modules_;
  std::vector<SequentialStep::Function> calls_;
};

}  // namespace stretto::nn
