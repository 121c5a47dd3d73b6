#include "examples/lra/lra_training.h"

#include <algorithm>

#include "examples/common/interrupt.h"
#include "examples/common/settings.h"
#include "examples/lra/image.h"
#include "examples/lra/text.h"
#include "nn/distributed/process_group.h"
#include "nn/training/evaluate.h"
#include "ops/loss.h"
#include "ops/reduce.h"

namespace stretto::examples {
namespace {

LabelledSequences read_task(const LraSettings& s, const std::string& path) {
  if (s.task == "image") return read_images(path);
  if (s.task == "text") return read_reviews(path, s.max_length);
  if (s.task == "retrieval") return read_text_pairs(path, s.max_length);
  LabelledSequences data = listops_sequences(read_listops(path), s.strip_brackets);
  const int64_t longest = data.sequences.longest();
  require(longest <= s.max_length, path + ": an expression has " + as_text(longest) +
                                       " tokens, more than --max-length " + as_text(s.max_length));
  return data;
}

LraData generated(const LraSettings& s) {
  require(s.max_expression <= s.max_length + 1, "--max-expression " + as_text(s.max_expression) +
                                                    ": --max-length " + as_text(s.max_length) +
                                                    " is too short for it");
  LraData data;
  const int64_t n = s.expressions, held = s.held_out_expressions;
  data.generated = generate_listops(s.seed, n + 2 * held, s.listops()).expressions;
  const LabelledSequences all = listops_sequences(data.generated, s.strip_brackets);
  data.train = all.part(0, n);
  data.valid = all.part(n, held);
  data.test = all.part(n + held, held);
  return data;
}

Tensor logits(const nn::SequenceClassifier& model, const SequenceBatch& batch) {
  const Device device = model.device();
  const nn::Sequences x(batch.tokens.to(device), batch.padding.to(device));
  if (!batch.others.defined()) return model(x);
  return model(x, {batch.others.to(device), batch.others_padding.to(device)});
}

}  // namespace

LraData read_lra_data(const LraSettings& s, const LraFiles& files) {
  if (files.data.empty()) {
    require(s.task == "listops", "--task " + s.task + ": needs --data FILE");
    require(files.validation.empty() && files.test.empty(),
            std::string(files.validation.empty() ? "--test" : "--validation") +
                ": goes with --data FILE");
    return generated(s);
  }
  LraData data;
  data.train = read_task(s, files.data);
  if (files.validation.empty()) {
    const int64_t n = data.train.size(), kept = n - int64_t(s.held_out * double(n));
    require(kept >= 1 && kept < n, files.data + ": " + as_text(n) +
                                       (n == 1 ? " example is" : " examples are") +
                                       " too few to hold out " + as_text(s.held_out) + " of");
    const HeldOutRows rows = hold_out(data.train.labels, s.held_out, s.seed);
    data.valid = data.train.rows(rows.held);
    data.train = data.train.rows(rows.kept);
  } else {
    data.valid = read_task(s, files.validation);
  }
  if (!files.test.empty()) data.test = read_task(s, files.test);
  return data;
}

LraScore evaluate(nn::SequenceClassifier& model, const LabelledSequences& data,
                  const LraSettings& settings, int64_t most) {
  const nn::EvalMode guard(model);
  const std::vector<int64_t> sample = sample_rows(data.size(), most, settings.seed);
  const auto n = int64_t(sample.size());
  nn::BatchSums sums(2);
  for (int64_t at = 0; at < n; at += settings.batch) {
    check_interrupt();
    if (!sums.next()) continue;
    const auto begin = sample.begin() + at;
    const std::vector<int64_t> rows(begin, begin + std::min(settings.batch, n - at));
    const SequenceBatch batch = make_batch(data, rows, settings.padded_length());
    const Tensor y = logits(model, batch);
    const double loss =
        cross_entropy(y, batch.labels.to(y.device()), {.reduction = Reduction::sum}).item();
    const std::vector<int64_t> answers = argmax(y, 1).to_vector<int64_t>();
    int64_t correct = 0;
    for (size_t i = 0; i < rows.size(); ++i) correct += answers[i] == data.labels[size_t(rows[i])];
    sums.add({loss / double(n), double(correct)});
  }
  const std::vector<double> total = sums.total();
  LraScore score;
  score.loss = total[0];
  score.accuracy.correct = int64_t(total[1]);
  score.accuracy.total = n;
  return score;
}

LraTraining::LraTraining(const LraSettings& s, LabelledSequences train, Device device)
    : ModelTraining(
          s, s.model(), adamw_of(s),
          {train.fingerprint(), "examples than those of --data (or of --seed without it)"}, device,
          [s](int64_t step, double progress) { return s.rate(step - 1, progress); }, 0),
      train_(std::move(train)),
      order_(train_.size(), s.batch, shuffles(train_.size(), s.seed)) {
  trainer.options.step_kind = [this](int64_t batch) {  // by its lengths
    if (settings.padded_length() > 0) return int64_t(0);
    const std::vector<int64_t> rows = order_(batch);
    return longest_of(train_.sequences, rows) << 32 |
           (train_.pairs() ? longest_of(train_.others, rows) : 0);
  };
}

Tensor LraTraining::loss(int64_t step) {
  const bool pairs = train_.pairs();
  const Tensors b = trainer.fed(step, [this, pairs](int64_t i) {
    const SequenceBatch made = make_batch(train_, order_(i), settings.padded_length());
    trainer.options.tokens_per_step =
        double(made.tokens.numel() + (pairs ? made.others.numel() : 0));
    Tensors all{made.tokens, made.padding, made.labels};
    if (pairs) all.insert(all.end(), {made.others, made.others_padding});
    return all;
  });
  SequenceBatch batch{.tokens = b[0], .padding = b[1], .labels = b[2]};
  if (pairs) batch.others = b[3], batch.others_padding = b[4];
  return cross_entropy(logits(model, batch), batch.labels);
}

}  // namespace stretto::examples
