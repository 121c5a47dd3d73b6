#include "examples/piano/infilling.h"

#include <algorithm>

#include "examples/common/error.h"
#include "examples/midi/music_sampling.h"
#include "music/infill.h"
#include "nn/data/crops.h"
#include "nn/training/evaluate.h"
#include "ops/loss.h"

namespace stretto::examples {
namespace {

constexpr size_t n_bars = 12, gap_begin = 4, gap_end = 8;

std::vector<int64_t> part(const std::vector<int64_t>& tokens, int64_t first, int64_t last) {
  return {tokens.begin() + first, tokens.begin() + last};
}

}  // namespace

std::vector<int64_t> InfillPiece::with_bars(const std::vector<int64_t>& bars) const {
  std::vector<int64_t> all = part(tokens, 0, first);
  all.insert(all.end(), bars.begin(), bars.end());
  all.insert(all.end(), tokens.begin() + last, tokens.end());
  return all;
}

std::vector<InfillPiece> infill_pieces(const std::vector<PianoPiece>& pieces,
                                       const music::Tokenizer& tokens, int64_t length,
                                       int64_t most) {
  std::vector<InfillPiece> all;
  for (const PianoPiece& piece : pieces) {
    const std::vector<int64_t> ids = piece.tokens.read();
    const std::vector<int64_t> bars = music::bar_starts(ids, tokens.bar);
    for (size_t at = 0; at + n_bars < bars.size(); at += n_bars) {
      const int64_t begin = bars[at], end = bars[at + n_bars];
      if (end - begin + music::InfillTokens::count > length + 1) continue;
      all.push_back({piece.name, part(ids, begin, end), bars[at + gap_begin] - begin,
                     bars[at + gap_end] - begin});
    }
  }
  if (int64_t(all.size()) <= most) return all;
  std::vector<InfillPiece> some;
  for (int64_t i = 0; i < most; ++i) some.push_back(all[size_t(i * int64_t(all.size()) / most)]);
  return some;
}

double infill_loss(nn::LanguageModel& model, const std::vector<InfillPiece>& pieces,
                   const music::Tokenizer& tokens, bool after, int64_t batch) {
  const nn::EvalMode guard(model);
  const music::InfillTokens ids(tokens.size());
  double sum = 0, scored = 0;
  for (size_t at = 0; at < pieces.size(); at += size_t(batch)) {
    check_interrupt();
    std::vector<std::vector<int64_t>> rows;
    std::vector<int64_t> begins;  // of the scored tokens, which are the last ones of a row
    for (size_t i = at; i < std::min(pieces.size(), at + size_t(batch)); ++i) {
      const InfillPiece& piece = pieces[i];
      std::vector<int64_t> row =
          after ? music::infill_sequence(piece.tokens, piece.first, piece.last, ids)
                : part(piece.tokens, 0, piece.last);
      if (after) row.pop_back();  // the end of the bars is not scored, as without `after`
      begins.push_back(int64_t(row.size()) - (piece.last - piece.first));
      rows.push_back(std::move(row));
    }
    nn::Batch b = nn::next_token_batch(rows, 0, tokens.pad);
    const int64_t length = b.targets.size(1);
    for (size_t i = 0; i < begins.size(); ++i)
      for (int64_t j = 0; j + 1 < begins[i]; ++j)
        b.targets.data<int64_t>()[int64_t(i) * length + j] = nn::ignore_index;
    double n = 0;
    for (const int64_t target : b.targets.to_vector<int64_t>()) n += target != nn::ignore_index;
    b = b.to(model.device());
    sum += n * cross_entropy(model(b.inputs), b.targets, {.ignore_index = nn::ignore_index})
                   .item<double>();
    scored += n;
  }
  return sum / scored;
}

std::vector<int64_t> write_infill(nn::LanguageModel& model, const music::Tokenizer& tokens,
                                  const InfillPiece& piece, int64_t length,
                                  const PianoWritingOptions& o) {
  const music::InfillTokens ids(tokens.size());
  std::vector<int64_t> prompt =
      music::infill_prompt(part(piece.tokens, 0, piece.first),
                           part(piece.tokens, piece.last, int64_t(piece.tokens.size())), ids);
  prompt.push_back(tokens.bar);  // the bars begin with a bar
  const size_t given = prompt.size() - 1;
  int64_t bars = 1;
  const auto grammar = tokens.grammar();
  for (const int64_t token : part(piece.tokens, 0, piece.first)) grammar->see(token);
  grammar->see(tokens.bar);
  const std::vector<int64_t> all = sample_music(
      model, prompt,
      {.tokens = length + 1 - int64_t(prompt.size()),
       .end = ids.end,
       .forbidden =
           [&] {
             std::vector<int64_t> forbidden;
             if (o.grammar) forbidden = grammar->forbidden();
             const bool incomplete =  // a note, or a bar without its meter
                 std::find(forbidden.begin(), forbidden.end(), tokens.bar) != forbidden.end();
             const bool last = bars == int64_t(gap_end - gap_begin);
             forbidden.insert(forbidden.end(), {tokens.pad, tokens.end, ids.hole, ids.fill});
             if (incomplete || !last) forbidden.push_back(ids.end);
             if (last) forbidden.push_back(tokens.bar);
             return forbidden;
           },
       .see =
           [&](int64_t token) {
             if (token == ids.end) return;
             grammar->see(token);
             bars += token == tokens.bar;
           },
       .sampling = o.sampling,
       .seed = o.seed,
       .limit = o.limit});
  std::vector<int64_t> filled(all.begin() + int64_t(given), all.end());
  if (!filled.empty() && filled.back() == ids.end) filled.pop_back();
  return filled;
}

}  // namespace stretto::examples
