#include "autograd/profile.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "core/error.h"

namespace stretto {
namespace {

struct Collector {
  std::map<std::string, ProfileRow> rows;
  double last = steady_seconds();
  int backward_depth = 0;

  void count(const std::string& name) {
    const double time = steady_seconds();
    ProfileRow& row = rows[name];
    row.name = name;
    ++row.calls;
    row.seconds += time - last;
    last = time;
  }
};

thread_local Collector* collector = nullptr;

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Profile::Profile() {
  check(!collector, "Profile",
        "this thread already has a Profile; destroy it before you construct another");
  collector = new Collector;
}

Profile::~Profile() {
  delete collector;
  collector = nullptr;
}

void Profile::mark(const char* name) { collector->count(name); }

std::vector<ProfileRow> Profile::rows() const {
  std::vector<ProfileRow> rows;
  for (const auto& [name, row] : collector->rows) rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const ProfileRow& a, const ProfileRow& b) { return a.seconds > b.seconds; });
  return rows;
}

void profile_op(const char* op) {
  if (collector && collector->backward_depth == 0) collector->count(op);
}

void profile_backward_begins() {
  if (collector) ++collector->backward_depth;
}

void profile_backward_ends(const char* op) {
  if (collector && --collector->backward_depth == 0)
    collector->count(std::string(op) + " (backward)");
}

}  // namespace stretto
