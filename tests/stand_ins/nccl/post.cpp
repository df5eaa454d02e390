#include "tests/stand_ins/nccl/post.h"

#include <mpi.h>

#include <cstring>
#include <stdexcept>

namespace ashlar::stand_in {

namespace {

constexpr int kTag = 77;

}  // namespace

struct Post::Outgoing {
  Bytes bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};

Post::Post() = default;
Post::~Post() = default;

int Post::world_rank() const {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

void Post::send(int to, const Name& name, const Bytes& bytes) {
  if (to == world_rank()) {
    here_.emplace(name, bytes);
    return;
  }
  auto out = std::make_unique<Outgoing>();
  out->bytes.resize(sizeof(Name) + bytes.size());
  std::memcpy(out->bytes.data(), &name, sizeof(Name));
  if (!bytes.empty()) std::memcpy(out->bytes.data() + sizeof(Name), bytes.data(), bytes.size());
  MPI_Isend(out->bytes.data(), static_cast<int>(out->bytes.size()), MPI_BYTE, to, kTag, MPI_COMM_WORLD, &out->request);
  outgoing_.push_back(std::move(out));
}

void Post::progress() {
  for (;;) {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    MPI_Improbe(MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, &found, &message, &status);
    if (found == 0) break;
    int size = 0;
    MPI_Get_count(&status, MPI_BYTE, &size);
    Bytes bytes(static_cast<size_t>(size));
    MPI_Mrecv(bytes.data(), size, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    Name name;
    std::memcpy(&name, bytes.data(), sizeof(Name));
    bytes.erase(bytes.begin(), bytes.begin() + sizeof(Name));
    if (!here_.emplace(name, std::move(bytes)).second) throw std::logic_error("[stand-in nccl] a message came twice");
  }
  while (!outgoing_.empty()) {
    int done = 0;
    MPI_Test(&outgoing_.front()->request, &done, MPI_STATUS_IGNORE);
    if (done == 0) break;
    outgoing_.pop_front();
  }
}

const Post::Bytes* Post::look(const Name& name) {
  const auto at = here_.find(name);
  return at == here_.end() ? nullptr : &at->second;
}

Post::Bytes Post::take(const Name& name) {
  const auto at = here_.find(name);
  Bytes bytes = std::move(at->second);
  here_.erase(at);
  return bytes;
}

}  // namespace ashlar::stand_in
