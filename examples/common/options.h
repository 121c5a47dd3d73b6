// The options of a program's command line: each has a name, a variable with its default, a
// help text and a check.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "examples/common/settings.h"

namespace CLI {
class App;
}

namespace stretto::examples {

/// Pairs of a name and a value, in a fixed order.
using NamedTexts = std::vector<std::pair<std::string, std::string>>;

/// A file or folder that a program reads, and the option that names it: {"--data", "book.txt"}.
struct RunInput {
  std::string option, path;
  bool folder = false;  // may be a folder
};

class OptionList {
 public:
  explicit OptionList(CLI::App& app) : app_(app) {}
  OptionList(const OptionList&) = delete;
  OptionList& operator=(const OptionList&) = delete;

  /// Declares the option for the setting `name` ("--eval-batch" for "eval_batch"), which sets
  /// `value`; `value` must outlive this list. A bool that is false by default becomes a flag.
  /// `check` is one of the checks in settings.h.
  template <class T, class Check = decltype(any_value)>
  void operator()(const std::string& name, T& value, const std::string& help,
                  const Check& check = any_value) {
    declare(option_of(name), value, help, "");
    checks_.push_back([&value, check, option = option_of(name)] { check(option, value); });
  }
  /// Declares an option without a check; --help shows `operand` instead of the
  /// type and the default.
  template <class T>
  void path(const std::string& name, T& value, const std::string& help,
            const std::string& operand) {
    declare(option_of(name), value, help, operand);
  }
  /// Declares a file or folder that is read and whose path must be given without an option.
  void positional(const std::string& name, std::string& value, const std::string& help,
                  const std::string& operand);
  /// Declares a file ("FILE") or folder ("DIR") that is read; inputs() lists it if it is given.
  void input(const std::string& name, std::string& value, const std::string& help,
             const std::string& operand = "FILE") {
    path(name, value, help, operand);
    inputs_.push_back({option_of(name), &value, operand == "DIR"});
  }
  /// Declares the settings that are not declared yet, up to the setting `last`, or all of them.
  /// check() does not check them, because a checkpoint may replace them: they are checked by
  /// their own check().
  template <class Settings>
  void settings(Settings& settings, const std::string& last = "") {
    bool done = false;
    Settings::each(settings,
                   [&](const std::string& name, auto& value, const std::string& help, const auto&) {
                     if (done || declared(option_of(name))) return;
                     declare(option_of(name), value, help, "");
                     done = name == last;
                   });
  }
  /// Replaces the help text of the option for `name`.
  void describe(const std::string& name, const std::string& help);

  /// Throws UsageError for the first option whose value its check rejects.
  void check() const {
    for (const auto& check : checks_) check();
  }
  /// True if "--option" is on the command line.
  bool given(const std::string& option) const;
  /// Returns every option with its value or default.
  NamedTexts all() const;
  std::vector<RunInput> inputs() const;

 private:
  /// Instantiated for the types of settings and std::vector<std::string>.
  template <class T>
  void declare(const std::string& option, T& value, const std::string& help,
               const std::string& operand);
  bool declared(const std::string& option) const;

  CLI::App& app_;
  std::vector<std::function<void()>> checks_;
  struct Input {
    std::string option;
    const std::string* path;
    bool folder;
  };
  std::vector<Input> inputs_;
};

}  // namespace stretto::examples
