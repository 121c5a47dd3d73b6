#include "core/device_table.h"

#include <list>
#include <map>
#include <mutex>
#include <unordered_map>

#include "core/gpu_runtime.h"

namespace stretto {
namespace {

constexpr int64_t most_bytes = int64_t(256) << 20;

// The tables of a device, the most recently used first.
class Tables {
 public:
  Tensor find(const std::string& key) {
    const auto it = where_.find(key);
    if (it == where_.end()) return {};
    all_.splice(all_.begin(), all_, it->second);
    const Entry& entry = all_.front();
    if (entry.table.storage().version == entry.version) return entry.table;
    bytes_ -= entry.table.storage().bytes;  // a caller has changed it in place
    where_.erase(it);
    all_.pop_front();
    return {};
  }

  void add(const std::string& key, const Tensor& table) {
    all_.push_front({key, table, table.storage().version});
    where_[key] = all_.begin();
    bytes_ += table.storage().bytes;
    while (bytes_ > most_bytes && all_.size() > 1) {
      bytes_ -= all_.back().table.storage().bytes;
      where_.erase(all_.back().key);
      all_.pop_back();
    }
  }

 private:
  struct Entry {
    std::string key;
    Tensor table;
    uint32_t version;
  };
  std::list<Entry> all_;
  std::unordered_map<std::string, std::list<Entry>::iterator> where_;
  int64_t bytes_ = 0;
};

std::mutex mutex;

// Never destroyed: GPU memory must not be freed after main().
std::map<int, Tables>& all() {
  static auto* tables = new std::map<int, Tables>;
  return *tables;
}

}  // namespace

void drop_tables(Device device) {
  if (device.is_cpu()) return;
  const std::lock_guard lock(mutex);
  all()[device.index] = {};
}

Tensor kept_table(const std::string& key, Device device, const std::function<Tensor()>& make) {
  const auto find = [&] { return all()[device.index].find(key); };
  std::unique_lock lock(mutex);
  Tensor table = find();
  if (!table.defined()) {
    lock.unlock();  // an allocation without memory drops all tables
    const Tensor made = make().to(device);
    lock.lock();
    table = find();  // another thread may have made it
    if (!table.defined()) all()[device.index].add(key, table = made);
  }
  // A graph that reads the table keeps it alive.
  if (cuda::capturing(device.index)) cuda::before_replay(device.index, [table] {});
  return table;
}

}  // namespace stretto
