#include "examples/chorales/baselines.h"

#include <array>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

namespace stretto::examples {
namespace {

// Used instead of a previous symbol: the table that counts all steps, whatever came before.
constexpr int any = -1;

// Silence is 0, the pitches are 1 to 128.
int symbol(const Chorale& chorale, size_t step, size_t voice) {
  const int pitch = chorale.steps[step][voice];
  if (pitch < -1 || pitch > 127)
    throw std::invalid_argument("pitch " + std::to_string(pitch) + " is not in -1 .. 127");
  return pitch + 1;
}

struct Table {
  std::array<double, 129> counts{};
  double total = 0;
};

// Calls f(voice, previous symbol or any, symbol) for every token of voice `first_voice` and of the
// voices below it (higher indices).
template <class F>
void each_token(const std::vector<Chorale>& chorales, int first_voice, const F& f) {
  for (const Chorale& chorale : chorales)
    for (size_t step = 0; step < chorale.steps.size(); ++step)
      for (auto voice = size_t(first_voice); voice < 4; ++voice)
        f(int(voice), step > 0 ? symbol(chorale, step - 1, voice) : any,
          symbol(chorale, step, voice));
}

// Returns the mean loss. Counts in separate tables for each voice if `by_voice`, and for each
// previous symbol if `by_symbol`.
double mean_loss(const std::vector<Chorale>& train, const std::vector<Chorale>& valid,
                 int first_voice, bool by_voice, bool by_symbol) {
  std::map<std::pair<int, int>, Table> tables;  // by voice and symbol
  std::set<int> vocabulary;
  each_token(train, first_voice, [&](int voice, int before, int s) {
    const auto add = [&](int to) {
      Table& table = tables[{by_voice ? voice : 0, to}];
      ++table.counts[size_t(s)];
      ++table.total;
    };
    add(any);
    if (by_symbol && before != any) add(before);
    vocabulary.insert(s);
  });
  double sum = 0, tokens = 0;
  each_token(valid, first_voice, [&](int voice, int before, int s) {
    const Table& table = tables[{by_voice ? voice : 0, by_symbol ? before : any}];
    sum +=
        std::log(table.total + double(vocabulary.size())) - std::log(table.counts[size_t(s)] + 1);
    ++tokens;
  });
  if (vocabulary.empty() || tokens == 0)
    throw std::invalid_argument("a baseline needs steps to count and steps to predict");
  return sum / tokens;
}

}  // namespace

double unigram_loss(const std::vector<Chorale>& train, const std::vector<Chorale>& valid,
                    int first_voice) {
  return mean_loss(train, valid, first_voice, false, false);
}

double voice_unigram_loss(const std::vector<Chorale>& train, const std::vector<Chorale>& valid,
                          int first_voice) {
  return mean_loss(train, valid, first_voice, true, false);
}

double voice_bigram_loss(const std::vector<Chorale>& train, const std::vector<Chorale>& valid,
                         int first_voice) {
  return mean_loss(train, valid, first_voice, true, true);
}

}  // namespace stretto::examples
