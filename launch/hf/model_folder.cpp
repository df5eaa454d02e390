#include "launch/hf/model_folder.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <system_error>

#include "core/base/error.h"
#include "core/base/printable.h"

namespace ashlar::hf {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";

/// Formats of weights other than safetensors, by the suffix of the file name.
struct OtherForm {
  std::string_view ending, words;
};
constexpr OtherForm kOtherForms[] = {
    {".gguf", "GGUF files of llama.cpp are not supported; download the safetensors model that the file was made from"},
    {".bin",
     "PyTorch pickle files can run code and are not supported; convert them once with transformers: "
     "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(OUT)"},
    {".pt", "PyTorch pickle files can run code and are not supported; save the weights as safetensors"},
    {".pth", "PyTorch pickle files can run code and are not supported; save the weights as safetensors"},
    {".ckpt", "PyTorch pickle files can run code and are not supported; save the weights as safetensors"},
    {".msgpack", "weights of Flax are not supported; download the safetensors files of the same model"},
    {"tf_model.h5", "weights of TensorFlow are not supported; download the safetensors files of the same model"},
    {".onnx", "ONNX graphs are not supported; download the safetensors files of the same model"},
};

/// Returns the first name that ends with `ending`; empty if there is none.
std::string first_ending(const std::set<std::string>& names, std::string_view ending) {
  const auto at = std::ranges::find_if(names, [&](const std::string& n) { return n.ends_with(ending); });
  return at == names.end() ? "" : *at;
}

std::set<std::string> names_in(const fs::path& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    const bool there = fs::exists(directory, error);
    throw input_error("hf", printable(directory.string()), there ? " is a file" : " does not exist",
                      "; expected the folder of a Hugging Face model, with config.json and model.safetensors");
  }
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory, error)) names.insert(entry.path().filename().string());
  return names;
}

bool has_weights(const std::set<std::string>& names) {
  return names.contains("model.safetensors") || names.contains("model.safetensors.index.json");
}

}  // namespace

void refuse_adapter(const fs::path& directory) {
  const std::set<std::string> names = names_in(directory);
  if (has_weights(names) || !(names.contains("adapter_config.json") || names.contains("adapter_model.safetensors")))
    return;
  throw input_error("hf", printable(directory.string()),
                    " holds an adapter (PEFT, LoRA): changes to a base model, not a model; merge it into its base "
                    "with peft's merge_and_unload and save_pretrained, and give the merged folder");
}

void check_weight_files(const fs::path& directory) {
  const std::set<std::string> names = names_in(directory);
  const std::string shown = printable(directory.string());
  const bool whole = has_weights(names);
  const std::string shard = first_ending(names, ".safetensors");
  if (!whole && !shard.empty()) {
    const bool numbered = shard.find("-of-") != std::string::npos;
    throw input_error("hf", shown, " holds ", printable(shard),
                      numbered ? ", but not model.safetensors.index.json, the list of tensors by shard; download "
                                 "that file from the source of the shards"
                               : ", but neither model.safetensors nor model.safetensors.index.json; rename the file "
                                 "of weights to model.safetensors");
  }
  for (const OtherForm& form : kOtherForms) {
    const std::string file = first_ending(names, form.ending);
    if (!whole && !file.empty()) throw input_error("hf", shown, " holds ", printable(file), ": ", form.words);
  }
  if (!whole)
    throw input_error("hf", shown, " holds no weights; expected model.safetensors or model.safetensors.index.json");
  if (!names.contains(kConfig)) {
    throw input_error("hf", shown,
                      " holds weights but no config.json, which describes the model; download config.json from ",
                      "the source of the weights");
  }
}

}  // namespace ashlar::hf
