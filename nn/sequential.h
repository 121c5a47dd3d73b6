// Modules and functions one after the other.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "module.h"

namespace stretto::nn {

/// A step of a Sequential: a module that it makes and owns, or a function.
class SequentialStep {
 public:
  using Function = std::function<Tensor(const Tensor&)>;
  /// Makes a module under a name in its parent, and returns it with its call.
  using Make =
      std::function<std::pair<std::unique_ptr<Module>, Function>(Module& parent, std::string name)>;

  SequentialStep(Make make) : make_(std::move(make)) {}
  SequentialStep(Tensor (*function)(const Tensor&)) : function_(function) {}
  template <class F>
  requires std::is_invocable_r_v<Tensor, F, const Tensor&> SequentialStep(F function)
      : function_(std::move(function)) {}

 private:
  friend class Sequential;
  Make make_;
  Function function_;
};

/// A module M, whose call takes a Tensor and gives one, as a step.
template <class M>
SequentialStep step(typename M::Options options) {
  return SequentialStep::Make([options](Module& parent, std::string name) {
    auto made = std::make_unique<M>(parent, std::move(name), options);
    SequentialStep::Function call = [m = made.get()](const Tensor& x) { return (*m)(x); };
    return std::pair<std::unique_ptr<Module>, SequentialStep::Function>(std::move(made),
                                                                        std::move(call));
  });
}

/// Its steps, from the first to the last:
///
///     nn::Sequential net({nn::step<nn::Linear>({.in = 784, .out = 256}), relu,
///                         nn::step<nn::Linear>({.in = 256, .out = 10})});
///
/// A module's name is its number among all steps: 0.weight, 0.bias, 2.weight, 2.bias.
class Sequential : public Module {
 public:
  using Options = std::vector<SequentialStep>;
  explicit Sequential(Options steps);
  Sequential(Module& parent, std::string name, Options steps);

  Tensor operator()(const Tensor& x) const;
  std::string label() const override { return "Sequential"; }

  const Options options;

 private:
  void make();
  std::vector<std::unique_ptr<Module>> modules_;
  std::vector<SequentialStep::Function> calls_;
};

}  // namespace stretto::nn
