// The folder of a run's results: what may be replaced in it, and a run that replaces another.
#pragma once

#include <string>
#include <vector>

#include "examples/common/options.h"

namespace stretto::examples {

/// Throws UsageError if `out`, which need not exist, is a folder among these inputs or lies below
/// one: what is written there would be read by the next run.
void check_outside_inputs(const std::string& out, const std::vector<RunInput>& inputs);

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

/// One run at a time (FolderLock) in a folder. The file ".stretto" in it lists the names that runs
/// made there; other files are replaced with --overwrite only.
///
/// A run that replaces another writes into the subfolder ".stretto-staged" until publish(), so that
/// the earlier run stays whole; a process that is killed within publish() leaves
/// ".stretto-replacing", which the next run in the folder completes.
class OutputFolder {
 public:
  /// Locks the folder, completes a replacement that was cut off, and discards one that was not
  /// published. Throws UsageError as FolderLock.
  explicit OutputFolder(std::string folder);
  ~OutputFolder();

  /// Whether the constructor completed a replacement, so that what was read of the folder before is
  /// out of date.
  bool completed() const { return completed_; }

  /// The run is going to write files of these `names`. Throws UsageError, and writes nothing, if
  /// one of them is a symbolic link or no regular file, if it is an input (the same file, whatever
  /// its name; of a folder, each MIDI file), or, unless `replace`, if it exists and was not made by
  /// a run. `kept` is the output that may replace the input of --resume: the checkpoint of a run
  /// that goes on.
  void check(const std::vector<std::string>& names, const std::vector<RunInput>& inputs,
             const std::string& kept, bool replace) const;
  /// Whether there is a list of made names; the folders of older versions have none.
  bool has_list() const { return has_any({".stretto"}); }
  /// Whether any of these names exists.
  bool has_any(const std::vector<std::string>& names) const;
  /// From now on everything goes to the subfolder. Throws UsageError if anything has its name.
  void stage();
  /// Adds `names` to the list of those that runs made.
  void add_made(const std::vector<std::string>& names);
  /// Puts what was staged into the folder; of `names`, what was not staged belongs to the earlier
  /// run, and is removed.
  void publish(const std::vector<std::string>& names);
  bool staged() const { return staged_; }

  /// Where files are written now, and one of this name. Throws std::runtime_error if the folder was
  /// removed or replaced by another: nothing is to be written there any more.
  std::string where() const;
  std::string path(const std::string& name) const;

 private:
  std::string in(const std::string& name) const;

  const std::string folder_;
  const FolderLock lock_;
  bool completed_ = false, staged_ = false;
};

}  // namespace stretto::examples
