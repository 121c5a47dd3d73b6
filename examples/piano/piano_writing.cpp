#include "examples/piano/piano_writing.h"

#include "examples/midi/music_sampling.h"

namespace stretto::examples {

std::vector<int64_t> write_piano(nn::LanguageModel& model, const music::Tokenizer& tokens,
                                 const std::vector<int64_t>& prompt, const PianoWritingOptions& o) {
  const auto grammar = tokens.grammar();
  int64_t bars = 0;
  const auto see = [&](int64_t token) {
    grammar->see(token);
    bars += token == tokens.bar;
  };
  const std::vector<int64_t> given = prompt.empty() ? std::vector<int64_t>{tokens.first} : prompt;
  for (const int64_t token : given) see(token);
  const int64_t ids = model.options.vocabulary;
  return sample_music(model, given,
                      {.tokens = o.tokens,
                       .end = tokens.end,
                       .forbidden =
                           [&] {
                             std::vector<int64_t> forbidden;
                             if (o.grammar) forbidden = grammar->forbidden();
                             forbidden.push_back(tokens.pad);
                             for (int64_t id = tokens.size(); id < ids; ++id)
                               forbidden.push_back(id);
                             return forbidden;
                           },
                       .see = see,
                       .more = [&] { return tokens.bar < 0 || o.bars == 0 || bars <= o.bars; },
                       .sampling = o.sampling,
                       .seed = o.seed,
                       .limit = o.limit});
}

}  // namespace stretto::examples
