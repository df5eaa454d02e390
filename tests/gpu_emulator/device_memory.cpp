#include "tests/gpu_emulator/device_memory.h"

#include <execinfo.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "core/base/error.h"
#include "tests/gpu_emulator/sanitizer.h"
#include "tests/gpu_emulator/source_line.h"

namespace ashlar::emulator {

namespace {

constexpr int64_t kAlign = 256;
constexpr int64_t kSystemPage = 4096;
constexpr unsigned char kNan = 0xFF;  // as bf16, fp32 and fp64; -1 as an integer

// The window of all device memory: slots of 64 GiB, far from where systems put programs, heaps and stacks. Slot 0 is
// the directory of the others.
constexpr uintptr_t kWindow = uintptr_t{0x20} << 40;
constexpr uintptr_t kSlotBytes = uintptr_t{64} << 30;
constexpr int kNumSlots = 256;

/// At the start of the window, from the first device memory of a process to its end. A signal handler is given nothing
/// but an address, so what it needs is found by address.
struct Directory {
  DeviceMemory* owners[kNumSlots];
  struct sigaction before;  ///< what a fault did before us
};
Directory& directory() { return *reinterpret_cast<Directory*>(kWindow); }

bool in_window(const void* at) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  return address >= kWindow + kSlotBytes && address < kWindow + kNumSlots * kSlotBytes;
}

const void* instruction_of(const void* context) {
  const auto* const machine = &static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(machine->gregs[REG_RIP]);
#else
  return reinterpret_cast<const void*>(machine->pc);
#endif
}

// The source line of an instruction, or of the innermost caller that has one: memcpy has none.
std::string line_of(const void* instruction) {
  const auto sites = std::make_unique<Sites>();
  const auto line = [&](const void* return_address) {
    std::string text = sites->text(sites->of(return_address));
    return text.find("no line is known") == std::string::npos ? text : "";
  };
  std::string text = line(static_cast<const char*>(instruction) + 1);
  void* frames[24];
  const int n = backtrace(frames, 24);
  bool callers = false;
  for (int i = 0; i < n && text.empty(); ++i) {
    if (callers) text = line(frames[i]);
    callers = callers || frames[i] == instruction;
  }
  return text.empty() ? "a place without a known line" : text;
}

void on_fault(int /*signal*/, siginfo_t* info, void* context) {
  // The fault is the program's own, and a bug: what allocates may be called.
  const DeviceMemory* const memory = DeviceMemory::of(info->si_addr);
  const std::string running = DeviceMemory::running();
  const std::string address = str_cat("address 0x", absl::Hex(reinterpret_cast<uintptr_t>(info->si_addr)));
  std::string text;
  if (memory != nullptr) {
    text = str_cat(running.empty() ? "the host" : running, " touches ", memory->describe(info->si_addr), " (", address,
                   ")");
  } else if (!running.empty() && info->si_code == SI_KERNEL) {
    text = str_cat(running, " makes a misaligned access, or one to an impossible address");
  } else if (!running.empty()) {
    text = str_cat(running, " touches ", address, ", where no memory is");
  }
  if (!text.empty()) {
    text = str_cat("[device memory] ", text, ", in ", line_of(instruction_of(context)), "\n");
    static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
  }
  sigaction(SIGSEGV, &directory().before, nullptr);  // the instruction faults again
}

char* map_at(uintptr_t at, size_t bytes, int protection) {
  void* const got = mmap(reinterpret_cast<void*>(at), bytes, protection,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return nullptr;
  if (got != reinterpret_cast<void*>(at)) munmap(got, bytes);  // a kernel that does not know the flag
  return got == reinterpret_cast<void*>(at) ? static_cast<char*>(got) : nullptr;
}

void watch_faults() {
  struct sigaction present {};
  sigaction(SIGSEGV, nullptr, &present);
  if ((present.sa_flags & SA_SIGINFO) != 0 && present.sa_sigaction == on_fault) return;
  directory().before = present;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace

DeviceMemory::DeviceMemory(Options options) : options_(std::move(options)) {
  map_at(kWindow, sizeof(Directory), PROT_READ | PROT_WRITE);  // or it is there already
  for (slot_ = 1; slot_ < kNumSlots && base_ == nullptr; ++slot_)
    if (directory().owners[slot_] == nullptr)
      base_ = map_at(kWindow + static_cast<uintptr_t>(slot_) * kSlotBytes, kSlotBytes, PROT_NONE);
  --slot_;
  ASHLAR_CHECK(base_ != nullptr, "no address space for device memory at ", kWindow);
  directory().owners[slot_] = this;
  watch_faults();
  if (options_.max_bytes == 0) options_.max_bytes = static_cast<int64_t>(kSlotBytes);
}

DeviceMemory::~DeviceMemory() {
  open();
  allow_access(base_, high_water_);
  directory().owners[slot_] = nullptr;
  munmap(base_, kSlotBytes);
}

void DeviceMemory::open() {
  if (!open_ && high_water_ > 0) mprotect(base_, static_cast<size_t>(high_water_), PROT_READ | PROT_WRITE);
  open_ = true;
}

void DeviceMemory::close() {
  if (open_ && high_water_ > 0) mprotect(base_, static_cast<size_t>(high_water_), PROT_NONE);
  open_ = false;
}

void DeviceMemory::fill_nan(int64_t offset, int64_t bytes) {
  allow_access(base_ + offset, bytes);
  std::memset(base_ + offset, kNan, static_cast<size_t>(bytes));
}

void DeviceMemory::set_gap(int64_t offset, Block& block) {
  if (block.has_gap || used_by_queue(offset + block.bytes, block.size - block.bytes)) return;
  block.has_gap = true;
  fill_nan(offset + block.bytes, block.size - block.bytes);
  forbid_access(base_ + offset + block.bytes, block.size - block.bytes);
}

bool DeviceMemory::used_by_queue(int64_t offset, int64_t bytes) const {
  return options_.in_use && options_.in_use(base_ + offset, bytes);
}

void DeviceMemory::check_untouched(int64_t offset, int64_t size) {
  auto it = untouched_.lower_bound(offset);
  if (it != untouched_.begin() && std::prev(it)->first + std::prev(it)->second > offset) --it;
  while (it != untouched_.end() && it->first < offset + size) {
    const auto [begin, bytes] = *it;
    allow_access(base_ + begin, bytes);
    for (int64_t i = 0; i < bytes; ++i) {
      ASHLAR_CHECK(static_cast<unsigned char>(base_[begin + i]) == kNan, "[device memory] ",
                   describe(base_ + begin + i), " was written after it had been released");
    }
    it = untouched_.erase(it);
    // What the new block leaves of it stays untouched.
    if (begin < offset) untouched_.emplace(begin, offset - begin), forbid_access(base_ + begin, offset - begin);
    const int64_t end = begin + bytes, behind = offset + size;
    if (end > behind) untouched_.emplace(behind, end - behind), forbid_access(base_ + behind, end - behind);
  }
}

void* DeviceMemory::allocate(int64_t bytes) {
  ASHLAR_CHECK(bytes >= 0, "bytes = ", bytes);
  Block block{.bytes = bytes, .size = (bytes + kAlign - 1) / kAlign * kAlign + kAlign, .number = ++num_allocations_};
  int64_t at = 0;
  for (const auto& [offset, taken] : blocks_) {
    if (offset - at >= block.size) break;
    at = offset + taken.size;
  }
  if (at + block.size > options_.max_bytes) {
    throw resource_error("device memory", bytes, " bytes are asked for, ", options_.owner, " has ", options_.max_bytes,
                         ", of which ", used_, " are in use; choose a smaller micro-batch or model");
  }
  const bool was_open = open_;
  open();
  if (at + block.size > high_water_) {  // in whole pages: they are opened and closed together
    const int64_t before = high_water_;
    high_water_ = (at + block.size + kSystemPage - 1) / kSystemPage * kSystemPage;
    mprotect(base_ + before, static_cast<size_t>(high_water_ - before), PROT_READ | PROT_WRITE);
  }
  settle();
  check_untouched(at, block.size);
  std::erase_if(released_, [&](const auto& r) { return r.first < at + block.size && at < r.first + r.second.size; });
  allow_access(base_ + at, block.size);
  if (!used_by_queue(at, bytes)) fill_nan(at, bytes);
  set_gap(at, block);
  if (!was_open) close();
  blocks_.emplace(at, block);
  used_ += block.size;
  hash_ = (hash_ ^ static_cast<uint64_t>(at + 1)) * 0x9E3779B97F4A7C15ULL;
  return base_ + at;
}

void DeviceMemory::release(void* block) {
  if (block == nullptr) return;
  const int64_t at = static_cast<char*>(block) - base_;
  const auto found = blocks_.find(at);
  ASHLAR_CHECK(found != blocks_.end(), "[device memory] released, but never handed out: ", describe(block));
  used_ -= found->second.size;
  released_.insert_or_assign(at, found->second);
  blocks_.erase(found);
  hash_ = (hash_ ^ ~static_cast<uint64_t>(at)) * 0x9E3779B97F4A7C15ULL;
  const bool was_open = open_;
  open();
  settle();
  if (!was_open) close();
}

void DeviceMemory::settle() {
  std::erase_if(released_, [&](const auto& r) {
    if (used_by_queue(r.first, r.second.bytes)) return false;
    fill_nan(r.first, r.second.size);
    forbid_access(base_ + r.first, r.second.size);
    untouched_.insert_or_assign(r.first, r.second.size);
    return true;
  });
  for (auto& [offset, block] : blocks_) set_gap(offset, block);
}

void DeviceMemory::check(std::string_view after) {
  const bool was_open = open_;
  open();
  settle();
  for (const auto& [offset, block] : blocks_) {
    if (kSanitized || !block.has_gap) continue;  // the sanitizer has told, with file and line
    const char* const gap = base_ + offset + block.bytes;
    const int64_t size = block.size - block.bytes;
    // All bytes are NaN if the first is and each is its neighbour.
    if (static_cast<unsigned char>(gap[0]) == kNan && std::memcmp(gap, gap + 1, static_cast<size_t>(size - 1)) == 0)
      continue;
    const char* bad = gap;
    while (static_cast<unsigned char>(*bad) == kNan) ++bad;
    throw Bug(str_cat("[device memory] ", after, " writes ", describe(bad)));
  }
  if (!was_open) close();
}

void DeviceMemory::check_all(std::string_view after) {
  for (DeviceMemory* memory : directory().owners)
    if (memory != nullptr && memory->open_) memory->check(after);
}

std::string DeviceMemory::running() {
  for (const DeviceMemory* memory : directory().owners) {
    if (memory == nullptr || !memory->options_.running) continue;
    std::string name = memory->options_.running();
    if (!name.empty()) return name;
  }
  return "";
}

uint64_t DeviceMemory::take_hash() { return std::exchange(hash_, 0); }

const DeviceMemory* DeviceMemory::of(const void* at) {
  if (!in_window(at)) return nullptr;
  return directory().owners[(reinterpret_cast<uintptr_t>(at) - kWindow) / kSlotBytes];
}

DeviceMemory::Blocks::const_iterator DeviceMemory::block_before(const void* at) const {
  const auto above = blocks_.upper_bound(static_cast<const char*>(at) - base_);
  return above == blocks_.begin() ? blocks_.end() : std::prev(above);
}

bool DeviceMemory::holds(const void* at, int64_t bytes) const {
  const auto block = block_before(at);
  if (block == blocks_.end()) return false;
  return static_cast<const char*>(at) + bytes <= base_ + block->first + block->second.bytes;
}

std::string DeviceMemory::describe(const void* at) const {
  const auto block = block_before(at);
  std::string text = "memory that is not handed out";
  if (block != blocks_.end()) {
    const int64_t byte = static_cast<const char*>(at) - base_ - block->first;
    const std::string which = str_cat("block ", block->second.number, " (", block->second.bytes, " bytes)");
    if (byte < block->second.bytes) {
      text = str_cat("byte ", byte, " of ", which);
    } else if (byte < block->second.size) {
      text = str_cat("byte ", byte - block->second.bytes, " past the end of ", which);
    }
  }
  text = str_cat(text, " of ", options_.owner);
  return options_.describe ? str_cat(text, ", ", options_.describe(at)) : text;
}

bool is_device_memory(const void* at, int64_t bytes) {
  const DeviceMemory* memory = DeviceMemory::of(at);
  return memory != nullptr && memory->for_kernels() && memory->holds(at, bytes);
}

}  // namespace ashlar::emulator
