#include "examples/text/lm_evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "autograd/profile.h"
#include "examples/common/error.h"
#include "nn/distributed/process_group.h"
#include "nn/models/generation.h"
#include "ops/create.h"

namespace stretto::examples {
namespace {

// Calls f for every token; returns false if `stop` ended the loop.
template <class F>
bool each_until(const std::atomic<bool>& stop, const nn::TokenStream& tokens, F&& f) {
  std::vector<int64_t> block(size_t(std::min<int64_t>(tokens.size(), 1 << 14)));
  for (int64_t begin = 0; begin < tokens.size(); begin += int64_t(block.size())) {
    if (stop) return false;
    const int64_t n = std::min(int64_t(block.size()), tokens.size() - begin);
    tokens.read(begin, n, block.data());
    for (int64_t i = 0; i < n; ++i) f(block[size_t(i)]);
  }
  return true;
}

}  // namespace

Evaluation evaluate(nn::LanguageModel& model, const nn::TokenStream& tokens,
                    const EvaluationOptions& o) {
  const int64_t kept = o.rule.memory;
  const bool same = o.same_length && kept > 0;
  const nn::EvalMode guard(model);
  const nn::LanguageModel::Cache empty{
      .memory =
          nn::MemoryOptions{.length = kept,
                            .clamp = o.clamp,
                            .same_length = same ? nn::SameLength::original : nn::SameLength::off}};
  const Device device = model.device();
  const size_t length = size_t(o.rule.length);
  const double begin = steady_seconds();
  nn::LanguageModel::Cache memory = empty;
  nn::EvaluationReducer sums(2 * length + 1);
  // Losses by position, their counts by position, and the number of visible tokens; empty if
  // another process scores the current batch.
  std::vector<double> here;
  const auto close = [&] {
    if (!here.empty()) sums.add(std::exchange(here, {}));
  };
  const auto score = [&](const nn::Batch& s, bool begins) {
    check_interrupt();
    if (begins) {
      close();
      memory = empty;
      if (sums.next()) here.resize(2 * length + 1);
    }
    if (here.empty()) return;
    std::vector<int64_t> targets = s.targets.to_vector<int64_t>();
    const std::vector<int64_t> with_ignored = targets;
    std::replace(targets.begin(), targets.end(), nn::ignore_index, int64_t(0));
    if (kept == 0) memory = empty;  // absolute positions count from the segment
    const int64_t seen = memory.length(), n = s.inputs.size(1);
    const std::vector<double> losses =
        model.nll(s.inputs.to(device), tensor(targets, s.targets.shape()).to(device), &memory)
            .to_vector<double>();
    for (size_t i = 0; i < losses.size(); ++i) {
      if (with_ignored[i] == nn::ignore_index) continue;
      const int64_t position = int64_t(i) % n, visible = seen + position + 1;
      here[size_t(position)] += losses[i];
      here[length + size_t(position)] += 1;
      here.back() += double(same ? std::min(visible, kept) : visible);
    }
  };
  nn::for_each_evaluation_window(tokens, o.rule, o.batch, score, o.groups);
  close();
  const std::vector<double> total = sums.total();
  Evaluation result{.rule = o.rule};
  for (size_t i = 0; i < length; ++i) {
    result.at.push_back({total[i], int64_t(total[length + i])});
    result.all.loss += result.at[i].loss;
    result.all.tokens += result.at[i].tokens;
  }
  result.context = total.back() / double(result.all.tokens);
  result.seconds = steady_seconds() - begin;
  return result;
}

CountingLoss counting_loss(const nn::TokenStream& train, const nn::TokenStream& valid,
                           int64_t n_tokens, const std::atomic<bool>& stop) {
  TokenCounts counts(n_tokens);
  int64_t before = TokenCounts::none;
  const bool counted = each_until(stop, train, [&](int64_t token) {
    counts.add(before, token);
    before = token;
  });
  CountingLoss sum{};
  before = TokenCounts::none;
  const bool scored = counted && each_until(stop, valid, [&](int64_t token) {
                        counts.score(before, token, sum);
                        before = token;
                      });
  if (!scored) return {NAN, NAN};
  const double n = double(valid.size() - 1);
  return {sum.unigram / n, sum.bigram / n};
}

void CountingInBackground::start(const nn::TokenStream& train, const nn::TokenStream& valid,
                                 int64_t n_tokens) {
  constexpr int64_t at_once = 1 << 24;
  result_ = std::async(
      [this, train, valid, n_tokens] { return counting_loss(train, valid, n_tokens, stop_); });
  if (train.size() + valid.size() <= at_once) result_.wait();
}

std::optional<CountingLoss> CountingInBackground::known() const {
  if (!result_.valid() || result_.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
    return {};
  return result_.get();
}

std::vector<int64_t> write_tokens(nn::LanguageModel& model, const std::vector<int64_t>& prompt,
                                  const WritingOptions& o) {
  const nn::EvalMode guard(model);
  const Device device = model.device();
  const int64_t kept = model.options.memory.length;
  const bool recurrent = kept > 0;
  nn::LanguageModel::Cache memory{.last_logits_only = true, .memory = model.options.memory};
  std::vector<int64_t> seen;
  return nn::generate(
      [&](const Tensor& next) {
        if (recurrent) {
          const int64_t n = next.size(1), most = o.at_once - std::min(o.at_once - 1, kept);
          for (int64_t at = 0; at + most < n; at += most)
            model(next.slice(1, at, at + most).to(device), &memory);
          return model(next.slice(1, (n - 1) / most * most).to(device), &memory);
        }
        for (int64_t token : next.to_vector<int64_t>()) seen.push_back(token);
        if (int64_t(seen.size()) > o.context) seen.erase(seen.begin(), seen.end() - o.context);
        return model(tensor(seen, {1, int64_t(seen.size())}).to(device));
      },
      prompt,
      {.max_tokens = o.tokens,
       .seed = o.seed,
       .sampling = {.temperature = o.temperature, .top_p = o.top_p}},
      [](int64_t) {
        check_interrupt();
        return true;
      });
}

}  // namespace stretto::examples
