#include "examples/report/report.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/version.h"
#include "examples/common/error.h"
#include "examples/report/page.h"

namespace stretto::examples {
namespace {

using nlohmann::json;

// Limits of a page, less than 3 MB in all.
constexpr size_t most_rows = 1000, most_points = 500, most_curves = 24, most_cells = 800'000,
                 most_notes = 25'000, most_pieces = 40, most_text = 40'000, most_lines = 200,
                 most_command = 4'000, most_commands = 10, most_value = 500;

// Rounds to nine digits; a value that is not finite becomes null.
json number(double x) {
  if (!std::isfinite(x)) return nullptr;
  if (x == std::floor(x) && std::abs(x) < 0x1p53) return int64_t(x);
  if (x == 0) return 0;
  const double scale = std::pow(10, 8 - std::floor(std::log10(std::abs(x))));
  return std::isfinite(scale) ? std::round(x * scale) / scale : x;
}

json numbers(const std::vector<double>& all) {
  json list = json::array();
  for (const double x : all) list.push_back(number(x));
  return list;
}

// Returns at most `most` elements, evenly spaced, including the first and the last.
template <class T>
std::vector<T> thinned(const std::vector<T>& all, size_t most) {
  if (all.size() <= most) return all;
  std::vector<T> some;
  for (size_t i = 0; i < most; ++i) some.push_back(all[i * (all.size() - 1) / (most - 1)]);
  return some;
}

std::string cut(const std::string& text, size_t most) {
  return text.size() <= most ? text : text.substr(0, most) + " …";
}

json references(const std::vector<ReferenceLine>& lines) {
  json list = json::array();
  for (const ReferenceLine& line : lines) list.push_back({line.label, number(line.y)});
  return list;
}

json chart(const ReportChart& c) {
  json curves = json::array();
  for (const Series& s : c.curves) {
    if (curves.size() == most_curves) break;
    curves.push_back({{"name", s.name},
                      {"x", numbers(thinned(s.x, most_points))},
                      {"y", numbers(thinned(s.y, most_points))}});
  }
  return {{"title", c.options.title},
          {"x", c.options.x_label},
          {"y", c.options.y_label},
          {"references", references(c.options.reference_lines)},
          {"curves", curves}};
}

json table(const ReportTable& t) {
  json rows = json::array();
  for (const auto& row : t.rows)
    if (rows.size() < most_lines) rows.push_back(row);
  return {{"title", t.title}, {"columns", t.columns}, {"rows", rows}};
}

std::string base64(const std::vector<uint8_t>& bytes) {
  constexpr const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) three = three << 8 | (i + k < bytes.size() ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; ++k)
      text += i + k <= bytes.size() ? digits[three >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

// A cell is a byte: 0 for a value that is not finite, else 1 to 255 for the square root of its
// share of the scale, which preserves differences between small weights.
std::vector<uint8_t> cells(const HeatMap& map, HeatScale scale) {
  scale.gamma = 0.5;
  std::vector<uint8_t> bytes;
  for (const float value : map.values)
    bytes.push_back(std::isfinite(value) ? uint8_t(1 + std::lround(254 * scale.share(value))) : 0);
  return bytes;
}

json maps(ReportMaps group, size_t most) {
  const HeatScale scale = heat_scale(group.maps);
  const int64_t coarse = coarsen(group.maps, int64_t(most));
  json list = json::array();
  for (const HeatMap& map : group.maps)
    list.push_back({{"caption", map.caption},
                    {"rows", map.rows},
                    {"columns", map.columns},
                    {"cells", base64(cells(map, scale))}});
  return {{"title", group.title},       {"rows", group.rows},   {"columns", group.columns},
          {"coarse", coarse},           {"gamma", scale.gamma}, {"low", number(scale.low)},
          {"high", number(scale.high)}, {"maps", list}};
}

// Returns the notes of each voice as start, duration, pitch and velocity, one after the other; at
// most `room` notes in all, the ones that start first.
json piece(const ReportMusic& music, size_t& room) {
  const music::Song& song = music.song;
  std::vector<int> starts;
  for (const music::Track& track : song.tracks)
    for (const music::Note& note : track.notes) starts.push_back(note.start);
  std::sort(starts.begin(), starts.end());
  const size_t shown = std::min(room, starts.size());
  const int end = shown < starts.size() ? starts[shown] : INT32_MAX;  // later notes are left out
  json voices = json::array();
  for (const music::Track& track : song.tracks) {
    std::vector<music::Note> notes;
    for (const music::Note& note : track.notes)
      if (note.start < end) notes.push_back(note);
    room -= notes.size();
    std::stable_sort(notes.begin(), notes.end(),
                     [](const music::Note& a, const music::Note& b) { return a.start < b.start; });
    json flat = json::array();
    for (const music::Note& n : notes)
      for (const int x : {n.start, n.duration, n.pitch, n.velocity}) flat.push_back(x);
    voices.push_back({{"name", track.name},
                      {"program", track.program},
                      {"drums", track.channel == 9},
                      {"notes", flat}});
  }
  json tempos = json::array({{0, number(song.quarters_per_minute)}});
  for (const music::TempoMark& mark : song.tempos)
    if (mark.tick < end && tempos.size() < 5000)
      tempos.push_back({mark.tick, number(mark.quarters_per_minute)});
  return {{"title", music.title}, {"file", music.file},      {"ticks", song.ticks_per_quarter},
          {"tempos", tempos},     {"cut", end != INT32_MAX}, {"voices", voices}};
}

json all_music(const std::vector<ReportMusic>& all) {
  size_t room = most_notes;
  json list = json::array();
  for (const ReportMusic& music : all)
    if (list.size() < most_pieces && room > 0) list.push_back(piece(music, room));
  return list;
}

json all_texts(const std::vector<ReportText>& all) {
  size_t room = most_text;
  json list = json::array();
  for (const ReportText& t : all) {
    if (room == 0) break;
    const std::string given = cut(t.given, room), text = cut(t.text, room);
    room -= std::min(room, given.size() + text.size());
    list.push_back({{"title", t.title}, {"given", given}, {"text", text}, {"aligned", t.aligned}});
  }
  return list;
}

std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm local{};
  localtime_r(&time, &local);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local)};
}

constexpr const char* state_names[] = {"training", "stopped", "failed", "scoring", "done"};

json run(const Report& r) {
  json settings = json::array(), commands = json::array(), rows = json::array(),
       charts = json::array(), tables = json::array(), all_maps = json::array();
  for (const ReportSetting& s : r.settings)
    settings.push_back({s.option, cut(s.value, most_value), s.given});
  for (const std::string& command : thinned(r.commands, most_commands))
    commands.push_back(cut(command, most_command));
  for (const std::vector<double>& row : thinned(r.rows, most_rows)) rows.push_back(numbers(row));
  for (const ReportChart& c : r.charts) charts.push_back(chart(c));
  for (const ReportTable& t : r.tables) tables.push_back(table(t));
  for (const ReportMaps& m : r.maps) all_maps.push_back(maps(m, most_cells / r.maps.size()));
  return {{"program", r.program},
          {"name", r.folder},
          {"about", r.about},
          {"version",
           str(STRETTO_VERSION_MAJOR, ".", STRETTO_VERSION_MINOR, ".", STRETTO_VERSION_PATCH)},
          {"written", now()},
          {"state", state_names[size_t(r.state)]},
          {"failure", cut(r.failure, most_command)},
          {"commands", commands},
          {"settings", settings},
          {"loss",
           {{"title", r.loss.title},
            {"unit", r.loss.unit},
            {"scale", number(r.loss.scale)},
            {"references", references(r.loss.references)}}},
          {"metrics", {{"columns", r.columns}, {"measured", r.rows.size()}, {"rows", rows}}},
          {"tables", tables},
          {"charts", charts},
          {"maps", all_maps},
          {"music", all_music(r.music)},
          {"texts", all_texts(r.texts)}};
}

}  // namespace

std::string report_page(const Report& report) {
  const json data{
      {"kind", "run"}, {"runs", json::array({run(report)})}, {"problems", json::array()}};
  return page_with(report.program + " · " + report.folder,
                   data.dump(-1, ' ', false, json::error_handler_t::replace));
}

std::vector<std::string> commands_of_page(const std::string& path) {
  try {
    return run_of_page(path).at("commands");
  } catch (const json::exception&) {
  } catch (const UsageError&) {
  }
  return {};
}

}  // namespace stretto::examples
