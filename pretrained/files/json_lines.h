// JSON lines: a file with one JSON object per line, as data for fine-tuning is often stored.
//
//     for (auto& row : nn::read_json_lines("pairs.jsonl")) std::cout << row["question"];
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "../../nn/files/json.h"

namespace stretto::nn {

/// Returns the objects of a file of JSON lines. A value that is no text is returned as JSON; blank
/// lines are left out. Throws Error "[read_json_lines] PATH, line 7: …" for any other line.
std::vector<std::map<std::string, std::string>> read_json_lines(const std::string& path);

namespace files {
/// Calls `visit` with the object of each line that is not blank, and with "PATH, line 7" for errors.
/// Throws Error "[op] PATH, line 7: …" for a line that is no object.
void for_each_json_line(const char* op, const std::string& path,
                        const std::function<void(const Json&, const std::string& name)>& visit);
}  // namespace files

}  // namespace stretto::nn
