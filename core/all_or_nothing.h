// State that a call changes once it has succeeded, and not before.
#pragma once

#include <type_traits>
#include <utility>

namespace stretto {

/// f(after) with a copy of `state` that takes its place when f has returned: a call that throws
/// leaves the state as it was and can be repeated. Calls may stand inside each other. Returns what
/// f does.
///
///     return all_or_nothing(caches, [&](std::vector<nn::KeyValueCache>& after) {
///       return layer2(layer1(x, causal, &after[0]), causal, &after[1]);
///     });
///
/// A copy of a cache costs little: its tensors are handles, and what calls do to them is done in
/// memory that no other handle sees. Random numbers that a failed call has drawn stay drawn.
template <class State, class F>
auto all_or_nothing(State& state, F&& f) -> std::invoke_result_t<F, State&> {
  static_assert(std::is_nothrow_move_assignable_v<State>);
  State after = state;
  if constexpr (std::is_void_v<std::invoke_result_t<F, State&>>) {
    f(after);
    state = std::move(after);
  } else {
    auto result = f(after);
    state = std::move(after);
    return result;
  }
}

/// The same by pointers, f(&after); f(nullptr) where there is no state.
template <class State, class F>
auto all_or_nothing(State* state, F&& f) -> std::invoke_result_t<F, State*> {
  if (!state) return f(static_cast<State*>(nullptr));
  return all_or_nothing(*state, [&](State& after) { return f(&after); });
}

}  // namespace stretto
