// The page that a training leaves beside its other results, report.html: one file that needs no
// network and shows what was measured, looked at, written and composed; music plays in it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "examples/midi/midi.h"
#include "examples/plot/chart.h"

namespace stretto::examples {

/// How losses are shown: nats times `scale`, beside what counting alone achieves.
struct LossCurve {
  std::string title;
  std::string unit = "nats per token";
  double scale = 1;
  std::vector<ReferenceLine> references = {};
};

/// Curves over common axes, as line_chart() draws them.
struct ReportChart {
  ChartOptions options;
  std::vector<Series> curves;
};

/// Matrices as heat_maps() draws them; `rows` and `columns` say what one of each is: "query",
/// "key". Large ones are made coarser, a cell then has the greatest value of those in its place.
struct ReportMaps {
  std::string title, rows, columns;
  std::vector<HeatMap> maps;
  double gamma = 0;  // of heat_maps(); 0: heat_gamma()
};

/// Music to play; of very long pieces, the beginning. `file` is where it lies as MIDI.
struct ReportMusic {
  std::string title, file;
  Song song;
};

/// Text that the program wrote, after what it was `given`; one of aligned columns keeps its lines.
/// Bytes that are not UTF-8 are replaced.
struct ReportText {
  std::string title, given, text;
  bool aligned = false;
};

struct ReportTable {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

/// How far a run has come when its page is written.
enum class RunState { training, stopped, failed, scoring, done };

struct ReportSetting {
  std::string option, value;
  bool given;  // on the command line
};

struct Report {
  std::string program, folder;
  std::string about;                  // the model and the machine, in a line
  std::vector<std::string> commands;  // that were given, the first one first
  RunState state = RunState::training;
  std::string failure;  // of one that failed, why
  std::vector<ReportSetting> settings;
  LossCurve loss;
  std::vector<std::string> columns;       // of metrics.csv
  std::vector<std::vector<double>> rows;  // of it; every so many of very many
  std::vector<ReportTable> tables;
  std::vector<ReportChart> charts;
  std::vector<ReportMaps> maps;
  std::vector<ReportMusic> music;
  std::vector<ReportText> texts;
};

/// The page, less than 3 MB whatever the run made. Nothing in a report is read as HTML or script.
std::string report_page(const Report& report);

/// The command lines of the run whose page lies at `path`; none where there is no such page.
std::vector<std::string> commands_of_page(const std::string& path);

/// The runs of several folders laid over one another, from their metrics.csv and, where there is
/// one, report.html, for a page that will lie at `out`. A metrics.csv has a line of names, the
/// first of which is that of the steps, and lines of numbers (nn::MetricsCsv); of a run without a
/// page any names will do, of a program's "step", "seconds", "train_loss" and "valid_loss" must be
/// among them. Each folder without metrics, or with a page, that cannot be read gets a line
/// "FOLDER: …" in `problems` in place of a run, and the others are shown; so does one whose metrics
/// or whose run were cut off, which is shown as far as it goes.
struct Comparison {
  std::string page;
  std::vector<std::string> problems;
  int64_t shown = 0;
};
Comparison compare_runs(const std::vector<std::string>& folders, const std::string& out);

/// Whether the file at `path` is such a page.
bool is_comparison(const std::string& path);

}  // namespace stretto::examples
