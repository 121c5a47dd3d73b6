// The folder of a run's results: which files may be replaced, and how one run replaces another.
#pragma once

#include <string>
#include <vector>

#include "examples/common/options.h"

namespace stretto::examples {

/// Throws UsageError if `out`, which need not exist, is an input folder or lies below one: the next
/// run would read the results.
void check_outside_inputs(const std::string& out, const std::vector<RunInput>& inputs);

/// Throws UsageError "--out: FILE is an input of this run, …" if one of these files, or its
/// temporary file, is the file `input` or a file below that folder, under any name.
void check_not_input(const std::vector<std::string>& files, const RunInput& input);

/// Holds a lock on the file ".lock" of a folder, which contains the id of this process, and removes
/// the file at the end. A killed process leaves the file but not the lock.
class FolderLock {
 public:
  /// Throws UsageError "--out: another run, of process 123, is using FOLDER" while another process
  /// holds the lock, and if the file cannot be created or was not made by a lock. A file system
  /// without locks counts as unlocked.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// False if the folder's path names another folder by now, or none, or if another run has locked
  /// the folder since (possible if the lock file was removed by hand).
  bool held() const;

 private:
  bool is_ours(bool if_missing) const;

  std::string folder_;
  int directory_ = -1;  // the folder itself, even if its path names another one later
  int descriptor_ = -1;
};

/// A folder used by one run at a time (FolderLock). The file ".stretto" in it lists the names of
/// the files that runs made there; other files are replaced only with --overwrite.
///
/// A run that replaces another writes into the subfolder ".stretto-staged" until publish(), so that
/// the earlier run stays complete. A process killed within publish() leaves ".stretto-replacing";
/// the next run in the folder completes the replacement.
class OutputFolder {
 public:
  /// Locks the folder, completes an interrupted replacement, and discards a staged run that was not
  /// published, and a model that was not saved to the end. Throws UsageError as FolderLock does.
  explicit OutputFolder(std::string folder);
  ~OutputFolder();

  /// True if the constructor completed a replacement: anything read from the folder
  /// before is out of date.
  bool completed() const { return completed_; }

  /// Checks that the run may write files of these `names`, and writes nothing. Throws UsageError
  /// if one of them is a symbolic link or not a regular file, if it is an input
  /// (check_not_input()), or, unless `replace`, if it exists and was not made by a run. `kept` are
  /// the outputs that may replace the input of --resume: the checkpoints of a resumed run.
  void check(const std::vector<std::string>& names, const std::vector<RunInput>& inputs,
             const std::vector<std::string>& kept, bool replace);
  /// True if the folder has a list of made names; older versions wrote none.
  bool has_list() const { return has_any({".stretto"}); }
  /// True if any of these names exists.
  bool has_any(const std::vector<std::string>& names) const;
  /// Directs all further files to the staging subfolder. Throws UsageError if its name is in use.
  void stage();
  /// Adds `names` to the list of names made by runs.
  void add_made(const std::vector<std::string>& names);
  /// Moves the staged files into the folder. Files of `names` that were not staged belong to the
  /// earlier run and are removed.
  void publish(const std::vector<std::string>& names);
  bool staged() const { return staged_; }

  /// Returns the folder that files are written to now, or the path of a file in it.
  /// Throws std::runtime_error if the folder was removed or replaced by another: no more
  /// files may be written. Throws UsageError if a file of check() has become a symbolic link.
  std::string where() const;
  std::string path(const std::string& name) const;

 private:
  std::string in(const std::string& name) const;

  const std::string folder_;
  const FolderLock lock_;
  std::vector<std::string> names_;  // of check()
  bool completed_ = false, staged_ = false;
};

}  // namespace stretto::examples
