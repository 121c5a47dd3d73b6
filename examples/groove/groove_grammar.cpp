#include "examples/groove/groove_grammar.h"

#include "examples/groove/groove_tokens.h"

namespace stretto::examples {

void GrooveGrammar::see(int64_t token) {
  using Kind = GrooveEvent::Kind;
  const GrooveEvent event = groove_event(token);
  if (event.kind == Kind::time_shift) time_ = event.from(time_);
  if (event.kind != Kind::note_on && event.kind != Kind::note_off) return;
  int64_t& count =
      sounding_[static_cast<std::size_t>(event.first)][static_cast<std::size_t>(event.second)];
  if (event.kind == Kind::note_on) ++count;
  if (event.kind == Kind::note_off && count > 0) --count;
}

bool GrooveGrammar::allows(int64_t token) const {
  using Kind = GrooveEvent::Kind;
  const GrooveEvent event = groove_event(token);
  if (event.kind == Kind::time_shift) return event.from(time_) > time_;
  if (event.kind == Kind::note_off)
    return sounding_[static_cast<std::size_t>(event.first)]
                    [static_cast<std::size_t>(event.second)] > 0;
  return event.kind != Kind::start;
}

std::vector<int64_t> GrooveGrammar::forbidden() const {
  std::vector<int64_t> tokens;
  for (int64_t token = 0; token < groove_vocabulary; ++token)
    if (!allows(token)) tokens.push_back(token);
  return tokens;
}

}  // namespace stretto::examples
