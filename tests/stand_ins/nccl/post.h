#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

namespace ashlar::stand_in {

/// What ranks send each other beneath the stand-in. Messages are sent at once and copied; whoever looks for one gets it
/// by its name, in whatever order they came.
///   Goes over MPI_COMM_WORLD, on which the program itself sends nothing (it works on duplicates), from the one thread
/// that calls MPI.
class Post {
 public:
  /// The name of a message: of a communicator, in one of its sequences.
  struct Name {
    uint64_t comm = 0;
    int32_t sequence = 0;
    int32_t from = 0;  ///< rank of the world that sends
    uint64_t number = 0;
    auto operator<=>(const Name&) const = default;
  };
  using Bytes = std::vector<char>;

  Post();
  ~Post();
  int world_rank() const;
  void send(int to, const Name& name, const Bytes& bytes);
  /// The message, if it is here. Looks for what has come.
  const Bytes* look(const Name& name);
  Bytes take(const Name& name);
  void progress();

 private:
  struct Outgoing;
  std::deque<std::unique_ptr<Outgoing>> outgoing_;
  std::map<Name, Bytes> here_;
};

}  // namespace ashlar::stand_in
