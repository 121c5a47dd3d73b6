// Which tokens may follow what has been written of a groove.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace stretto::examples {

/// Time shifts that may come: those that lead forward, and as to_tokens() writes them also the
/// redundant one, to the present tick off the beat, after anything but a shift. The published
/// sampling forbids that one, and with it the only way in which the training data say that two
/// things happen at once off the beat: chords fall apart there, and notes do not end.
enum class ShiftRule { as_encoded, forward };

/// Follows the tokens of a groove (groove_tokens.h) and forbids what makes no sense after them: the
/// end of a note that does not sound, time shifts against the rule, and a second start. All else
/// may come: the end, and a note that sounds already, which then sounds twice.
///
/// The published sampling has these rules, with ShiftRule::forward, but its clock begins at 0
/// whatever the prompt; here the prompt is followed too, so that the phase within the beat is the
/// true one.
class GrooveGrammar {
 public:
  explicit GrooveGrammar(ShiftRule shifts = ShiftRule::as_encoded) : shifts_(shifts) {}

  /// Throws std::invalid_argument for a token outside 0 … 793.
  void see(int64_t token);

  bool allows(int64_t token) const;
  /// All the tokens that are not allowed, in rising order.
  std::vector<int64_t> forbidden() const;

  /// The tick that the tokens seen so far lead to.
  int64_t time() const { return time_; }

 private:
  ShiftRule shifts_;
  int64_t time_ = 0;
  bool shifted_ = false;                                // by the last token
  std::array<std::array<int64_t, 128>, 3> sounding_{};  // how many times
};

}  // namespace stretto::examples
