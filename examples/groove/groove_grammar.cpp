#include "examples/groove/groove_grammar.h"

#include "examples/groove/groove_tokens.h"

namespace stretto::examples {

void GrooveGrammar::see(int64_t token) {
  using Kind = GrooveEvent::Kind;
  const GrooveEvent event = groove_event(token);
  shifted_ = event.kind == Kind::time_shift;
  if (shifted_) time_ = event.from(time_);
  if (event.kind != Kind::note_on && event.kind != Kind::note_off) return;
  int64_t& count = sounding_[size_t(event.first)][size_t(event.second)];
  if (event.kind == Kind::note_on) ++count;
  if (event.kind == Kind::note_off && count > 0) --count;
}

bool GrooveGrammar::allows(int64_t token) const {
  using Kind = GrooveEvent::Kind;
  const GrooveEvent event = groove_event(token);
  if (event.kind == Kind::time_shift) {
    const bool again = shifts_ == ShiftRule::as_encoded && !shifted_;
    return event.from(time_) > time_ || (again && event.from(time_) == time_);
  }
  if (event.kind == Kind::note_off) return sounding_[size_t(event.first)][size_t(event.second)] > 0;
  return event.kind != Kind::start;
}

std::vector<int64_t> GrooveGrammar::forbidden() const {
  std::vector<int64_t> tokens;
  for (int64_t token = 0; token < groove_vocabulary; ++token)
    if (!allows(token)) tokens.push_back(token);
  return tokens;
}

}  // namespace stretto::examples
