#include "nn/distributed/process_group.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/environment.h"
#include "core/error.h"
#include "nn/distributed/mpi.h"
#include "nn/distributed/recursive_halving.h"

namespace stretto::nn {
namespace {

constexpr uint64_t streams_per_batch = uint64_t(1) << 24;

DistributedEvaluation* distributed = nullptr;  // the object that is `on`, or null
ProcessGroup* opened = nullptr;                // what process_group() returns, once it was called

// A positive number in an environment variable that mpirun sets.
int mpirun_variable(const char* name, int fallback) {
  const char* const text = started_by_mpirun() ? std::getenv(name) : nullptr;
  return text && std::atoi(text) > 0 ? std::atoi(text) : fallback;
}

// Environment variables in which other launchers pass the number of processes and the rank.
struct {
  const char *size, *rank;
} constexpr launcher_variables[] = {
    {"PMI_SIZE", "PMI_RANK"},                        // MPICH, Intel MPI
    {"MPI_LOCALNRANKS", "MPI_LOCALRANKID"},          // the same libraries, on one host
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},        // srun
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},  // MVAPICH
    {"FLUX_JOB_SIZE", "FLUX_TASK_RANK"},
    {"LOCAL_WORLD_SIZE", "LOCAL_RANK"}};  // torchrun

class SingleProcess final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int local_size() const override { return 1; }
  void send_recv(int, const void*, size_t, void*, size_t) override {}
  void finish() override {}
};

class Subgroup final : public ProcessGroup {
 public:
  Subgroup(ProcessGroup& group, int n) : group_(group), size_(n) {}
  int rank() const override { return group_.rank() % size_; }
  int size() const override { return size_; }
  int local_size() const override { return group_.local_size(); }
  void send_recv(int peer, const void* out, size_t n_out, void* in, size_t n_in) override {
    group_.send_recv(group_.rank() - rank() + peer, out, n_out, in, n_in);
  }
  void finish() override {}

 private:
  ProcessGroup& group_;
  const int size_;
};

}  // namespace

template <class T>
void ProcessGroup::reduce_scatter(T* values, const std::vector<int64_t>& ends) {
  std::vector<T> received;
  recursive_halving(rank(), size(), ends,
                    [&](int peer, int64_t out, int64_t n_out, int64_t begin, int64_t n) {
                      received.resize(size_t(n));
                      send_recv(peer, values + out, size_t(n_out) * sizeof(T), received.data(),
                                size_t(n) * sizeof(T));
                      bytes_reduced_ += n_out * int64_t(sizeof(T));
                      for (int64_t i = 0; i < n; ++i) values[begin + i] += received[size_t(i)];
                    });
}

void ProcessGroup::all_gather_chunks(void* bytes, const std::vector<int64_t>& ends) {
  char* const at = static_cast<char*>(bytes);
  recursive_doubling(rank(), size(), ends,
                     [&](int peer, int64_t out, int64_t n_out, int64_t begin, int64_t n) {
                       send_recv(peer, at + out, size_t(n_out), at + begin, size_t(n));
                       bytes_reduced_ += n_out;
                     });
}

int ProcessGroup::chunk_of(int rank) const { return nn::chunk_of(rank, size()); }

template <class T>
void ProcessGroup::all_reduce(T* values, int64_t n) {
  std::vector<int64_t> ends;
  for (int i = 1; i <= size(); ++i) ends.push_back(n * i / size());
  reduce_scatter(values, ends);
  for (int64_t& end : ends) end *= int64_t(sizeof(T));
  all_gather_chunks(values, ends);
}

template void ProcessGroup::all_reduce(float*, int64_t);
template void ProcessGroup::all_reduce(double*, int64_t);
template void ProcessGroup::reduce_scatter(float*, const std::vector<int64_t>&);
template void ProcessGroup::reduce_scatter(double*, const std::vector<int64_t>&);

void ProcessGroup::all_gather(const void* mine, size_t bytes, void* all) {
  std::memcpy(static_cast<char*>(all) + size_t(rank()) * bytes, mine, bytes);
  std::vector<size_t> ends;
  for (int i = 1; i <= size(); ++i) ends.push_back(size_t(i) * bytes);
  all_gatherv(all, ends);
}

void ProcessGroup::all_gatherv(void* bytes, const std::vector<size_t>& ends) {
  char* const at = static_cast<char*>(bytes);
  const auto begin = [&](int chunk) { return chunk == 0 ? 0 : ends[size_t(chunk) - 1]; };
  for (int bit = 1; bit < size(); bit <<= 1) {
    const int own = rank() / bit * bit, other = own ^ bit;
    send_recv(rank() ^ bit, at + begin(own), begin(own + bit) - begin(own), at + begin(other),
              begin(other + bit) - begin(other));
  }
}

std::vector<double> ProcessGroup::all_gather(const std::vector<double>& mine) {
  std::vector<double> all(mine.size() * size_t(size()));
  all_gather(mine.data(), mine.size() * sizeof(double), all.data());
  return all;
}

std::vector<std::string> ProcessGroup::all_gather(std::string_view mine) {
  std::vector<uint64_t> lengths(static_cast<size_t>(size()));
  const uint64_t length = mine.size();
  all_gather(&length, sizeof length, lengths.data());
  const uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::string padded(mine), all(longest * lengths.size(), '\0');
  padded.resize(longest);
  all_gather(padded.data(), longest, all.data());
  std::vector<std::string> texts;
  for (size_t i = 0; i < lengths.size(); ++i) texts.push_back(all.substr(i * longest, lengths[i]));
  return texts;
}

std::string ProcessGroup::first_difference(
    const std::vector<std::pair<std::string, std::string>>& named) {
  std::vector<std::vector<std::string>> parts(static_cast<size_t>(size()));
  std::string mine;  // name, value, name, value …, each with its length
  for (const auto& [name, value] : named)
    for (const std::string& part : {name, value}) mine += str(part.size(), " ", part);
  const std::vector<std::string> all = all_gather(mine);
  for (size_t rank = 0; rank < all.size(); ++rank)
    for (size_t at = 0; at < all[rank].size();) {
      const size_t space = all[rank].find(' ', at), length = std::stoul(all[rank].substr(at));
      parts[rank].push_back(all[rank].substr(space + 1, length));
      at = space + 1 + length;
    }
  const auto shown = [](const std::vector<std::string>& list, size_t i) {
    return i < list.size() && !list[i].empty() ? list[i] : std::string("none");
  };
  for (size_t i = 0; i < parts[0].size(); i += 2)
    for (size_t rank = 1; rank < parts.size(); ++rank)
      if (i >= parts[rank].size() || parts[rank][i] != parts[0][i] ||
          parts[rank][i + 1] != parts[0][i + 1])
        return str("rank ", rank, " has ", parts[0][i], " ", shown(parts[rank], i + 1),
                   ", rank 0 has ", shown(parts[0], i + 1));
  return {};
}

void ProcessGroup::barrier() {
  const char out = 1;
  char in = 0;
  for (int bit = 1; bit < size(); bit <<= 1) send_recv(rank() ^ bit, &out, 1, &in, 1);
}

bool started_by_mpirun() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr; }

int rank_of_mpirun() { return mpirun_variable("OMPI_COMM_WORLD_RANK", 0); }
int local_rank_of_mpirun() { return mpirun_variable("OMPI_COMM_WORLD_LOCAL_RANK", 0); }
int size_of_mpirun() { return mpirun_variable("OMPI_COMM_WORLD_SIZE", 1); }

std::optional<OtherLauncher> other_launcher() {
  if (started_by_mpirun()) return {};
  for (const auto& [size, rank] : launcher_variables) {
    const char* const text = std::getenv(size);
    if (!text || std::atoi(text) <= 1) continue;
    const char* const number = std::getenv(rank);
    return OtherLauncher{number ? std::atoi(number) : 0,
                         str(size, "=", text,
                             ": this process is one of several, started by another launcher than "
                             "Open MPI's; accepted: Open MPI's mpirun, or one process (without ",
                             size, ")")};
  }
  return {};
}

int process_timeout() { return int(environment_number("STRETTO_PROCESS_TIMEOUT", 1, 86'400, 45)); }

ProcessGroup& process_group() {
  static const std::unique_ptr<ProcessGroup> group = [] {
    std::unique_ptr<ProcessGroup> made;
    process_timeout();  // reports an invalid value before the first wait
    if (const auto other = other_launcher()) fail("processes", other->refusal);
    if (!started_by_mpirun()) {
      made = std::make_unique<SingleProcess>();
    } else {
      made = open_mpi();
    }
    const int n = made->size();
    check((n & (n - 1)) == 0, "processes", n, " processes; the number must be a power of two");
    opened = made.get();
    return made;
  }();
  return *group;
}

void finish_processes() {
  if (opened) opened->finish();
}

std::unique_ptr<ProcessGroup> subgroup(ProcessGroup& group, int n) {
  check(n >= 1 && (n & (n - 1)) == 0 && group.size() % n == 0, "processes", "sequence_parallel ", n,
        " with ", group.size(),
        " processes; it must be a power of two that divides the number of processes");
  return std::make_unique<Subgroup>(group, n);
}

bool EvaluationReducer::next() {
  const int64_t batch = batches_++;
  if (distributed)
    set_random_state({distributed->begin_.seed, distributed->begin_.next_stream +
                                                    ++distributed->batches_ * streams_per_batch});
  return !distributed || batch % process_group().size() == process_group().rank();
}

void EvaluationReducer::add(const std::vector<double>& values) {
  check(values.size() == values_per_batch_, "EvaluationReducer", "got ", int64_t(values.size()),
        " values; expected ", int64_t(values_per_batch_));
  sums_.insert(sums_.end(), values.begin(), values.end());
}

std::vector<double> EvaluationReducer::total() {
  const int64_t n = distributed ? process_group().size() : 1;
  if (n > 1) {
    const std::vector<double> sizes = process_group().all_gather(
        std::vector<double>{double(batches_), double(values_per_batch_)});
    for (int64_t i = 1; i < n; ++i)
      check(sizes[size_t(2 * i)] == sizes[0] && sizes[size_t(2 * i + 1)] == sizes[1],
            "EvaluationReducer", "process ", i, " has ", int64_t(sizes[size_t(2 * i)]),
            " batches of ", int64_t(sizes[size_t(2 * i + 1)]), " values; process 0 has ",
            int64_t(sizes[0]), " of ", int64_t(sizes[1]));
    sums_.resize(size_t((batches_ + n - 1) / n) * values_per_batch_);
    const size_t share = sums_.size();
    const std::vector<double> all = process_group().all_gather(sums_);
    sums_.resize(size_t(batches_) * values_per_batch_);
    for (size_t batch = 0; batch < size_t(batches_); ++batch)
      for (size_t i = 0; i < values_per_batch_; ++i)
        sums_[batch * values_per_batch_ + i] =
            all[batch % size_t(n) * share + batch / size_t(n) * values_per_batch_ + i];
  }
  std::vector<double> total(values_per_batch_);
  for (size_t i = 0; i < sums_.size(); ++i) total[i % values_per_batch_] += sums_[i];
  return total;
}

DistributedEvaluation::DistributedEvaluation(bool on) : on_(on), begin_(random_state()) {
  if (on_) distributed = this;
}

DistributedEvaluation::~DistributedEvaluation() {
  if (on_) distributed = nullptr;
  set_random_state(begin_);
}

}  // namespace stretto::nn
