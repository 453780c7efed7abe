"""The backend of PyTorch beside gloo, on four machines of the lab (needs root): `make bench-torch`.

Both backends take turns, each in processes of its own, and the better run of each counts. The last
line counts the goals.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

LAB = Path(__file__).parents[2] / "lab" / "lab"
RANK = Path(__file__).with_name("torch_rank.py")
PORT = 29_500
PATIENCE = 900.0
BACKENDS = ("potluck", "gloo")
TURNS = 2
# How many times as fast as gloo potluck has to be.
GOALS = {"lo": 1 / 1.05, "gbe4": 1 / 1.05, "slow1": 1.38, "mixed4": 1.38}


def lab(*words):
    return subprocess.run([LAB, *words], check=True, capture_output=True, text=True).stdout


def environment(profile, addresses, rank):
    interface = {"GLOO_SOCKET_IFNAME": "lo"} if profile == "lo" else {"GLOO_SOCKET_IFNAME": "eth0"}
    loopback = "&loopback=1" if profile == "lo" else ""
    return (
        os.environ
        | interface
        | {
            "RANK": str(rank),
            "WORLD_SIZE": str(len(addresses)),
            "MASTER_ADDR": addresses[0],
            "MASTER_PORT": str(PORT),
            "OMP_NUM_THREADS": "1",
            "POTLUCK_TORCH_URL": f"potluck://bench?open=1{loopback}",
            "POTLUCK_NOTICES": "0",
        }
    )


def measured(profile, backend, home):
    """The figures that rank 0 of this backend prints, in a lab of this profile."""
    nodes = json.loads(lab("json"))["nodes"]
    addresses = [node["addr"] for node in nodes.values()]
    processes = []
    try:
        for rank, machine in enumerate(nodes):
            own = environment(profile, addresses, rank) | {"POTLUCK_HOME": f"{home}/{machine}"}
            command = [LAB, "exec", machine, sys.executable, RANK, backend]
            processes.append(subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True))
        said, _ = processes[0].communicate(timeout=PATIENCE)
        ended = [process.wait(PATIENCE) for process in processes]
        if any(ended):
            raise SystemExit(f"{profile}, {backend}: the ranks end with {ended}")
        return json.loads(said.splitlines()[-1])
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main():
    home, *chosen = sys.argv[1:]
    if unknown := set(chosen) - set(GOALS):
        raise SystemExit(f"no goal for {', '.join(unknown)}, but for {', '.join(GOALS)}")
    met = missed = 0
    print("| profile | timed | potluck | gloo | times as fast | goal |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for profile in chosen or GOALS:
        lab("up", profile)
        try:
            runs = {name: [] for name in BACKENDS * TURNS}
            for name in BACKENDS * TURNS:
                runs[name].append(measured(profile, name, f"{home}/{profile}"))
        finally:
            lab("down")
        for what in runs["gloo"][0]:
            times = {name: min(run[what] for run in runs[name]) for name in runs}
            ratio, goal = times["gloo"] / times["potluck"], GOALS[profile]
            # A step of training also computes, the same for both.
            is_met = "DDP" in what or ratio >= goal
            met, missed = met + is_met, missed + (not is_met)
            figures = [f"{1000 * times[name]:.1f} ms" for name in ("potluck", "gloo")]
            goals = "" if "DDP" in what else f"{goal:.2f}" + ("" if is_met else ", missed")
            print(
                "|", " | ".join([profile, what, *figures, f"{ratio:.2f}", goals]), "|", flush=True
            )
    print(f"{met} passed, {missed} failed, 0 skipped")
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
