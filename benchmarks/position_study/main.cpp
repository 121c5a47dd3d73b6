// Compares all positional encodings on several small tasks, with softmax and with linear attention.
// Makes the runs that have no row in the CSV files of the folder OUT yet:
//
//     position_study --data FOLDER --out OUT               # hours; may be killed and started again
//     position_study --data FOLDER --out OUT --list        # what is finished, missing and refused
//     position_study --data FOLDER --out OUT --again 0.1   # repeats a tenth and compares
//     position_study --out OUT --tables TABLES             # tables in Markdown, plots in SVG
//
// Each process uses one thread. Several processes with the same OUT share the work.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>

#include "benchmarks/position_study/commit.h"
#include "benchmarks/position_study/study.h"
#include "benchmarks/position_study/tables.h"
#include "core/cpu.h"
#include "core/parallel.h"
#include "examples/common/command_line.h"

using namespace stretto;

namespace {

// The name of the processor and its instruction set.
std::string processor() {
  std::string name = "unknown";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) {
      name = line.substr(line.find(": ") + 2);
      break;
    }
  name += " (" + cpu_description() + ")";
  for (char& c : name)
    if (c == ',') c = ';';
  return name;
}

}  // namespace

int main(int argc, char** argv) {
  study::StudyOptions o;
  bool list = false;
  double again = 0;
  std::string tables;
  return examples::run_program(
      argc, argv, "position_study", "Compares positional encodings.",
      [&](CLI::App& app) {
        app.add_option("--data", o.data, "Folder of the data sets (text/, jsb/, midi/, lra/)");
        app.add_option("--out", o.out, "Folder of the CSV files")->required();
        app.add_option("--tasks", o.tasks, "By default all")->delimiter(',');
        app.add_option("--positions", o.positions, "By default all")->delimiter(',');
        app.add_option("--kernels", o.kernels,
                       "By default softmax, performer, linear-elu and retention")
            ->delimiter(',');
        app.add_option("--seeds", o.seeds)->delimiter(',');
        app.add_option("--longer", o.longer, "Factor of the training steps; needs its own --out");
        app.add_option("--steps", o.steps, "Instead of the steps of each task; likewise");
        app.add_option("--length", o.length,
                       "Instead of the trained length of each task; likewise");
        app.add_option("--batch", o.batch, "Instead of the batch size of each task; likewise");
        app.add_option("--lr", o.lr, "Instead of the learning rate of each task; likewise");
        app.add_option("--budget", o.budget, "Minutes after which no run is started");
        app.add_flag("--list", list, "Lists finished, missing and refused runs with their time");
        app.add_option("--again", again, "Share of finished runs that are repeated and compared");
        app.add_option("--tables", tables, "Folder for tables and plots of the results in --out");
      },
      [&] {
        examples::require_positive("--longer", o.longer);
        set_num_threads(1);
        o.origin = {{"commit", study::commit()}, {"processor", processor()}};
        o.print = [](const std::string& line) {
          std::printf("%s\n", line.c_str());
          std::fflush(stdout);
        };
        if (list) {
          std::printf("%s", study::overview(o).c_str());
          return 0;
        }
        if (!tables.empty()) {
          study::write_tables(o.out, tables);
          return 0;
        }
        if (again > 0) return study::repeat_runs(o, again) == 0 ? 0 : 1;
        study::make_missing(o);
        return 0;
      });
}
