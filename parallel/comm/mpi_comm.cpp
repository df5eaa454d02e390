#include "parallel/comm/mpi_comm.h"

#include <utility>

#include "parallel/comm/mpi_collectives.h"
#include "parallel/comm/mpi_messages.h"
#include "parallel/comm/mpi_small.h"
#include "parallel/comm/self_comm.h"

namespace ashlar::comm {

/// A send, a recv, or both. The receiving side is posted first.
class MpiComm::Message final : public Operation {
 public:
  Message(std::shared_ptr<MpiGroup> group, const SendRecv& args) : group_(std::move(group)), args_(args) {
    if (args_.to >= 0) send_number_ = group_->sent[static_cast<size_t>(args_.to)]++;
    if (args_.from >= 0) recv_number_ = group_->received[static_cast<size_t>(args_.from)]++;
  }

  bool advance() override {
    if (!started_) {
      started_ = true;
      if (args_.from >= 0) {
        received_.receive(*group_, args_.recv.data, args_.recv.size() * size_of(args_.recv.dtype), args_.from,
                          group_->message_tag(recv_number_));
      }
      if (args_.to >= 0) {
        sent_.send(*group_, args_.send.data, args_.send.size() * size_of(args_.send.dtype), args_.to,
                   group_->message_tag(send_number_));
      }
    }
    const bool all_received = received_.test();  // not in the return statement, so that both sides are tested
    return sent_.test() && all_received;
  }
  bool received() const override { return started_ && received_.empty(); }

 private:
  std::shared_ptr<MpiGroup> group_;
  SendRecv args_;
  uint64_t send_number_ = 0, recv_number_ = 0;
  bool started_ = false;
  MpiMessages received_, sent_;
};

MpiComm::MpiComm(std::string name, std::shared_ptr<MpiGroup> group)
    : Communicator(group->rank, group->size, std::move(name), group->engine), group_(std::move(group)) {}

std::unique_ptr<Communicator> MpiComm::make(MPI_Comm comm, std::string name, const Tuning& tuning,
                                            std::shared_ptr<ProgressEngine> engine,
                                            std::shared_ptr<StagingPool> staging) {
  auto group = std::make_shared<MpiGroup>(comm, tuning, std::move(engine), std::move(staging));
  return std::unique_ptr<Communicator>(new MpiComm(std::move(name), std::move(group)));
}

Communicator::OperationPtr MpiComm::make(const DeviceOperation& args, Stream& stream) {
  check_on_host(stream);
  const auto message = [&](const SendRecv& a) -> OperationPtr { return std::make_shared<Message>(group_, a); };
  return std::visit(
      Cases{[&](const AllReduce& a) { return mpi_all_reduce(group_, a); },
            [&](const ReduceScatter& a) { return mpi_reduce_scatter(group_, a); },
            [&](const AllGather& a) { return mpi_all_gather(group_, a); },
            [&](const AllToAll& a) { return mpi_all_to_all(group_, a); },
            [&](const Broadcast& a) { return mpi_broadcast(group_, a); },
            [&](const Send& a) { return message({.send = a.data, .to = a.to}); },
            [&](const Recv& a) { return message({.recv = a.data, .from = a.from}); },
            [&](const SendRecv& a) { return message(a); }, [&](const Barrier&) { return mpi_barrier(group_); }},
      args);
}

std::unique_ptr<Communicator> MpiComm::make_split(const Split& args) {
  MPI_Comm part = MPI_COMM_NULL;
  ASHLAR_MPI(MPI_Comm_split(group_->comm, args.color < 0 ? MPI_UNDEFINED : args.color, args.key, &part));
  if (part == MPI_COMM_NULL) return nullptr;
  int ranks = 0;
  ASHLAR_MPI(MPI_Comm_size(part, &ranks));
  if (ranks == 1) {
    ASHLAR_MPI(MPI_Comm_free(&part));
    return std::make_unique<SelfComm>(args.name, group_->engine);
  }
  auto group = std::make_shared<MpiGroup>(part, group_->tuning, group_->engine, group_->staging);
  if (args.control) group->traffic = &group_->engine->control_traffic();
  return std::unique_ptr<Communicator>(new MpiComm(args.name, std::move(group)));
}

}  // namespace ashlar::comm
