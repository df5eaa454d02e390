#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launch/hf/family.h"
#include "parallel/model/model_config.h"

namespace ashlar::hf {

/// Rows that a Hugging Face tensor and an Ashlar tensor share: for i < rows, row hf_row + i * hf_step of the Hugging
/// Face tensor is row our_row + i of the Ashlar tensor. In a vector, each element counts as a row.
struct RowBlock {
  int64_t hf_row = 0;
  int64_t our_row = 0;
  int64_t rows = 0;
  int64_t hf_step = 1;
};

/// An Ashlar tensor whose rows all come from one Hugging Face tensor.
struct TensorPart {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<RowBlock> blocks;  ///< ascending in hf_row
};

/// Maps one Hugging Face tensor to Ashlar tensors. Every row of the Hugging Face tensor belongs to exactly one block,
/// so the same mapping serves import and export. A tensor without parts has one value everywhere, `constant`.
struct TensorMapping {
  std::string hf_name;
  std::vector<int64_t> hf_shape = {};  ///< as stored in the file
  bool transpose = false;              ///< stored [in, out] (Conv1D); rows are counted after transposing to [out, in]
  /// The first dimension counts matrices or vectors that lie one after another, e.g. those of experts; rows are counted
  /// over all of them. If `transpose`, each matrix is transposed, and a block is within one matrix.
  bool stacked = false;
  std::vector<TensorPart> parts = {};
  bool wide = false;          ///< an export to bf16 or fp16 writes fp32, as the class keeps this tensor
  std::string hf_alias = {};  ///< another name of the tensor in some files; read, never written
  /// The value of every element of a tensor without parts. An import accepts a file without the tensor, or with values
  /// whose relative difference from `constant` is at most 1/256, the precision of bf16. An export writes the tensor.
  double constant = 0;
};

/// The rows of a mapping's tensor in the files: those of its matrices, each [rows, row_elems] after transposing.
struct RowLayout {
  int64_t matrices = 1;
  int64_t rows = 0;
  int64_t row_elems = 1;
  int64_t all_rows() const { return matrices * rows; }
};
RowLayout row_layout(const TensorMapping& mapping);

/// Returns the mappings of all parameters of a model of a family. Its experts have the form
/// TensorNames::expert_forms[expert_form]. Each Ashlar tensor occurs exactly once. Requires obstacles(family, config)
/// to be empty (hf_config.h). Embedding and head have the unpadded number of rows.
std::vector<TensorMapping> tensor_mappings(const Family& family, const model::ModelConfig& config,
                                           size_t expert_form = 0);

/// True for the buffers in old files (causal masks, rotary frequencies). They are not parameters: Ashlar computes them.
bool is_ignored_buffer(const Family& family, std::string_view hf_name);

/// True for tensors outside the text model, e.g. Chameleon's image tokenizer. An import leaves them out.
bool is_other_part(const Family& family, std::string_view hf_name);

/// True for tensors of blocks that predict further tokens (DeepSeek V3's multi-token prediction). An import leaves them
/// out.
bool is_of_further_block(const HfConfig& config, std::string_view hf_name);

/// Returns the names that the weight of the head may have. A file of a tied model may contain a copy of the embedding
/// under such a name.
std::vector<std::string> head_names(const Family& family);

}  // namespace ashlar::hf
