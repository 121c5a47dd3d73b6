#include "examples/common/command_line.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <string_view>

#include "core/cpu.h"
#include "core/version.h"
#include "examples/common/error.h"
#include "examples/common/settings.h"
#include "nn/distributed/process_group.h"

namespace stretto::examples {
namespace {

// If opening /dev/null fails, there is no stream left to report that on.
void open_standard_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor)
    if (::fcntl(descriptor, F_GETFD) < 0 && errno == EBADF)
      // open() returns the lowest unused number, which is `descriptor`.
      if (::open("/dev/null", O_RDWR) < 0) ::_exit(1);
}

// Cuts the middle out of a long message: the value that an error quotes may have any length.
std::string shortened(std::string message) {
  constexpr size_t most = 2000, end = 400;
  if (message.size() <= most) return message;
  size_t first = most - end, last = message.size() - end;
  // True within a UTF-8 character, which must not be cut.
  const auto within = [&](size_t at) { return (uint8_t(message[at]) & 0xC0) == 0x80; };
  while (first > 0 && within(first)) --first;
  while (last < message.size() && within(last)) ++last;
  return message.substr(0, first) + " … " + message.substr(last);
}

int complain(std::string_view name, std::string message, int code) {
  // An error that occurs in all processes is printed once: rank 0 prints it and exits, and mpirun
  // then ends the other processes. They wait for that, 10 s at most.
  if (const int rank = nn::rank_of_mpirun(); rank > 0) {
    for (int i = 0; i < 100; ++i) {
      if (nn::stop_signal() != 0) return code;
      ::usleep(100'000);
    }
    message = str("process ", rank, ": ", message);
  }
  std::cerr << name << ": " << shortened(printable(std::move(message))) << std::endl;
  return code;
}

// Writes to standard output with control characters replaced by spaces.
class PrintableOutput : public std::streambuf {
 public:
  PrintableOutput() : to_(*std::cout.rdbuf(this)) {}
  ~PrintableOutput() override { std::cout.rdbuf(&to_); }
  PrintableOutput(const PrintableOutput&) = delete;
  PrintableOutput& operator=(const PrintableOutput&) = delete;

 private:
  std::streamsize xsputn(const char* text, std::streamsize n) override {
    const std::string safe = printable({text, size_t(n)}, true);
    return to_.sputn(safe.data(), n) == n ? n : 0;
  }
  int_type overflow(int_type c) override {
    if (c == traits_type::eof()) return 0;
    const char one = traits_type::to_char_type(c);
    return xsputn(&one, 1) == 1 ? c : traits_type::eof();
  }
  int sync() override { return to_.pubsync(); }

  std::streambuf& to_;
};

// A flag accepts no value; CLI11 lets an empty one ("--flag=") pass.
void check_flags(const CLI::App& app, int argc, char** argv) {
  for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    const std::string word = argv[i];
    if (word.rfind("--", 0) != 0 || word.find('=') != word.size() - 1) continue;
    const std::string name = word.substr(0, word.size() - 1);
    const CLI::Option* option = app.get_option_no_throw(name);
    require(option == nullptr || option->get_items_expected_max() > 0,
            name + ": its value is empty");
  }
}

template <class T>
void read_strictly(const std::string& option, std::string& value, const std::string& what) {
  T number{};
  require(read_text(value, number), option + " " + value + ": must be " + what);
  value = as_text(number);  // a form that CLI11 can read only as this number
}

// Parses according to the type of the variable behind the option.
void read_strictly(const std::string& option, const std::string& type, std::string& value) {
  require(!value.empty(), option + ": its value is empty");
  if (type == "INT") read_strictly<int64_t>(option, value, "a whole number of 64 bits");
  if (type == "UINT")
    read_strictly<uint64_t>(option, value, "a whole number of 64 bits, not negative");
  if (type == "FLOAT") read_strictly<double>(option, value, "a number");
  if (type == "BOOLEAN") read_strictly<bool>(option, value, "0 or 1");
}

void read_strictly(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    option->disable_flag_override();
    if (option->get_items_expected_max() == 0) continue;  // a flag
    const std::string name = option->get_name(), type = option->get_type_name();
    option->transform(CLI::Validator(
        [name, type](std::string& value) {
          read_strictly(name, type, value);
          return std::string();
        },
        ""));
  }
}

int parse_and_run(int argc, char** argv, std::string_view name, const std::string& about,
                  const std::function<void(CLI::App&)>& describe, const std::function<int()>& run) {
  CLI::App app(about, std::string(name));
  app.get_formatter()->column_width(32);
  app.option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
  app.set_version_flag("--version", [] {
    return str("stretto ", STRETTO_VERSION_MAJOR, ".", STRETTO_VERSION_MINOR, ".",
               STRETTO_VERSION_PATCH, ", products by ", cpu_description());
  });
  describe(app);
  read_strictly(app);
  try {
    check_flags(app, argc, argv);
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::CallForVersion& version) {
    std::cout << version.what() << '\n';
    return 0;
  } catch (const CLI::ParseError& e) {
    throw UsageError(std::string(e.what()) + " (--help lists the options)");
  }
  as_usage([] { return cpu_description(); });  // reads the environment, which may be invalid
  return run();
}

const std::string* running = nullptr;  // the program's name in the source tree
std::string_view typed;                // the name that the user typed
std::vector<std::string> given;        // argv

// Returns the name that the user typed: an installed program may have another name than its source.
// Allocates no memory.
std::string_view called(int argc, char** argv, const std::string& name) {
  std::string_view path = argc > 0 ? argv[0] : "";
  path.remove_prefix(path.rfind('/') + 1);
  return path.empty() ? std::string_view(name) : path;
}

// Handles std::bad_alloc from noexcept functions of libraries that allocate (CLI11's get_option).
[[noreturn]] void end_without_memory() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    std::cerr << typed << ": out of memory" << std::endl;
    ::_exit(1);
  } catch (...) {
  }
  std::abort();
}

}  // namespace

std::string printable(std::string text, bool lines) {
  const size_t n = text.size();
  const auto continues = [&](size_t i) { return i < n && (uint8_t(text[i]) & 0xC0) == 0x80; };
  for (size_t i = 0; i < n; ++i) {
    const auto c = uint8_t(text[i]);
    if (c < 0x80) {
      if ((c < 0x20 || c == 0x7F) && !(lines && (c == '\n' || c == '\t'))) text[i] = ' ';
    } else if (c < 0xA0) {  // C1 in encodings of one byte per character
      text[i] = ' ';
    } else if (c == 0xC2 && continues(i + 1) && uint8_t(text[i + 1]) < 0xA0) {  // C1 in UTF-8
      text[i] = text[i + 1] = ' ';
    } else if (c >= 0xC2) {
      for (int more = c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3; more > 0 && continues(i + 1); --more) ++i;
    }
  }
  return text;
}

std::string quoted(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("_-+=./,:@%", c) != nullptr;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string text = "'";
  for (const char c : word) c == '\'' ? text += "'\\''" : text += c;
  return text + "'";
}

std::string program_name() { return running != nullptr ? *running : ""; }

std::string command_line() {
  std::string text;
  if (nn::started_by_mpirun()) text = str("mpirun -n ", nn::size_of_mpirun());
  for (const std::string& word : given) text += (text.empty() ? "" : " ") + quoted(word);
  return text;
}

int run_program(int argc, char** argv, const std::string& name, const std::string& about,
                const std::function<void(CLI::App&)>& describe, const std::function<int()>& run) {
  given.assign(argv, argv + argc);
  open_standard_streams();
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  running = &name;
  typed = called(argc, argv, name);
  std::set_terminate(end_without_memory);
  const PrintableOutput output;
  std::cout << std::unitbuf;  // a signal may end the program at any line
  if (const auto other = nn::other_launcher())
    return other->rank == 0 ? complain(typed, other->refusal, 2) : 2;
  const int rank = nn::rank_of_mpirun();
  if (rank > 0) std::cout.rdbuf(nullptr);  // only rank 0 prints
  try {
    const int code = parse_and_run(argc, argv, typed, about, describe, run);
    nn::finish_processes();
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_IGN);  // all is done
    if (rank > 0) return code;
    if (std::cout.flush() || code != 0) return code;
    return complain(typed, "cannot write to standard output", 1);
  } catch (const UsageError& e) {
    return complain(typed, e.what(), 2);
  } catch (const std::bad_alloc&) {
    std::cerr << typed << ": out of memory" << std::endl;  // allocates nothing
    return 1;
  } catch (const std::exception& e) {
    return complain(typed, e.what(), 1);
  }
}

}  // namespace stretto::examples
