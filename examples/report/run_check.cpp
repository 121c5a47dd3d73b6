// checked_run() of page.h: checks the data of a page that may come from anyone.
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "examples/common/settings.h"
#include "examples/report/page.h"

namespace stretto::examples {
namespace {

using nlohmann::json;
using Check = std::function<void(const json&)>;

// Limits: more than any program writes (report.cpp), and no more than a browser can show at once.
constexpr size_t most_settings = 500, most_parts = 100, most_curves = 100, most_points = 5000,
                 most_lines = 500, most_columns = 100, most_voices = 500, most_word = 5000;
constexpr double most_tick = 0x1p32, most_tempo = 1e8;

void need(bool good) { require(good, "report.html is broken"); }

void is_text(const json& value) { value.get_ref<const std::string&>(); }

void is_word(const json& value) { need(value.get_ref<const std::string&>().size() <= most_word); }

void is_flag(const json& value) { value.get_ref<const json::boolean_t&>(); }

void is_number(const json& value) { need(value.is_number() && std::isfinite(value.get<double>())); }

void is_number_or_none(const json& value) {
  if (!value.is_null()) is_number(value);
}

// Checks for a number from `least` to `most`.
double number_in(const json& value, double least, double most) {
  is_number(value);
  const auto x = value.get<double>();
  need(least <= x && x <= most);
  return x;
}

double whole_in(const json& value, double least, double most) {
  const double x = number_in(value, least, most);
  need(x == std::floor(x));
  return x;
}

const json::array_t& list_of(const json& value, size_t most, const Check& check) {
  const auto& list = value.get_ref<const json::array_t&>();
  need(list.size() <= most);
  for (const json& element : list) check(element);
  return list;
}

// [label, y]
void is_reference(const json& line) {
  need(line.get_ref<const json::array_t&>().size() == 2);
  is_word(line[0]);
  is_number_or_none(line[1]);
}

// [option, value, given]
void is_setting(const json& setting) {
  need(setting.get_ref<const json::array_t&>().size() == 3);
  is_word(setting[0]);
  is_word(setting[1]);
  is_flag(setting[2]);
}

void is_table(const json& table) {
  is_word(table.at("title"));
  const size_t columns = list_of(table.at("columns"), most_columns, is_word).size();
  list_of(table.at("rows"), most_lines,
          [&](const json& row) { need(list_of(row, most_columns, is_word).size() == columns); });
}

void is_chart(const json& chart) {
  for (const char* name : {"title", "x", "y"}) is_word(chart.at(name));
  list_of(chart.at("references"), most_parts, is_reference);
  list_of(chart.at("curves"), most_curves, [](const json& curve) {
    is_word(curve.at("name"));
    const size_t n = list_of(curve.at("x"), most_points, is_number_or_none).size();
    need(list_of(curve.at("y"), most_points, is_number_or_none).size() == n);
  });
}

// Notes as start, duration, pitch and velocity, one after the other, in the order of their starts.
void are_notes(const json& notes) {
  const auto& list = notes.get_ref<const json::array_t&>();
  need(list.size() % 4 == 0);
  double before = 0;
  for (size_t i = 0; i < list.size(); i += 4) {
    before = whole_in(list[i], before, most_tick);
    whole_in(list[i + 1], 0, most_tick);
    whole_in(list[i + 2], 0, 127);
    whole_in(list[i + 3], 0, 127);
  }
}

void is_piece(const json& piece) {
  for (const char* name : {"title", "file"}) is_word(piece.at(name));
  is_flag(piece.at("cut"));
  whole_in(piece.at("ticks"), 1, 32767);
  double before = 0;
  need(!list_of(piece.at("tempos"), most_points + 1, [&](const json& mark) {
          need(mark.get_ref<const json::array_t&>().size() == 2);
          before = whole_in(mark[0], before, most_tick);
          number_in(mark[1], 0, most_tempo);
        }).empty());
  list_of(piece.at("voices"), most_voices, [](const json& voice) {
    is_word(voice.at("name"));
    whole_in(voice.at("program"), 0, 127);
    is_flag(voice.at("drums"));
    are_notes(voice.at("notes"));
  });
}

void is_sample(const json& sample) {
  is_word(sample.at("title"));
  is_text(sample.at("given"));
  is_text(sample.at("text"));
  is_flag(sample.at("aligned"));
}

void is_loss(const json& loss) {
  for (const char* name : {"title", "unit"}) is_word(loss.at(name));
  number_in(loss.at("scale"), -1e9, 1e9);
  list_of(loss.at("references"), most_parts, is_reference);
}

}  // namespace

json checked_run(const json& run) {
  json checked;
  const auto take = [&](const char* name, const Check& check) {
    check(run.at(name));
    checked[name] = run.at(name);
  };
  const auto take_list = [&](const char* name, size_t most, const Check& check) {
    take(name, [&](const json& list) { list_of(list, most, check); });
  };
  for (const char* name : {"program", "about", "version", "written", "state", "failure"})
    take(name, is_word);
  take("loss", is_loss);
  take_list("settings", most_settings, is_setting);
  take_list("tables", most_parts, is_table);
  take_list("charts", most_parts, is_chart);
  take_list("music", most_parts, is_piece);
  take_list("texts", most_parts, is_sample);
  return checked;
}

}  // namespace stretto::examples
