"""The files for Slurm and Kubernetes are consistent, and the trainings that they start can run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from netspec.cli import main
from netspec.schema.yaml.reader import parse_yaml
from tests.docs.examples import ROOT

LAUNCH = ROOT / "docs" / "guide" / "launch"
SBATCH = (LAUNCH / "train.sbatch").read_text(encoding="utf-8")
MPIJOB = (LAUNCH / "mpijob.yaml").read_text(encoding="utf-8")
JOB: Any = parse_yaml(MPIJOB, "mpijob.yaml")
LAUNCHER = JOB["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
WORKER = JOB["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
SCRIPTS = {"train.sbatch": SBATCH, "mpijob.yaml": LAUNCHER["containers"][0]["args"][-1]}


def sbatch_options() -> dict[str, str]:
    return dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", SBATCH, re.MULTILINE))


def workers(file: str) -> int:
    """Return the number of workers that the file starts."""
    if file == "train.sbatch":
        options = sbatch_options()
        return int(options["nodes"]) * int(options["ntasks-per-node"])
    words = started(file)
    return int(words[words.index("-n") + 1])


def started(file: str) -> list[str]:
    """The words of the line that starts the workers."""
    (line,) = re.findall(r"^ *(?:exec )?((?:srun|mpiexec) .*)$", SCRIPTS[file], re.MULTILINE)
    return shlex.split(line)


def arguments(file: str, run: str) -> list[list[str]]:
    """Return the arguments of `netspec train` at the first and at later starts, with the run directory filled in."""
    second, first = (shlex.split(words) for words in re.findall(r"set -- (.*)$", SCRIPTS[file], re.MULTILINE))
    return [[word.replace("$run", run) for word in words] for words in (first, second)]


@pytest.mark.parametrize("file", SCRIPTS)
def test_launch_files_start_trainings_that_can_run(file: str, work: Path, capsys: pytest.CaptureFixture[str]):
    """`--dry-run` accepts as many workers as are started, with the samples that they need, but not with one fewer."""
    words = started(file)
    assert words[-3:] == ["netspec", "train", "$@"]
    count = workers(file)
    options = ["--workers", str(count), "--dry-run"]
    first, _ = arguments(file, "runs/blobs")
    assert main(["train", *first, f"data.train.batch_size={2 * count}", *options]) == 0
    assert f"{count} workers, a batch of {2 * count}: 2 samples each" in capsys.readouterr().out
    assert main(["train", *first, f"data.train.batch_size={count - 1}", *options]) == 2
    assert f"expected: {count} or more: it is split over all workers" in capsys.readouterr().err
    assert not (work / "runs").exists()


@pytest.mark.parametrize("file", SCRIPTS)
def test_a_second_start_resumes(file: str, work: Path):
    first, second = arguments(file, "runs/blobs")
    assert main(["train", *first, "train.max_steps=2"]) == 0
    assert main(["train", *second, "train.max_steps=3"]) == 0
    assert len(list((work / "runs").iterdir())) == 1


@pytest.mark.parametrize("file", SCRIPTS)
def test_the_command_that_checks_a_file_is_for_its_workers(file: str):
    text = SBATCH if file == "train.sbatch" else MPIJOB
    (command,) = re.findall(r"^# +(netspec train .*)$", text, re.MULTILINE)
    assert shlex.split(command) == ["netspec", "train", "train.yaml", "--workers", str(workers(file)), "--dry-run"]


def test_threads_and_signals_of_the_batch_file():
    assert SBATCH.startswith("#!/bin/bash\n")
    options = sbatch_options()
    assert set(options) == {
        "job-name", "nodes", "ntasks-per-node", "cpus-per-task", "time", "signal", "open-mode",
    }  # fmt: skip
    assert re.fullmatch(r"TERM@\d+", options["signal"]), "not B:TERM, which only the shell would get"
    assert '--cpus-per-task="$SLURM_CPUS_PER_TASK"' in SBATCH, "srun does not take it from sbatch since 22.05"
    assert 'export OMP_NUM_THREADS="$SLURM_CPUS_PER_TASK"' in SBATCH


def test_the_job_is_one_of_the_operators():
    """Names of fields: kubeflow/mpi-operator, pkg/apis/kubeflow/v2beta1/types.go."""
    assert (JOB["apiVersion"], JOB["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    spec = JOB["spec"]
    assert set(spec) <= {
        "slotsPerWorker", "runLauncherAsWorker", "runPolicy", "mpiReplicaSpecs", "sshAuthMountPath",
        "launcherCreationPolicy", "mpiImplementation",
    }  # fmt: skip
    assert set(spec["runPolicy"]) <= {
        "cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "schedulingPolicy",
        "suspend", "managedBy",
    }  # fmt: skip
    assert spec["runPolicy"]["cleanPodPolicy"] in ("None", "Running", "All")
    assert spec["mpiImplementation"] in ("OpenMPI", "Intel", "MPICH")
    assert spec["launcherCreationPolicy"] in ("AtStartup", "WaitForWorkersReady")
    assert LAUNCHER["containers"][0]["args"][:2] == ["sh", "-euc"]
    # The images' entry point runs the arguments, when the launcher can resolve the workers' names.
    assert not any("command" in part["containers"][0] for part in (LAUNCHER, WORKER))
    assert set(spec["mpiReplicaSpecs"]) == {"Launcher", "Worker"}
    for replica in spec["mpiReplicaSpecs"].values():
        assert set(replica) <= {"replicas", "template", "restartPolicy"}


def test_the_numbers_of_the_job_agree():
    spec = JOB["spec"]
    replicas, slots = spec["mpiReplicaSpecs"]["Worker"]["replicas"], spec["slotsPerWorker"]
    assert workers("mpijob.yaml") == replicas * slots == workers("train.sbatch")
    words = started("mpijob.yaml")
    threads = int(words[words.index("OMP_NUM_THREADS") + 1])
    assert WORKER["containers"][0]["resources"]["limits"]["cpu"] == slots * threads
    assert threads == int(sbatch_options()["cpus-per-task"])
    images = {part["containers"][0]["image"] for part in (LAUNCHER, WORKER)}
    assert len(images) == 1
    for part in (LAUNCHER, WORKER):
        (mounted,), (volume,) = part["containers"][0]["volumeMounts"], part["volumes"]
        assert mounted["name"] == volume["name"]
        assert mounted["mountPath"] == part["containers"][0]["workingDir"]
