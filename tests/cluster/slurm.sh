# A Slurm of two nodes, n1 and n2, on this machine's loopback address, from Debian's packages; needs root. Sourced behind cli/support.sh.
#   start_slurm FOLDER    sets SLURM_CONF; returns when both nodes are idle
#   stop_slurm FOLDER

slurm_port=${SLURM_TEST_PORT:-17816}

write_slurm_conf() {  # FOLDER
  local host
  host=$(hostname -s)
  cat >"$1/slurm.conf" <<CONF
ClusterName=kvcal
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A job that goes back to the queue waits until its credential is no longer valid, by default two minutes.
AuthInfo=socket=$1/munge/socket,cred_expire=30
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/spool-%n
SlurmctldPidFile=$1/slurmctld.pid
SlurmdPidFile=$1/slurmd-%n.pid
SlurmctldLogFile=$1/slurmctld.log
SlurmdLogFile=$1/slurmd-%n.log
SlurmctldPort=$slurm_port
# PMIx keeps its sockets there: the nodes are one machine and must not share them.
TmpFS=$1/tmp-%n
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=120
CommunicationParameters=NoAddrCache,NoInAddrAny,NoCtldInAddrAny
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((slurm_port + 1)) CPUs=2 RealMemory=2000
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((slurm_port + 2)) CPUs=2 RealMemory=2000
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=20:00 State=UP
CONF
}

start_slurm() {
  mkdir -p "$1"/{state,munge,tmp-n1,tmp-n2}
  write_slurm_conf "$1"
  (umask 077 && head -c 1024 /dev/urandom >"$1/munge/key")
  chmod 711 "$1" "$1/munge"
  munged --force --key-file="$1/munge/key" --socket="$1/munge/socket" --pid-file="$1/munged.pid" \
    --log-file="$1/munge/log" --seed-file="$1/munge/seed"
  export SLURM_CONF=$1/slurm.conf
  slurmctld -i
  slurmd -N n1
  slurmd -N n2
  for _ in $(seq 1200); do
    [[ $(sinfo -h -t idle -o %D 2>/dev/null) == 2 ]] && return
    sleep 0.5
  done
  echo "Slurm is not ready after ten minutes:" >&2
  sinfo >&2
  return 1
}

is_gone() { ! readlink -q "/proc/$1/exe" >/dev/null; }  # a zombie is, too

stop_slurm() {
  local one pid
  for one in slurmd-n1 slurmd-n2 slurmctld munged; do
    [[ -f $1/$one.pid ]] || continue
    pid=$(<"$1/$one.pid")
    kill "$pid" 2>/dev/null && await $$ is_gone "$pid"
  done
  return 0
}
