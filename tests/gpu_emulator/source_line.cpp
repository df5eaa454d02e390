#include "tests/gpu_emulator/source_line.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>

#include "core/base/strings.h"

namespace ashlar::emulator {
namespace {

std::string hex(uintptr_t value) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%zx", static_cast<size_t>(value));
  return text;
}

// The lines of the address, the innermost first: `/a/b/vector.h:12`, `/a/b/norm.cu:41`, ...
std::vector<std::string> lines_of(const void* address) {
  Dl_info info{};
  link_map* map = nullptr;
  if (dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0) return {};
  const bool main_program = map->l_name == nullptr || map->l_name[0] == '\0';
  const std::string file = main_program ? "/proc/" + std::to_string(getpid()) + "/exe" : map->l_name;
  const std::string command =
      str_cat("addr2line -i -e '", file, "' ", hex(reinterpret_cast<uintptr_t>(address) - map->l_addr), " 2>/dev/null");
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::vector<std::string> lines;
  char buffer[4096];
  while (pipe != nullptr && std::fgets(buffer, sizeof(buffer), pipe.get()) != nullptr) {
    std::string line(buffer);
    line = line.substr(0, line.find_first_of("\n "));
    if (line.find("??") != std::string::npos) break;
    lines.push_back(line.substr(line.rfind('/') + 1));
  }
  return lines;
}

}  // namespace

uint32_t Sites::look_up(const void* return_address) {
  const auto [found, added] = by_address_.try_emplace(return_address, static_cast<uint32_t>(sites_.size()));
  if (added) sites_.push_back({.return_address = return_address, .loc = {}, .text = {}});
  return found->second;
}

uint32_t Sites::of(Loc loc) {
  const auto [found, added] = by_loc_[loc.file].try_emplace(loc.line, static_cast<uint32_t>(sites_.size()));
  if (added) sites_.push_back({.return_address = nullptr, .loc = loc, .text = {}});
  return found->second;
}

const std::string& Sites::text(uint32_t site) {
  Site& where = sites_[site];
  if (!where.text.empty()) return where.text;
  if (where.return_address == nullptr) return where.text = where.loc.text();
  // The instruction before the one to return to.
  const std::vector<std::string> lines = lines_of(static_cast<const char*>(where.return_address) - 1);
  if (lines.empty()) {
    where.text = str_cat("address ", hex(reinterpret_cast<uintptr_t>(where.return_address)), " (no line is known)");
  } else {
    where.text = lines.size() == 1 ? lines.front() : str_cat(lines.front(), " in ", lines.back());
  }
  return where.text;
}

}  // namespace ashlar::emulator
