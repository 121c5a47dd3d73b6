#include "examples/training/run_options.h"

namespace stretto::examples {

void RunOptions::declare(OptionList& options) {
  given = [&options](const std::string& option) { return options.given(option); };
  all = &options;
  options.path("out", out, "Folder for all results", "DIR=" + out);
  options.path("resume", resume, "Resume from a checkpoint, with its settings", "FILE");
  options("overwrite", overwrite,
          "Replace an earlier run in --out (when the first checkpoint of this one is written), and "
          "files that were not made by a run");
  options("minutes", minutes,
          "Training time in minutes; the learning-rate schedule follows the clock",
          require_positive);
  options("threads", threads,
          "Number of threads (0: all cores, divided by the number of processes on the host)",
          between(0, 256));
  options("micro_batches", micro_batches,
          "Gradient accumulation: number of micro-batches per batch, divided among mpirun's "
          "processes (0: under mpirun the largest power of two that divides --batch, at most 8; "
          "else 1)",
          between(0, 1 << 16));
  options("shard_optimizer", shard_optimizer,
          "Shard gradients and optimizer state over mpirun's processes (ZeRO-2)");
  options("device", device, "Device: cpu, cuda or cuda:N");
  options("cuda_graph", cuda_graph, "Run each step as one CUDA graph (GPU only)");
  options("matmul_precision", matmul_precision,
          "Precision of f32 matrix products on the CPU: highest; with AMX, high or medium split "
          "operands into two or one bf16 terms (medium: AVX512-BF16, too)");
  options("save_every", save_every, "Steps between checkpoints", between(1, INT64_MAX));
  options("evaluate_every", evaluate_every, "Steps between evaluations (0: twenty in all)",
          between(0, INT64_MAX));
  options("anomaly", anomaly,
          "Anomaly detection: find the op that first produces NaN or infinity (slow)");
  options("parameters", parameters,
          "Print the number of trainable parameters (the last line) and exit");
}

const nn::SafetensorsFile& RunOptions::checkpoint() {
  if (!opened) opened = as_usage([&] { return std::make_shared<nn::SafetensorsFile>(resume); });
  return *opened;
}

void RunOptions::declare_sequence_parallel(OptionList& options) {
  options("sequence_parallel", sequence_parallel,
          "Sequence parallelism: number of mpirun's processes that share each sequence; memory per "
          "process falls accordingly (f32 on a CPU only)");
}

void check_same_settings(const nn::Metadata& saved, const nn::Metadata& asked,
                         const RunOptions& options, const std::string& path) {
  for (const auto& [name, value] : saved) {
    const std::string option = option_of(name);
    require(!options.given(option) || asked.at(name) == value,
            option + " " + asked.at(name) + ": the run of " + path + " has " +
                (value.empty() ? "none" : value) + "; it can only be resumed with that");
  }
}

}  // namespace stretto::examples
