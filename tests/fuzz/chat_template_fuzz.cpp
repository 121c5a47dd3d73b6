// The fuzz target of chat templates: an input is a template, rendered for one conversation.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/utf8.h"
#include "pretrained/chat/chat_template.h"
#include "tests/fuzz/mutate.h"

namespace stretto::testing {
namespace {

void require(bool good, const char* what) {
  if (!good) throw FuzzFailure(what);
}

bool run(std::string_view input) {
  try {
    const auto chat = nn::ChatTemplate::parse(std::string(input), {{"bos_token", "<s>"}});
    const std::string text = chat.render({{"system", "Be kind."},
                                          {"user", " Größe? "},
                                          {"assistant", "<think>\nhm\n</think>\n\nb"},
                                          {"user", "again"}},
                                         {.variables = {{"n", int64_t{3}}, {"yes", true}}});
    require(find_invalid_utf8(text).at == text.size(), "a text that is not UTF-8");
    require(text.size() <= size_t{256} << 20, "a text above the limit");
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    require(message.find("[chat_template] ") == 0, "an error without the prefix");
    require(message.find('\n') == std::string::npos, "an error of several lines");
    require(message.size() < 700, "a long error");
    return false;
  }
}

}  // namespace

FuzzTarget chat_template_target() {
  return {
      run,
      {R"({%- if messages[0].role != "system" -%}{{- "<|s|>\n" -}}{%- endif -%}
{% for message in messages %}{# turn #}
  {{- '<|' + message['role'] + '|>' + message['content'] | trim }}
{% endfor %}{% if add_generation_prompt %}{{ bos_token }}{% endif %})",
       R"({%- macro turn(role, text, tail='') -%}{{ role | upper ~ text ~ tail }}{%- endmacro -%}
{%- set ns = namespace(last=-1, found=false) %}
{%- for m in messages[::-1] if m.role in ['user', 'assistant'] %}
{%- set ns.last = messages | length - 1 - loop.index0 %}
{%- generation %}{{ turn(m.role, m.content.split('</think>')[-1], tail=loop.index) }}
{%- endgeneration %}{% if loop.last %}{% break %}{% endif %}{% else %}{{ n }}{%- endfor %})",
       R"({% set x %}a{{ 1 + 2 * n // 3 % 4 }}{% endset %}{% set a, b = (x, [1, none]) %}
{{ {'a': a, 'b': b} | tojson(indent=2) }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}
{{ messages | map(attribute='role') | join(', ') }}{{ x.replace('a', 'bb').strip('b') if yes else '\u00e9' }}
{% for k, v in messages[0].items() %}{{ k ~ v[1:-1] * 2 }}{% endfor %}{{ range(5) | list | last }})"},
      {"{{",
       "}}",
       "{%",
       "%}",
       "{#",
       "#}",
       "-",
       "'",
       "\"",
       "\\",
       "(",
       ")",
       "[",
       "]",
       "[1:]",
       "[::-1]",
       "|",
       " is ",
       " not ",
       " in ",
       " and ",
       " if ",
       " else ",
       "~",
       "+",
       "*",
       "//",
       "%",
       "==",
       "<",
       "loop",
       ".last",
       ".previtem",
       ".length",
       "messages",
       "ns",
       "none",
       "true",
       "missing",
       "|list",
       "|first",
       "|length",
       "|items",
       "|tojson",
       "|join",
       "|safe",
       "|trim",
       "|upper",
       "|default",
       "|map('length')",
       ".get('a')",
       ".items()",
       ".split()",
       ".title()",
       ".startswith('a')",
       "defined",
       "sequence",
       "range(9)",
       "namespace(",
       "raise_exception(",
       "{% for i in range(1000) %}",
       "{% endfor %}",
       "{% endif %}",
       "{% set ns.a = [ns.a, ns] %}",
       "{% continue %}",
       "strftime_now('%Y')"}};
}

}  // namespace stretto::testing

#ifdef STRETTO_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto run = stretto::testing::chat_template_target().run;
  run({reinterpret_cast<const char*>(data), size});
  return 0;
}
#endif
