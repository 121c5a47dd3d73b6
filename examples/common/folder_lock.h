// One run at a time in a folder.
#pragma once

#include <string>

namespace stretto::examples {

/// Holds a lock on the file ".lock" of a folder, which names this process, and removes it at the
/// end. A process that is killed leaves the file but not the lock.
class FolderLock {
 public:
  /// Throws UsageError "--out: another run, of process 123, is at work in FOLDER" while another has
  /// it, and where the file cannot be made or is not one that a lock left. File systems without
  /// locks are taken as they are.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// False if the folder's path names another folder by now, or nothing, or if another run has
  /// locked the folder since (which it can where the lock's file was removed by hand).
  bool held() const;

 private:
  bool is_ours(bool if_missing) const;

  std::string folder_;
  int directory_ = -1;  // the folder itself, whatever its path names later
  int descriptor_ = -1;
};

}  // namespace stretto::examples
