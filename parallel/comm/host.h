#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "parallel/comm/communicator.h"

namespace ashlar::comm {

/// Small exchanges of host values. Each is called by all ranks, waits, and returns the same on all of them.

double sum_of(Communicator& comm, double value);  ///< in rank order
double max_of(Communicator& comm, double value);
int64_t sum_of(Communicator& comm, int64_t value);
int64_t max_of(Communicator& comm, int64_t value);
/// Element by element, in place.
void sum_all(Communicator& comm, std::span<double> values);
void max_all(Communicator& comm, std::span<double> values);

/// `bytes` of each rank, of one size, one after another.
std::vector<std::byte> gather_bytes(Communicator& comm, std::span<const std::byte> bytes);
/// A text of each rank, of any lengths.
std::vector<std::string> gather_texts(Communicator& comm, std::string_view text);
/// The same on the root; nothing elsewhere: for long texts.
std::vector<std::string> gather_texts_at(Communicator& comm, std::string_view text, int root);
/// The root's bytes.
void broadcast_bytes(Communicator& comm, std::span<std::byte> bytes, int root);
/// The root's text; the others' is not looked at.
std::string broadcast_text(Communicator& comm, std::string_view text, int root);
/// The root's value.
template <typename T>
T broadcast_value(Communicator& comm, T value, int root) {
  static_assert(std::is_trivially_copyable_v<T>);
  broadcast_bytes(comm, std::as_writable_bytes(std::span(&value, 1)), root);
  return value;
}

/// A value of each rank, by rank.
template <typename T>
std::vector<T> gather_values(Communicator& comm, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::vector<std::byte> bytes = gather_bytes(comm, std::as_bytes(std::span(&value, 1)));
  std::vector<T> values(static_cast<size_t>(comm.size()), value);
  std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(values)).begin());
  return values;
}

}  // namespace ashlar::comm
