#include "launch/terminal/status_line.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/base/strings.h"
#include "launch/terminal/terminal.h"

namespace ashlar::terminal {

namespace {

std::string ascii(const std::string& text) {
  std::string plain;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0U) == 0x80U) continue;  // a further byte of a character
    plain += byte >= ' ' && byte <= '~' ? c : '?';
  }
  return plain;
}

}  // namespace

std::string layout(const Status& status, int width) {
  const std::string text = ascii(status.text.empty() ? status.what : str_cat(status.what, "  ", status.text));
  // A cursor behind the last column would move to the next line.
  const auto most = static_cast<size_t>(std::max(0, width - 1));
  std::string bar;
  if (status.share >= 0) {
    const double share = std::clamp(status.share, 0.0, 1.0);
    const std::string percent = absl::StrFormat("%3.0f%%  ", 100 * share);
    constexpr size_t kLongest = 24, kShortest = 6, kFrame = 3;  // "[] "
    const size_t taken = text.size() + percent.size() + kFrame;
    const size_t columns = taken < most ? std::min(kLongest, most - taken) : 0;
    if (columns >= kShortest) {
      const auto full = static_cast<size_t>(share * static_cast<double>(columns));
      bar = str_cat("[", std::string(full, '#'), std::string(columns - full, '.'), "] ");
    }
    bar += percent;
  }
  return (bar + text).substr(0, most);
}

StatusLine::StatusLine(Args args) : args_(std::move(args)), on_(args_.width && args_.width() > 0) {}

void StatusLine::show(const std::function<Status()>& make) {
  if (!on_) return;
  const double now = args_.clock();
  const std::lock_guard lock(mutex_);
  if (now - last_ < kSeconds) return;
  draw(make(), args_.width(), now);
}

void StatusLine::show_now(const Status& status) {
  if (!on_) return;
  const std::lock_guard lock(mutex_);
  draw(status, args_.width(), args_.clock());
}

void StatusLine::draw(const Status& status, int width, double now) {
  if (width <= 0) return;
  last_ = now;
  drawn_ = true;
  args_.write(str_cat(kErase, layout(status, width)));
}

std::string StatusLine::take_erase() {
  if (!on_) return "";
  const std::lock_guard lock(mutex_);
  return std::exchange(drawn_, false) ? std::string(kErase) : "";
}

void StatusLine::clear() {
  if (std::string erase = take_erase(); !erase.empty()) args_.write(std::move(erase));
}

}  // namespace ashlar::terminal
