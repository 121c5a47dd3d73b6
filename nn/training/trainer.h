// The training loop: steps with a schedule, clipping and micro-batches, a progress line,
// evaluations and metrics, and checkpoints from which a run goes on bit for bit.
//
//     nn::AdamW optimizer(model.parameters(), {});
//     nn::Trainer trainer(model, optimizer,
//                         {.steps = 1000,
//                          .schedule = nn::WarmupCosine{.peak = 1e-3, .warmup = 100},
//                          .max_grad_norm = 1,
//                          .folder = "out/melody"});
//     trainer.resume();  // where the folder has a checkpoint
//     trainer.run([&](int64_t i) { return loss_of(batch(i)); },
//                 [&] { return nn::mean_loss(model, held_out); });
//
// A run goes on bit for bit where batch i is a function of i, or is drawn from the program's random
// state, which checkpoints hold. A finished run goes on where a program gives it more steps.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../data/batch.h"
#include "../distributed/gradient_reducer.h"
#include "../module.h"
#include "../optim/optim.h"
#include "../optim/schedule.h"
#include "checkpoint.h"
#include "metrics.h"

namespace stretto::nn {

class Progress;
class TrainingStep;
class WeightAverage;

struct StepResult {
  double loss;           ///< mean over all that the step's micro-batches score
  double gradient_norm;  ///< before clipping
};

/// What an evaluation has found.
struct Evaluation {
  int64_t step;
  double train_loss;  ///< smoothed, as in metrics.csv
  double validation;  ///< what `validate` returned; NaN without it
  bool best;  ///< the least validation of the run so far; with keep_best before a resume too
};

/// A column of one's own in metrics.csv; `value` is called after `validate`, at each evaluation.
struct MetricColumn {
  std::string name;
  std::function<double()> value;
};

struct TrainerOptions {
  int64_t steps = 0;                      // in all, those of a resumed run too; 0: `minutes` decide
  double minutes = 0;                     // how long to train, where steps is 0
  std::optional<Schedule> schedule = {};  // unset: the optimiser's learning rate is left alone
  double max_grad_norm = std::numeric_limits<double>::infinity();  // largest norm of the gradient
  /// Micro-batches that a step's batch is cut into, a power of two that divides its rows: they are
  /// computed one after the other (gradient accumulation), or shared out to the processes that
  /// mpirun has started, with the same bits for any number of processes. Their gradients add up in
  /// f32 at least (nn/distributed/gradient_reducer.h). The loss is called for each, and must take
  /// its batch from stage() or stage_batch(). 0: the checkpoint's of a run that goes on, else 8
  /// under mpirun and else 1.
  int64_t micro_batches = 0;
  /// So many neighbouring processes share the sequences of their micro-batches, each with a piece
  /// of every one and what its layers keep of it: a power of two that divides their number, and the
  /// length. The loss passes sequence_group() to the model. Losses and gradients are those of one
  /// process within rounding. The loss must be one of a causal model, of f32 or f64 on the CPU.
  /// Evaluations have sequences whole.
  int64_t sequence_parallel = 1;
  /// Each process keeps its share of the optimiser's state, and on a CPU of the gradients: after a
  /// step the others are zero, or not there.
  bool shard_optimizer = false;
  int64_t evaluate_every = 0;  // steps between evaluations; 0: twenty in all
  int64_t save_every = 0;      ///< steps between checkpoints; 0: save_minutes decides
  /// For metrics.csv and checkpoint.safetensors; "": neither is written. A folder that holds
  /// another run, which was not resumed, is refused.
  std::string folder = {};
  Metadata metadata = {};  // settings that checkpoints keep; a run goes on with equal ones alone
  /// Steps on a GPU are captured and replayed (nn/training/captured_step.h): the loss must take its
  /// batches from stage(). What is not finite is noticed after the step, not before. In one
  /// process.
  bool cuda_graph = false;
  /// There: the kind of the step that begins with this batch (CapturedStep); unset: all are of one.
  /// Batches of other shapes are of another kind, what cannot be captured of a negative one.
  std::function<int64_t(int64_t batch)> graph_key = {};
  double tokens_per_step = 0;  // for the speed that is shown; 0: it is not
  bool quiet = false;          // no progress line
  /// Asked before every step; true ends the run with a checkpoint, from which it can go on.
  /// stop_on_signals() (nn/training/stop_signals.h) is one that Ctrl-C and SIGTERM make true.
  std::function<bool()> stop = {};
  std::function<void()> save = {};  // in place of save(checkpoint_path())
  std::function<void(const StepResult&)> after_step = {};
  std::function<std::string(double validation)> annotate = {};  // told behind a validation loss
  std::function<void()> after_evaluation = {};  // when its row is in the metrics; see evaluation()
  /// Replaces another run in the folder. That stays whole until the first checkpoint of this one.
  bool overwrite = false;
  double save_minutes = 5;  ///< between checkpoints, where save_every is 0; 0: at the end only
  /// Saves a checkpoint of the least validation so far as best.safetensors in the folder.
  bool keep_best = false;
  std::vector<MetricColumn> columns = {};  ///< of one's own, behind the others in metrics.csv
  /// Updated after every step, and part of checkpoints (nn/optim/weight_average.h).
  WeightAverage* average = nullptr;
};

/// Model and optimiser must outlive it. Of several processes, which all make the same calls, the
/// first alone writes files and shows progress.
class Trainer {
 public:
  Trainer(Module& model, Optimizer& optimizer, TrainerOptions options);
  ~Trainer();

  /// One update by the gradient of `loss`, a mean over the step's batch; it is called for each of
  /// its micro-batches. One that scores nothing has loss 0 and a gradient of zeros. Throws Error
  /// "[train] step 7: …" where loss or gradient is not finite or an op fails, and in the first step
  /// where a gradient reaches a parameter that neither the model nor any optimizer has, by module
  /// and shape; parameters and optimiser are as before then. `progress` is for the schedule; the
  /// other form takes the run's own.
  StepResult step(const std::function<Tensor()>& loss, double progress);
  StepResult step(const std::function<Tensor()>& loss) { return step(loss, progress()); }

  /// Trains to the end, and saves. loss(i) returns the loss of batch i, the batch of step i + 1;
  /// with micro-batches it is called once for each, and stage() returns the rows of the current
  /// one. `validate` returns the validation loss. Returns false if options.stop ended the run.
  /// Where `validate` throws, its evaluation is made up for when the run goes on. Throws Error, and
  /// changes nothing, where the folder has another run (options.overwrite).
  bool run(const std::function<Tensor(int64_t)>& loss,
           const std::function<double()>& validate = {});

  /// make(batch) on the model's device, for a loss of this batch: in a step that is replayed it is
  /// called with the number of its batch. With micro-batches, the rows of the one whose loss is
  /// computed: the tensors have a row for each sequence, and `scored` says which of them is
  /// ignore_index where nothing is to be predicted (-1: none, and each row counts as one).
  Tensors stage(int64_t batch, const std::function<Tensors(int64_t)>& make, int scored = -1) const;
  Batch stage_batch(int64_t batch, const std::function<Batch(int64_t)>& make) const;

  /// How many micro-batches a step has, and which of them are this process's: of what a program
  /// keeps for each row from step to step.
  int64_t n_micro_batches() const;
  int64_t first_micro_batch() const;
  int64_t local_micro_batches() const;
  /// The micro-batch whose loss is computed; 0 where there is one.
  int64_t micro_batch() const;
  /// The processes that share the sequences whose loss is computed, for its model
  /// (nn/forward_context.h); null if sequences are whole, as they are in evaluations.
  ProcessGroup* sequence_group() const;
  Communication communication() const;

  /// A checkpoint (nn/training/checkpoint.h) with the run's own notes; `state` may have more notes,
  /// and tensors. Throws Error, and leaves an older file as it is, where a parameter is not finite
  /// or writing fails. Where the steps are counted the clock is left out, so that equal runs give
  /// equal files.
  void save(const std::string& path, TrainingState state = {}) const;
  /// Goes on from such a file, with its learning rate: another one, or a schedule, is set after it.
  /// Throws Error, and changes nothing, for any other file, and where one of options.metadata or
  /// the set of trained parameters is another there.
  TrainingState load(const std::string& path);
  /// load(checkpoint_path()) where that file is there, which it tells.
  bool resume();

  std::string checkpoint_path() const;
  /// Of options.keep_best.
  std::string best_checkpoint_path() const;
  /// The metrics of options.folder: step, seconds, train_loss (smoothed), valid_loss,
  /// learning_rate, gradient_norm, tokens_per_second, peak_bytes (memory_stats of the model's
  /// device, before the evaluation), and options.columns. run() opens them by itself. Throws as
  /// that does.
  MetricsCsv& metrics();

  /// The last evaluation, for callbacks; none before the first of this program.
  const std::optional<Evaluation>& evaluation() const { return evaluation_; }
  /// The least validation of the run; infinity before the first.
  double best_validation() const { return best_validation_; }

  /// Also the number of the next step's batch.
  int64_t steps_done() const { return step_; }
  double learning_rate() const { return optimizer_.learning_rate(); }
  /// The share of the run that is done; from 1 on run() ends.
  double progress() const;
  /// Taken by the run so far, the parts before a checkpoint too.
  double seconds() const;
  /// Restarts the clock: run() counts what comes before it as well then.
  void start_clock();

  /// May change between steps, except for cuda_graph, micro_batches, sequence_parallel and
  /// shard_optimizer, which are read once, before the first step.
  TrainerOptions options;

 private:
  struct Unmeasured {
    double gradient_norm, learning_rate;
  };
  TrainingStep& training_step() const;
  StepResult take_step(const std::function<Tensor(int64_t)>& loss, double progress);
  struct Agreed {
    double progress;
    bool stop, save;
  };
  Agreed agreed() const;
  bool save_is_due() const;
  bool evaluation_is_due(double before, double after) const;
  void measure(const std::function<double()>& validate, Progress* bar, double speed);
  void judge(double loss, double validation);
  void save_checkpoint();
  std::string other_run() const;
  void check_folder() const;
  void refuse(const std::string& other) const;
  std::string in_folder(const char* name) const;
  void check_finite(const std::string& path) const;
  void save_average(TrainingState& state) const;
  void load_average(TrainingState& state, int64_t updates);

  Module& model_;
  Optimizer& optimizer_;
  mutable std::unique_ptr<TrainingStep> training_step_;  // made when it is first used
  std::optional<MetricsCsv> metrics_;
  bool metrics_wait_ = false;  // beside those of the run that is replaced
  std::string resumed_;        // the file
  int64_t step_ = 0;
  double earlier_seconds_ = 0;
  std::optional<double> started_;
  double saved_at_ = 0;                    // on the clock
  double loss_sum_ = 0, loss_weight_ = 0;  // of the loss as it is shown, smoothed
  std::optional<Unmeasured> unmeasured_;   // of the last step: its evaluation is to come
  std::optional<Evaluation> evaluation_;
  double best_validation_ = std::numeric_limits<double>::infinity();
};

}  // namespace stretto::nn
