#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "parallel/comm/control_plane.h"

namespace ashlar::comm {

/// Small collectives of host values. All ranks call each function, and each call blocks until its operation is complete
/// on the calling rank. The result is the same on all ranks unless the comment says otherwise.

double sum_of(ControlPlane& ranks, double value);  ///< added along the tree of ranks
double max_of(ControlPlane& ranks, double value);
int64_t sum_of(ControlPlane& ranks, int64_t value);
int64_t max_of(ControlPlane& ranks, int64_t value);
int64_t min_of(ControlPlane& ranks, int64_t value);
/// Reduces element by element, in place.
void sum_all(ControlPlane& ranks, std::span<double> values);
void max_all(ControlPlane& ranks, std::span<double> values);
/// Returns when all ranks have called it.
void barrier(ControlPlane& ranks);

/// Returns the bytes of all ranks, which must have equal sizes, concatenated.
std::vector<std::byte> gather_bytes(ControlPlane& ranks, std::span<const std::byte> bytes);
/// Returns the texts of all ranks, indexed by rank, on the root; returns an empty vector on other ranks. Lengths may
/// differ.
std::vector<std::string> gather_texts_at(ControlPlane& ranks, std::string_view text, int root);
/// Returns the union of the texts of all ranks, in ascending order.
std::vector<std::string> unite_texts(ControlPlane& ranks, std::vector<std::string> texts);
/// Replaces `bytes` with the bytes of the root.
void broadcast_bytes(ControlPlane& ranks, std::span<std::byte> bytes, int root);
/// Returns the text of the root. The texts of other ranks are ignored.
std::string broadcast_text(ControlPlane& ranks, std::string_view text, int root);
/// Returns the value of the root.
template <typename T>
T broadcast_value(ControlPlane& ranks, T value, int root) {
  static_assert(std::is_trivially_copyable_v<T>);
  broadcast_bytes(ranks, std::as_writable_bytes(std::span(&value, 1)), root);
  return value;
}

/// Returns the values of all ranks, indexed by rank.
template <typename T>
std::vector<T> gather_values(ControlPlane& ranks, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::vector<std::byte> bytes = gather_bytes(ranks, std::as_bytes(std::span(&value, 1)));
  std::vector<T> values(static_cast<size_t>(ranks.size()), value);
  std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(values)).begin());
  return values;
}

}  // namespace ashlar::comm
