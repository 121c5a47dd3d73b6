#include "nn/distributed/shared_sequence.h"

#include "core/error.h"

namespace stretto::nn {
namespace {

thread_local ProcessGroup* sharing = nullptr;

class Neighbours final : public ProcessGroup {
 public:
  Neighbours(ProcessGroup& whole, int n) : whole_(whole), size_(n) {}
  int rank() const override { return whole_.rank() % size_; }
  int size() const override { return size_; }
  int local_size() const override { return whole_.local_size(); }
  void exchange(int peer, const void* out, size_t n_out, void* in, size_t n_in) override {
    whole_.exchange(whole_.rank() - rank() + peer, out, n_out, in, n_in);
  }
  void finish() override {}

 private:
  ProcessGroup& whole_;
  const int size_;
};

}  // namespace

ShareSequence::ShareSequence(ProcessGroup& group) : before_(sharing) {
  sharing = group.size() > 1 ? &group : nullptr;
}
ShareSequence::~ShareSequence() { sharing = before_; }

ProcessGroup* ShareSequence::group() { return sharing; }
int64_t ShareSequence::first_position(int64_t n) { return sharing ? sharing->rank() * n : 0; }

std::unique_ptr<ProcessGroup> neighbours(ProcessGroup& whole, int n) {
  check(n >= 1 && (n & (n - 1)) == 0 && whole.size() % n == 0, "processes", whole.size(),
        " of them cannot hold sequences by ", n,
        ": a number that is a power of two and divides theirs");
  return std::make_unique<Neighbours>(whole, n);
}

}  // namespace stretto::nn
