// A profiler: the time of a step, per op.
//
//     Profile profile;
//     train_step();
//     profile.mark("optimizer");
//     for (const ProfileRow& row : profile.rows()) ...
//
// An event is the end of an op, the end of a backward closure, or a mark. The time between two
// events is attributed to the second one. It includes any work between ops; put a mark() after such
// work to list it separately. Ops inside a backward closure are not events. On a GPU this measures
// the queueing of kernels, not their execution.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stretto {

/// Returns the seconds of a monotonic clock.
double steady_seconds();

/// The total time of one op, or of one name given to Profile::mark().
struct ProfileRow {
  std::string name;    ///< "linear", "linear (backward)", or the name of a mark.
  int64_t calls = 0;   ///< Number of calls.
  double seconds = 0;  ///< Total time of all calls.
};

/// Collects the times of the thread that constructs it, until it is destroyed. A thread can have
/// only one Profile at a time.
class Profile {
 public:
  /// Starts collecting; throws if this thread has another Profile.
  Profile();
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Attributes the time since the last event to `name`.
  void mark(const char* name);
  /// Returns the times so far, longest first.
  std::vector<ProfileRow> rows() const;
};

// Called by the tape; cheap if there is no Profile.

/// Reports that an op has ended.
void profile_op(const char* op);
/// Reports that a backward closure begins.
void profile_backward_begins();
/// Reports that the backward closure of `op` has ended.
void profile_backward_ends(const char* op);

}  // namespace stretto
