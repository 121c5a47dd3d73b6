#include "examples/piano/crops.h"

#include <algorithm>

#include "music/infill.h"
#include "music/performance.h"
#include "nn/data/crops.h"
#include "nn/data/draws.h"

namespace stretto::examples {
namespace {

constexpr uint64_t stream = 0x7069616e6full;  // distinct from the model's random numbers

// A random interval by which tokens can be transposed.
int interval(nn::Draws& draws, const music::Tokenizer& tokens, const std::vector<int64_t>& piece,
             int64_t transpose) {
  const auto [down, up] = tokens.transpositions(piece, int(transpose));
  return down + int(draws.below(up - down + 1));
}

// Moves one to four bars to the end; a bar stays before them, and another one begins after them.
// The result has at most `longest` tokens. A crop with fewer than three bars stays as it is.
std::vector<int64_t> with_hole(std::vector<int64_t> crop, const music::Tokenizer& tokens,
                               int64_t longest, nn::Draws& draws) {
  const int64_t kept = longest - music::InfillTokens::count;
  if (int64_t(crop.size()) > kept) crop.resize(size_t(kept));
  const std::vector<int64_t> bars = music::bar_starts(crop, tokens.bar);
  const int64_t n = int64_t(bars.size());
  if (n < 3) return crop;
  const int64_t missing = 1 + draws.below(std::min<int64_t>(4, n - 2));
  const int64_t first = 1 + draws.below(n - 1 - missing);
  return music::infill_sequence(crop, bars[size_t(first)], bars[size_t(first + missing)],
                                music::InfillTokens(tokens.size()));
}

}  // namespace

nn::Batch training_batch(const std::vector<PianoPiece>& pieces, const music::Tokenizer& tokens,
                         const PianoCropOptions& o, uint64_t seed, int64_t step) {
  int64_t total = 0;
  for (const PianoPiece& piece : pieces) total += piece.tokens.size();
  nn::Draws draws(seed ^ stream, step);
  std::vector<std::vector<int64_t>> crops;
  for (int64_t b = 0; b < o.batch; ++b) {
    int64_t at = draws.below(total);
    size_t piece = 0;
    while (at >= pieces[piece].tokens.size()) at -= pieces[piece++].tokens.size();
    const std::vector<int64_t> all = pieces[piece].tokens.read();
    const int64_t n = int64_t(all.size());
    // A higher speed may remove tokens, so a crop is cut with a few more tokens than needed.
    const int64_t needed = o.length + 1 + (o.stretch > 0 ? o.length / 4 : 0);
    int64_t first = std::min(at, std::max<int64_t>(0, n - needed));
    if (o.from_bar) first = tokens.crop_start(all, first);
    std::vector<int64_t> crop(all.begin() + first, all.begin() + std::min(n, first + needed));
    const int semitones = interval(draws, tokens, crop, o.transpose);
    for (int64_t& token : crop) token = tokens.transposed(token, semitones);
    if (o.stretch > 0)
      crop = music::stretched(crop, 1 + 0.01 * double(draws.below(2 * o.stretch + 1) - o.stretch));
    if (o.infill && draws.below(2) == 0)
      crop = with_hole(std::move(crop), tokens, o.length + 1, draws);
    crop.resize(size_t(std::min(int64_t(crop.size()), o.length + 1)));
    crops.push_back(std::move(crop));
  }
  return nn::next_token_batch(crops, o.length, tokens.pad);
}

void transpose_packed(nn::Batch& batch, const music::Tokenizer& tokens, int64_t transpose,
                      uint64_t seed, int64_t step) {
  nn::Draws draws(seed ^ stream, step);
  int64_t* const rows[] = {batch.inputs.data<int64_t>(), batch.targets.data<int64_t>()};
  const int64_t* const segments = batch.segments.data<int64_t>();
  const int64_t n = batch.inputs.numel(), length = batch.inputs.size(1);
  for (int64_t begin = 0, end; begin < n; begin = end) {
    for (end = begin + 1; end < n && end % length != 0 && segments[end] == segments[begin];) ++end;
    std::vector<int64_t> piece;
    const auto each = [&](auto f) {
      for (int64_t* row : rows)
        for (int64_t i = begin; i < end; ++i)
          if (row[i] != nn::ignore_index) f(row[i]);
    };
    each([&](int64_t token) { piece.push_back(token); });
    const int semitones = interval(draws, tokens, piece, transpose);
    each([&](int64_t& token) { token = tokens.transposed(token, semitones); });
  }
}

std::vector<PianoWindow> windows(const std::vector<PianoPiece>& pieces,
                                 const music::Tokenizer& tokens, int64_t length, int64_t most) {
  std::vector<PianoWindow> all;
  for (const PianoPiece& piece : pieces) {
    const std::vector<int64_t> ids = piece.tokens.read();
    for (int64_t at = 0; at + length + 1 <= int64_t(ids.size());) {
      all.push_back({&piece, at});
      const int64_t next = tokens.crop_start(ids, at + length);
      at = next > at ? next : at + length;
    }
  }
  if (most <= 0 || int64_t(all.size()) <= most) return all;
  std::vector<PianoWindow> some;
  for (int64_t i = 0; i < most; ++i) some.push_back(all[size_t(i * int64_t(all.size()) / most)]);
  return some;
}

nn::Batch window_batch(const std::vector<PianoWindow>& all, int64_t first, int64_t count,
                       int64_t length) {
  std::vector<std::vector<int64_t>> rows;
  for (int64_t i = first; i < first + count; ++i)
    rows.push_back(all[size_t(i)].piece->tokens.read(all[size_t(i)].start, length + 1));
  return nn::next_token_batch(rows);
}

}  // namespace stretto::examples
