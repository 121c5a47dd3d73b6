// Compares several runs in one page.
//
// Input: folders of runs of the training programs, or of other programs that write a metrics.csv.
// Output: --out FILE, a page with the results and curves of all runs, the differences between their
// settings, and their music; a line on standard error for each broken or incomplete run.
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
  app.add_option("folders", o.folders,
                 "Folders of runs: their --out, or any folder with a metrics.csv")
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
      argc, argv, "stretto-report", "Compares several runs in one page.",
      [&](CLI::App& app) { describe(app, options); }, [&] { return run(options); });
}
