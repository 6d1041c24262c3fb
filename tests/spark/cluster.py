"""A Spark cluster in network namespaces: a master, two workers and a driver, each with
an address of its own on one bridge. All of it runs in namespaces that end with this
process, however that ends (`unshare --kill-child`)."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pyspark
from processes import children, wait_for

from ringcast.spark.session import find_java

HOME = Path(pyspark.__file__).parent
BOX = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
MADE = ("mount -t tmpfs tmpfs /run && mkdir /run/netns && ip link set lo up"
        " && ip link add hub type bridge && ip link set hub up")
PATIENCE = 120                          # seconds
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@cache
def refusal():
    """Return why this machine can have no such cluster; "" when it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("unshare", "nsenter", "ip"):
        if not shutil.which(tool):
            return f"{tool} is missing; install util-linux and iproute2"
    trial = subprocess.run([*BOX, "sh", "-c", f"{MADE} && ip netns add trial"],
                           capture_output=True, text=True)
    return trial.stderr.strip() if trial.returncode else ""


def address(number):
    """Return an address of the block that is set aside for tests of networks."""
    return f"198.18.0.{number}"


class Cluster:
    """Node 1 has the master and what `run` starts, nodes 2 and 3 a worker each."""

    master = f"spark://{address(1)}:7077"

    def __init__(self, folder):
        self.folder = Path(folder)
        self.processes = []
        box = [*BOX, "sh", "-c", f"{MADE} && echo made && exec sleep infinity"]
        self.box = subprocess.Popen(box, text=True, stdout=subprocess.PIPE)
        try:
            assert self.box.stdout.readline() == "made\n"
            [self.first] = children(self.box.pid)
            for number in (1, 2, 3):
                self._plug(number)
            self._start_daemon(1, "master.Master", "I have been elected leader",
                               "--port", "7077")
            for number in (2, 3):
                self._start_daemon(
                    number, "worker.Worker", "Successfully registered", "--cores", "2",
                    "--memory", "1g", "--work-dir", str(self.folder / f"work{number}"), self.master)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.box.kill()                 # and with it all that runs in it
        self.box.wait()
        self.box.stdout.close()
        for process in self.processes:
            process.wait()

    def run(self, *command, **variables):
        """Run a command on node 1, which must end well. Return what it printed."""
        with open(self.folder / "run.err", "w+") as errors:
            ended = subprocess.run([*self._inside(1), *map(str, command)],
                                   env=self._environment(1) | variables, cwd=self.folder,
                                   text=True, stdout=subprocess.PIPE, stderr=errors, timeout=400)
            errors.seek(0)
            assert ended.returncode == 0, f"{ended.stdout[-3000:]}\n{errors.read()[-6000:]}"
        return ended.stdout

    def _inside(self, number=None):
        node = [] if number is None else ["nsenter", f"--net=/run/netns/n{number}"]
        return ["nsenter", f"--target={self.first}", "--net", "--mount", "--pid",
                f"--wd={self.folder}", *node]

    def _environment(self, number):
        """Return the variables of a process. No name is looked up: nobody answers."""
        kept = {name: text for name, text in os.environ.items()
                if not name.startswith(("SPARK_", "PYSPARK_", "PYTEST_"))}
        return kept | {
            "SPARK_LOCAL_IP": address(number), "SPARK_LOCAL_HOSTNAME": address(number),
            "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": SMALL,
            "JAVA_HOME": str(find_java()), "SPARK_HOME": str(HOME),
            "SPARK_LOG_DIR": str(self.folder), "SPARK_WORKER_DIR": str(self.folder)}

    def _run_tool(self, *command):
        done = subprocess.run([*self._inside(), *command], capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"

    def _plug(self, number):
        """Make a node and connect it to the bridge."""
        inside = f"nsenter --net=/run/netns/n{number} ip"
        for command in (f"ip netns add n{number}",
                        f"ip link add p{number} type veth peer name eth0 netns n{number}",
                        f"ip link set p{number} master hub up",
                        f"{inside} link set lo up",
                        f"{inside} address add {address(number)}/24 dev eth0",
                        f"{inside} link set eth0 up"):
            self._run_tool(*command.split())

    def _start_daemon(self, number, kind, ready, *arguments):
        """Start a part of the cluster, and wait until its log says that it is ready."""
        log = self.folder / f"node{number}.log"
        command = [*self._inside(number), str(HOME / "bin" / "spark-class"),
                   f"org.apache.spark.deploy.{kind}", "--host", address(number),
                   "--webui-port", "0", *arguments]
        with open(log, "w") as output:
            process = subprocess.Popen(command, env=self._environment(number), stdout=output,
                                       stderr=output, cwd=self.folder)
        self.processes.append(process)
        wait_for(lambda: ready in log.read_text() or process.poll() is not None, PATIENCE)
        assert process.poll() is None, log.read_text()[-3000:]
