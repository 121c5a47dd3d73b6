#include "nn/distributed/process_group.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/error.h"
#include "nn/distributed/halves.h"
#include "nn/distributed/mpi.h"

namespace stretto::nn {
namespace {

constexpr uint64_t streams_of_a_batch = uint64_t(1) << 24;

ShareBatches* sharing = nullptr;

int number_of(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text && std::atoi(text) > 0 ? std::atoi(text) : otherwise;
}

class Alone final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int local_size() const override { return 1; }
  void exchange(int, const void*, size_t, void*, size_t, bool) override {}
  void finish() override {}
};

}  // namespace

template <class T>
void ProcessGroup::sum_pieces(T* numbers, const std::vector<int64_t>& ends) {
  std::vector<T> theirs;
  sum_by_halves(rank(), size(), ends,
                [&](int peer, int64_t out, int64_t n_out, int64_t begin, int64_t n) {
                  theirs.resize(size_t(n));
                  exchange(peer, numbers + out, size_t(n_out) * sizeof(T), theirs.data(),
                           size_t(n) * sizeof(T));
                  bytes_of_sums_ += n_out * int64_t(sizeof(T));
                  for (int64_t i = 0; i < n; ++i) numbers[begin + i] += theirs[size_t(i)];
                });
}

void ProcessGroup::share_pieces(void* bytes, const std::vector<int64_t>& ends) {
  char* const at = static_cast<char*>(bytes);
  share_by_halves(rank(), size(), ends,
                  [&](int peer, int64_t out, int64_t n_out, int64_t begin, int64_t n) {
                    exchange(peer, at + out, size_t(n_out), at + begin, size_t(n));
                    bytes_of_sums_ += n_out;
                  });
}

int ProcessGroup::piece_of(int rank) const { return nn::piece_of(rank, size()); }

template <class T>
void ProcessGroup::sum(T* numbers, int64_t n) {
  std::vector<int64_t> ends;
  for (int i = 1; i <= size(); ++i) ends.push_back(n * i / size());
  sum_pieces(numbers, ends);
  for (int64_t& end : ends) end *= int64_t(sizeof(T));
  share_pieces(numbers, ends);
}

template void ProcessGroup::sum(float*, int64_t);
template void ProcessGroup::sum(double*, int64_t);
template void ProcessGroup::sum_pieces(float*, const std::vector<int64_t>&);
template void ProcessGroup::sum_pieces(double*, const std::vector<int64_t>&);

void ProcessGroup::all_gather(const void* mine, size_t bytes, void* all) {
  std::memcpy(static_cast<char*>(all) + size_t(rank()) * bytes, mine, bytes);
  std::vector<size_t> ends;
  for (int i = 1; i <= size(); ++i) ends.push_back(size_t(i) * bytes);
  all_gather_pieces(all, ends);
}

void ProcessGroup::all_gather_pieces(void* bytes, const std::vector<size_t>& ends) {
  char* const at = static_cast<char*>(bytes);
  const auto begin = [&](int piece) { return piece == 0 ? 0 : ends[size_t(piece) - 1]; };
  for (int bit = 1; bit < size(); bit <<= 1) {
    const int mine = rank() / bit * bit, theirs = mine ^ bit;
    exchange(rank() ^ bit, at + begin(mine), begin(mine + bit) - begin(mine), at + begin(theirs),
             begin(theirs + bit) - begin(theirs));
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

void ProcessGroup::barrier(bool patient) {
  const char here = 1;
  char there = 0;
  for (int bit = 1; bit < size(); bit <<= 1) exchange(rank() ^ bit, &here, 1, &there, 1, patient);
}

bool started_by_mpirun() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr; }

int rank_of_mpirun() { return number_of("OMPI_COMM_WORLD_RANK", 0); }
int local_rank_of_mpirun() { return number_of("OMPI_COMM_WORLD_LOCAL_RANK", 0); }
int process_patience() { return std::max(1, number_of("STRETTO_PROCESS_TIMEOUT", 45)); }
int size_of_mpirun() { return number_of("OMPI_COMM_WORLD_SIZE", 1); }

ProcessGroup& process_group() {
  static const std::unique_ptr<ProcessGroup> group = [] {
    std::unique_ptr<ProcessGroup> made;
    if (!started_by_mpirun()) {
      made = std::make_unique<Alone>();
    } else {
      made = open_mpi();
    }
    const int n = made->size();
    check((n & (n - 1)) == 0, "processes", "their number is ", n, "; it must be a power of two");
    return made;
  }();
  return *group;
}

bool BatchSums::next() {
  const int64_t batch = batches_++;
  if (sharing)
    set_random_state({sharing->begin_.seed,
                      sharing->begin_.next_stream + ++sharing->batches_ * streams_of_a_batch});
  return !sharing || batch % process_group().size() == process_group().rank();
}

void BatchSums::add(const std::vector<double>& numbers) {
  check(numbers.size() == numbers_, "BatchSums", "got ", int64_t(numbers.size()), " numbers, not ",
        int64_t(numbers_));
  sums_.insert(sums_.end(), numbers.begin(), numbers.end());
}

std::vector<double> BatchSums::total() {
  const int64_t n = sharing ? process_group().size() : 1;
  if (n > 1) {
    sums_.resize(size_t((batches_ + n - 1) / n) * numbers_);
    const size_t share = sums_.size();
    const std::vector<double> all = process_group().all_gather(sums_);
    sums_.resize(size_t(batches_) * numbers_);
    for (size_t batch = 0; batch < size_t(batches_); ++batch)
      for (size_t i = 0; i < numbers_; ++i)
        sums_[batch * numbers_ + i] =
            all[batch % size_t(n) * share + batch / size_t(n) * numbers_ + i];
  }
  std::vector<double> total(numbers_);
  for (size_t i = 0; i < sums_.size(); ++i) total[i % numbers_] += sums_[i];
  return total;
}

ShareBatches::ShareBatches(bool on) : on_(on), begin_(random_state()) {
  if (on_) sharing = this;
}

ShareBatches::~ShareBatches() {
  if (on_) sharing = nullptr;
  if (batches_ > 0)
    set_random_state({begin_.seed, begin_.next_stream + (batches_ + 1) * streams_of_a_batch});
}

}  // namespace stretto::nn
