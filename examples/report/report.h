// The page of a run, such as report.html of a training: one file that needs no network
// and shows measurements, pictures, generated text and music, which can be played.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "examples/plot/chart.h"
#include "music/midi_writer.h"

namespace stretto::examples {

/// How losses are shown: nats times `scale`, with the baselines as reference lines.
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

/// Matrices as heat_maps() draws them; `rows` and `columns` name a row and a column: "query",
/// "key". Large ones are coarsened.
struct ReportMaps {
  std::string title, rows, columns;
  std::vector<HeatMap> maps;
};

/// Music that the page can play; of very long pieces only the beginning. `file` is the name of the
/// MIDI file.
struct ReportMusic {
  std::string title, file;
  music::Song song;
};

/// Generated text after the prompt `given`; the lines of an `aligned` text stay as they are. Bytes
/// that are not UTF-8 are replaced.
struct ReportText {
  std::string title, given, text;
  bool aligned = false;
};

struct ReportTable {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

/// The state of a run when its page is written.
enum class RunState { training, stopped, failed, scoring, done };

struct ReportSetting {
  std::string option, value;
  bool given;  ///< on the command line
};

struct Report {
  std::string program, folder;
  std::string about;                  ///< one line about model and hardware
  std::vector<std::string> commands;  ///< the command lines, oldest first
  RunState state = RunState::training;
  std::string failure;  ///< why the run failed
  std::vector<ReportSetting> settings;
  LossCurve loss;
  std::vector<std::string> columns;       ///< of metrics.csv
  std::vector<std::vector<double>> rows;  ///< of metrics.csv; a page shows a subset of very many
  std::vector<ReportTable> tables;
  std::vector<ReportChart> charts;
  std::vector<ReportMaps> maps;
  std::vector<ReportMusic> music;
  std::vector<ReportText> texts;
};

/// Returns the page, less than 3 MB whatever the run produced. Nothing in a report is interpreted
/// as HTML or script.
std::string report_page(const Report& report);

/// Returns the command lines of the run whose page is at `path`; none if there is no such page.
std::vector<std::string> commands_of_page(const std::string& path);

/// Compares the runs in several folders, from metrics.csv and, if there is one, report.html, in a
/// page that will be at `out`. A metrics.csv has a line of column names, the first of which is the
/// step, and lines of numbers (nn::MetricsCsv). In a folder without report.html, any names are
/// accepted; with report.html, "step", "seconds", "train_loss" and "valid_loss" must be among them.
/// A folder whose metrics are missing, or whose metrics or page cannot be read, is not shown; it
/// gets a line "FOLDER: …" in `problems`. A run that is incomplete, or whose metrics are
/// incomplete, gets such a line, too, and is shown as far as possible.
struct Comparison {
  std::string page;
  std::vector<std::string> problems;
  int64_t shown = 0;
};
Comparison compare_runs(const std::vector<std::string>& folders, const std::string& out);

/// True if the file at `path` is the page of a comparison.
bool is_comparison(const std::string& path);

}  // namespace stretto::examples
