#include "tests/examples/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <thread>

namespace stretto::examples::testing {
namespace {

double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

// In the child, between fork and exec: only system calls.
[[noreturn]] void become(int out, int err, char** words, const Surroundings& s) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
  ::signal(SIGHUP, s.nohup ? SIG_IGN : SIG_DFL);
  if (!s.output.empty()) out = ::open(s.output.c_str(), O_WRONLY);
  if (s.broken_pipe) {
    int ends[2];
    if (::pipe(ends) == 0) ::close(ends[0]);
    out = ends[1];
  }
  ::dup2(::open(s.input.empty() ? "/dev/null" : s.input.c_str(), O_RDONLY), 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  const auto limit = [](auto what, long most) {
    const rlimit both{rlim_t(most), rlim_t(most)};
    if (most > 0) ::setrlimit(what, &both);
  };
  limit(RLIMIT_FSIZE, s.largest_file);
  limit(RLIMIT_DATA, s.memory);
  for (const int descriptor : s.closed) ::close(descriptor);
  constexpr unsigned nobody = 65534;
  if (s.nobody && ::geteuid() == 0 && (::setgid(nobody) != 0 || ::setuid(nobody) != 0))
    ::_exit(126);
  ::execv(words[0], words);
  ::_exit(127);
}

}  // namespace

Arguments words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

std::string find_program(const std::string& name) {
  std::vector<std::string> folders;
  if (const char* folder = std::getenv("STRETTO_BIN_DIR")) folders.emplace_back(folder);
#ifdef STRETTO_BIN_DIR
  folders.emplace_back(STRETTO_BIN_DIR);
#endif
  for (const std::string& folder : folders) {
    const std::string path = folder + "/" + name;
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

std::string Ended::complaint() const {
  const std::string text = err.substr(0, err.find_last_not_of('\n') + 1);
  return text.substr(text.find_last_of('\n') + 1);
}

bool Ended::one_line() const { return err == complaint() + "\n"; }

Program::Program(const std::string& path, const std::vector<std::string>& arguments,
                 const Surroundings& surroundings)
    : started_(now()) {
  std::vector<std::string> texts{path};
  texts.insert(texts.end(), arguments.begin(), arguments.end());
  std::vector<char*> words;
  for (std::string& text : texts) words.push_back(text.data());
  words.push_back(nullptr);
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC;
  const int out = ::open(folder_.file("out").c_str(), flags, 0600);
  const int err = ::open(folder_.file("err").c_str(), flags, 0600);
  pid_ = ::fork();
  if (pid_ == 0) become(out, err, words.data(), surroundings);
  ::close(out);
  ::close(err);
  if (pid_ < 0) throw std::runtime_error("cannot fork");
}

Program::~Program() {
  if (pid_ < 0 || ended()) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, &status_, 0);
}

void Program::signal(int number) {
  if (!ended()) ::kill(pid_, number);
}

bool Program::ended() {
  if (!ended_) ended_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
  return ended_;
}

bool Program::wait_for(const std::string& text) {
  const std::string err = folder_.file("err");
  for (;;) {
    const bool last = ended();
    if (read_file(err).find(text) != std::string::npos) return true;
    if (last) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool Program::wait_for_handler(int number) {
  const std::string process = "/proc/" + std::to_string(pid_);
  const auto mine = std::filesystem::read_symlink("/proc/self/exe");
  for (;;) {
    if (ended()) return false;
    std::error_code gone;
    const bool begun = std::filesystem::read_symlink(process + "/exe", gone) != mine && !gone;
    const std::string text = begun ? read_file(process + "/status") : "";
    const size_t at = text.find("SigCgt:");
    if (at != std::string::npos &&
        (std::strtoull(text.c_str() + at + 7, nullptr, 16) >> (number - 1) & 1) != 0)
      return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Ended Program::wait() {
  while (!ended_) ended_ = ::waitpid(pid_, &status_, 0) == pid_;
  return {.status = WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_),
          .out = read_file(folder_.file("out")),
          .err = read_file(folder_.file("err")),
          .seconds = now() - started_};
}

Ended run(const std::string& path, const std::vector<std::string>& arguments,
          const Surroundings& surroundings) {
  return Program(path, arguments, surroundings).wait();
}

std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  if (!std::filesystem::exists(folder)) return files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    files[entry.path().string()] = entry.is_regular_file() ? read_file(entry.path().string()) : "";
  return files;
}

}  // namespace stretto::examples::testing
