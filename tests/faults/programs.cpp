#include "tests/faults/programs.h"

#include <signal.h>
#include <stdlib.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

#include "examples/chorales/chorale_settings.h"
#include "examples/chorales/chorale_song.h"
#include "examples/groove/groove_generator.h"
#include "examples/groove/groove_midi.h"
#include "examples/text/grammar.h"
#include "nn/files/safetensors.h"
#include "tests/examples/chorales/train_chorales.h"
#include "tests/examples/groove/groove_toys.h"
#include "tests/examples/program.h"

namespace stretto::testing {
namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using namespace stretto::music;              // NOLINT

constexpr int most_seconds = 120;  // limit for a run, which takes about one

// Command lines of a program with its own directory, like TinyRun but without Catch2.
class TinyProgram {
 public:
  TinyProgram(const std::string& program, Arguments settings_)
      : path(find_program(program)), settings(std::move(settings_)) {}

  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string out() const { return file("out"); }
  std::string checkpoint_path() const { return file("out/checkpoint.safetensors"); }
  bool has_checkpoint() const { return std::filesystem::exists(checkpoint_path()); }
  std::string checkpoint() const { return has_checkpoint() ? read_file(checkpoint_path()) : ""; }
  Arguments command(bool resume) const {
    Arguments all = settings;
    all.insert(all.end(), {"--out", out(), "--threads", "1"});
    if (resume) all.insert(all.end(), {"--resume", checkpoint_path()});
    return all;
  }

  const std::string path;
  Arguments settings;

 private:
  TempDir folder_;
};

// The programs and their data.
using Make = std::function<std::unique_ptr<TinyProgram>()>;

std::unique_ptr<TinyProgram> make(const std::string& program, Arguments more) {
  const Arguments small = words(
      "--layers 1 --d-model 16 --heads 2 --d-hidden 32 --warmup 5 --steps 20 "
      "--save-every 3");
  more.insert(more.begin(), small.begin(), small.end());
  return std::make_unique<TinyProgram>(program, more);
}

std::unique_ptr<TinyProgram> with_chorales(const std::string& program, const Arguments& more) {
  auto tiny = make(program, more);
  save_chorales(tiny->file("tiny.json"), tiny_chorales());
  tiny->settings.insert(tiny->settings.end(), {"--data", tiny->file("tiny.json")});
  return tiny;
}

std::unique_ptr<TinyProgram> with_midi(const std::string& program, const Arguments& more,
                                       const std::function<Song(size_t)>& song) {
  auto tiny = make(program, more);
  std::filesystem::create_directory(tiny->file("midi"));
  for (size_t i = 0; i < 4; ++i)
    write_midi(tiny->file("midi/" + std::to_string(i) + ".mid"), song(i));
  tiny->settings.insert(tiny->settings.end(), {"--data", tiny->file("midi")});
  return tiny;
}

const std::map<std::string, Make> subjects{
    {"train_chorales",
     [] {
       return with_chorales("train_chorales",
                            words("--length 32 --batch 2 --generate 8 --prime 4"));
     }},
    {"harmonize",
     [] { return with_chorales("harmonize", words("--length 8 --batch 2 --pieces 1")); }},
    {"train_music",
     [] {
       const auto chorales = generate_chorales(5, 4, 1, 1).train;
       return with_midi(
           "train_music",
           words("--every 3 --features 8 --redraw 5 --length 32 --batch 2 "
                 "--validation-windows 4 --eval-windows 4 --picture-length 20 --generate "
                 "40"),
           [&](size_t i) { return to_song(chorales[i]); });
     }},
    {"groove",
     [] {
       return with_midi("groove", words("--length 40 --batch 2 --tokens 50 --continuations 1"),
                        [](size_t i) { return with_fullest_harmony(generate_groove(2, i)); });
     }},
    {"lra",
     [] {
       return make("lra", words("--small --expressions 100 --held-out-expressions 20 --max-depth 2 "
                                "--min-expression 2 --max-expression 8 --max-length 8 --d-head 0 "
                                "--batch 8"));
     }},
    {"train_tokens",
     [] { return make("train_tokens", words("--length 16 --every 100 --generate 8")); }},
    {"train_lm", [] {
       auto tiny = make("train_lm", words("--length 16 --batch 2 --generate 20"));
       write_file(tiny->file("text.txt"), generate_text(2, 3000));
       tiny->settings.insert(tiny->settings.end(), {"--data", tiny->file("text.txt")});
       return tiny;
     }}};

// A fault: a failing call (kind and way of preload/faults.cpp), or a signal at a random time.
struct FaultKind {
  const char* column;
  const char* how;
  int signal = 0;
};
constexpr FaultKind kinds[] = {
    {"memory", "once"},       {"SIGKILL", "", SIGKILL}, {"write", "ENOSPC"}, {"memory", "always"},
    {"SIGTERM", "", SIGTERM}, {"write", "full"},        {"memory", "once"},  {"rename", "EIO"},
    {"SIGINT", "", SIGINT},   {"fsync", "EIO"},         {"open", "EMFILE"},  {"SIGHUP", "", SIGHUP},
    {"write", "EIO"},         {"memory", "once"},       {"write", "short"},  {"write", "EINTR"}};

class Environment {
 public:
  explicit Environment(std::map<std::string, std::string> values) : values_(std::move(values)) {
    for (const auto& [name, value] : values_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : values_) ::unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::map<std::string, std::string> values_;
};

class Hunt {
 public:
  Hunt(const ProgramFaults& options, const std::string& program, const Make& make_run)
      : options_(options), program_(program), whole_(make_run()), random_(options.seed) {}

  void operator()() {
    const TempDir folder;
    const Ended ended = run(*whole_, false, {{"STRETTO_FAULT_COUNTS", folder.file("counts")}});
    seconds_ = ended.seconds;
    expect(ended.status == 0, "undisturbed", "fails: " + ended.complaint());
    if (ended.status != 0) return;
    expected_ = whole_->checkpoint();
    std::istringstream counts(read_file(folder.file("counts")));
    long count = 0;
    for (std::string kind; counts >> kind >> count;) counts_[kind] = count;
    for (size_t trial = 0; injected() < options_.faults; ++trial) one_trial(trial);
  }

  void print() const {
    std::printf("| %s |", program_.c_str());
    for (const char* column : columns) {
      const auto found = met_.find(column);
      std::printf(" %d |", found == met_.end() ? 0 : found->second);
    }
    std::printf(" %d | %d |\n", injected(), complaints_);
    std::fflush(stdout);
  }
  static void print_head() {
    std::printf("| program |");
    for (const char* column : columns) std::printf(" %s |", column);
    std::printf(" all | complaints |\n| --- |");
    for (size_t i = 0; i < std::size(columns) + 2; ++i) std::printf(" ---: |");
    std::printf("\n");
  }
  int injected() const {
    int all = 0;
    for (const auto& [kind, count] : met_) all += count;
    return all;
  }
  int complaints() const { return complaints_; }

 private:
  static constexpr const char* columns[] = {"memory",  "write",   "fsync",  "rename", "open",
                                            "SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"};

  void expect(bool good, const std::string& where, const std::string& what) {
    if (good) return;
    ++complaints_;
    std::printf("%s, %s: %s\n", program_.c_str(), where.c_str(), what.c_str());
    std::fflush(stdout);
  }

  std::map<std::string, std::string> under_library() const {
    return {{"LD_PRELOAD", options_.library},
            {"STRETTO_FAULT_SECONDS", std::to_string(most_seconds)}};
  }

  Ended run(const TinyProgram& tiny, bool resume, std::map<std::string, std::string> more) const {
    more.merge(under_library());
    std::optional<Program> program;
    {
      const Environment environment(more);
      program.emplace(tiny.path, tiny.command(resume));
    }
    return program->wait();
  }

  // A fault in a new run, often a second one in the resumed run, then an undisturbed run
  // to the end.
  void one_trial(size_t trial) {
    const TinyProgram tiny(program_, whole_->settings);
    bool finished = disturbed(tiny, kinds[trial % std::size(kinds)]);
    if (!finished && random_.percent(60) && tiny.has_checkpoint())
      finished = disturbed(tiny, kinds[size_t(random_.below(int(std::size(kinds))))]);
    if (finished) return;
    const bool resume = tiny.has_checkpoint();
    if (!resume) std::filesystem::remove_all(tiny.out());
    const Ended ended = run(tiny, resume, {});
    expect(ended.status == 0, last_, "cannot resume: " + ended.complaint());
    if (ended.status == 0)
      expect(tiny.checkpoint() == expected_, last_, "ends with another checkpoint");
  }

  // True if the run finished despite the fault.
  bool disturbed(const TinyProgram& tiny, const FaultKind& kind) {
    const bool resume = tiny.has_checkpoint();
    const size_t left_before = left_over(tiny);
    const Ended ended =
        kind.signal > 0 ? signalled(tiny, resume, kind) : failed(tiny, resume, kind);
    const std::string where = last_;
    const int status = ended.status;
    expect(status != 128 + SIGALRM, where, "hangs");
    const bool by_signal = kind.signal > 0 && (status == 128 + kind.signal || status == 130);
    expect(status <= 2 || by_signal || status == 128 + SIGALRM, where,
           "ends with status " + std::to_string(status) + ": " + ended.complaint());
    expect(status == 0 || by_signal || !ended.err.empty(), where, "ends without an error message");
    expect(!resume || tiny.has_checkpoint(), where, "the checkpoint is lost");
    if (tiny.has_checkpoint()) {
      try {
        nn::load_safetensors(tiny.checkpoint_path());
      } catch (const Error& e) {
        expect(false, where, e.what());
      }
    }
    if (kind.signal == 0)  // an earlier run that was killed may have left one
      expect(left_over(tiny) <= left_before, where, "leaves a temporary file");
    if (status == 0) expect(tiny.checkpoint() == expected_, where, "ends with another checkpoint");
    return status == 0;
  }

  static size_t left_over(const TinyProgram& tiny) {
    size_t count = 0;
    for (const auto& [path, content] : contents(tiny.out())) count += path.ends_with(".tmp");
    return count;
  }

  Ended failed(const TinyProgram& tiny, bool resume, const FaultKind& kind) {
    const TempDir folder;
    // Half of the faults hit the first fifth of the calls, where the setup is.
    const int most = int(std::max(1L, counts_[kind.column] / (random_.percent(50) ? 5 : 1)));
    const std::string fault =
        std::string(kind.column) + " " + std::to_string(1 + random_.below(most)) + " " + kind.how;
    last_ = fault + (resume ? ", resumed" : "");
    Ended ended =
        run(tiny, resume, {{"STRETTO_FAULT", fault}, {"STRETTO_FAULT_MARK", folder.file("mark")}});
    if (std::filesystem::exists(folder.file("mark"))) ++met_[kind.column];
    return ended;
  }

  Ended signalled(const TinyProgram& tiny, bool resume, const FaultKind& kind) {
    const double after = seconds_ * random_.below(1000) / 1000;
    std::ostringstream where;
    where << kind.column << " after " << after << " s" << (resume ? ", resumed" : "");
    last_ = where.str();
    std::optional<Program> program;
    {
      const Environment environment(under_library());
      program.emplace(tiny.path, tiny.command(resume));
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(after));
    program->signal(kind.signal);
    Ended ended = program->wait();
    if (ended.status != 0) ++met_[kind.column];
    return ended;
  }

  const ProgramFaults& options_;
  const std::string program_;
  const std::unique_ptr<TinyProgram> whole_;
  PortableRandom random_;
  double seconds_ = 0;
  std::string expected_, last_;
  std::map<std::string, long> counts_;
  std::map<std::string, int> met_;
  int complaints_ = 0;
};

}  // namespace

int fail_programs(const ProgramFaults& options) {
  int complaints = 0, all = 0;
  std::vector<std::unique_ptr<Hunt>> hunts;
  for (const auto& [program, make_run] : subjects) {
    if (!options.program.empty() && options.program != program) continue;
    hunts.push_back(std::make_unique<Hunt>(options, program, make_run));
    (*hunts.back())();
    complaints += hunts.back()->complaints();
    all += hunts.back()->injected();
  }
  Hunt::print_head();
  for (const auto& hunt : hunts) hunt->print();
  std::printf("%d faults\n", all);
  return complaints + hunts.empty();
}

}  // namespace stretto::testing
