#include "nn/training/device_config.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "core/gpu_runtime.h"
#include "nn/distributed/process_group.h"

namespace stretto::nn {
namespace {

DType dtype_named(const std::string& name) {
  if (name == "f32") return f32;
  if (name == "bf16") return bf16;
  fail("--dtype", "\"", name, "\"; accepted: f32, bf16");
}

// Exits with a message of rank 0 if the program does not support the processes that were started.
void check_processes(const char* program, Processes processes) {
  if (const auto other = other_launcher()) {
    if (other->rank == 0) std::fprintf(stderr, "%s: %s\n", program, other->refusal.c_str());
    std::exit(2);
  }
  const int n = size_of_mpirun(), rank = rank_of_mpirun();
  if (processes == Processes::one && n > 1) {
    if (rank > 0) std::exit(0);
    std::fprintf(stderr, "%s: supports one process, but mpirun has started %d\n", program, n);
    std::exit(2);
  }
  if (rank > 0 && !std::freopen("/dev/null", "w", stdout)) std::exit(1);
}

std::string name;  // argv[0], for end_with_message()

// Prints an error that main() has not caught as one line.
[[noreturn]] void end_with_message() {
  int status = 1;
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
    std::abort();
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    const bool bad_input = dynamic_cast<const Error*>(&error) != nullptr &&
                           dynamic_cast<const OutOfMemory*>(&error) == nullptr;
    if (bad_input) status = 2;
  } catch (...) {
    std::abort();
  }
  std::_Exit(status);
}

// The words of the program's own arguments in its help text, without brackets.
std::vector<std::string> words_of(const std::string& own) {
  std::vector<std::string> words(1);
  for (const char c : own) {
    if (c == ' ')
      words.emplace_back();
    else if (c != '[' && c != ']')
      words.back() += c;
  }
  std::erase(words, "");
  return words;
}

}  // namespace

Device take_device(const char* op, const std::string& text) {
  Device device(text);
  if (text == "cuda" && cuda::device_count() > 0)
    device.index = local_rank_of_mpirun() % cuda::device_count();
  check_device(op, device);
  return device;
}

DeviceConfig parse_device_args(int& argc, char** argv, Processes processes,
                               const std::string& own) {
  name = argv[0];
  std::set_terminate(end_with_message);
  check_processes(argv[0], processes);
  const std::string accepted =
      own + (own.empty() ? "" : " ") + "[--device cpu|cuda|cuda:N] [--dtype f32|bf16]";
  const std::vector<std::string> words = words_of(own);
  DeviceConfig config;
  int kept = 1;
  try {
    for (int i = 1; i < argc; ++i) {
      const std::string option = argv[i];
      if (option == "--help" || option == "-h") {
        std::printf("usage: %s %s\n", argv[0], accepted.c_str());
        std::exit(0);
      }
      if (option != "--device" && option != "--dtype") {
        const bool known = option.size() < 2 || option[0] != '-' ||
                           std::find(words.begin(), words.end(), option) != words.end();
        check(known && kept <= int(words.size()), option.c_str(), "is an unknown option or ",
              "one argument too many; accepted: ", accepted);
        argv[kept++] = argv[i];
        continue;
      }
      check(i + 1 < argc, option.c_str(), "needs a value");
      const std::string value = argv[++i];
      if (option == "--dtype") {
        config.dtype = dtype_named(value);
      } else {
        config.device = take_device("--device", value);
      }
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    std::exit(2);
  }
  argc = kept;
  argv[argc] = nullptr;
  return config;
}

}  // namespace stretto::nn
