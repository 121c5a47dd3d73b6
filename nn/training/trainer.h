// The training loop: steps with a learning rate schedule, gradient clipping and gradient
// accumulation, a progress line, evaluations, metrics, and checkpoints for bit-identical resume.
//
//     nn::AdamW optimizer(model.parameters(), {});
//     nn::Trainer trainer(model, optimizer,
//                         {.steps = 1000,
//                          .schedule = nn::WarmupCosine{.peak = 1e-3, .warmup = 100},
//                          .max_grad_norm = 1,
//                          .folder = "out/melody"});
//     trainer.resume();  // if the folder has a checkpoint
//     trainer.run([&](int64_t i) { return loss_of(batch(i)); },
//                 [&] { return nn::mean_loss(model, held_out); });
//
// A resumed run is bit-identical if batch i is a function of i, or is drawn from the program's
// random state, which checkpoints store. A finished run can be resumed with more steps.
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

/// The result of one training step.
struct StepResult {
  double loss;           ///< Mean over all scored targets of the step's batch.
  double gradient_norm;  ///< L2 norm of the gradient before clipping.
};

/// The result of an evaluation.
struct Evaluation {
  int64_t step;       ///< Number of steps done.
  double train_loss;  ///< Smoothed training loss, as in metrics.csv.
  double validation;  ///< Return value of `validate`; NaN without it.
  bool best;          ///< Lowest validation of the run so far; with keep_best, also across resumes.
};

/// An additional column of metrics.csv.
struct MetricColumn {
  std::string name;               ///< Name in the header, without comma, quote or line break.
  std::function<double()> value;  ///< Called at each evaluation, after `validate`.
};

/// Options of a Trainer.
struct TrainerOptions {
  // Length and optimization
  int64_t steps = 0;   ///< Total steps, including those before a resume; 0: use `minutes`.
  double minutes = 0;  ///< Training time in minutes, if steps is 0.
  /// Replaces the optimizer's learning rate, which must not be set in its options. Unset: it is not
  /// changed.
  std::optional<Schedule> schedule = {};
  /// Gradients are scaled so that their common L2 norm is at most this (clip_grad_norm). Infinite:
  /// no limit fits every model; 1 is usual for Transformers.
  double max_grad_norm = std::numeric_limits<double>::infinity();
  /// Updated after every step and stored in checkpoints (nn/optim/weight_average.h); may be null.
  WeightAverage* average = nullptr;

  // How a step is computed
  /// Number of micro-batches per step, a power of two that divides the rows of the batch. They are
  /// computed one after the other (gradient accumulation) or distributed over the processes that
  /// mpirun has started (data parallelism); results are bit-identical for any number of processes.
  /// Gradients are accumulated in f32 (f64 for f64 parameters). The loss is called once per
  /// micro-batch and must get its batch from stage() or stage_batch(). 0: the checkpoint's number
  /// in a resumed run; otherwise 8 under mpirun and 1 without.
  int64_t micro_batches = 0;
  /// Number of consecutive ranks that share each sequence (sequence parallelism), a power of two
  /// that divides the number of processes and the sequence length. Each of these ranks holds one
  /// chunk of every sequence and only this chunk's activations. The loss must pass
  /// sequence_group() to a causal model in f32 or f64 on the CPU. Losses and gradients equal those
  /// of one process up to rounding. Evaluations use whole sequences.
  int64_t sequence_parallel = 1;
  /// Shards the optimizer state over the processes (ZeRO stage 1), and on the CPU also the
  /// gradients (stage 2): after a step, gradients outside of a rank's shard are zero or undefined.
  bool shard_optimizer = false;
  /// Captures steps on a GPU as CUDA graphs and replays them (nn/training/captured_step.h). The
  /// loss must get its batches from stage(). A loss or gradient that is not finite raises its error
  /// after the update instead of before. One process only.
  bool cuda_graph = false;
  /// With cuda_graph: the graph key of the step with this batch (CapturedStep). Steps with batches
  /// of different shapes need different keys; a step that cannot be captured needs a negative key.
  /// Unset: 0 for all steps.
  std::function<int64_t(int64_t batch)> graph_key = {};

  // Evaluations
  int64_t evaluate_every = 0;  ///< Steps between evaluations; 0: twenty evaluations per run.
  /// Also saves a checkpoint as best.safetensors whenever the validation is the lowest so far.
  bool keep_best = false;
  /// Returns text to print after a validation loss.
  std::function<std::string(double validation)> annotate = {};
  /// Called after an evaluation, when its row is in the metrics; see Trainer::evaluation().
  std::function<void()> after_evaluation = {};
  std::vector<MetricColumn> columns = {};  ///< Additional columns, the last ones of metrics.csv.

  // Files
  /// Directory of metrics.csv and checkpoint.safetensors; "": neither is written. If it holds
  /// another run that was not resumed, run() throws Error. A step can destroy weights and leave them
  /// finite; only the next step fails. checkpoint.previous.safetensors is therefore an earlier
  /// checkpoint, which a successful step had followed.
  std::string folder = {};
  /// Replaces another run in the folder; its files stay until the first checkpoint of this run.
  bool overwrite = false;
  /// Settings that are stored in checkpoints; a run can be resumed only with equal settings.
  Metadata metadata = {};
  int64_t save_every = 0;   ///< Steps between checkpoints; 0: use save_minutes.
  double save_minutes = 5;  ///< Minutes between checkpoints if save_every is 0; 0: only at the end.
  /// False: checkpoints leave out frozen parameters (SaveOptions::frozen).
  bool save_frozen = true;
  std::function<void()> save = {};  ///< Called instead of save(checkpoint_path()).

  // Control and display
  /// Called before every step; true ends the run with a checkpoint from which it can be resumed.
  /// stop_on_signals() (nn/training/stop_signals.h) returns such a function for Ctrl-C and SIGTERM.
  std::function<bool()> stop = {};
  std::function<void(const StepResult&)> after_step = {};  ///< Called after every update.
  double tokens_per_step = 0;  ///< For the displayed speed; 0: no speed is shown.
  bool quiet = false;          ///< True: prints nothing.
};

/// Trains a model. With several processes, all ranks make the same calls, and only rank 0 writes
/// files and shows progress. Before the first step, and again after load(), the trainer compares
/// settings, metadata, parameter groups, trained parameters, weights and random state of all ranks,
/// and throws on each of them if they differ. It cannot compare what the loss computes.
class Trainer {
 public:
  /// `model` and `optimizer` must outlive the Trainer. Throws Error for negative options, and for a
  /// schedule with an optimizer whose options set `lr`.
  Trainer(Module& model, Optimizer& optimizer, TrainerOptions options);
  ~Trainer();
  /// Makes the comparison above, once; run() and step() make it by themselves.
  void check_ranks_agree();

  /// Makes one update with the gradient of `loss`, a mean over the batch of the step. `loss` is
  /// called once per micro-batch; a micro-batch without scored targets has loss 0 and zero
  /// gradients. `progress` is passed to the schedule.
  ///
  /// Throws Error "[train] step 7: …" if the loss or the gradient is not finite or an op fails. In
  /// the first step it also throws if the optimizer has no parameter of the model, or only frozen
  /// ones, and as Optimizer::step() does. After an error, parameters, optimizer with its learning
  /// rate, and random state are unchanged (but see options.cuda_graph).
  StepResult step(const std::function<Tensor()>& loss, double progress);
  /// Makes one update as above, with the progress() of the run.
  StepResult step(const std::function<Tensor()>& loss) { return step(loss, progress()); }

  /// Trains to the end of the run and saves a checkpoint. Returns false if options.stop ended it.
  /// loss(i) returns the loss of batch i, which belongs to step i + 1. It is called once per
  /// micro-batch, and stage() returns the rows of the current one. `validate` returns the
  /// validation loss to log; if it throws, the evaluation is repeated when the run resumes. Throws
  /// Error and changes nothing if the folder holds another run (options.overwrite).
  bool run(const std::function<Tensor(int64_t)>& loss,
           const std::function<double()>& validate = {});

  /// Does the same with batches of `batches`, for example nn::RandomCrops: loss(batches(i)), as
  /// stage_batch() returns it.
  bool run(const std::function<Batch(int64_t)>& batches,
           const std::function<Tensor(const Batch&)>& loss,
           const std::function<double()>& validate = {}) {
    return run([&](int64_t i) { return loss(stage_batch(i, batches)); }, validate);
  }

  /// Returns make(batch) moved to the model's device; for use in the loss. A replayed CUDA graph
  /// calls `make` again with the batch of its step. With micro-batches, the tensors must have one
  /// row per sequence, and the result has the rows of the current micro-batch. `scored` is the
  /// index of the tensor of targets: its elements other than ignore_index determine the weight of
  /// each micro-batch (-1: every row has the same weight).
  Tensors stage(int64_t batch, const std::function<Tensors(int64_t)>& make, int scored = -1) const;
  /// Returns a Batch as stage() does; micro-batches are weighted by their scored targets.
  Batch stage_batch(int64_t batch, const std::function<Batch(int64_t)>& make) const;

  /// Returns the number of micro-batches per step, over all processes.
  int64_t n_micro_batches() const;
  /// Returns this rank's first micro-batch, e.g. to select the rows of a memory that it carries
  /// from step to step.
  int64_t first_micro_batch() const;
  /// Returns the number of micro-batches of this rank.
  int64_t local_micro_batches() const;
  /// Returns the micro-batch whose loss is being computed; 0 without micro-batches.
  int64_t micro_batch() const;
  /// Returns the ranks that share the sequences whose loss is being computed, to be passed to the
  /// model (nn/forward_context.h); null if sequences are whole, as in evaluations.
  ProcessGroup* sequence_group() const;
  /// Returns statistics of the gradient all-reduce.
  Communication communication() const;

  /// Saves a checkpoint (nn/training/checkpoint.h) of the run; `state` may add metadata and
  /// tensors. Throws Error and keeps an older file if a parameter is not finite or writing fails.
  /// If options.steps is set, the elapsed time is not stored, so that equal runs give equal files.
  void save(const std::string& path, TrainingState state = {}) const;
  /// Resumes from a checkpoint of save(), with its learning rate. Throws Error and changes nothing
  /// if the file is anything else, if options.metadata, the schedule (Schedule::text()), lr_scale,
  /// whether groups have an lr_factor, weight decay or the set of trained parameters differ
  /// (load_checkpoint()), or if the number of processes does not divide its number of micro-batches
  /// (with sequence_parallel, times sequence_parallel).
  TrainingState load(const SafetensorsFile& file);
  /// Resumes from the checkpoint at `path`.
  TrainingState load(const std::string& path) { return load(SafetensorsFile(path)); }
  /// Returns true, after load(checkpoint_path()), if that file exists; otherwise false.
  bool resume();

  /// Returns the path of checkpoint.safetensors in options.folder.
  std::string checkpoint_path() const;
  /// Returns the path of best.safetensors in options.folder (options.keep_best).
  std::string best_checkpoint_path() const;
  /// Returns metrics.csv of options.folder, opened by the first call. Columns: step, seconds,
  /// train_loss (smoothed), valid_loss, learning_rate, gradient_norm, tokens_per_second, peak_bytes
  /// (memory_stats of the model's device before the evaluation), and options.columns. run() opens
  /// it by itself. Throws Error if the folder holds another run or the file cannot be opened.
  MetricsCsv& metrics();

  /// Returns the last evaluation, for callbacks; unset before the first one of this program.
  const std::optional<Evaluation>& evaluation() const { return evaluation_; }
  /// Returns the lowest validation of the run; infinity before the first evaluation.
  double best_validation() const { return best_validation_; }

  /// Returns the number of steps done, which is also the batch number of the next step.
  int64_t steps_done() const { return step_; }
  /// Returns the learning rate of the optimizer.
  double learning_rate() const { return optimizer_.learning_rate(); }
  /// Returns the fraction of the run that is done; run() ends at 1.
  double progress() const;
  /// Returns the elapsed time of the run in seconds, including the time before a resume.
  double seconds() const;
  /// Restarts the clock; run() then also counts the time since this call.
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
  void keep_previous();
  std::string other_run() const;
  void check_folder() const;
  void refuse(const std::string& other) const;
  std::string in_folder(const char* name) const;
  void check_finite(const std::string& path) const;
  void save_average(TrainingState& state) const;
  void load_average(TrainingState& state, int64_t updates);

  Module& model_;
  Optimizer& optimizer_;
  mutable std::unique_ptr<TrainingStep> training_step_;  // created on first use
  std::optional<MetricsCsv> metrics_;
  bool metrics_wait_ = false;    // writes metrics.csv.new, until this run replaces another run
  std::string last_checkpoint_;  // path of the last one that was loaded, or that run() has saved
  bool has_stepped_ = false;     // since the last checkpoint
  bool ranks_agree_ = false;     // checked before the first step, and again after load()
  int64_t step_ = 0;
  double earlier_seconds_ = 0;
  std::optional<double> started_;
  double saved_at_ = 0;                    // steady clock, in seconds
  double loss_sum_ = 0, loss_weight_ = 0;  // smoothed loss = loss_sum_ / loss_weight_
  std::optional<Unmeasured> unmeasured_;   // data of the last step, if its evaluation is due
  std::optional<Evaluation> evaluation_;
  double best_validation_ = std::numeric_limits<double>::infinity();
};

}  // namespace stretto::nn
