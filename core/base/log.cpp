#include "core/base/log.h"

#include <algorithm>

#include "core/base/printable.h"
#include "core/base/strings.h"

namespace ashlar {

void Log::info(std::string_view text) { sink_(on_one_line(text), LineKind::kInfo); }

void Log::step(std::string_view text) { sink_(on_one_line(text), LineKind::kStep); }

void Log::warn(std::string_view text) {
  warnings_.push_back(on_one_line(text));
  sink_(str_cat("warning: ", warnings_.back()), LineKind::kWarning);
}

void Log::info_once(std::string_view text) {
  if (std::find(logged_once_.begin(), logged_once_.end(), text) != logged_once_.end()) return;
  logged_once_.emplace_back(text);
  info(text);
}

}  // namespace ashlar
