#include "core/base/log.h"

#include <algorithm>
#include <utility>

#include "core/base/printable.h"
#include "core/base/strings.h"

namespace ashlar {

void Log::write(std::string text, LineKind kind) {
  sink_(text, kind);
  Line line{.text = std::move(text), .time = std::chrono::system_clock::now()};
  if (copy_) return copy_(line);
  if (kept_ && kept_->size() < kKeptLines) kept_->push_back(std::move(line));
}

void Log::copy_to(CopySink sink) {
  copy_ = std::move(sink);
  const std::optional<std::vector<Line>> kept = std::exchange(kept_, std::nullopt);
  if (!kept || !copy_) return;
  for (const Line& line : *kept) copy_(line);
}

void Log::info(std::string_view text) { write(on_one_line(text), LineKind::kInfo); }

void Log::step(std::string_view text) { write(on_one_line(text), LineKind::kStep); }

void Log::warn(std::string_view text) {
  warnings_.push_back(on_one_line(text));
  write(str_cat("warning: ", warnings_.back()), LineKind::kWarning);
}

void Log::info_once(std::string_view text) {
  if (std::find(logged_once_.begin(), logged_once_.end(), text) != logged_once_.end()) return;
  logged_once_.emplace_back(text);
  info(text);
}

}  // namespace ashlar
