#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launch/hf/family.h"
#include "parallel/model/model_config.h"

namespace ashlar::hf {

/// `rows` rows of a Hugging Face tensor that are rows of one Ashlar tensor, in the same order. The rows of a vector are
/// its elements.
struct RowBlock {
  int64_t hf_row = 0;
  int64_t our_row = 0;
  int64_t rows = 0;
};

/// An Ashlar tensor whose rows all come from one Hugging Face tensor.
struct TensorPart {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<RowBlock> blocks;  ///< ascending in hf_row
};

/// Maps one Hugging Face tensor to Ashlar tensors. Every row of the Hugging Face tensor belongs to exactly one block
/// (no parts: see `constant`), so the same mapping is used for import and export.
struct TensorMapping {
  std::string hf_name;
  std::vector<int64_t> hf_shape = {};  ///< as stored in the file
  bool transpose = false;              ///< stored [in, out] (Conv1D); rows are counted after transposing to [out, in]
  std::vector<TensorPart> parts = {};
  std::string hf_alias = {};  ///< another name that files use for it; read, never written
  /// The value of every element of a tensor without parts. An import accepts a file without it, or with values that
  /// differ by the rounding of bf16 at most; an export writes it.
  double constant = 0;
};

/// Every parameter of a model of a family. Each Ashlar tensor occurs exactly once. Requires obstacles(family, config)
/// to be empty (hf_config.h). Vocabulary rows are the unpadded ones.
std::vector<TensorMapping> tensor_mappings(const Family& family, const model::ModelConfig& config);

/// True for the buffers in old files (causal masks, rotary frequencies). They are not parameters: Ashlar computes them.
bool is_ignored_buffer(const Family& family, std::string_view hf_name);

/// True for tensors outside the text model, e.g. Chameleon's image tokenizer. They are left out.
bool is_other_part(const Family& family, std::string_view hf_name);

/// The names that the weight of the head may have. A file of a tied model may repeat the embedding under them.
std::vector<std::string> head_names(const Family& family);

}  // namespace ashlar::hf
