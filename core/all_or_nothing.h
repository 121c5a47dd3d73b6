// Transactions: state that a call changes only if it succeeds.
#pragma once

#include <type_traits>
#include <utility>

namespace stretto {

/// Calls f(after) with a copy of `state` and replaces `state` by the copy only if f returns. If f
/// throws, the state is unchanged and the call can be repeated. Calls can be nested. Returns the
/// result of f.
///
///     return all_or_nothing(caches, [&](std::vector<nn::KeyValueCache>& after) {
///       return layer2(layer1(x, causal, &after[0]), causal, &after[1]);
///     });
///
/// Copying a cache is cheap: its tensors are handles, and calls write only to memory that no other
/// handle refers to. The random state is not restored after a failed call.
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

/// Does the same with pointers: calls f(&after), or f(nullptr) if `state` is null.
template <class State, class F>
auto all_or_nothing(State* state, F&& f) -> std::invoke_result_t<F, State*> {
  if (!state) return f(static_cast<State*>(nullptr));
  return all_or_nothing(*state, [&](State& after) { return f(&after); });
}

}  // namespace stretto
