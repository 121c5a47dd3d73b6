// Where the time of a step goes, op by op.
//
//     Profile profile;
//     train_step();
//     profile.mark("optimizer");
//     for (const ProfileRow& row : profile.rows()) ...
//
// Forward: the time between the ends of two ops counts for the second. Backward: the time of an
// op's whole backward closure. What lies outside ops is named by mark(). On CUDA these are times of
// queueing, not of kernels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stretto {

struct ProfileRow {
  std::string name;  // "linear", "linear (backward)", or a mark's
  int64_t calls = 0;
  double seconds = 0;
};

/// Collects from its making to its end, on the thread that made it; one at a time.
class Profile {
 public:
  Profile();
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Counts the time since the last op or mark for `name`.
  void mark(const char* name);
  /// Longest first.
  std::vector<ProfileRow> rows() const;
};

/// For the tape: an op has ended; a backward closure begins and ends. Cheap when nobody profiles.
void profile_op(const char* op);
void profile_backward_begins();
void profile_backward_ends(const char* op);

}  // namespace stretto
