#include "examples/chorales/baselines.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <set>
#include <stdexcept>

namespace stretto::examples {
namespace {

constexpr std::size_t kSymbols = 129;  // silence and the pitches 0 to 127

std::size_t symbol(const Chorale& chorale, std::size_t step, std::size_t voice) {
  const int pitch = chorale.steps[step][voice];
  if (pitch < -1 || pitch > 127) {
    throw std::invalid_argument("pitch " + std::to_string(pitch) + " is not in -1 .. 127");
  }
  return static_cast<std::size_t>(pitch + 1);
}

/// Counts of symbols, smoothed by one.
class Table {
 public:
  void add(std::size_t s) {
    ++counts_[s];
    ++total_;
  }
  /// Negative log-probability of `s` among `vocabulary` symbols, in nats.
  double loss(std::size_t s, std::size_t vocabulary) const {
    return std::log(total_ + static_cast<double>(vocabulary)) - std::log(counts_[s] + 1);
  }

 private:
  std::array<double, kSymbols> counts_{};
  double total_ = 0;
};

/// Calls visit(chorale, step, voice) for every token of the voices from `first_voice` down.
template <typename Visit>
void for_each_token(const std::vector<Chorale>& chorales, int first_voice, const Visit& visit) {
  for (const Chorale& chorale : chorales) {
    for (std::size_t step = 0; step < chorale.steps.size(); ++step) {
      for (auto voice = static_cast<std::size_t>(first_voice); voice < 4; ++voice)
        visit(chorale, step, voice);
    }
  }
}

/// The mean loss of `valid` when table_of(chorale, step, voice) says which of `tables` tables a
/// token belongs to; `tables` itself or more means the table of the voice over all steps.
template <typename TableOf>
double mean_loss(const std::vector<Chorale>& train, const std::vector<Chorale>& valid,
                 int first_voice, std::size_t tables, const TableOf& table_of) {
  std::vector<Table> counts(tables);
  std::array<Table, 4> voices;
  std::set<std::size_t> vocabulary;
  for_each_token(train, first_voice,
                 [&](const Chorale& chorale, std::size_t step, std::size_t voice) {
                   const std::size_t s = symbol(chorale, step, voice);
                   const std::size_t table = table_of(chorale, step, voice);
                   if (table < tables) counts[table].add(s);
                   voices[voice].add(s);
                   vocabulary.insert(s);
                 });
  double sum = 0;
  double tokens = 0;
  for_each_token(valid, first_voice,
                 [&](const Chorale& chorale, std::size_t step, std::size_t voice) {
                   const std::size_t table = table_of(chorale, step, voice);
                   const Table& chosen = table < tables ? counts[table] : voices[voice];
                   sum += chosen.loss(symbol(chorale, step, voice), vocabulary.size());
                   tokens += 1;
                 });
  if (vocabulary.empty() || tokens == 0) {
    throw std::invalid_argument("a baseline needs steps to count and steps to predict");
  }
  return sum / tokens;
}

}  // namespace

double unigram_loss(const std::vector<Chorale>& train, const std::vector<Chorale>& valid,
                    int first_voice) {
  return mean_loss(train, valid, first_voice, 1,
                   [](const Chorale&, std::size_t, std::size_t) { return std::size_t{0}; });
}

double voice_unigram_loss(const std::vector<Chorale>& train, const std::vector<Chorale>& valid,
                          int first_voice) {
  return mean_loss(train, valid, first_voice, 4,
                   [](const Chorale&, std::size_t, std::size_t voice) { return voice; });
}

double voice_bigram_loss(const std::vector<Chorale>& train, const std::vector<Chorale>& valid,
                         int first_voice) {
  constexpr std::size_t kTables = 4 * kSymbols;
  return mean_loss(train, valid, first_voice, kTables,
                   [](const Chorale& chorale, std::size_t step, std::size_t voice) {
                     if (step == 0) return kTables;
                     return voice * kSymbols + symbol(chorale, step - 1, voice);
                   });
}

}  // namespace stretto::examples
