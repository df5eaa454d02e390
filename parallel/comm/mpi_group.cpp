#include "parallel/comm/mpi_group.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "core/base/error.h"

namespace ashlar::comm {

namespace {
constexpr std::align_val_t kAlign{64};
}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
  throw Error(ExitCode::kPeerLost, "mpi",
              str_cat(std::string_view(call).substr(0, std::string_view(call).find('(')),
                      " failed: ", std::string_view(text.data(), static_cast<size_t>(length)),
                      "; another rank or the network failed, see the output of all ranks"));
}

std::pair<StagingPool::Block, int64_t> StagingPool::acquire(int64_t bytes) {
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second >= bytes && (best == free_.end() || it->second < best->second)) best = it;
  }
  if (best != free_.end()) {
    auto found = std::move(*best);
    free_.erase(best);
    in_use_ += found.second;
    most_ = std::max(most_, in_use_);
    return found;
  }
  in_use_ += bytes;
  most_ = std::max(most_, in_use_);
  char* memory = static_cast<char*>(::operator new[](static_cast<size_t>(bytes), kAlign));
  return {Block(memory, [](char* block) { ::operator delete[](block, kAlign); }), bytes};
}

void StagingPool::release(Block block, int64_t bytes) {
  in_use_ -= bytes;
  free_.emplace_back(std::move(block), bytes);
}

MpiGroup::MpiGroup(MPI_Comm owned, const Tuning& how, std::shared_ptr<ProgressEngine> shared_engine,
                   std::shared_ptr<StagingPool> shared_staging)
    : comm(owned),
      tuning(how),
      engine(std::move(shared_engine)),
      staging(std::move(shared_staging)),
      traffic(&engine->data_traffic()),
      collectives(how.first_number) {
  ASHLAR_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  ASHLAR_MPI(MPI_Comm_rank(comm, &rank));
  ASHLAR_MPI(MPI_Comm_size(comm, &size));
  sent.assign(static_cast<size_t>(size), how.first_number);
  received.assign(static_cast<size_t>(size), how.first_number);
}

MpiGroup::~MpiGroup() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && !engine->abandoned()) MPI_Comm_free(&comm);
}

}  // namespace ashlar::comm
