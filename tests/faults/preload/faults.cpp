// A library for LD_PRELOAD that makes a chosen call fail: the k-th request for memory (malloc,
// calloc, realloc, aligned_alloc, posix_memalign, and so every operator new; mmap), or the k-th
// write, fsync, rename, open or read of a file, or the k-th new thread.
//
// A test calls stretto_fault_arm and stretto_fault_disarm (tests/faults/fault.h). In other programs
// environment variables choose the call, counted from the beginning of main:
//     STRETTO_FAULT="KIND K HOW"   the arguments of stretto_fault_arm
//     STRETTO_FAULT_COUNTS=FILE    writes the number of calls of each kind, one per line
//     STRETTO_FAULT_MARK=FILE      creates FILE when the call has failed
//     STRETTO_FAULT_SECONDS=N      ends the program with SIGALRM after N seconds
//     STRETTO_FAULT_TRACE=1        prints the caller to standard error
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>

namespace {

enum Kind { memory, write_call, fsync_call, rename_call, open_call, read_call, thread_call, kinds };
constexpr const char* names[kinds] = {"memory", "write", "fsync", "rename",
                                      "open",   "read",  "thread"};

std::atomic<bool> counting{false};
std::atomic<long> counts[kinds];
std::atomic<int> armed_kind{kinds};
std::atomic<long> at{0}, fired{0};
int error = ENOMEM;
bool always = false, partly = false, trace = false;
const char* mark = nullptr;

// True if this call must fail; errno is then set. If `partly`, it does half of its work.
bool fails(Kind kind) {
  if (!counting.load(std::memory_order_relaxed)) return false;
  const long k = ++counts[kind];
  if (armed_kind.load() != kind || k < at.load() || (k > at.load() && !always)) return false;
  if (++fired == 1 && mark)
    ::syscall(SYS_close, ::syscall(SYS_openat, AT_FDCWD, mark, O_CREAT | O_WRONLY, 0600));
  if (trace) {
    counting = false;
    void* frames[64];
    ::backtrace_symbols_fd(frames, ::backtrace(frames, 64), 2);
    counting = true;
  }
  errno = error;
  return true;
}

// True for a regular file that is not a standard stream.
bool is_counted(int fd) {
  struct stat info;
  return fd > 2 && ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

// False for files that system libraries open for themselves; they are not counted.
bool is_counted(const char* path) {
  for (const char* start : {"/proc/", "/sys/", "/dev/", "/usr/", "/lib", "/etc/"})
    if (strncmp(path, start, strlen(start)) == 0) return false;
  return true;
}

struct Mode {
  const char* name;
  int error;
};
constexpr Mode modes[] = {{"once", ENOMEM},  {"always", ENOMEM}, {"ENOSPC", ENOSPC},
                          {"EIO", EIO},      {"EMFILE", EMFILE}, {"EACCES", EACCES},
                          {"EINTR", EINTR},  {"short", EINTR},   {"full", ENOSPC},
                          {"EAGAIN", EAGAIN}};

using Main = int (*)(int, char**, char**);
Main real_main;
const char* counts_file;

}  // namespace

extern "C" {

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

/// Makes the k-th call of a kind fail from now on. HOW: "once" and "always" (from the k-th on) with
/// ENOMEM; "ENOSPC", "EIO", "EMFILE", "EACCES", "EINTR" once; "full": ENOSPC from the k-th on;
/// "short": a write or read of half the bytes. k = 0 only counts.
void stretto_fault_arm(const char* kind, long k, const char* how) {
  counting = false;
  for (auto& count : counts) count = 0;
  fired = 0;
  at = k;
  armed_kind = kinds;
  always = strcmp(how, "always") == 0 || strcmp(how, "full") == 0;
  partly = strcmp(how, "short") == 0;
  for (const Mode& mode : modes)
    if (strcmp(mode.name, how) == 0) error = mode.error;
  for (int i = 0; k > 0 && i < kinds; ++i)
    if (strcmp(names[i], kind) == 0) armed_kind = i;
  counting = true;
}

/// Stops failures. Returns the number of failed calls.
long stretto_fault_disarm() {
  counting = false;
  return fired;
}

/// Returns the number of calls since arming.
long stretto_fault_count(const char* kind) {
  for (int i = 0; i < kinds; ++i)
    if (strcmp(names[i], kind) == 0) return counts[i];
  return -1;
}

void* malloc(size_t n) { return fails(memory) ? nullptr : __libc_malloc(n); }
void* calloc(size_t n, size_t size) { return fails(memory) ? nullptr : __libc_calloc(n, size); }
void* realloc(void* p, size_t n) { return n > 0 && fails(memory) ? nullptr : __libc_realloc(p, n); }
void* aligned_alloc(size_t a, size_t n) { return fails(memory) ? nullptr : __libc_memalign(a, n); }
void* memalign(size_t a, size_t n) { return fails(memory) ? nullptr : __libc_memalign(a, n); }
int posix_memalign(void** p, size_t a, size_t n) {
  if (fails(memory)) return ENOMEM;
  *p = __libc_memalign(a, n);
  return *p ? 0 : ENOMEM;
}

void* mmap(void* address, size_t n, int access, int flags, int fd, off_t offset) {
  if (fails(memory)) return MAP_FAILED;
  return reinterpret_cast<void*>(::syscall(SYS_mmap, address, n, access, flags, fd, offset));
}
void* mmap64(void* address, size_t n, int access, int flags, int fd, off_t offset) {
  return mmap(address, n, access, flags, fd, offset);
}

ssize_t write(int fd, const void* from, size_t n) {
  if (is_counted(fd) && fails(write_call)) {
    if (!partly || n < 2) return -1;
    n /= 2;
  }
  return ::syscall(SYS_write, fd, from, n);
}
ssize_t writev(int fd, const iovec* parts, int count) {
  if (is_counted(fd) && fails(write_call)) {
    if (!partly || count < 2) return -1;
    count = 1;
  }
  return ::syscall(SYS_writev, fd, parts, count);
}
ssize_t pwrite(int fd, const void* from, size_t n, off_t offset) {
  if (is_counted(fd) && fails(write_call)) {
    if (!partly || n < 2) return -1;
    n /= 2;
  }
  return ::syscall(SYS_pwrite64, fd, from, n, offset);
}
ssize_t read(int fd, void* to, size_t n) {
  if (is_counted(fd) && fails(read_call)) {
    if (!partly || n < 2) return -1;
    n /= 2;
  }
  return ::syscall(SYS_read, fd, to, n);
}
ssize_t pread(int fd, void* to, size_t n, off_t offset) {
  if (is_counted(fd) && fails(read_call)) {
    if (!partly || n < 2) return -1;
    n /= 2;
  }
  return ::syscall(SYS_pread64, fd, to, n, offset);
}
int fsync(int fd) { return fails(fsync_call) ? -1 : int(::syscall(SYS_fsync, fd)); }
int rename(const char* from, const char* to) {
  if (fails(rename_call)) return -1;
  return int(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (is_counted(path) && fails(open_call)) return -1;
  return int(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open(path, flags, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  static const auto real =
      reinterpret_cast<FILE* (*)(const char*, const char*)>(::dlsym(RTLD_NEXT, "fopen64"));
  return is_counted(path) && fails(open_call) ? nullptr : real(path, mode);
}
FILE* fopen(const char* path, const char* mode) { return fopen64(path, mode); }

// Some libraries, e.g. Fortran's runtime, end the process if their initialization lacks memory.
void* dlopen(const char* file, int mode) {
  using Open = void* (*)(const char*, int);
  static const auto real = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "dlopen"));
  const bool before = counting.exchange(false);
  void* library = real(file, mode);
  counting = before;
  return library;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  return fails(thread_call) ? EAGAIN : real(thread, attributes, run, argument);
}

}  // extern "C"

namespace {

int faulty_main(int argc, char** argv, char** environment) {
  const char* fault = ::getenv("STRETTO_FAULT");
  counts_file = ::getenv("STRETTO_FAULT_COUNTS");
  mark = ::getenv("STRETTO_FAULT_MARK");
  if (const char* seconds = ::getenv("STRETTO_FAULT_SECONDS")) ::alarm(unsigned(::atoi(seconds)));
  char kind[16] = "", how[16] = "";
  long k = 0;
  if (fault && ::sscanf(fault, "%15s %ld %15s", kind, &k, how) == 3) {
    stretto_fault_arm(kind, k, how);
  } else if (counts_file) {
    stretto_fault_arm("", 0, "once");
  }
  return real_main(argc, argv, environment);
}

__attribute__((constructor)) void begin() {
  trace = ::getenv("STRETTO_FAULT_TRACE") != nullptr;
  void* frame;
  if (trace) ::backtrace(&frame, 1);  // loads the library that backtrace needs
}

__attribute__((destructor)) void end() {
  counting = false;
  if (!counts_file) return;
  if (FILE* file = ::fopen(counts_file, "w")) {
    for (int i = 0; i < kinds; ++i) ::fprintf(file, "%s %ld\n", names[i], counts[i].load());
    ::fclose(file);
  }
}

}  // namespace

extern "C" int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*rtld_fini)(), void* stack_end) {
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  const auto real = reinterpret_cast<Start>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  real_main = main;
  return real(faulty_main, argc, argv, init, fini, rtld_fini, stack_end);
}
