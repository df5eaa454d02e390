#include "parallel/comm/bootstrap.h"

#include <mpi.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <exception>

#include "core/base/error.h"
#include "parallel/comm/mpi_comm.h"
#include "parallel/comm/self_comm.h"

// Functions of LeakSanitizer, null in builds without it. They are needed since MPI libraries leak memory. Allocations
// during MPI_Init are excluded from the leak check. tests/leaks.txt excludes further leaks by library name, which works
// only while a library is loaded; so the leak check runs before the libraries are unloaded.
extern "C" {
[[gnu::weak]] void __lsan_disable();
[[gnu::weak]] void __lsan_enable();
[[gnu::weak]] void __lsan_do_leak_check();
}

namespace ashlar::comm {

namespace {

// Sets defaults that suit this program better than Open MPI's. Settings of the user or of mpirun take precedence.
void set_openmpi_defaults() {
  const auto otherwise = [](const char* name, const char* value) { setenv(name, value, 0); };
  // Ranks that wait in MPI calls (init, finalize, split) yield their core, since other ranks may need it.
  otherwise("OMPI_MCA_mpi_yield_when_idle", "1");
  // Messages up to this size between ranks of one machine need no handshake. Open MPI's default is 4 KB; with this
  // limit, messages of 4 to 16 KB take a third to a half less time.
  otherwise("OMPI_MCA_btl_vader_eager_limit", "32768");
  // Larger messages are copied directly from the sender's memory, so the receiver gets them while the sender computes.
  // If a container forbids such copies, they are switched off, since Open MPI would print an error for each message.
  char from = 1, to = 0;
  iovec local{&to, 1}, remote{&from, 1};
  const bool allowed = process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
  if (!allowed) otherwise("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
}

}  // namespace

bool launched_by_mpi() {
  constexpr std::array<const char*, 5> kSigns = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE",
                                                 "PALS_RANKID"};
  for (const char* sign : kSigns) {
    const char* text = std::getenv(sign);
    if (text != nullptr && *text != '\0') return true;
  }
  return false;
}

struct Bootstrap::Mpi {
  std::shared_ptr<ProgressEngine> engine = std::make_shared<ProgressEngine>();
  std::shared_ptr<StagingPool> staging = std::make_shared<StagingPool>();
};

Bootstrap::Bootstrap() = default;

void Bootstrap::start() {
  if (world_ != nullptr) return;
  if (!launched_by_mpi()) {
    world_ = std::make_unique<SelfComm>("world");
    control_ = std::make_unique<ControlPlane>(*world_, "control");
    return;
  }
  set_openmpi_defaults();
  int provided = 0;
  if (__lsan_disable != nullptr) __lsan_disable();
  ASHLAR_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided));
  if (__lsan_enable != nullptr) __lsan_enable();
  if (provided < MPI_THREAD_FUNNELED) {
    throw input_error("mpi", "expected an MPI library that provides MPI_THREAD_FUNNELED, got MPI_THREAD_SINGLE; ",
                      "use an MPI library built with thread support");
  }
  mpi_ = std::make_unique<Mpi>();
  MPI_Comm machine = MPI_COMM_NULL;
  ASHLAR_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine));
  ASHLAR_MPI(MPI_Comm_rank(machine, &local_rank_));
  ASHLAR_MPI(MPI_Comm_size(machine, &local_size_));
  ASHLAR_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &local_root_));
  ASHLAR_MPI(MPI_Bcast(&local_root_, 1, MPI_INT, 0, machine));
  ASHLAR_MPI(MPI_Comm_free(&machine));
  world_ = make_world("world", Tuning{});
  control_ = std::make_unique<ControlPlane>(*world_, "control");
}

Communicator& Bootstrap::world() {
  start();
  return *world_;
}

ControlPlane& Bootstrap::control() {
  start();
  return *control_;
}

std::unique_ptr<Communicator> Bootstrap::make_world(const std::string& name, const Tuning& tuning) {
  if (mpi_ == nullptr) {
    start();
    if (mpi_ == nullptr) return std::make_unique<SelfComm>(name, world_->engine());
  }
  MPI_Comm copy = MPI_COMM_NULL;
  ASHLAR_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
  return MpiComm::make(copy, name, tuning, mpi_->engine, mpi_->staging);
}

int Bootstrap::local_rank() {
  start();
  return local_rank_;
}

int Bootstrap::local_size() {
  start();
  return local_size_;
}

int64_t Bootstrap::most_staging() const { return mpi_ == nullptr ? 0 : mpi_->staging->most_in_use(); }

int Bootstrap::local_root() {
  start();
  return local_root_;
}

std::string Bootstrap::host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

Bootstrap::~Bootstrap() {
  if (mpi_ == nullptr) return;
  const bool leave = std::uncaught_exceptions() > 0 || mpi_->engine->abandoned();
  if (leave) mpi_->engine->abandon();
  control_.reset();
  world_.reset();
  mpi_->engine->forget();
  mpi_.reset();
  if (__lsan_do_leak_check != nullptr) __lsan_do_leak_check();
  if (!leave) MPI_Finalize();
}

}  // namespace ashlar::comm
