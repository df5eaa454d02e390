#pragma once

#include <string>
#include <vector>

namespace ashlar {

/// Returns the rows of a table as lines. Columns are left-aligned and two spaces apart; lines have no spaces at their
/// end. A row may have fewer cells than others.
std::vector<std::string> aligned_lines(const std::vector<std::vector<std::string>>& rows);

}  // namespace ashlar
