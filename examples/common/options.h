// The options of a program's command line: a name, a variable with its default, a help text and a
// check each.
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

/// Texts by name, in an order.
using NamedTexts = std::vector<std::pair<std::string, std::string>>;

/// A file or folder that a program reads, by the option that names it: {"--data", "book.txt"}.
struct RunInput {
  std::string option, path;
  bool folder = false;  // may be a folder, whose MIDI files are read
};

class OptionList {
 public:
  explicit OptionList(CLI::App& app) : app_(app) {}
  OptionList(const OptionList&) = delete;
  OptionList& operator=(const OptionList&) = delete;

  /// Declares the option of `name` ("--eval-batch" of "eval_batch") for a variable, which must
  /// outlive this list; a bool that is false is a flag. `check` is one of settings.h.
  template <class T, class Check = decltype(any_value)>
  void operator()(const std::string& name, T& value, const std::string& help,
                  const Check& check = any_value) {
    declare(option_of(name), value, help, "");
    checks_.push_back([&value, check, option = option_of(name)] { check(option, value); });
  }
  /// The same without a check; --help shows `operand` in place of the type and the default.
  template <class T>
  void path(const std::string& name, T& value, const std::string& help,
            const std::string& operand) {
    declare(option_of(name), value, help, operand);
  }
  /// A file ("FILE") or folder ("DIR") that is read: one of inputs(), where it is given.
  void input(const std::string& name, std::string& value, const std::string& help,
             const std::string& operand = "FILE") {
    path(name, value, help, operand);
    inputs_.push_back({option_of(name), &value, operand == "DIR"});
  }
  /// Declares the settings that are not declared yet up to the one called `last`, or all.
  /// check() leaves them to the settings, which a checkpoint may replace.
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
  /// Replaces the help text of the option of `name`.
  void describe(const std::string& name, const std::string& help);

  /// Throws UsageError for the first option with a value that its check refuses.
  void check() const {
    for (const auto& check : checks_) check();
  }
  /// Whether "--option" is on the command line.
  bool given(const std::string& option) const;
  /// Every option with its value or default.
  NamedTexts all() const;
  std::vector<RunInput> inputs() const;

 private:
  /// Of the types of settings, and std::vector<std::string>.
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
