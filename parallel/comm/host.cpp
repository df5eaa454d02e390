#include "parallel/comm/host.h"

#include <numeric>

namespace ashlar::comm {

namespace {

MutView view_of(std::span<std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  return {bytes.data(), DType::kUInt8, 1, size, size};
}
ConstView view_of(std::span<const std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  return {bytes.data(), DType::kUInt8, 1, size, size};
}

void reduce(Communicator& comm, std::span<double> values, ReduceOp op) {
  const auto size = static_cast<int64_t>(values.size());
  const MutView view{values.data(), DType::kFloat64, 1, size, size};
  comm.all_reduce({.in = view, .out = view, .op = op}).wait();
}

double reduced(Communicator& comm, double value, ReduceOp op) {
  reduce(comm, {&value, 1}, op);
  return value;
}

}  // namespace

double sum_of(Communicator& comm, double value) { return reduced(comm, value, ReduceOp::kSum); }
double max_of(Communicator& comm, double value) { return reduced(comm, value, ReduceOp::kMax); }

int64_t sum_of(Communicator& comm, int64_t value) {
  const std::vector<int64_t> values = gather_values(comm, value);
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}
int64_t max_of(Communicator& comm, int64_t value) {
  const std::vector<int64_t> values = gather_values(comm, value);
  return *std::max_element(values.begin(), values.end());
}

void sum_all(Communicator& comm, std::span<double> values) { reduce(comm, values, ReduceOp::kSum); }
void max_all(Communicator& comm, std::span<double> values) { reduce(comm, values, ReduceOp::kMax); }

std::vector<std::byte> gather_bytes(Communicator& comm, std::span<const std::byte> bytes) {
  std::vector<std::byte> all(bytes.size() * static_cast<size_t>(comm.size()));
  comm.all_gather({.in = view_of(bytes), .out = view_of(std::span(all))}).wait();
  return all;
}

std::vector<std::string> gather_texts(Communicator& comm, std::string_view text) {
  const std::vector<int64_t> sizes = gather_values(comm, static_cast<int64_t>(text.size()));
  const std::vector<Range> parts = ranges_of_sizes(sizes);
  std::string all(static_cast<size_t>(parts.back().end), '\0');
  comm.all_gather({.in = view_of(std::as_bytes(std::span(text))),
                   .out = view_of(std::as_writable_bytes(std::span(all))),
                   .parts = parts})
      .wait();
  std::vector<std::string> texts;
  for (const Range& part : parts) {
    texts.push_back(all.substr(static_cast<size_t>(part.begin), static_cast<size_t>(part.size())));
  }
  return texts;
}

std::vector<std::string> gather_texts_at(Communicator& comm, std::string_view text, int root) {
  const std::vector<int64_t> sizes = gather_values(comm, static_cast<int64_t>(text.size()));
  if (comm.rank() != root) {
    comm.send({.data = view_of(std::as_bytes(std::span(text))), .to = root}).wait();
    return {};
  }
  std::vector<std::string> texts;
  for (const int64_t size : sizes) texts.emplace_back(static_cast<size_t>(size), '\0');
  texts[static_cast<size_t>(root)] = text;
  std::vector<Work> work;
  for (int from = 0; from < comm.size(); ++from) {
    if (from == root) continue;
    const MutView data = view_of(std::as_writable_bytes(std::span(texts[static_cast<size_t>(from)])));
    work.push_back(comm.recv({.data = data, .from = from}));
  }
  for (Work& w : work) w.wait();
  return texts;
}

void broadcast_bytes(Communicator& comm, std::span<std::byte> bytes, int root) {
  comm.broadcast({.data = view_of(bytes), .root = root}).wait();
}

std::string broadcast_text(Communicator& comm, std::string_view text, int root) {
  std::string all(text);
  all.resize(static_cast<size_t>(broadcast_value(comm, static_cast<int64_t>(text.size()), root)));
  broadcast_bytes(comm, std::as_writable_bytes(std::span(all)), root);
  return all;
}

}  // namespace ashlar::comm
