"""What happens to a rank's GPU, on GPUs that are none (testing/fake_gpu): the program is the same but for its devices."""

from job import JobRow, Skip
from outcome import Expected
from story import BINARY

ON_FAKE_GPUS = BINARY.parent / "lockstep_on_fake_gpus"
PATIENCE = 5
A_STEP = 600  # calls that are queued in about a step of the job


def gpu_fault(what, **flags):
    """`what` happens to the GPU of rank 1 in the third step or so."""

    def body(job):
        if not ON_FAKE_GPUS.exists():
            raise Skip(f"{ON_FAKE_GPUS.name} is not built")
        job.binary = ON_FAKE_GPUS
        spelled, _, least = what(job.ranks).partition(":")
        env = {
            "LOCKSTEP_FAKE_GPUS": job.ranks,
            "LOCKSTEP_FAKE_GPU_BYTES": 1 << 28,
            "LOCKSTEP_FAKE_GPU_FAULT": f"1 {spelled} {3 * A_STEP} {least}",
            "FAULT_MARK": job.folder / "fault.ns",
            "FAULT_ONCE": 1,
        }
        job.launch(job.words(**flags), env=env)

    return body


def gpu_rows():
    return [
        JobRow(
            "gpu_call_stuck",
            "a call between GPUs that one of them never ends",
            Expected("transport", op=".", label=".", place=".", says="does not end", fix="NCCL_SOCKET_IFNAME", bar="stall", patience=PATIENCE,
                     culprit=-2),
            gpu_fault(lambda ranks: "calls", patience=PATIENCE),
        ),
        JobRow(
            "gpu_kernel_stuck",
            "a kernel that never ends on one GPU",
            Expected("stall", op=".", label=".", place=".", says="busy elsewhere", fix="--patience", bar="stall", patience=PATIENCE),
            gpu_fault(lambda ranks: "kernels", patience=PATIENCE),
        ),
        JobRow(
            "gpu_breaks",
            "a GPU that answers everything with an error",
            Expected("error", place=".", says="illegal memory access", fix=".", bar="death"),
            gpu_fault(lambda ranks: "breaks", save_steps=2, save_total_limit=2),
        ),
    ]
