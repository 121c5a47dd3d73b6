#include "examples/common/options.h"

#include <CLI/CLI.hpp>
#include <type_traits>

namespace stretto::examples {

template <class T>
void OptionList::declare(const std::string& option, T& value, const std::string& help,
                         const std::string& operand) {
  CLI::Option* added = nullptr;
  if constexpr (std::is_same_v<T, bool>) {
    if (!value) added = app_.add_flag(option, value, help);
  }
  if (added == nullptr) added = app_.add_option(option, value, help);
  if (!operand.empty()) added->option_text(operand);
}

template void OptionList::declare(const std::string&, int64_t&, const std::string&,
                                  const std::string&);
template void OptionList::declare(const std::string&, uint64_t&, const std::string&,
                                  const std::string&);
template void OptionList::declare(const std::string&, double&, const std::string&,
                                  const std::string&);
template void OptionList::declare(const std::string&, bool&, const std::string&,
                                  const std::string&);
template void OptionList::declare(const std::string&, std::string&, const std::string&,
                                  const std::string&);
template void OptionList::declare(const std::string&, std::vector<std::string>&, const std::string&,
                                  const std::string&);

void OptionList::positional(const std::string& name, std::string& value, const std::string& help,
                            const std::string& operand) {
  app_.add_option(name, value, help)->option_text(operand)->required();
  inputs_.push_back({operand, &value, true});
}

void OptionList::describe(const std::string& name, const std::string& help) {
  app_.get_option(option_of(name))->description(help);
}

bool OptionList::declared(const std::string& option) const {
  return app_.get_option_no_throw(option) != nullptr;
}

bool OptionList::given(const std::string& option) const { return app_.count(option) > 0; }

NamedTexts OptionList::all() const {
  NamedTexts all;
  for (const CLI::Option* option : app_.get_options())
    all.emplace_back(option->get_name(),
                     option->count() > 0 ? joined(option->results()) : option->get_default_str());
  return all;
}

std::vector<RunInput> OptionList::inputs() const {
  std::vector<RunInput> given;
  for (const Input& input : inputs_)
    if (!input.path->empty()) given.push_back({input.option, *input.path, input.folder});
  return given;
}

}  // namespace stretto::examples
