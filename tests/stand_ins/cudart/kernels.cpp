#include "tests/stand_ins/cudart/kernels.h"

#include <fatbinary_section.h>

#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/base/error.h"
#include "tests/ptx/kernel_names.h"

namespace ashlar::stand_in {

namespace {

// What the wrapper of fatbinary_section.h points to: a header, then entries, each with a header of its own.
constexpr uint32_t kImageMagic = 0xBA55ED50;
constexpr uint16_t kPtxEntry = 1;
struct ImageHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  ///< of all entries
};
struct EntryHeader {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t bytes;  ///< behind the header
};

template <typename T>
T read(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

/// The PTX in it; empty where there is none, or none that is not compressed.
std::string ptx_of(const void* fat_binary) {
  const auto wrapper = read<__fatBinC_Wrapper_t>(static_cast<const char*>(fat_binary));
  if (wrapper.magic != FATBINC_MAGIC) return "";
  const char* at = reinterpret_cast<const char*>(wrapper.data);
  const auto header = read<ImageHeader>(at);
  if (header.magic != kImageMagic) return "";
  at += header.header_bytes;
  for (const char* const end = at + header.bytes; at < end;) {
    const auto entry = read<EntryHeader>(at);
    const std::string_view text(at + entry.header_bytes, entry.bytes);
    if (entry.kind == kPtxEntry && text.find(".version") != std::string_view::npos)
      return std::string(text.substr(0, text.find('\0')));
    at += entry.header_bytes + entry.bytes;
  }
  return "";
}

}  // namespace

Image* Kernels::add_image(const void* fat_binary) {
  images_.push_back(std::make_unique<Image>(Image{.fat_binary = fat_binary, .program = nullptr}));
  return images_.back().get();
}

void Kernels::add(Image* image, const void* host_function, const char* mangled_name) {
  kernels_[host_function] = {.image = image, .mangled_name = mangled_name, .name = ptx::source_name(mangled_name)};
}

Kernel* Kernels::find(const void* host_function) {
  const auto found = kernels_.find(host_function);
  return found == kernels_.end() ? nullptr : &found->second;
}

void Kernels::load(Kernel& kernel) {
  if (kernel.function != nullptr) return;
  std::unique_ptr<ptx::Program>& program = kernel.image->program;
  if (program == nullptr) program = std::make_unique<ptx::Program>(kernel.name, ptx_of(kernel.image->fat_binary));
  kernel.function = program->find(kernel.mangled_name);
  if (kernel.function == nullptr)
    throw input_error("stand-in for CUDA", "the program holds no PTX of ", kernel.name,
                      "; compile it with code=compute_80 and --no-compress");
}

Kernels& kernels() {
  static Kernels* const all = new Kernels;
  return *all;
}

}  // namespace ashlar::stand_in
