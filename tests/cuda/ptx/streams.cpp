#include "streams.h"

#include <cuda_runtime_api.h>
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

namespace interpreter {
namespace {

int sticky = success;
thread_local int last = success;

bool lazy() {
  static const bool yes = [] {
    const char* text = std::getenv("PTX_STREAMS");
    const std::string mode = text ? text : "eager";
    if (mode != "eager" && mode != "lazy") {
      std::fprintf(stderr, "ptx: PTX_STREAMS is eager or lazy\n");
      std::abort();
    }
    return mode == "lazy";
  }();
  return yes;
}

std::vector<std::unique_ptr<Stream>>& streams() {  // by id; [0]: the default stream
  static auto* all = [] {
    auto* made = new std::vector<std::unique_ptr<Stream>>;
    made->push_back(std::make_unique<Stream>(Stream{0, true}));
    return made;
  }();
  return *all;
}

u64& at(Clock& c, size_t i) {
  if (c.size() <= i) c.resize(i + 1);
  return c[i];
}
u64 at(const Clock& c, size_t i) { return i < c.size() ? c[i] : 0; }
void join(Clock& c, const Clock& other) {
  for (size_t i = 0; i < other.size(); ++i) at(c, i) = std::max(at(c, i), other[i]);
}

Clock host;  // the work that the host knows to be done

struct Running {
  Stream* stream;
  const Work* work;
};
std::optional<Running> running;

/// The last uses of a block of device memory, by stream and position.
struct Use {
  size_t writer = 0;
  u64 written = 0;
  Clock read;
};
std::map<u64, Use>& uses() {
  static auto* all = new std::map<u64, Use>;
  return *all;
}

void run_until(Stream& s, u64 position);

void run_first(Stream& s) {
  Work work = std::move(s.queue.front());
  s.queue.pop_front();
  for (size_t i = 0; i < work.after.size(); ++i)
    if (i != s.id && streams()[i]) run_until(*streams()[i], work.after[i]);
  ++s.done;
  if (work.pinned) open_pinned(work.pinned, work.pinned_bytes);
  struct Close {
    const Work& w;
    ~Close() {
      if (w.pinned) release_pinned(w.pinned, w.pinned_bytes);
    }
  } close{work};
  if (sticky) return;
  at(work.after, s.id) = s.done;
  running = Running{&s, &work};
  try {
    work.run();
  } catch (const Fault& fault) {
    sticky = fault.code;
  } catch (const std::exception& e) {
    verdict("unknown: " + work.what + ": " + e.what());
    sticky = launch_failure;
  }
  running.reset();
}
void run_until(Stream& s, u64 position) {
  while (s.done < position && !s.queue.empty()) run_first(s);
}

}  // namespace

std::recursive_mutex& runtime_mutex() {
  static auto* mutex = new std::recursive_mutex;
  return *mutex;
}

int set_error(int error) {
  if (error) last = error;
  return error;
}
int last_error(bool clear) {
  const int e = sticky ? sticky : last;
  if (clear) last = success;
  return e;
}
int driver_version() {
  const char* const version = std::getenv("PTX_DRIVER");
  return version ? std::atoi(version) : CUDART_VERSION;
}
int lost() {
  return driver_version() / 1000 < CUDART_VERSION / 1000 ? insufficient_driver : sticky;
}
int lose(int error) { return sticky = error; }

void lose_in_children() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { sticky = initialization_error; });
  (void)registered;
}

Stream* create_stream(bool blocking) {
  lose_in_children();
  auto& all = streams();
  all.push_back(std::make_unique<Stream>(Stream{all.size(), blocking}));
  return all.back().get();
}
Stream& stream_of(void* handle) {
  return u64(handle) <= 2 ? *streams()[0] : *static_cast<Stream*>(handle);
}
bool known(const Stream* s) {
  return std::any_of(streams().begin(), streams().end(),
                     [&](const auto& one) { return one.get() == s; });
}
void destroy(Stream* s) {
  run_until(*s, s->submitted);
  streams()[s->id].reset();
}

bool capturing() {
  return std::any_of(streams().begin(), streams().end(),
                     [](const auto& s) { return s && s->capture; });
}
int refuse_in_capture(const char* call, bool takes_memory) {
  const bool refused = std::any_of(streams().begin(), streams().end(), [&](const auto& s) {
    return s && s->capture && !(takes_memory && s->capture->relaxed);
  });
  if (!refused) return success;
  std::fprintf(stderr, "ptx, a note: %s breaks a stream capture\n", call);
  for (auto& s : streams())
    if (s && s->capture) s->capture->broken = true;
  return set_error(capture_unsupported);
}

int submit(Stream& s, Work work) {
  std::lock_guard lock(runtime_mutex());
  if (sticky) return sticky;
  if (s.capture) {
    if (s.capture->thread != std::this_thread::get_id())
      verdict("streams: " + work.what + " by a thread that did not begin the capture under way");
    s.capture->works.push_back(std::move(work));
    return success;
  }
  if (s.id == 0 && capturing()) {
    refuse_in_capture("the default stream");
    return set_error(capture_implicit);
  }
  if (s.blocking)  // the default stream and the blocking ones wait for each other
    for (auto& o : streams())
      if (o && o.get() != &s && o->blocking && (s.id == 0 || o->id == 0))
        at(s.waits, o->id) = o->submitted;
  join(s.waits, host);
  work.after = s.waits;
  ++s.submitted;
  if (work.pinned) hold_pinned(work.pinned, work.pinned_bytes, work.writes_host);
  s.queue.push_back(std::move(work));
  if (!lazy()) run_until(s, s.submitted);
  return sticky;
}
int submit(void* stream, const char* what, std::function<void()> run) {
  return submit(stream_of(stream), {what, std::move(run), {}});
}

int synchronize(Stream& s, u64 up_to) {
  std::lock_guard lock(runtime_mutex());
  run_until(s, up_to);
  join(host, s.waits);
  at(host, s.id) = std::max(at(host, s.id), up_to);
  return sticky;
}
int synchronize_all() {
  std::lock_guard lock(runtime_mutex());
  for (size_t i = 0; i < streams().size(); ++i)
    if (streams()[i]) synchronize(*streams()[i], streams()[i]->submitted);
  return sticky;
}
bool ready(Stream& s) {
  if (sticky || s.done == s.submitted || s.queried == s.submitted) return true;
  s.queried = s.submitted;
  return false;
}
void wait(Stream& s, const Event& e) {
  if (e.stream && known(e.stream))
    at(s.waits, e.stream->id) = std::max(at(s.waits, e.stream->id), e.position);
  if (e.stream && known(e.stream)) join(s.waits, e.stream->waits);
}

void order_access(u64 block, bool writes, const std::string& what) {
  if (!running || streams().size() == 1) return;
  const size_t me = running->stream->id;
  const u64 now = running->stream->done;
  const Clock& after = running->work->after;
  Use& use = uses()[block];
  auto unordered = [&](size_t stream, u64 position) {
    return position && stream != me && at(after, stream) < position;
  };
  bool bad = unordered(use.writer, use.written);
  if (writes)
    for (size_t i = 0; i < use.read.size(); ++i) bad |= unordered(i, use.read[i]);
  if (bad) {
    verdict("streams: " + what + (writes ? " writes" : " reads") +
            " what work of another stream uses, with no event or synchronization between, " +
            DeviceMemory::get().place(block));
    throw Fault{launch_failure};
  }
  if (writes) {
    use.writer = me;
    use.written = now;
  } else {
    at(use.read, me) = now;
  }
}
void forget_accesses(u64 block) { uses().erase(block); }

}  // namespace interpreter
