#include "mutations.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "modules.h"
#include "streams.h"

namespace interpreter {
namespace {

constexpr size_t most_tries = 8, most_text = 1000;
constexpr int seconds_of_launch = 10, seconds_of_test = 60;

enum class Kind { barrier, compare, limit };
constexpr const char* ways[3][2] = {
    {"removed", ""}, {"always false", "always true"}, {"first operand", "second operand"}};

/// A launch that a mutation would change: of a test case's launches, the one in which warps execute
/// the place most often.
struct Try {
  u64 launch;
  std::string test;
  double times;  // executions per warp
};
struct Mutation {
  std::vector<Try> tries;
  std::string verdict, test;  // of the child that detected it
};
struct Site {
  Kind kind;
  Mutation ways[2];  // a barrier has only the first
};
struct Key {
  std::string kernel, where, op;
  auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr)
};
struct Place {
  int pc;
  Site* site;
};

struct Child {
  pid_t pid = 0;
  Mutation* mutation = nullptr;
  std::string test;
  char* text = nullptr;  // shared with the child
};

struct Trial {
  std::string plan, file;  // read; written
  bool plans = false, barriers_only = false;
  std::map<Key, Site> sites;
  std::map<const Kernel*, std::vector<Place>> places;
  std::map<u64, std::vector<std::pair<Site*, int>>> at;  // launch → mutations to try
  std::vector<Child> children;
  u64 launches = 0;
  std::string test = "no test";
  // Of the first run:
  std::map<std::string, double> seconds;  // of test cases
  std::chrono::steady_clock::time_point begun;
  std::map<const Kernel*, std::vector<Handler>> runs;
  std::vector<u8> changes;  // by instruction of the running kernel: ways that change something
  const Kernel* running = nullptr;
  const std::vector<Handler>* instead_of = nullptr;  // the kernel's own, in `runs`
  // Of a child:
  char* own = nullptr;
  const Site* site = nullptr;
  int way = 0;
  std::set<const Kernel*> patched;
};

char* shared_text() {
  void* p = mmap(nullptr, most_text, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) std::abort();
  return static_cast<char*>(p);
}

Trial* trial() {
  static Trial* s = []() -> Trial* {
    const char* plan = std::getenv("PTX_REMOVE_PLAN");
    if (!plan) return nullptr;
    auto* made = new Trial;
    made->plan = plan;
    const char *file = std::getenv("PTX_REMOVE"), *kind = std::getenv("PTX_REMOVE_KIND");
    made->plans = file == nullptr;
    made->file = file ? file : "";
    made->barriers_only = kind && std::string(kind) == "barriers";
    made->children.resize(std::max(1u, std::thread::hardware_concurrency()));
    for (Child& c : made->children) c.text = shared_text();
    return made;
  }();
  return s;
}

// ---- the places of a kernel, and their replacements

const Statement* removable(const Instruction& i, Kind& kind) {
  const Statement* s = i.source;
  if (!s || !s->where || s->where->find("curand") != std::string::npos) return nullptr;
  const std::string& op = s->op[0];
  const char type = s->type().kind;
  const bool whole = type == 'b' || type == 'u' || type == 's';
  if (op == "bar" || op == "barrier") {
    kind = Kind::barrier;
  } else if (op == "setp" && whole) {
    kind = Kind::compare;
  } else if ((op == "min" || op == "max") && whole) {
    kind = Kind::limit;
  } else {
    return nullptr;
  }
  return s;
}

const std::vector<Place>& places_of(const Kernel& k) {
  Trial& s = *trial();
  const auto [it, fresh] = s.places.try_emplace(&k);
  if (!fresh) return it->second;
  for (size_t pc = 0; pc < k.code.size(); ++pc) {
    Kind kind;
    const Statement* at = removable(k.code[pc], kind);
    if (!at || (s.barriers_only && kind != Kind::barrier)) continue;
    Site& site = s.sites[{k.name.substr(0, k.name.find('<')), *at->where, at->name()}];
    site.kind = kind;
    it->second.push_back({int(pc), &site});
  }
  return it->second;
}

void nothing(const Instruction&, Warp&, u32) {}

template <bool value>
void always(const Instruction& i, Warp& w, u32 mask) {
  set_predicate(w, i.d, mask, value ? all_lanes : 0);
  if (i.count == 2) set_predicate(w, i.list[1], mask, value ? 0 : all_lanes);
}
template <class T, int n>
void operand(const Instruction& i, Warp& w, u32 mask) {
  const T* a = w.lane<T>(i.s[n]);
  each_lane<T>(w, i.d, mask, [&](int l) { return a[l]; });
}
template <int n>
Handler operand_of(const Instruction& i) {
  const int bits = i.source->type().bits;
  return bits == 64 ? operand<u64, n> : bits == 32 ? operand<u32, n> : operand<u16, n>;
}

void remove(Instruction& i, Kind kind, int way) {
  if (kind == Kind::barrier) {
    if (i.d) return;  // of votes: the result would be missing
    i.run = nothing;
    i.flow = Flow::plain;
  } else if (kind == Kind::compare) {
    i.run = way ? always<true> : always<false>;
  } else {
    i.run = way ? operand_of<1>(i) : operand_of<0>(i);
  }
}

template <class T>
u8 limit_changes(const Instruction& i, Warp& w, u32 mask) {
  const T *d = w.lane<T>(i.d), *a = w.lane<T>(i.s[0]), *b = w.lane<T>(i.s[1]);
  u8 changes = 0;
  for_lanes(mask, [&](int l) { changes |= u8((d[l] != a[l]) | (d[l] != b[l]) << 1); });
  return changes;
}

/// Runs the instruction and records which mutations would have made a difference.
void watch(const Instruction& i, Warp& w, u32 mask) {
  Trial& s = *trial();
  const size_t pc = size_t(&i - s.running->code.data());
  (*s.instead_of)[pc](i, w, mask);
  u8 changes = 0;
  if (i.source->op[0] == "setp") {
    const u32 holds = w.mask(i.d) & mask;
    changes = u8((holds != 0) | (holds != mask) << 1);
  } else {
    const int bits = i.source->type().bits;
    changes = bits == 64   ? limit_changes<u64>(i, w, mask)
              : bits == 32 ? limit_changes<u32>(i, w, mask)
                           : limit_changes<u16>(i, w, mask);
  }
  s.changes[pc] |= changes;
}

// ---- children

void set_timer(int seconds) {
  const itimerval t = {{0, 0}, {seconds, 0}};
  setitimer(ITIMER_REAL, &t, nullptr);
}

void out_of_time(int) {
  static constexpr char text[] = "does not end";
  std::copy(std::begin(text), std::end(text), trial()->own);
  _exit(verdict_status);
}

void become_child(char* text) {
  Trial& s = *trial();
  s.own = text;
  lose(success);                                // this child goes on
  new (&runtime_mutex()) std::recursive_mutex;  // a thread that is not here holds it
  std::signal(SIGALRM, out_of_time);
  set_timer(seconds_of_test);
  const int sink = open("/dev/null", O_WRONLY);
  dup2(sink, 1);
  dup2(sink, 2);
}

void reap(Child& c, int status) {
  Mutation& r = *c.mutation;
  c.pid = 0;
  if (!r.verdict.empty()) return;
  if (c.text[0]) {
    r.verdict = c.text;
  } else if (WIFSIGNALED(status)) {
    r.verdict = "the program crashes";
  } else if (WEXITSTATUS(status) != 0) {
    r.verdict = "the program ends";
  } else {
    return;
  }
  r.test = c.test;
}

/// A child that has ended or is unused; waits for one.
Child& free_child() {
  for (;;) {
    for (Child& c : trial()->children) {
      int status;
      if (c.pid == 0) return c;
      if (waitpid(c.pid, &status, WNOHANG) == c.pid) {
        reap(c, status);
        return c;
      }
    }
    usleep(500);
  }
}

/// Waits for the child with this mutation, if there is one: without its verdict it is not known
/// whether the mutation needs another test case.
void wait_for_verdict(const Mutation& r) {
  for (Child& c : trial()->children) {
    int status;
    if (c.pid == 0 || c.mutation != &r) continue;
    waitpid(c.pid, &status, 0);
    reap(c, status);
  }
}

/// From now on, the kernel's comparisons record what mutations would change.
void watch_kernel(Kernel& k) {
  Trial& s = *trial();
  s.running = &k;
  s.changes.assign(k.code.size(), 0);
  const auto [it, fresh] = s.runs.try_emplace(&k);
  s.instead_of = &it->second;
  if (!fresh) return;
  it->second.resize(k.code.size());
  for (const Place& p : places_of(k)) {
    if (p.site->kind == Kind::barrier) continue;
    Instruction& i = k.code[size_t(p.pc)];
    it->second[size_t(p.pc)] = i.run;
    i.run = watch;
  }
}

// The plan: a line for each site and way, with the launches that it would change: those of the
// quickest test cases, and those in which warps execute the place most often.
void write_plan() {
  Trial& s = *trial();
  std::ofstream out(s.plan);
  for (auto& [key, site] : s.sites)
    for (int way = 0; way < 2; ++way) {
      std::vector<Try>& tries = site.ways[way].tries;
      std::stable_sort(tries.begin(), tries.end(), [&](const Try& a, const Try& b) {
        return s.seconds[a.test] < s.seconds[b.test];
      });
      if (tries.size() > most_tries)
        std::stable_sort(tries.begin() + most_tries / 2, tries.end(),
                         [](const Try& a, const Try& b) { return a.times > b.times; });
      for (size_t t = 0; t < std::min(tries.size(), most_tries); ++t)
        out << key.kernel << '\t' << key.where << '\t' << key.op << '\t' << way << '\t'
            << tries[t].launch << '\n';
    }
}
void read_plan() {
  Trial& s = *trial();
  std::ifstream in(s.plan);
  std::string kernel, where, op, way, launch;
  while (std::getline(in, kernel, '\t') && std::getline(in, where, '\t') &&
         std::getline(in, op, '\t') && std::getline(in, way, '\t') && std::getline(in, launch)) {
    Site& site = s.sites.at({kernel, where, op});
    const u64 at = std::strtoull(launch.c_str(), nullptr, 10);
    site.ways[way == "1"].tries.push_back({at, "", 0});
    s.at[at].emplace_back(&site, way == "1");
  }
}

void write_file() {
  const Trial& s = *trial();
  std::ofstream out(s.file);
  for (const auto& [key, site] : s.sites)
    for (int way = 0; way < (site.kind == Kind::barrier ? 1 : 2); ++way) {
      const Mutation& r = site.ways[way];
      out << key.kernel << '\t' << key.where << '\t' << key.op << '\t' << ways[int(site.kind)][way]
          << '\t' << r.tries.size() << '\t' << r.verdict << '\t' << r.test << '\n';
    }
}

void patch(Kernel& k) {
  Trial& s = *trial();
  if (!s.site || !s.patched.insert(&k).second) return;
  for (const Place& p : places_of(k))
    if (p.site == s.site) remove(k.code[size_t(p.pc)], s.site->kind, s.way);
}

}  // namespace

void before_launch(const Launch& l) {
  Trial* const s = trial();
  if (!s) return;
  if (s->own) {
    patch(l.kernel);
    set_timer(seconds_of_launch);
    return;
  }
  if (s->launches++ == 0) {
    each_kernel([](Kernel& k) { places_of(k); });  // launched or not
    if (!s->plans) read_plan();
  }
  if (s->plans) {
    watch_kernel(l.kernel);
    return;
  }
  const auto planned = s->at.find(s->launches);
  if (planned == s->at.end()) return;
  for (const auto& [site, way] : planned->second) {
    Mutation& r = site->ways[way];
    wait_for_verdict(r);
    if (!r.verdict.empty()) continue;
    Child& child = free_child();
    child.text[0] = 0;
    child.mutation = &r;
    child.test = s->test;
    child.pid = fork();
    if (child.pid > 0) continue;
    become_child(child.text);
    s->site = site;
    s->way = way;
    return before_launch(l);
  }
}

void after_launch(const Launch& l) {
  Trial* const s = trial();
  if (!s) return;
  if (s->own) set_timer(seconds_of_test);
  if (!s->plans) return;
  const u64 warps = l.grid.count() * ((l.block.count() + 31) / 32);
  for (const Place& p : places_of(l.kernel)) {
    u8 changes = s->changes[size_t(p.pc)];
    const u64 executed = l.kernel.executed[size_t(p.pc)];
    if (p.site->kind == Kind::barrier) changes = executed > 0;
    for (int way = 0; way < 2; ++way) {
      if (!(changes >> way & 1)) continue;
      std::vector<Try>& tries = p.site->ways[way].tries;
      const Try now{s->launches, s->test, double(executed) / double(warps)};
      if (tries.empty() || tries.back().test != s->test)
        tries.push_back(now);
      else if (now.times > tries.back().times)
        tries.back() = now;
    }
  }
}

void report_mutation(const std::string& verdict) {
  Trial* const s = trial();
  if (!s || !s->own) return;
  const size_t n = std::min(verdict.size(), most_text - 1);
  std::copy_n(verdict.begin(), n, s->own);
  s->own[n] = 0;
  _exit(verdict_status);
}

void write_mutations() {
  Trial* const s = trial();
  if (!s) return;
  if (s->own) _exit(0);
  if (s->plans) return write_plan();
  for (Child& c : s->children) {
    int status;
    if (c.pid == 0) continue;
    waitpid(c.pid, &status, 0);
    reap(c, status);
  }
  write_file();
}

}  // namespace interpreter

// Found by tests/support/main.cpp with dlsym.
extern "C" {

void ptx_test_begins(const char* name) {
  interpreter::Trial* const s = interpreter::trial();
  if (!s) return;
  s->test = name;
  s->begun = std::chrono::steady_clock::now();
}
void ptx_test_ends(bool failed) {
  interpreter::Trial* const s = interpreter::trial();
  if (!s) return;
  s->seconds[s->test] =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - s->begun).count();
  if (!s->own && !s->plans && !s->sites.empty()) interpreter::write_file();  // intermediate results
  if (!s->own) return;
  if (failed) interpreter::report_mutation("the test fails");
  _exit(0);
}

}  // extern "C"
