// Grammar of groove tokens: which tokens may follow a sequence.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace stretto::examples {

/// The allowed time shifts: shifts that move forward and, with `as_encoded`, also the redundant
/// shifts that to_tokens() writes: if the current tick is not on a beat, a shift of length 0 (to
/// the current tick), unless the last token was a shift. The published sampling forbids redundant
/// shifts (`forward`), although the training data use them whenever two events off the beat are
/// simultaneous. As a result, the notes of its chords do not begin together, and some notes do not
/// end.
enum class ShiftRule { as_encoded, forward };

/// Follows the tokens of a groove (groove_tokens.h) and forbids invalid tokens: the end of a note
/// that does not sound, time shifts against the rule, and a second start token. Everything else is
/// allowed, also the end token, and the start of a note that already sounds, which then sounds
/// twice.
///
/// The published sampling has these rules with ShiftRule::forward, but its clock always begins at
/// 0. Here the clock follows the prompt too, so that the position within the beat is correct.
class GrooveGrammar {
 public:
  explicit GrooveGrammar(ShiftRule shifts = ShiftRule::as_encoded) : shifts_(shifts) {}

  /// Advances by a token. Throws std::invalid_argument for a token outside 0 … 793.
  void see(int64_t token);

  bool allows(int64_t token) const;
  /// Returns all tokens that are not allowed, in ascending order.
  std::vector<int64_t> forbidden() const;

  /// Returns the tick reached by the tokens seen so far.
  int64_t time() const { return time_; }

 private:
  ShiftRule shifts_;
  int64_t time_ = 0;
  bool shifted_ = false;                                // the last token was a time shift
  std::array<std::array<int64_t, 128>, 3> sounding_{};  // number of sounding notes
};

}  // namespace stretto::examples
