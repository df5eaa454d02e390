#include "tests/ptx/kernel_names.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "core/base/error.h"

namespace ashlar::ptx {

namespace {

template <typename T>
std::vector<T> read_table(std::ifstream& file, const ElfW(Shdr) & section) {
  std::vector<T> table(section.sh_size / sizeof(T));
  file.seekg(static_cast<std::streamoff>(section.sh_offset));
  file.read(reinterpret_cast<char*>(table.data()), static_cast<std::streamsize>(table.size() * sizeof(T)));
  return table;
}

/// Where the program itself was loaded.
uintptr_t load_address() {
  uintptr_t address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<uintptr_t*>(out) = info->dlpi_addr;
        return 1;  // the first is the program
      },
      &address);
  return address;
}

}  // namespace

KernelNames::KernelNames() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  ElfW(Ehdr) header;
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  if (!file) throw Bug("[ptx] cannot read the program's own file");
  ElfW(Shdr) all{};
  all.sh_offset = header.e_shoff;
  all.sh_size = static_cast<ElfW(Xword)>(header.e_shnum) * sizeof(ElfW(Shdr));
  const auto sections = read_table<ElfW(Shdr)>(file, all);
  const uintptr_t base = load_address();
  for (const auto& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    const auto names = read_table<char>(file, sections.at(section.sh_link));
    for (const auto& symbol : read_table<ElfW(Sym)>(file, section)) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_value == 0) continue;
      mangled_.emplace(reinterpret_cast<const void*>(base + symbol.st_value), names.data() + symbol.st_name);
    }
  }
  if (mangled_.empty()) throw Bug("[ptx] the program has no symbol table: do not strip it");
}

std::string KernelNames::of(const void* function) const {
  const auto found = mangled_.find(function);
  return found == mangled_.end() ? std::string() : source_name(found->second);
}

std::string source_name(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
  std::string name = status == 0 ? demangled.get() : mangled;
  if (name.starts_with("void ")) name.erase(0, 5);
  // The list of arguments is the last at the outermost level; "(anonymous namespace)" is none.
  int depth = 0;
  for (size_t at = name.size(); at-- > 0;) {
    if (name[at] == ')') ++depth;
    if (name[at] == '(' && --depth == 0) {
      if (name.compare(at, 11, "(anonymous ") != 0) name.erase(at);
      break;
    }
  }
  return name;
}

}  // namespace ashlar::ptx
