// Which tokens may follow what has been written of a groove.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace stretto::examples {

/// Follows the tokens of a groove (groove_tokens.h) and forbids what makes no sense after them: the
/// end of a note that does not sound, time shifts that do not lead forward, and a second start.
/// All else may come: the end, and a note that sounds already, which then sounds twice.
///
/// The published sampling has the same rules, but its clock begins at 0 whatever the prompt; here
/// the prompt is followed too, so that the phase within the beat is the true one.
class GrooveGrammar {
 public:
  /// Throws std::invalid_argument for a token outside 0 … 793.
  void see(int64_t token);

  bool allows(int64_t token) const;
  /// All the tokens that are not allowed, in rising order.
  std::vector<int64_t> forbidden() const;

  /// The tick that the tokens seen so far lead to.
  int64_t time() const { return time_; }

 private:
  int64_t time_ = 0;
  std::array<std::array<int64_t, 128>, 3> sounding_{};  // how many times
};

}  // namespace stretto::examples
