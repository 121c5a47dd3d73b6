#include "tests/conformance/program.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <ostream>

#include "core/device.h"
#include "nn/files/safetensors.h"
#include "tests/conformance/subjects.h"

namespace stretto::conformance {
namespace {

constexpr const char* usage =
    "conformance [--device cpu|cuda] [--dtype f64|f32|bf16] [--write OUT.safetensors] "
    "CASE.safetensors...";

struct Arguments {
  Device device = cpu;
  DType dtype = f64;
  std::string write;
  std::vector<std::string> cases;
  bool help = false;
};

Arguments parse(const std::vector<std::string>& given) {
  Arguments a;
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string& word = given[i];
    auto value = [&] {
      check(i + 1 < given.size(), "conformance", word, " needs a value; usage: ", usage);
      return given[++i];
    };
    if (word == "--help" || word == "-h") {
      a.help = true;
    } else if (word == "--device") {
      const std::string name = value();
      check(name == "cpu" || name == "cuda", "conformance", "--device ", name,
            "; accepted: cpu, cuda");
      a.device = Device(name);
    } else if (word == "--dtype") {
      const std::string name = value();
      check(name == "f64" || name == "f32" || name == "bf16", "conformance", "--dtype ", name,
            "; accepted: f64, f32, bf16");
      a.dtype = name == "f64" ? f64 : name == "f32" ? f32 : bf16;
    } else if (word == "--write") {
      a.write = value();
    } else {
      check(word.empty() || word[0] != '-', "conformance", "unknown option ", word,
            "; usage: ", usage);
      a.cases.push_back(word);
    }
  }
  if (a.help) return a;
  check(!a.cases.empty(), "conformance", "no cases; usage: ", usage);
  check(a.write.empty() || a.cases.size() == 1, "conformance", "--write is for one case, given ",
        int64_t(a.cases.size()));
  check_device("conformance", a.device);
  return a;
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (uint8_t(c) < ' ' || c == 127) c = '?';
  return text;
}

// Returns a name as one word without spaces.
std::string word(const std::string& name) {
  std::string shown = one_line(name);
  std::replace(shown.begin(), shown.end(), ' ', '_');
  return shown.empty() ? "-" : shown;
}

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", x);
  return text;
}

// Returns the worst result of all candidates, with the tensors that the fastest one computed, or
// nothing for a case that is skipped.
std::optional<Result> judge(const Case& c, const Arguments& a) {
  const std::vector<Candidate> all = candidates(c.subject);
  if (all.empty() || !judged(c, a.dtype)) return std::nullopt;
  std::optional<Result> worst;
  for (const Candidate& candidate : all) {
    if (candidate.cpu_alone && a.device.is_cuda()) continue;
    Result result = run(c, candidate, a.dtype, a.device);
    if (!worst) {
      worst = std::move(result);
    } else if (result.worst > worst->worst) {
      worst->candidate = result.candidate;
      worst->worst = result.worst;
      worst->where = result.where;
    }
  }
  return worst;
}

void write(const std::string& path, const Case& c, const Tensors& computed) {
  std::vector<nn::NamedTensor> tensors;
  for (const auto& [name, x] : computed) tensors.push_back({name, x});
  nn::save_safetensors(path, tensors, {{"case", c.name}, {"subject", c.subject}});
}

struct Tally {
  int64_t passed = 0, failed = 0, skipped = 0;
};

void run_case(const std::string& path, const Arguments& a, Tally& tally, std::ostream& out,
              std::ostream& err) {
  const Case c = load_case(path);
  const std::string name = word(c.name) + " " + word(c.subject);
  const std::optional<Result> result = judge(c, a);
  if (!result) {
    ++tally.skipped;
    out << "SKIP " << name << " worst=nan at -" << std::endl;
    return;
  }
  const bool passed = result->worst <= tolerance(a.dtype);
  ++(passed ? tally.passed : tally.failed);
  out << (passed ? "PASS " : "FAIL ") << name << " worst=" << number(result->worst) << " at "
      << word(result->where) << std::endl;
  if (!passed)
    err << "conformance: " << one_line(path) << ": the " << result->candidate
        << " implementation is off by " << number(result->worst) << ", tolerance "
        << number(tolerance(a.dtype)) << std::endl;
  if (!a.write.empty()) write(a.write, c, result->computed);
}

}  // namespace

int run_program(const std::vector<std::string>& given, std::ostream& out, std::ostream& err) {
  Arguments a;
  try {
    a = parse(given);
  } catch (const Error& e) {
    err << one_line(e.what()) << std::endl;
    return 2;
  }
  if (a.help) {
    out << usage << std::endl;
    return 0;
  }
  Tally tally;
  bool broken = false;
  for (const std::string& path : a.cases) {
    try {
      run_case(path, a, tally, out, err);
    } catch (const std::exception& e) {
      broken = true;
      std::string message = e.what();
      if (message.find(path) == std::string::npos) message = path + ": " + message;
      err << "conformance: " << one_line(message) << std::endl;
    }
  }
  out << tally.passed << " passed, " << tally.failed << " failed, " << tally.skipped << " skipped"
      << std::endl;
  return broken ? 2 : tally.failed > 0 ? 1 : 0;
}

}  // namespace stretto::conformance
