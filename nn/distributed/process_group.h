// Processes that train one model together, started by mpirun (Open MPI).
//
//     mpirun -n 4 build/release/examples/train_lm --data book.txt
//
// A single process needs no communication library. Under mpirun, the library of Open MPI is opened
// at run time; it is not needed to build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../core/random.h"

namespace stretto::nn {

/// A group of processes with point-to-point messages and collectives. All processes must make the
/// same collective calls in the same order, each from one thread at a time.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  /// Returns the rank of this process, 0 … size() − 1.
  virtual int rank() const = 0;
  /// Returns the number of processes, a power of two.
  virtual int size() const = 0;
  /// Returns the number of processes on this host.
  virtual int local_size() const = 0;
  /// True on rank 0.
  bool is_root() const { return rank() == 0; }

  /// Sends n_out bytes to rank `peer` and receives n_in bytes from it. The peer makes the matching
  /// call with both lengths exchanged. If it sends a different number of bytes, or nothing within
  /// STRETTO_PROCESS_TIMEOUT seconds (45), all processes exit, after a line that names the peer.
  virtual void send_recv(int peer, const void* out, size_t n_out, void* in, size_t n_in) = 0;
  /// Ends communication; the last call. Waits for processes that are still computing, however long
  /// that takes. A process that does not respond for STRETTO_PROCESS_TIMEOUT seconds ends the run.
  virtual void finish() = 0;

  /// All-reduce by recursive halving and doubling: replaces the n values (float or double) by their
  /// sums over all processes. Ranks 2i and 2i + 1 are added first, then pairs of these sums, and so
  /// on: one fixed binary tree. Each process sends 2 (size − 1) / size of the values.
  template <class T>
  void all_reduce(T* values, int64_t n);
  /// Reduce-scatter, the first half of all_reduce(): each rank ends with the sums of its own chunk,
  /// chunk_of(rank), in place. Chunk c ends at element ends[c]. Each process sends
  /// (size − 1) / size of the values.
  template <class T>
  void reduce_scatter(T* values, const std::vector<int64_t>& ends);
  /// All-gather of the chunks of reduce_scatter(), in place, the second half of all_reduce(). Chunk
  /// c ends at byte ends[c].
  void all_gather_chunks(void* bytes, const std::vector<int64_t>& ends);
  /// Returns the chunk that reduce_scatter() leaves on a rank: the rank with its bits reversed.
  int chunk_of(int rank) const;
  /// All-gather: writes `bytes` bytes of every process to `all`, in the order of the ranks.
  void all_gather(const void* mine, size_t bytes, void* all);
  /// All-gather of chunks of different sizes, in place; the chunk of rank r ends at byte ends[r].
  void all_gatherv(void* bytes, const std::vector<size_t>& ends);
  /// Returns the values of all processes, in the order of the ranks; equally many on each.
  std::vector<double> all_gather(const std::vector<double>& mine);
  /// Returns the strings of all processes, in the order of the ranks; lengths may differ.
  std::vector<std::string> all_gather(std::string_view mine);
  /// Compares named values, (name, value), with those of rank 0 and returns the first difference,
  /// as "rank 1 has --seed 2, rank 0 has 1"; an empty string if there is none. An empty value is
  /// reported as "none". A collective call, with the same result on all ranks.
  std::string first_difference(const std::vector<std::pair<std::string, std::string>>& named);
  /// Returns when all processes have called it.
  void barrier();

  /// Returns the bytes that this process has sent by all_reduce(), reduce_scatter() and
  /// all_gather_chunks().
  int64_t bytes_reduced() const { return bytes_reduced_; }

 protected:
  ProcessGroup() = default;

 private:
  int64_t bytes_reduced_ = 0;
};

extern template void ProcessGroup::all_reduce(float*, int64_t);
extern template void ProcessGroup::all_reduce(double*, int64_t);
extern template void ProcessGroup::reduce_scatter(float*, const std::vector<int64_t>&);
extern template void ProcessGroup::reduce_scatter(double*, const std::vector<int64_t>&);

/// Returns the subgroup of this process if the ranks of `group` are divided into runs of n: ranks
/// n·i … n·(i + 1) − 1 become 0 … n − 1. n is a power of two that divides the size of `group`,
/// which must outlive the result.
std::unique_ptr<ProcessGroup> subgroup(ProcessGroup& group, int n);

/// Returns the processes of this run; without mpirun, a group of one. The first call waits for all
/// processes; if some do not call it within STRETTO_PROCESS_TIMEOUT seconds, the waiting ones print
/// one line and exit. Throws Error if mpirun has started this process and its library cannot be
/// opened, if the number of processes is not a power of two, or if other_launcher() is set.
ProcessGroup& process_group();
/// Calls process_group().finish() if process_group() was called. Processes that work independently
/// of each other thus end without waiting.
void finish_processes();
/// True if Open MPI's mpirun has started this process, by its environment variables.
bool started_by_mpirun();
/// Returns the rank that mpirun has assigned, without waiting for other processes; 0 without it.
int rank_of_mpirun();
/// Returns the rank among the processes of this host; 0 without mpirun.
int local_rank_of_mpirun();
/// Returns the number of processes that mpirun has started; 1 without it.
int size_of_mpirun();
/// A process of an unsupported launcher (MPICH's mpiexec, srun, torchrun, …).
struct OtherLauncher {
  int rank;             ///< Rank of this process.
  std::string refusal;  ///< Error text: the launcher's environment variable, and what is accepted.
};
/// Returns a value if a launcher other than Open MPI's mpirun has started this process as one of
/// several. Each of them would train the whole model by itself.
std::optional<OtherLauncher> other_launcher();
/// Returns the seconds that a process waits for another: STRETTO_PROCESS_TIMEOUT, or 45. Throws
/// Error if the variable is not an integer from 1 to 86,400.
int process_timeout();

/// Distributes the batches of an evaluation over the processes and sums their results: rank
/// i mod size computes batch i. Without a DistributedEvaluation every process computes all batches.
/// The total is summed in the order of the batches and bit-identical for any number of processes.
class EvaluationReducer {
 public:
  /// `values_per_batch` is the number of values that add() accepts.
  explicit EvaluationReducer(size_t values_per_batch) : values_per_batch_(values_per_batch) {}
  /// True if this process computes the next batch; it then passes the results to add().
  bool next();
  /// Adds the values of the current batch.
  void add(const std::vector<double>& values);
  /// Returns the sums over all batches; a collective call.
  std::vector<double> total();

 private:
  size_t values_per_batch_;
  int64_t batches_ = 0;
  std::vector<double> sums_;  // the values of this rank's batches, one batch after the other
};

/// While an object that is `on` lives, EvaluationReducer distributes batches over the processes,
/// which must all make the same calls. Each batch has its own random streams. The destructor
/// restores the random state, so that training does not depend on evaluations.
class DistributedEvaluation {
 public:
  /// If `on` is false, the object only restores the random state.
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
