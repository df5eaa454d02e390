#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/gguf/gguf_file.h"

namespace ashlar::gguf {

/// How the values of a Hugging Face tensor change in the file.
enum class Change : uint8_t {
  kNone,
  kTranspose,  ///< [in, out] to [out, in]
  kAddOne,     ///< norm weights that the class stores minus one
  kPairs,      ///< rows of a head: the halves that rotate together become neighbours
};

struct TensorName {
  std::string_view hugging_face;  ///< with # for the number of the layer
  std::string_view gguf;          ///< the same
  Change change = Change::kNone;
};

/// What llama.cpp needs to know of a class.
struct Architecture {
  std::string_view class_name;
  std::string_view name;  ///< general.architecture
  std::vector<TensorName> tensors;
  /// Returns the metadata of a model from its config.json, without general.*. Throws an input error that names the
  /// first setting which llama.cpp would ignore.
  std::vector<Entry> (*metadata)(const nlohmann::json& config);
};

const std::vector<Architecture>& architectures();
/// Throws an input error that lists the classes if there is none for this one.
const Architecture& architecture_of(std::string_view class_name);

struct FoundName {
  std::string name;
  Change change = Change::kNone;
};
/// Returns the name of a Hugging Face tensor in the file. Throws an input error if llama.cpp has no such tensor.
FoundName name_of_tensor(const Architecture& architecture, std::string_view hf_name);

}  // namespace ashlar::gguf
