#pragma once

#include <span>
#include <string_view>

#include "core/backend/activation.h"
#include "core/backend/attention.h"
#include "core/backend/concat_shared_head.h"
#include "core/backend/cross_entropy.h"
#include "core/backend/elementwise.h"
#include "core/backend/embedding.h"
#include "core/backend/grad_clip.h"
#include "core/backend/learned_scale.h"
#include "core/backend/linear.h"
#include "core/backend/linear_activation.h"
#include "core/backend/norm.h"
#include "core/backend/normalize_rows.h"
#include "core/backend/optimizer.h"
#include "core/backend/residual_norm.h"
#include "core/backend/rope.h"

namespace ashlar {

// Guarantees for backends: shapes, dtypes, strides and modes match the contract. A caller's mistake is a Bug that names
// the call and the view; a field that no backend supports yet is an input_error that names it. Nothing here reads
// device memory.

void check(const LinearForward& args);
void check(const LinearBackwardInput& args);
void check(const LinearBackwardWeight& args);
void check(const NormForward& args);
void check(const NormBackward& args);
void check(const NormRowStats& args);
void check(const NormStatistics& args);
void check(const NormApply& args);
void check(const NormBackwardRowSums& args);
void check(const NormBackwardApply& args);
void check(const NormalizeRows& args);
void check(const NormalizeRowsBackward& args);
void check(const ActivationForward& args);
void check(const ActivationBackward& args);
void check(const LinearActivation& args);
void check(const ConcatSharedHead& args);
void check(const ConcatSharedHeadBackward& args);
void check(const Rope& args);
void check(const AttentionForward& args);
void check(const AttentionBackward& args);
void check(const EmbeddingForward& args);
void check(const EmbeddingBackward& args);
void check(const LossRowStats& args);
void check(const LossRescale& args);
void check(const LossMask& args);
void check(const LossMaxCount& args);
void check(const LossReduce& args);
void check(const LossBackward& args);
void check(const ResidualForward& args);
void check(const ResidualNormForward& args);
void check(const DropoutBackward& args);
void check(const LearnedScale& args);
void check(const LearnedScaleBackward& args);
void check(const Clamp& args);
void check(const ClampBackward& args);
void check(const Copy& args);
void check(const Fill& args);
void check(const RandomFill& args);
void check(const SetStruct& args);
void check(const SumSquares& args);
void check(const ClipGradients& args);

void check_update(std::string_view where, const Update& update, std::span<const ConstView> state);
/// Every update rule.
template <typename Rule>
requires requires(const Rule& rule) { rule.update, rule.state(); }
void check(const Rule& args) { check_update(Rule::kName, args.update, args.state()); }

/// A view of this shape and dtype, rows possibly strided.
void check_view(std::string_view where, std::string_view name, const ConstView& v, int64_t rows, int64_t cols,
                DType dtype);
/// A contiguous vector [n], given as one row or one column.
void check_vector(std::string_view where, std::string_view name, const ConstView& v, int64_t n, DType dtype);
/// Any shape and dtype: those of other views are compared with these.
void check_self(std::string_view where, std::string_view name, const ConstView& v);
/// [n] kInt32.
void check_ids(std::string_view where, std::string_view name, const ConstView& v, int64_t n);
/// fp32, bf16 or fp64; an input_error otherwise.
void check_storage(std::string_view where, DType dtype);
/// A probability below 1, with its StepScalars.
void check_dropout(std::string_view where, const DropoutArgs& a);

}  // namespace ashlar
