#include "examples/training/run_options.h"

namespace stretto::examples {

void RunOptions::declare(OptionList& options) {
  given = [&options](const std::string& option) { return options.given(option); };
  all = &options;
  options.path("out", out, "Folder for everything that is made", "DIR=" + out);
  options.path("resume", resume, "Continue from a checkpoint, with its settings", "FILE");
  options("overwrite", overwrite,
          "Replace an earlier run in --out, with the first checkpoint of this one, and files that "
          "no run made");
  options("minutes", minutes, "Train this long; the learning rate follows the clock",
          require_positive);
  options("threads", threads, "Threads (0: all cores, or the share of a process)", between(0, 256));
  options("micro_batches", micro_batches,
          "Cut each batch into so many parts, which mpirun's processes share out (0: 8 under "
          "mpirun, or what divides --batch; else 1)",
          between(0, 1 << 16));
  options("shard_optimizer", shard_optimizer,
          "Each of mpirun's processes keeps its share of the optimiser's state");
  options("device", device, "cpu, cuda or cuda:N");
  options("cuda_graph", cuda_graph, "On a GPU: each step as one launch");
  options("matmul_precision", matmul_precision,
          "On a CPU, of products of f32: highest, or high or medium, which AMX makes of two "
          "numbers of bf16 or of one (medium: AVX-512 with bf16 too)");
  options("save_every", save_every, "Steps between checkpoints", between(1, INT64_MAX));
  options("evaluate_every", evaluate_every, "Steps between evaluations (0: twenty in all)",
          between(0, INT64_MAX));
  options("anomaly", anomaly, "Find the op that first makes NaN or infinity (slow)");
  options("parameters", parameters, "Print the number of trainable parameters, last, and stop");
}

void RunOptions::declare_sequence_parallel(OptionList& options) {
  options("sequence_parallel", sequence_parallel,
          "So many of mpirun's processes share each sequence: memory falls with their number "
          "(f32 on a CPU)");
}

void check_same_settings(const nn::Metadata& saved, const nn::Metadata& asked,
                         const RunOptions& options, const std::string& path) {
  for (const auto& [name, value] : saved) {
    const std::string option = option_of(name);
    require(!options.given(option) || asked.at(name) == value,
            option + " " + asked.at(name) + ": the run of " + path + " has " +
                (value.empty() ? "none" : value) + "; it can only go on with that");
  }
}

}  // namespace stretto::examples
