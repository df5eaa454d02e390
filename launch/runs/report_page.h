#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launch/runs/run_folder.h"

namespace ashlar::runs {

struct ReportPage {
  const std::vector<RunFolder>& runs;
  /// Who else chose this value (TOML text) of a key, in words; empty if nothing is known about the key.
  std::function<std::string(const std::string& key, const std::string& value)> who;
};

/// Returns one HTML page with the curves, configurations and events of runs. It needs no network and no other file; its
/// script draws the curves as SVG. A curve of more than 2000 points keeps the lowest and highest of each interval.
std::string report_html(const ReportPage& page);

/// The page around the data: the data replace the word @DATA@ in it.
extern const char* const kReportTemplate;

}  // namespace ashlar::runs
