// A process group whose processes are threads.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nn/distributed/process_group.h"

namespace stretto::testing {

// Messages between threads, by (sender, receiver).
struct Post {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<std::string>> letters;
};

class Threads final : public nn::ProcessGroup {
 public:
  Threads(Post& post, int rank, int size) : post_(post), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_size() const override { return size_; }
  void finish() override {}
  void send_recv(int peer, const void* out, size_t n_out, void* in, size_t n_in) override {
    std::unique_lock lock(post_.mutex);
    if (n_out > 0) post_.letters[{rank_, peer}].emplace_back(static_cast<const char*>(out), n_out);
    post_.changed.notify_all();
    if (n_in == 0) return;
    auto& box = post_.letters[{peer, rank_}];
    post_.changed.wait(lock, [&] { return !box.empty(); });
    std::memcpy(in, box.front().data(), n_in);
    box.pop_front();
  }

 private:
  Post& post_;
  const int rank_, size_;
};

inline void each_of(int size, const std::function<void(nn::ProcessGroup&)>& f) {
  Post post;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      Threads group(post, rank, size);
      f(group);
    });
  for (std::thread& t : threads) t.join();
}

}  // namespace stretto::testing
