#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar::data {

/// The SentencePiece library behind types of the standard library: its headers and Abseil's declare `absl::string_view`
/// differently, so no file can include both. Calls return an error text, empty on success.
class SentencePieceLibrary {
 public:
  SentencePieceLibrary();
  ~SentencePieceLibrary();

  std::string load(std::string_view model);
  int32_t size() const;
  std::string piece(int32_t id) const;
  int32_t id_of(std::string_view piece) const;  ///< the unknown piece's id if it is not a piece
  float score(int32_t id) const;
  bool is_control(int32_t id) const;
  bool is_unknown(int32_t id) const;
  bool is_unused(int32_t id) const;
  int32_t eos_id() const;  ///< -1: none

  /// Appends the ids of `text`. Thread-safe.
  std::string encode(std::string_view text, std::vector<int32_t>& ids) const;
  std::string decode(std::span<const int32_t> ids, std::string& text) const;

  /// Trains on lines with the library's options by name; `model` is the content of a .model file.
  static std::string train(const std::map<std::string, std::string>& options, const std::vector<std::string>& lines,
                           std::string& model);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ashlar::data
