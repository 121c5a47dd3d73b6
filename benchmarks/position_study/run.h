// One run of the position study: trains a small model and measures its quality and its costs.
#pragma once

#include <string>

#include "benchmarks/position_study/task.h"
#include "examples/common/options.h"
#include "nn/models/registry.h"

namespace stretto::study {

/// What distinguishes a run from the other runs of a study.
struct Condition {
  std::string task;      ///< TaskInfo::name.
  std::string position;  ///< A name of nn::positions(), or `memory_position`.
  std::string kernel;    ///< A name of nn::kernels().
  int64_t seed = 1;      ///< Of parameters, noise and training batches.
  bool operator==(const Condition&) const = default;
};

/// The position of Transformer-XL, with a memory.
inline const std::string memory_position = "xl-memory";

/// The size of all models.
struct Size {
  int64_t layers = 2;         ///< Number of layers.
  int64_t d_model = 64;       ///< Width.
  int64_t heads = 4;          ///< Attention heads.
  int64_t hidden = 256;       ///< Width of the feed-forward networks.
  int64_t features = 64;      ///< nn::KernelSettings::features.
  int64_t realizations = 32;  ///< nn::PositionSettings::realizations.
};

/// A row of a CSV file: names of columns and texts, in the order of the columns.
using Row = examples::NamedTexts;

/// Returns why a condition cannot be run, as a sentence; empty if it can.
std::string refusal(const Condition& condition, const TaskInfo& task, const Size& size);

/// Returns the columns that identify a run: condition, size and settings of the task.
Row settings_of(const Condition& condition, const TaskInfo& task, const Size& size);

/// Trains and tests a model on the calling thread's threads. Returns settings_of() and the results:
/// first the columns that are the same in every run on the same kind of processor
/// (reproducible_results()), then times and memory. If the library throws an Error, the results are
/// empty except for the column `error`.
Row run(const Condition& condition, const Task& task, const Size& size);

/// Returns the names of all columns that run() adds to settings_of().
const std::vector<std::string>& result_columns();
/// Returns the names of the columns that a second run reproduces to the last digit.
const std::vector<std::string>& reproducible_results();

}  // namespace stretto::study
