// A profiler: the time of a step, per op.
//
//     Profile profile;
//     train_step();
//     profile.mark("optimizer");
//     for (const ProfileRow& row : profile.rows()) ...
//
// Forward: the time from the end of one op to the end of the next counts for the next. Backward:
// the time of the op's whole backward closure. Time outside of ops is attributed with mark(). On a
// GPU this measures the queueing of kernels, not their execution.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stretto {

/// The total time of one op, or of one name given to Profile::mark().
struct ProfileRow {
  std::string name;    ///< "linear", "linear (backward)", or the name of a mark.
  int64_t calls = 0;   ///< The number of calls.
  double seconds = 0;  ///< Their total time.
};

/// Collects the times of the thread that constructs it, until it is destroyed. At most one per
/// thread at a time.
class Profile {
 public:
  /// Starts collecting; throws if this thread has another Profile.
  Profile();
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Attributes the time since the last op or mark to `name`.
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
