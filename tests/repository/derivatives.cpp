#include "tests/repository/derivatives.h"

#include <map>
#include <regex>
#include <vector>

#include "core/error.h"
#include "tests/support/sources.h"

namespace stretto::testing {

namespace {

using Texts = std::vector<std::string>;

std::string replaced(const std::string& text, const std::string& pattern, const std::string& by) {
  return std::regex_replace(text, std::regex(pattern), by);
}

std::string trimmed(const std::string& text) { return replaced(text, "^\\s+|\\s+$", ""); }

// The text on one line, without comments.
std::string one_line(const std::string& text) {
  return trimmed(replaced(replaced(text, "//[^\n]*", ""), "\\s+", " "));
}

// The position of the bracket that closes the one at `open`.
size_t closing(const std::string& text, size_t open) {
  int depth = 0;
  for (size_t at = open; at < text.size(); ++at) {
    if (text[at] == '"') at = text.find('"', at + 1);
    if (std::string("([{").find(text[at]) != std::string::npos) ++depth;
    if (std::string(")]}").find(text[at]) != std::string::npos && --depth == 0) return at;
  }
  fail("derivatives", "a bracket is not closed: ", text.substr(open, 60));
}

// The items of `list`, split at commas outside of brackets.
Texts parts(const std::string& list) {
  Texts all(1);
  for (size_t at = 0; at < list.size(); ++at) {
    const size_t end =
        std::string("([{").find(list[at]) == std::string::npos ? at : closing(list, at);
    if (end == at && list[at] == ',')
      all.emplace_back();
    else
      all.back() += list.substr(at, end - at + 1);
    at = end;
  }
  for (std::string& part : all) part = trimmed(part);
  return all;
}

// The body of a closure in the notation of the page: g is the gradient of the output, y the output.
std::string in_notation(const std::string& closure) {
  static const std::regex head(R"(^\[([^\]]*)\]\s*\(Backward& (\w+)\)\s*)");
  std::smatch found;
  if (!std::regex_search(closure, found, head)) return "";
  const std::string captures = found[1], name = found[2];
  const size_t open = size_t(found.length());
  std::string body = one_line(closure.substr(open + 1, closing(closure, open) - open - 1));
  body = replaced(body, "\\b" + name + "\\.grad\\(\\)", "g");
  body = replaced(body, "\\b" + name + "\\.output\\(\\)", "y");
  body = replaced(body, "const Tensor&? (g = g|y = y); ", "");
  body = replaced(body, "const (?:Tensor|auto)&? (\\w+ = )", "$1");
  for (const std::string& capture : parts(captures))
    if (std::smatch saved;
        std::regex_match(capture, saved, std::regex(R"((\w+) = Saved\((\w+)\))")))
      body = replaced(body, "\\b" + saved[1].str() + "\\(\\)", saved[2]);
  // If one expression per gradient is returned: the expressions, in the order of the inputs.
  const std::string start = "return Tensors{";
  for (size_t at; (at = body.find(start)) != std::string::npos;) {
    const size_t brace = at + start.size() - 1, end = closing(body, brace);
    std::string list;
    for (std::string part : parts(body.substr(brace + 1, end - brace - 1))) {
      part = replaced(part, "^" + name + "\\.needs\\(\\d+\\) \\? (.*) : Tensor\\(\\)$", "$1");
      list += (list.empty() ? "" : ", ") + part;
    }
    body = body.substr(0, at) + "→ " + list + body.substr(end + 1);
  }
  body = replaced(replaced(body, "\\breturn ", "→ "), ";$", "");
  return replaced(body, "^→ ([^;]*)$", "$1");
}

struct Row {
  std::string op, inputs, gradient;  // gradient: code
  std::string words = {};            // printed instead of the code
};

std::string cell(const std::string& code) {
  return code.empty() ? "" : "`" + replaced(code, "\\|", "\\|") + "`";
}

// The name of the op that is recorded at `at`. If `argument` is a variable: the names with which
// the enclosing function is called.
std::string name_of(const std::string& argument, const std::string& text, size_t at) {
  if (argument.front() == '"') return argument.substr(1, argument.size() - 2);
  static const std::regex head(R"(\n(?:Tensor|Tensors|Sorted) (?:Tensor::)?(\w+)\()");
  std::string function;
  for (std::sregex_iterator it(text.begin(), text.begin() + std::ptrdiff_t(at), head), end;
       it != end; ++it)
    function = (*it)[1];
  std::string names;
  const std::regex call("\\b" + function + "(?:<[^>]*>)?\\(\\s*\"(\\w+)\"");
  for (std::sregex_iterator it(text.begin(), text.end(), call), end; it != end; ++it)
    if (const std::string name = (*it)[1];
        (", " + names + ",").find(", " + name + ",") == std::string::npos)
      names += (names.empty() ? "" : ", ") + name;
  if (std::smatch constant;
      names.empty() && std::regex_search(text, constant, std::regex("char\\* op = \"(\\w+)\"")))
    return constant[1];
  return names.empty() ? function : names;
}

// The comment right before the statement at `at`, after "// Gradients: ".
std::string comment_before(const std::string& text, size_t at) {
  static const std::regex comment(R"(// Gradients: ((?:[^\n]|\n *// )*)\n[^\n/]*$)");
  std::smatch found;
  const std::string before = text.substr(at < 600 ? 0 : at - 600, at < 600 ? at : 600);
  if (!std::regex_search(before, found, comment)) return "";
  return replaced(found[1], "\n *// ", " ");
}

// The derivatives of the elementwise functions of one tensor.
std::vector<Row> elementwise_rows(const std::string& maths, const std::string& text) {
  std::vector<Row> rows;
  static const std::regex use("unary<em::(\\w+)>\\(\"(\\w+)\"");
  for (std::sregex_iterator it(text.begin(), text.end(), use), end; it != end; ++it) {
    const size_t at = maths.find("struct " + (*it)[1].str() + " {");
    check(at != std::string::npos, "derivatives", "no struct ", (*it)[1].str());
    const size_t open = maths.find('{', maths.find(" derivative(", at));
    std::string body = one_line(maths.substr(open + 1, closing(maths, open) - open - 1));
    body = replaced(replaced(body, "using [^;]*; ", ""), "k<T>\\(([^()]*)\\)", "$1");
    body = replaced(replaced(body, "const (?:T|auto) (\\w+ = )", "$1"), "return ([^;]*);$",
                    "g * ($1)");
    rows.push_back(
        {(*it)[2], "x", replaced(body, "g \\* \\((\\w+(?:\\([^()]*\\))?)\\)$", "g * $1")});
  }
  return rows;
}

std::vector<Row> recorded_rows(const std::string& text) {
  std::vector<Row> rows;
  static const std::regex use("[\\s{]record\\(");
  for (std::sregex_iterator it(text.begin(), text.end(), use), end; it != end; ++it) {
    const size_t open = size_t(it->position() + it->length()) - 1;
    const Texts arguments = parts(text.substr(open + 1, closing(text, open) - open - 1));
    std::string closure;
    for (size_t i = 2; i < arguments.size(); ++i) {
      if (arguments[i].front() == '[') closure = arguments[i];
      if (arguments[i] == "backward") closure = text.substr(text.rfind("backward = [", open) + 11);
    }
    Row row{name_of(arguments.at(0), text, open), one_line(arguments.at(1)), in_notation(closure),
            comment_before(text, open)};
    row.inputs = replaced(row.inputs, "^\\{(.*)\\}$", "$1");
    if (row.gradient.find("f.derivative(") == std::string::npos) rows.push_back(row);
  }
  return rows;
}

}  // namespace

std::string derivatives_page() {
  std::string page = R"(# Derivatives

The gradients of every op with respect to its inputs, copied from the source code. This page is generated by

    STRETTO_WRITE_DOCS=1 build/release/tests/stretto_tests "[derivatives]"

and a test fails if it differs from the sources. All other functions are composed of these ops. First and,
where they exist, second derivatives of every op are checked against central differences
(`tests/ops/op_table_test.cpp`).

`g` is the gradient of the output and `y` the output; expressions are in the order of the inputs. `sum_to(t,
s)` sums t over the dimensions that were broadcast from shape s. Gradients in words instead of code come from
a comment `// Gradients: …` in front of the call of `record`; the equations are at the top of these files.
)";
  std::map<std::string, std::string> files;
  for (const Source& file : sources())
    if (std::regex_match(file.path, std::regex("ops/.*\\.cpp")))
      files[file.path] = text_of(file.path);
  for (const auto& [path, text] : files) {
    std::vector<Row> rows;
    if (path == "ops/elementwise.cpp")
      rows = elementwise_rows(text_of("core/formulas/elementwise_math.h"), text);
    for (const Row& row : recorded_rows(text)) rows.push_back(row);
    if (rows.empty()) continue;
    page += str("\n## `", path, "`\n\n| op | inputs | gradients |\n| --- | --- | --- |\n");
    for (const Row& row : rows) {
      page += str("| ", replaced("`" + row.op + "`", ", ", "`, `"), " | ", cell(row.inputs), " | ",
                  row.words.empty() ? cell(row.gradient) : row.words, " |\n");
    }
  }
  return page;
}

}  // namespace stretto::testing
