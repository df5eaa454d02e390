#!/usr/bin/env bash
# nccl.sh RANKS: gpu_nccl on so many ranks, by the MPI of the bundle, else this machine's. Ranks that share a GPU are refused
# by NCCL unless each says that it is another machine (tests/mpi/README.md); they then talk over sockets.
# Exit codes: gpu_nccl's.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mpi=$here/../mpi mpirun=mpirun
if [ -x "$mpi/bin/mpirun" ]; then
  # shellcheck disable=SC1091  # made by bundle.sh
  . "$mpi/env.sh"
  mpirun=$mpi/bin/mpirun
fi
export NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MAX_CTAS=1 NCCL_BUFFSIZE=1048576
exec "$mpirun" --allow-run-as-root --oversubscribe --bind-to none --mca pml ob1 --mca btl self,vader --mca plm isolated \
  -np "$1" bash -c 'export NCCL_HOSTID=rank-$OMPI_COMM_WORLD_RANK && exec "$0"' "$here/gpu_nccl"
