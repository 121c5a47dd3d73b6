// The tasks of the position study: what a model is trained on and tested with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/data/batch.h"
#include "nn/data/token_stream.h"

namespace stretto::study {

/// The settings of a task, which do not depend on its data.
struct TaskInfo {
  std::string name;         ///< Name on the command line and of the CSV file.
  std::string title;        ///< Name in tables.
  std::string file;         ///< File in the data folder; empty: the data are generated.
  int64_t vocabulary = 0;   ///< Number of tokens.
  int64_t length = 0;       ///< Trained length L; tests have lengths L, 2 · L and 4 · L.
  int64_t batch = 0;        ///< Sequences per training step.
  int64_t steps = 0;        ///< Training steps.
  double lr = 0;            ///< Peak learning rate.
  bool classifies = false;  ///< One class per sequence, bidirectional attention, padding.
  bool accuracy = false;    ///< The measure is the accuracy; otherwise bits per token.
  bool stream = false;      ///< Task::stream() returns the training tokens.
};

/// The data of a task.
class Task {
 public:
  explicit Task(TaskInfo task_info) : info(std::move(task_info)) {}
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  /// Returns training batch `step`, which depends only on seed and step.
  virtual nn::Batch training(uint64_t seed, int64_t step) const = 0;
  /// Returns the batches for testing at `factor` (1, 2 or 4) times the trained length. All factors
  /// score the same tokens or sequences, except for generated data.
  virtual std::vector<nn::Batch> held_out(int64_t factor) const = 0;
  /// Returns all training tokens in their order, for models with a memory.
  virtual nn::TokenStream stream() const { return {}; }
  /// Returns a digest that identifies the data.
  std::string fingerprint() const;

  const TaskInfo info;
};

/// Returns the settings of all tasks, in the order in which they are run.
const std::vector<TaskInfo>& tasks();
/// Returns true if the data folder has the file of the task, or the task needs none.
bool has_data(const TaskInfo& info, const std::string& folder);
/// Reads or generates the data of a task. Throws examples::UsageError for files that cannot be read.
std::unique_ptr<Task> load(const TaskInfo& info, const std::string& folder);

}  // namespace stretto::study
