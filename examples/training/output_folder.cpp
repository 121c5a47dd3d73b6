#include "examples/training/output_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "examples/common/file.h"
#include "examples/common/settings.h"
#include "examples/midi/midi_folder.h"
#include "pretrained/pretrained.h"

namespace stretto::examples {
namespace {

namespace fs = std::filesystem;

constexpr const char *list_name = ".stretto", *staging_name = ".stretto-staged",
                     *replacing_name = ".stretto-replacing", *lock_name = ".lock";

// Identifies a file whatever its names.
using FileId = std::pair<dev_t, ino_t>;

std::set<FileId> id_of(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return {{info.st_dev, info.st_ino}};
}

// Returns the ids of the file, or of the files below the folder; MIDI files also behind links to
// folders.
std::set<FileId> ids_of(const std::string& input) {
  std::error_code none;
  if (!fs::is_directory(input, none)) return id_of(input);
  std::set<FileId> all;
  for (const std::string& name : midi_files(input, none).names)
    all.merge(id_of(fs::path(input) / name));
  none.clear();
  const auto skip = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator file(input, skip, none), end; !none && file != end;
       file.increment(none))
    all.merge(id_of(file->path()));
  return all;
}

void require_no_link(const fs::path& file) {
  std::error_code none;
  require(!fs::is_symlink(file, none),
          "--out: cannot write " + file.string() + ": it is a symbolic link");
}

void require_regular(const fs::path& file) {
  const auto need = [&](bool good, const std::string& why) {
    require(good, "--out: cannot write " + file.string() + ": " + why);
  };
  std::error_code none;
  require_no_link(file);
  if (!fs::exists(file, none)) return;
  need(fs::is_regular_file(file, none), "it is not a file");
  const bool writable = ::access(file.c_str(), W_OK) == 0;
  need(writable, std::strerror(errno));
}

std::set<std::string> names_made(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code none;
  const fs::path list = folder / list_name;
  if (!fs::is_regular_file(fs::symlink_status(list, none))) return names;
  std::istringstream lines(read_whole_file(list.string()));
  for (std::string name; std::getline(lines, name);) names.insert(name);
  return names;
}

// Moves the published files into the folder and removes their subfolder. May be repeated.
void complete(const fs::path& folder) {
  const fs::path from = folder / replacing_name;
  for (const fs::directory_entry& file : fs::directory_iterator(from))
    fs::rename(file.path(), folder / file.path().filename());
  fs::remove(from);
}

bool is_real_folder(const fs::path& path) {
  std::error_code none;
  return fs::is_directory(fs::symlink_status(path, none));
}

// Returns ", of process 123,", which names the process that holds the lock; "" if it is unknown.
std::string owner(int descriptor) {
  char text[21] = {};
  const ssize_t count = ::pread(descriptor, text, sizeof text - 1, 0);
  int64_t process = 0;
  const std::string line(text, count > 0 ? size_t(count) : 0);
  return read_text(line.substr(0, line.find('\n')), process) && process > 0
             ? ", of process " + as_text(process) + ","
             : "";
}

void write_owner(int descriptor) {
  const std::string line = as_text(int64_t(::getpid())) + "\n";
  if (::ftruncate(descriptor, 0) != 0 || ::pwrite(descriptor, line.data(), line.size(), 0) < 0)
    return;  // the content of the file is only a hint for the user
}

bool same(const struct stat& a, const struct stat& b) {
  return a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

}  // namespace

void check_outside_inputs(const std::string& out, const std::vector<RunInput>& inputs) {
  std::error_code none;
  for (const RunInput& input : inputs) {
    if (!input.folder || !fs::is_directory(input.path, none)) continue;
    const std::set<FileId> id = id_of(input.path);
    for (fs::path above = fs::weakly_canonical(fs::absolute(out), none); !above.empty();
         above = above.parent_path()) {
      require(id != id_of(above), "--out: " + out + " is inside the folder of " + input.option +
                                      ", " + input.path + "; choose one outside of it");
      if (above == above.root_path()) break;
    }
  }
}

void check_not_input(const std::vector<std::string>& files, const RunInput& input) {
  const std::set<FileId> ids = ids_of(input.path);
  for (const std::string& file : files)
    for (const std::string& written : {file, file + ".tmp"}) {
      const std::set<FileId> id = id_of(written);
      require(id.empty() || ids.count(*id.begin()) == 0,
              "--out: " + written + " is an input of this run, of " + input.option + " " +
                  input.path + "; choose another one");
    }
}

FolderLock::FolderLock(const std::string& folder)
    : folder_(folder), directory_(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  const std::string path = (std::filesystem::path(folder) / lock_name).string();
  const auto refuse = [&](const std::string& reason) {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (directory_ >= 0) ::close(directory_);
    throw UsageError("--out: " + reason);
  };
  if (directory_ < 0) refuse("cannot write " + folder + ": " + std::strerror(errno));
  for (;;) {
    constexpr int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    descriptor_ = ::openat(directory_, lock_name, flags, 0666);
    const int error = errno;
    if (descriptor_ < 0)
      refuse("cannot write " + (error == EACCES ? folder : path) + ": " + std::strerror(error));
    const bool held = ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    struct stat mine {};
    ::fstat(descriptor_, &mine);
    const bool left_by_lock = mine.st_size == 0 || !owner(descriptor_).empty();
    if (!S_ISREG(mine.st_mode) || mine.st_nlink > 1 || !left_by_lock)
      refuse("cannot write " + path + ": it was not left by an earlier run");
    if (held) refuse("another run" + owner(descriptor_) + " is using " + folder);
    // The previous owner may have removed the lock file since it was opened.
    if (is_ours(false)) break;
    ::close(descriptor_);
  }
  write_owner(descriptor_);
}

// True if the folder's ".lock" is the file that this process has locked.
bool FolderLock::is_ours(bool if_missing) const {
  struct stat mine {
  }, named{};
  if (::fstatat(directory_, lock_name, &named, AT_SYMLINK_NOFOLLOW) != 0)
    return if_missing && errno == ENOENT;
  return ::fstat(descriptor_, &mine) == 0 && same(mine, named);
}

bool FolderLock::held() const {
  struct stat mine {
  }, named{};
  return ::fstat(directory_, &mine) == 0 && ::stat(folder_.c_str(), &named) == 0 &&
         same(mine, named) && is_ours(true);
}

FolderLock::~FolderLock() {
  if (is_ours(false)) ::unlinkat(directory_, lock_name, 0);
  ::close(descriptor_);
  ::close(directory_);
}

OutputFolder::OutputFolder(std::string folder) : folder_(std::move(folder)), lock_(folder_) {
  std::error_code error;
  if (is_real_folder(in(replacing_name))) {
    complete(folder_);
    completed_ = true;
  }
  for (const char* left : {staging_name, nn::partial_folder})
    if (is_real_folder(in(left))) fs::remove_all(in(left), error);
  // Left by a run that was killed while it wrote the list; an unchanged list is not written again.
  fs::remove(in(std::string(list_name) + ".tmp"), error);
}

OutputFolder::~OutputFolder() {
  std::error_code error;
  if (staged_ && lock_.held()) fs::remove_all(in(staging_name), error);
}

std::string OutputFolder::in(const std::string& name) const {
  return (fs::path(folder_) / name).string();
}

std::string OutputFolder::path(const std::string& name) const {
  return (fs::path(where()) / name).string();
}

std::string OutputFolder::where() const {
  if (!lock_.held())
    throw std::runtime_error("--out: " + folder_ +
                             " was removed or replaced during this run; no more files are "
                             "written");
  const std::string now = staged_ ? in(staging_name) : folder_;
  for (const std::string& name : names_) require_no_link(fs::path(now) / name);
  return now;
}

void OutputFolder::check(const std::vector<std::string>& names, const std::vector<RunInput>& inputs,
                         const std::vector<std::string>& kept, bool replace) {
  require(::access(folder_.c_str(), W_OK | X_OK) == 0,
          "--out: cannot write " + folder_ + ": " + std::strerror(errno));
  std::vector<std::string> all = names;
  all.insert(all.end(), {list_name, staging_name, replacing_name});
  for (const std::string& name : all)
    if (name != staging_name && name != replacing_name) require_regular(in(name));
  for (const RunInput& input : inputs) {
    std::vector<std::string> files;
    for (const std::string& name : all)
      if (input.option != "--resume" || std::find(kept.begin(), kept.end(), name) == kept.end())
        files.push_back(in(name));
    check_not_input(files, input);
  }
  names_ = names;
  if (replace) return;
  const std::set<std::string> made = names_made(folder_);
  for (const std::string& name : names) {
    std::error_code none;
    require(made.count(name) > 0 || !fs::exists(in(name), none),
            "--out: " + folder_ + " has a file " + name +
                " that was not made by a run; --overwrite replaces it");
  }
}

bool OutputFolder::has_any(const std::vector<std::string>& names) const {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    std::error_code none;
    return fs::exists(in(name), none);
  });
}

void OutputFolder::stage() {
  for (const char* name : {staging_name, replacing_name}) {
    std::error_code none;
    require(fs::symlink_status(in(name), none).type() == fs::file_type::not_found,
            "--out: cannot write " + in(name) + ": it exists already");
  }
  fs::create_directory(in(staging_name));
  staged_ = true;
}

void OutputFolder::add_made(const std::vector<std::string>& names) {
  std::set<std::string> made = names_made(folder_);
  const size_t before = made.size();
  made.insert(names.begin(), names.end());
  if (made.size() == before) return;
  std::string list;
  for (const std::string& name : made) list += name + "\n";
  write_file_atomically(path(list_name), list);
}

void OutputFolder::publish(const std::vector<std::string>& names) {
  if (!staged_) return;
  where();  // throws if the folder was replaced
  fs::rename(in(staging_name), in(replacing_name));
  staged_ = false;
  std::error_code none;
  for (const std::string& name : names)
    if (!fs::exists(in(replacing_name + ("/" + name)), none)) fs::remove(in(name), none);
  complete(folder_);
}

}  // namespace stretto::examples
