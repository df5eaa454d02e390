#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar::data {

/// An interface to the SentencePiece library that uses only types of the standard library. It is needed since the
/// headers of the library and of Abseil declare `absl::string_view` differently, so that no file can include both.
/// Functions that can fail return an error text, which is empty on success.
class SentencePieceLibrary {
 public:
  SentencePieceLibrary();
  ~SentencePieceLibrary();

  std::string load(std::string_view model);
  int32_t size() const;
  std::string piece(int32_t id) const;
  int32_t id_of(std::string_view piece) const;  ///< the id of the unknown piece if there is no such piece
  float score(int32_t id) const;
  bool is_control(int32_t id) const;
  bool is_unknown(int32_t id) const;
  bool is_unused(int32_t id) const;
  int32_t eos_id() const;  ///< -1 if the model has no eos

  /// Appends the ids of `text`. Thread-safe.
  std::string encode(std::string_view text, std::vector<int32_t>& ids) const;
  std::string decode(std::span<const int32_t> ids, std::string& text) const;

  /// Trains a model on `lines`. `options` are the library's options by name. `model` receives the content of a .model
  /// file.
  static std::string train(const std::map<std::string, std::string>& options, const std::vector<std::string>& lines,
                           std::string& model);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ashlar::data
