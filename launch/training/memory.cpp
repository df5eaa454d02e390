#include "launch/training/memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_format.h"
#include "core/base/strings.h"
#include "core/device/device_facts.h"
#include "core/io/posix_file.h"
#include "launch/watch/process.h"

namespace ashlar::training {

namespace {

// Returns the value of `key` ("VmRSS:") in the text of /proc/self/status, in bytes.
int64_t bytes_under(const char* key, const char* status) {
  const char* at = std::strstr(status, key);
  const int64_t kilobytes = at == nullptr ? 0 : std::strtoll(at + std::strlen(key), nullptr, 10);
  return kilobytes * 1024;
}

int64_t status_bytes(const char* key) { return bytes_under(key, io::text_if_readable("/proc/self/status").c_str()); }

/// Returns " = NAME BYTES + NAME BYTES ..." for the parts of `whole`, followed by the difference between `whole` and
/// the sum of the parts: after the text `more` if the sum is at most `whole`, after the text `less` if the sum is
/// larger.
std::string sum_text(int64_t whole, const std::vector<std::pair<std::string, int64_t>>& parts, std::string_view more,
                     std::string_view less) {
  std::string text = " =";
  int64_t rest = whole;
  for (const auto& [name, bytes] : parts) {
    text += str_cat(rest == whole ? " " : " + ", name, " ", human_bytes(bytes));
    rest -= bytes;
  }
  return str_cat(text, rest >= 0 ? more : less, human_bytes(std::abs(rest)));
}

}  // namespace

int64_t resident_bytes() { return status_bytes("VmRSS:"); }
int64_t peak_resident_bytes() { return status_bytes("VmHWM:"); }

PeakMemory::PeakMemory() : file_(open("/proc/self/status", O_RDONLY | O_CLOEXEC)) {}

PeakMemory::~PeakMemory() {
  if (file_ >= 0) close(file_);
}

int64_t PeakMemory::bytes() const {
  return bytes_under("VmHWM:", watch::text_in(file_).c_str());  // VmHWM is before the CPU masks, which may be long
}

MemoryLedger::MemoryLedger() : private_bytes_(status_bytes("RssAnon:")) {}

std::vector<std::pair<std::string, int64_t>> MemoryLedger::parts(Backend& backend) const {
  std::vector<std::pair<std::string, int64_t>> parts;
  const bool on_device = dynamic_cast<DeviceFacts*>(&backend) != nullptr;
  for (int i = 0; i < kNumMemoryKinds; ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    const bool of_host = !on_device || kind == MemoryKind::kPinned;
    const int64_t bytes = of_host ? backend.allocator(kind).high_water_bytes() : 0;
    if (bytes > 0) parts.emplace_back(std::string(name_of(kind)), bytes);
  }
  parts.insert(parts.end(), extra_.begin(), extra_.end());
  // Code is paged in when it first runs, mostly after the start, so its size is read now.
  parts.emplace_back("program", private_bytes_ + status_bytes("RssFile:"));
  return parts;
}

std::string MemoryLedger::report(Backend& backend) const {
  const int64_t peak = peak_resident_bytes();
  // The rest is positive for stacks and small objects, negative for memory that was reserved but never written.
  return human_bytes(peak) + sum_text(peak, parts(backend), " + other ", " - untouched ");
}

void MemoryLedger::add_of_device(std::string name, Backend& backend) {
  auto* const device = dynamic_cast<DeviceFacts*>(&backend);
  if (device == nullptr) return;
  const DeviceFacts::Memory memory = device->memory();
  const int64_t bytes = memory.total_bytes - memory.free_bytes - device_bytes(backend);
  if (bytes > 0) of_device_.emplace_back(std::move(name), bytes);
}

int64_t MemoryLedger::device_bytes(Backend& backend) const {
  int64_t bytes = 0;
  for (const auto& [name, part] : device_parts(backend)) bytes += part;
  return bytes;
}

std::string MemoryLedger::device_report(Backend& backend) const {
  auto* const device = dynamic_cast<DeviceFacts*>(&backend);
  if (device == nullptr) return "";
  const DeviceFacts::Memory memory = device->memory();
  const int64_t taken = memory.total_bytes - memory.free_bytes;
  return str_cat(human_bytes(taken), " of ", human_bytes(memory.total_bytes),
                 sum_text(taken, device_parts(backend), " + others ", " - freed since "));
}

std::vector<std::pair<std::string, int64_t>> MemoryLedger::device_parts(Backend& backend) const {
  auto* const device = dynamic_cast<DeviceFacts*>(&backend);
  if (device == nullptr) return {};
  std::vector<std::pair<std::string, int64_t>> parts = of_device_;
  for (int i = 0; i < kNumMemoryKinds; ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    int64_t bytes = kind == MemoryKind::kPinned ? 0 : backend.allocator(kind).high_water_bytes();
    if (kind == MemoryKind::kWorkspace && device->attention_workspace_bytes() > 0) {
      parts.emplace_back("cudnn attention", device->attention_workspace_bytes());
      bytes -= device->attention_workspace_bytes();
    }
    if (bytes > 0) parts.emplace_back(std::string(name_of(kind)), bytes);
  }
  return parts;
}

std::string human_bytes(int64_t bytes) {
  const double b = static_cast<double>(bytes);
  if (b >= 1e9) return absl::StrFormat("%.2f GB", b / 1e9);
  if (b >= 1e6) return absl::StrFormat("%.1f MB", b / 1e6);
  return absl::StrFormat("%.0f KB", b / 1e3);
}

}  // namespace ashlar::training
