#include "parallel/comm/host.h"

#include "core/base/error.h"

namespace ashlar::comm {

namespace {

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

double sum_of(ControlPlane& ranks, double value) {
  ranks.reduce({.label = "sum_of", .sums = {&value, 1}}).wait();
  return value;
}
double max_of(ControlPlane& ranks, double value) {
  ranks.reduce({.label = "max_of", .maxima = {&value, 1}}).wait();
  return value;
}
int64_t sum_of(ControlPlane& ranks, int64_t value) {
  ranks.reduce({.label = "sum_of", .int_sums = {&value, 1}}).wait();
  return value;
}
int64_t max_of(ControlPlane& ranks, int64_t value) {
  ranks.reduce({.label = "max_of", .int_maxima = {&value, 1}}).wait();
  return value;
}
int64_t min_of(ControlPlane& ranks, int64_t value) {
  ranks.reduce({.label = "min_of", .int_minima = {&value, 1}}).wait();
  return value;
}

void sum_all(ControlPlane& ranks, std::span<double> values) {
  ranks.reduce({.label = "sum_all", .sums = values}).wait();
}
void max_all(ControlPlane& ranks, std::span<double> values) {
  ranks.reduce({.label = "max_all", .maxima = values}).wait();
}
void barrier(ControlPlane& ranks) { ranks.reduce({.label = "barrier"}).wait(); }

std::vector<std::byte> gather_bytes(ControlPlane& ranks, std::span<const std::byte> bytes) {
  std::vector<std::string> texts;
  ranks.gather({.label = "gather_bytes", .mine = as_text(bytes), .all = texts}).wait();
  std::vector<std::byte> all;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    ASHLAR_CHECK(texts[rank].size() == bytes.size(), "rank ", rank, " gives ", texts[rank].size(), " bytes, rank ",
                 ranks.rank(), " gives ", bytes.size());
    const std::span<const std::byte> one = std::as_bytes(std::span(texts[rank]));
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

std::vector<std::string> gather_texts_at(ControlPlane& ranks, std::string_view text, int root) {
  std::vector<std::string> texts;
  ranks.gather({.label = "gather_texts_at", .mine = text, .all = texts, .root = root}).wait();
  return texts;
}

std::vector<std::string> unite_texts(ControlPlane& ranks, std::vector<std::string> texts) {
  ranks.unite({.label = "unite_texts", .texts = texts}).wait();
  return texts;
}

void broadcast_bytes(ControlPlane& ranks, std::span<std::byte> bytes, int root) {
  std::string text(as_text(bytes));
  const auto size = static_cast<int64_t>(bytes.size());
  ranks.broadcast({.label = "broadcast_bytes", .text = text, .root = root, .size = size}).wait();
  const std::span<const std::byte> all = std::as_bytes(std::span(text));
  std::copy(all.begin(), all.end(), bytes.begin());
}

std::string broadcast_text(ControlPlane& ranks, std::string_view text, int root) {
  std::string all(text);
  ranks.broadcast({.label = "broadcast_text", .text = all, .root = root}).wait();
  return all;
}

}  // namespace ashlar::comm
