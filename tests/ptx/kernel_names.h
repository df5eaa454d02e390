#pragma once

#include <map>
#include <string>

namespace ashlar::ptx {

/// Names of this program's functions, those of internal linkage too, from its own symbol table.
class KernelNames {
 public:
  KernelNames();

  /// As in the source, without arguments: "ashlar::emulated::(anonymous namespace)::fill_kernel<float>". Empty when the
  /// function is not known.
  std::string of(const void* function) const;

 private:
  std::map<const void*, std::string> mangled_;
};

/// The same of a mangled name.
std::string source_name(const std::string& mangled);

}  // namespace ashlar::ptx
