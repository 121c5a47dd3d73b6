#include "tests/examples/tiny_run.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

namespace stretto::examples::testing {

TinyRun::TinyRun(const std::string& program_, Arguments settings_)
    : program(program_), path(find_program(program_)), settings(std::move(settings_)) {}

Arguments TinyRun::command(const Arguments& more) const {
  Arguments all = settings;
  all.insert(all.end(), {"--out", out(), "--threads", "1", "--overwrite"});
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Arguments TinyRun::resuming(Arguments more) const {
  more.insert(more.end(), {"--resume", out("checkpoint.safetensors")});
  return command(more);
}

bool TinyRun::drew(const std::string& name) const {
  if (!std::filesystem::exists(out(name + ".svg"))) return false;
  const std::string svg = read_file(out(name + ".svg"));
  return svg.starts_with("<svg ") && svg.ends_with("</svg>\n");
}

std::string measured(const std::string& out) {
  std::istringstream lines(read_file(out + "/metrics.csv"));
  std::string all;
  for (std::string line; std::getline(lines, line); all += '\n') {
    std::istringstream values(line);
    std::string value;
    for (int column = 0; std::getline(values, value, ','); ++column)
      if (column != 1 && column < 6) all += value + ' ';  // seconds, speed and memory
  }
  return all;
}

int64_t count_lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

void check_refusals(const TinyRun& tiny, const std::vector<Refusal>& refusals) {
  const auto before = contents(tiny.file(""));
  for (const Refusal& refusal : refusals) {
    const Ended ended = tiny.run(refusal.arguments);
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK(ended.out.empty());
    CHECK(ended.err == tiny.program + ": " + refusal.expected + "\n");
  }
  CHECK(contents(tiny.file("")) == before);
}

}  // namespace stretto::examples::testing
