#include "parallel/comm/mpi_messages.h"

#include <algorithm>

#include "core/base/error.h"

namespace ashlar::comm {

namespace {

template <typename Post>
void in_pieces(const MpiGroup& group, int64_t bytes, const Post& post) {
  for (int64_t at = 0; at < bytes; at += group.tuning.max_message_bytes) {
    post(at, static_cast<int>(std::min(group.tuning.max_message_bytes, bytes - at)));
  }
}

}  // namespace

void MpiMessages::send(const MpiGroup& group, const void* data, int64_t bytes, int to, int tag) {
  in_pieces(group, bytes, [&](int64_t at, int count) {
    requests_.push_back(MPI_REQUEST_NULL);
    expected_.push_back(-1);
    ASHLAR_MPI(MPI_Isend(static_cast<const char*>(data) + at, count, MPI_BYTE, to, tag, group.comm, &requests_.back()));
    ++group.traffic->messages;
    group.traffic->bytes += count;
  });
}

void MpiMessages::receive(const MpiGroup& group, void* data, int64_t bytes, int from, int tag) {
  in_pieces(group, bytes, [&](int64_t at, int count) {
    requests_.push_back(MPI_REQUEST_NULL);
    expected_.push_back(count);
    ASHLAR_MPI(MPI_Irecv(static_cast<char*>(data) + at, count, MPI_BYTE, from, tag, group.comm, &requests_.back()));
  });
}

bool MpiMessages::test() {
  if (requests_.empty()) return true;
  statuses_.resize(requests_.size());
  int complete = 0;
  const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &complete, statuses_.data());
  if (code != MPI_SUCCESS) explain(code);
  if (complete == 0) return false;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (expected_[i] < 0) continue;
    int count = 0;
    ASHLAR_MPI(MPI_Get_count(&statuses_[i], MPI_BYTE, &count));
    ASHLAR_CHECK(count == expected_[i], "rank ", statuses_[i].MPI_SOURCE, " sent ", count, " bytes where ",
                 expected_[i], " were expected: the two ranks issued different operations");
  }
  requests_.clear();
  expected_.clear();
  return true;
}

void MpiMessages::explain(int code) const {
  if (code == MPI_ERR_IN_STATUS) {
    for (size_t i = 0; i < requests_.size(); ++i) {
      const int error = statuses_[i].MPI_ERROR;
      if (error == MPI_SUCCESS || error == MPI_ERR_PENDING) continue;
      int kind = error;
      MPI_Error_class(error, &kind);
      ASHLAR_CHECK(kind != MPI_ERR_TRUNCATE, "rank ", statuses_[i].MPI_SOURCE, " sent more than the ", expected_[i],
                   " bytes that were expected: the two ranks issued different operations");
      check_mpi(error, "MPI_Testall");
    }
  }
  check_mpi(code, "MPI_Testall");
  throw Bug("[mpi] MPI_Testall returned an error, but no message has one");
}

}  // namespace ashlar::comm
