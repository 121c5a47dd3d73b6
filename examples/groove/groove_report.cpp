#include "examples/groove/groove_report.h"

#include <cmath>
#include <iomanip>
#include <sstream>

#include "examples/plot/chart.h"

namespace stretto::examples {
namespace {

/// Adds a row of the table; `value(chunk)` may be NaN.
template <class Value>
void add_line(std::ostream& table, const std::string& name, const Value& value) {
  double sum = 0;
  table << "  " << std::left << std::setw(24) << name << std::right;
  const auto add = [&](double x) {
    std::ostringstream text;
    text << std::fixed << std::setprecision(3) << x;
    table << std::setw(8) << (std::isnan(x) ? "-" : text.str());
  };
  for (size_t chunk = 0; chunk < style_chunks; ++chunk) {
    add(value(chunk));
    sum += value(chunk);
  }
  add(sum / double(style_chunks));
  table << "\n";
}

}  // namespace

std::string style_table(const StyleSimilarity& s) {
  std::ostringstream table;
  table << std::string(26, ' ');
  for (const char* column : {"1st", "2nd", "3rd", "4th", "mean"}) table << std::setw(8) << column;
  table << "\n";
  for (const size_t track : {bass_track, drum_track, harmony_track})
    add_line(table,
             std::string(track == drum_track ? "onset-drum, " : "onset-duration, ") +
                 groove_track_names[track],
             [&](size_t chunk) { return s.onset[chunk][track]; });
  add_line(table, "mean of these", [&](size_t chunk) { return s.mean_onset(chunk); });
  for (const size_t track : {bass_track, harmony_track})
    add_line(table, std::string("time-pitch, ") + groove_track_names[track],
             [&](size_t chunk) { return s.time_pitch[chunk][track]; });
  add_line(table, "mean of these", [&](size_t chunk) { return s.mean_time_pitch(chunk); });
  return table.str();
}

std::string groove_roll(const music::Song& groove, const std::string& title) {
  constexpr std::array colors = {"#0068aa", "#969ba5", "#d55e00"};
  std::vector<RollVoice> voices;
  for (const size_t track : {drum_track, harmony_track, bass_track}) {
    voices.push_back({groove_track_names[track], colors[track], {}});
    for (const music::Note& note : groove.tracks[track].notes)
      voices.back().notes.push_back({note.start, note.start + note.duration, note.pitch});
  }
  return piano_roll({.title = title, .steps_per_beat = groove_beat}, voices);
}

}  // namespace stretto::examples
