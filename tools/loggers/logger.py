"""Sends the curves of a run to Weights & Biases, SwanLab or MLflow: logger.py wandb|swanlab|mlflow, started by `lockstep sft
--report_to …`, which carries this text. On standard input one JSON object a line: {"event": "begin", "name", "project", "dir",
"start_step", "settings": {…}, "args": {…}}, {"event": "points", "step", "values": {"train/loss": 2.41, …}}, {"event": "end",
"outcome", "exit_code"}. On standard output "ready" once the package is there, then lines for people. Input that ends without an
end is a run that was cut short.
"""
import importlib
import json
import os
import signal
import sys

SECONDS_TO_END = 30  # once the run is no more


class Wandb:
    def __init__(self, wandb):
        self.wandb = wandb

    def begin(self, run):
        self.run = self.wandb.init(project=os.environ.get("WANDB_PROJECT") or run["project"], name=run["name"], dir=run["dir"],
                                   config=run["args"])
        self.wandb.define_metric("train/global_step")
        self.wandb.define_metric("*", step_metric="train/global_step", step_sync=True)
        return self.run.url

    def points(self, step, values):
        self.run.log({**values, "train/global_step": step})

    def end(self, exit_code):
        self.run.finish(exit_code=exit_code)


class SwanLab:
    def __init__(self, swanlab):
        self.swanlab = swanlab

    def begin(self, run):
        settings = {word: run["settings"].get(f"swanlab_{word}") for word in ("mode", "workspace", "logdir")}
        self.run = self.swanlab.init(project=os.environ.get("SWANLAB_PROJECT") or run["project"], experiment_name=run["name"], config=run["args"],
                                     **{word: value for word, value in settings.items() if value})
        try:
            return self.run.url
        except (AttributeError, ValueError):  # of older versions, and of runs that are not sent anywhere
            return None

    def points(self, step, values):
        self.swanlab.log(values, step=step)

    def end(self, exit_code):
        self.swanlab.finish(**({} if exit_code == 0 else {"state": "crashed", "error": f"exit code {exit_code}"}))


class MLflow:
    def __init__(self, mlflow):
        self.mlflow = mlflow

    def begin(self, run):
        self.mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME") or run["project"])
        started = self.mlflow.start_run(run_name=run["name"])
        words = [(name, str(value)[:500]) for name, value in run["args"].items()]
        for begin in range(0, len(words), 100):  # as many as it takes at once
            self.mlflow.log_params(dict(words[begin:begin + 100]))
        return f"{self.mlflow.get_tracking_uri()}, run {started.info.run_id}"

    def points(self, step, values):
        self.mlflow.log_metrics(values, step=step)

    def end(self, exit_code):
        self.mlflow.end_run("FINISHED" if exit_code == 0 else "KILLED" if exit_code == 130 else "FAILED")


def main(name):
    say = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what packages print is not for our reader
    kind = {"wandb": Wandb, "swanlab": SwanLab, "mlflow": MLflow}[name]
    try:
        package = importlib.import_module(name)
    except ImportError as error:
        sys.exit(f"{name} is not there for {sys.executable} ({error}): {sys.executable} -m pip install {name}")
    logger, begun, exit_code = kind(package), False, None
    print("ready", file=say)
    for line in sys.stdin:
        said = json.loads(line)
        if said["event"] == "begin":
            where = logger.begin(said)
            begun = True
            if where:
                print(f"{name}: {where}", file=say)
        elif said["event"] == "points":
            logger.points(said["step"], {tag: value for tag, value in said["values"].items() if value is not None})
        elif said["event"] == "end":
            exit_code = said["exit_code"]
    if begun:
        if exit_code is None:
            signal.alarm(SECONDS_TO_END)
        logger.end(1 if exit_code is None else exit_code)


if __name__ == "__main__":
    main(sys.argv[1])
