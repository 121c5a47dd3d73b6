// Processes that train one model together, started by mpirun (Open MPI).
//
//     mpirun -n 4 build/release/examples/train_lm --data book.txt
//
// Messages go by an engine: none, where there is one process, or MPI, whose library is opened when
// mpirun has started the program and is not needed to build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "../../core/random.h"

namespace stretto::nn {

/// One thread at a time may call what sends and receives, and all processes make the same calls.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  /// 0 … size() − 1.
  virtual int rank() const = 0;
  /// A power of two.
  virtual int size() const = 0;
  /// How many of them are on this host.
  virtual int local_size() const = 0;
  bool is_root() const { return rank() == 0; }

  /// Sends n_out bytes to process `peer` and receives n_in from it, which makes the same call with
  /// the two lengths exchanged. If it sends another number of bytes or nothing within
  /// STRETTO_PROCESS_TIMEOUT seconds (45), all processes end with a line that names it.
  virtual void send_recv(int peer, const void* out, size_t n_out, void* in, size_t n_in) = 0;
  /// Ends the work together; the last call. Waits for processes that are still at work, however
  /// long that takes; one that shows no sign of life for STRETTO_PROCESS_TIMEOUT seconds ends all.
  virtual void finish() = 0;

  /// The sum of all processes' n numbers in place of them. Processes 2i and 2i + 1 are added first,
  /// then pairs of these, and so on: one tree, over parts of a step that processes hold in order,
  /// whatever their number. 2 (size − 1) / size of the numbers are sent by each.
  template <class T>
  void sum(T* numbers, int64_t n);
  /// The two halves of sum(), each (size − 1) / size: first a process has the sums of the piece
  /// that is its own, chunk_of(rank) of those that end at `ends`, then all have all pieces, of
  /// which `ends` count bytes.
  template <class T>
  void reduce_scatter(T* numbers, const std::vector<int64_t>& ends);
  void all_gather_chunks(void* bytes, const std::vector<int64_t>& ends);
  int chunk_of(int rank) const;
  /// `bytes` of each process, in their order.
  void all_gather(const void* mine, size_t bytes, void* all);
  /// The piece of each process, which ends at ends[rank] of the bytes, for all to have.
  void all_gatherv(void* bytes, const std::vector<size_t>& ends);
  std::vector<double> all_gather(const std::vector<double>& mine);
  /// Of several lengths; every process gets all.
  std::vector<std::string> all_gather(std::string_view mine);
  /// Returns when all have called it.
  void barrier();

  /// Bytes that this process has sent by sum() and its halves.
  int64_t bytes_reduced() const { return bytes_reduced_; }

 protected:
  ProcessGroup() = default;

 private:
  int64_t bytes_reduced_ = 0;
};

extern template void ProcessGroup::sum(float*, int64_t);
extern template void ProcessGroup::sum(double*, int64_t);
extern template void ProcessGroup::reduce_scatter(float*, const std::vector<int64_t>&);
extern template void ProcessGroup::reduce_scatter(double*, const std::vector<int64_t>&);

/// Of processes n·i … n·(i + 1) − 1 of `whole`, those that this process is among: their ranks are
/// 0 … n − 1. n divides the whole's size, and `whole` outlives them.
std::unique_ptr<ProcessGroup> neighbours(ProcessGroup& whole, int n);

/// The processes of this run, or this one alone. The first call meets the others; if not all
/// processes make it within STRETTO_PROCESS_TIMEOUT seconds, those that do end with one line.
/// Throws Error if mpirun has started this process and its library cannot be opened, if the number
/// of processes is not a power of two, and if there is an other_launcher().
ProcessGroup& process_group();
/// Of this run, before the processes have met: from the environment that Open MPI's mpirun sets.
bool started_by_mpirun();
int rank_of_mpirun();        // 0 without it
int local_rank_of_mpirun();  // among those of this host
int size_of_mpirun();        // 1 without it
/// Set if a launcher other than Open MPI's mpirun (MPICH's mpiexec, srun, torchrun, …) has started
/// this process as one of several: each of them would train the whole model by itself.
struct OtherLauncher {
  int rank;
  std::string refusal;  ///< names the launcher's environment variable, and what is accepted
};
std::optional<OtherLauncher> other_launcher();
/// Seconds that a process waits for another: STRETTO_PROCESS_TIMEOUT, or 45. Throws Error if the
/// variable is no whole number from 1 to 86,400.
int process_patience();

/// The share of a process in work that is done batch by batch: batch i is process i mod size's
/// while a DistributedEvaluation lives, else everybody's own. Whoever asks for total() gets the sum
/// over all batches, in their order, whatever the number of processes.
class EvaluationReducer {
 public:
  explicit EvaluationReducer(size_t numbers) : numbers_(numbers) {}
  /// Whether this process computes the next batch; it then gives its numbers to add().
  bool next();
  void add(const std::vector<double>& numbers);
  std::vector<double> total();

 private:
  size_t numbers_;
  int64_t batches_ = 0;
  std::vector<double> sums_;  // of this process's batches, one after the other
};

/// For its life, where it is `on`, all processes make the same calls of EvaluationReducer. Each
/// batch then draws random numbers of its own, and afterwards the program's random state is the
/// same on all.
class DistributedEvaluation {
 public:
  explicit DistributedEvaluation(bool on);
  ~DistributedEvaluation();
  DistributedEvaluation(const DistributedEvaluation&) = delete;
  DistributedEvaluation& operator=(const DistributedEvaluation&) = delete;

 private:
  friend class EvaluationReducer;
  const bool on_;
  const RandomState begin_;
  uint64_t batches_ = 0;
};

}  // namespace stretto::nn
