"""`failing_callback.py SPEC RUN_DIR`: train as `netspec train` does, with a callback that fails on worker 1 alone."""

import sys

import netspec
from netspec.cli.failures import report
from netspec.cli.workers import join_job, leave_job
from netspec.distributed import join
from netspec.training import TrainingLoop

STEP = 3


class FailingCallback(netspec.Callback):
    """Raises an exception on worker 1 after a step."""

    def on_step_end(self, training: TrainingLoop) -> None:
        if (join().rank, training.step) == (1, STEP):
            raise ValueError("the service does not answer")


if __name__ == "__main__":
    join_job()
    status = 0
    try:
        netspec.train(sys.argv[1], run_dir=sys.argv[2], device="reference", callbacks=[FailingCallback()])
    except netspec.NetspecError as error:
        status = report(error, ["train", *sys.argv[1:]], debug=False)
    sys.exit(leave_job(status))
