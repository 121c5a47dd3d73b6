#include "examples/text/lm_evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <unordered_map>

#include "autograd/tape.h"
#include "examples/common/interrupt.h"
#include "nn/generation.h"
#include "ops/create.h"

namespace stretto::examples {
namespace {

using Lengths = nn::TransformerXL::Lengths;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Other lengths, and no dropout, for a scope.
class Evaluating {
 public:
  Evaluating(nn::TransformerXL& model, Lengths lengths)
      : model_(model), lengths_(model.lengths), training_(model.training()) {
    model_.lengths = lengths;
    model_.eval();
  }
  ~Evaluating() {
    model_.lengths = lengths_;
    model_.train(training_);
  }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  nn::TransformerXL& model_;
  const Lengths lengths_;
  const bool training_;
  NoGrad guard_;
};

}  // namespace

Evaluation evaluate(nn::TransformerXL& model, const std::vector<int32_t>& tokens,
                    const EvaluationOptions& o) {
  const int64_t kept = o.rule.memory;
  const bool same = o.same_length && kept > 0;
  const Evaluating guard(model, {.memory = kept,
                                 .clamp = o.clamp,
                                 .same_length = same ? nn::TransformerXL::SameLength::original
                                                     : nn::TransformerXL::SameLength::off});
  const Device device = model.embedding.weights[0].device();
  Evaluation result{.rule = o.rule, .at = std::vector<LossSum>(size_t(o.rule.length))};
  const double begin = now();
  nn::TransformerXL::Memory memory;
  double context = 0;
  scoring_segments(tokens, o.rule, o.batch, [&](const Segment& s) {
    check_interrupt();
    std::vector<int64_t> targets = s.targets.to_vector<int64_t>();
    const std::vector<int64_t> wanted = targets;
    std::replace(targets.begin(), targets.end(), no_target, int64_t(0));
    const int64_t seen = memory.length(), n = s.inputs.size(1);
    const std::vector<double> losses =
        model
            .nll(s.inputs.to(device), tensor(targets, s.targets.shape()).to(device),
                 kept > 0 ? &memory : nullptr)
            .to_vector<double>();
    for (size_t i = 0; i < losses.size(); ++i) {
      if (wanted[i] == no_target) continue;
      const int64_t position = int64_t(i) % n;
      for (LossSum* sum : {&result.all, &result.at[size_t(position)]}) {
        sum->loss += losses[i];
        ++sum->tokens;
      }
      const int64_t visible = seen + position + 1;
      context += double(same ? std::min(visible, kept) : visible);
    }
  });
  result.context = context / double(result.all.tokens);
  result.seconds = now() - begin;
  return result;
}

CountingLoss counting_loss(const std::vector<int32_t>& train, const std::vector<int32_t>& valid,
                           int64_t n_tokens) {
  const auto pair = [](int32_t a, int32_t b) { return uint64_t(uint32_t(a)) << 32 | uint32_t(b); };
  std::vector<double> count(static_cast<size_t>(n_tokens)), before(count), followers(count);
  std::unordered_map<uint64_t, int64_t> pairs;
  for (size_t i = 0; i < train.size(); ++i) {
    ++count[size_t(train[i])];
    if (i == 0) continue;
    const size_t a = size_t(train[i - 1]);
    ++before[a];
    followers[a] += pairs[pair(train[i - 1], train[i])]++ == 0;
  }
  CountingLoss loss{};
  for (size_t i = 1; i < valid.size(); ++i) {
    const size_t a = size_t(valid[i - 1]), b = size_t(valid[i]);
    const double alone = (count[b] + 1) / (double(train.size()) + double(n_tokens));
    const auto found = pairs.find(pair(valid[i - 1], valid[i]));
    const double together = found == pairs.end() ? 0 : double(found->second);
    const double t = followers[a];
    loss.unigram -= std::log(alone);
    loss.bigram -= std::log(t > 0 ? (together + t * alone) / (before[a] + t) : alone);
  }
  loss.unigram /= double(valid.size() - 1);
  loss.bigram /= double(valid.size() - 1);
  return loss;
}

std::vector<int64_t> write_tokens(nn::TransformerXL& model, const std::vector<int64_t>& prompt,
                                  const WritingOptions& o) {
  const Evaluating guard(model, model.lengths);
  const Device device = model.embedding.weights[0].device();
  const bool recurrent = model.lengths.memory > 0;
  nn::TransformerXL::Memory memory;
  std::vector<int64_t> seen;
  return nn::generate(
      [&](const Tensor& next) {
        if (recurrent) return model.log_probabilities(next.to(device), &memory);
        for (int64_t token : next.to_vector<int64_t>()) seen.push_back(token);
        if (int64_t(seen.size()) > o.context) seen.erase(seen.begin(), seen.end() - o.context);
        return model.log_probabilities(tensor(seen, {1, int64_t(seen.size())}).to(device));
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
