// Compares several runs in one page.
//
// In: folders of runs, of the training programs or any others that have a metrics.csv. Out: --out
// FILE, a page with their results and curves, with what differs in their settings, and with the
// music of all; a line for each run that is broken or was cut off.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "examples/common/command_line.h"
#include "examples/common/file.h"
#include "examples/common/settings.h"
#include "examples/report/report.h"

namespace stretto::examples {
namespace {

struct Options {
  std::vector<std::string> folders;
  std::string out = "comparison.html";
};

void describe(CLI::App& app, Options& o) {
  app.add_option("folders", o.folders, "Folders of runs: what --out was, or any with a metrics.csv")
      ->option_text("DIR...")
      ->required();
  app.add_option("--out", o.out, "The page to write")->option_text("FILE=" + o.out);
}

void check(const Options& o) {
  std::error_code none;
  for (const std::string& folder : o.folders)
    require(!std::filesystem::equivalent(o.out, folder + "/report.html", none),
            "--out: " + o.out + " is the page of one of the runs");
  require(!std::filesystem::is_regular_file(o.out, none) || is_comparison(o.out),
          "--out: " + o.out + " exists and is not a page of " + program_name() +
              "; only such a page is replaced");
}

int run(const Options& o) {
  check(o);
  const Comparison c = compare_runs(o.folders, o.out);
  for (const std::string& problem : c.problems) std::cerr << printable(problem) << std::endl;
  require(c.shown > 0, "none of these folders has a run that can be shown");
  write_file_atomically(o.out, c.page);
  std::cout << "Wrote " << o.out << ": " << c.shown << (c.shown == 1 ? " run" : " runs")
            << std::endl;
  return 0;
}

}  // namespace
}  // namespace stretto::examples

int main(int argc, char** argv) {
  stretto::examples::Options options;
  return stretto::examples::run_program(
      argc, argv, "stretto-report", "Lays several runs over one another, in one page.",
      [&](CLI::App& app) { describe(app, options); }, [&] { return run(options); });
}
