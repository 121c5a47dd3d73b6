#include "examples/common/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "examples/common/error.h"

namespace stretto::examples {
namespace {

int complain(const std::string& name, std::string message, int code) {
  // What a file says must not move the cursor of a terminal.
  const auto controls = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  std::replace_if(message.begin(), message.end(), controls, ' ');
  std::cerr << name << ": " << message << std::endl;
  return code;
}

}  // namespace

int run_program(int argc, char** argv, const std::string& name, const std::string& about,
                const std::function<void(CLI::App&)>& describe, const std::function<int()>& run) {
  CLI::App app(about, name);
  app.get_formatter()->column_width(32);
  app.option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
  describe(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::ParseError& e) {
    return complain(name, std::string(e.what()) + " (--help lists the options)", 2);
  }
  try {
    return run();
  } catch (const UsageError& e) {
    return complain(name, e.what(), 2);
  } catch (const std::exception& e) {
    return complain(name, e.what(), 1);
  }
}

}  // namespace stretto::examples
