"""Commands in processes of their own that start at once: one process imports the library, its forks run the commands.

    python forks.py

reads lines of JSON: {"arguments": [...], "environment": {...}, "log": FILE} starts a command and prints its process
id; {"wait": ID, "seconds": S} waits for that process, kills it after so many seconds, and prints its exit code. No
other thread has been started before a fork.
"""

import json
import os
import signal
import subprocess
import sys
import time


class Forks:
    """The parent of the forks, seen from a test."""

    def __enter__(self):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__]
        pipe = subprocess.PIPE
        self.parent = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)
        return self

    def __exit__(self, *_):
        self.parent.stdin.close()
        self.parent.stdout.close()
        self.parent.wait()

    def ask(self, **request):
        print(json.dumps(request), file=self.parent.stdin, flush=True)
        return int(self.parent.stdout.readline())

    def start(self, arguments, log, **environment):
        """The process id of `sddm ARGUMENTS`, or of `-c PROGRAM`, whose output goes to the log."""
        return self.ask(arguments=[str(argument) for argument in arguments], environment=environment, log=str(log))

    def wait(self, process, seconds=120):
        """Its exit code; minus the signal's number if it was killed."""
        return self.ask(wait=process, seconds=seconds)


def run(arguments, environment, log):
    """In the fork: what `python -m sddm` does, or `python -c`."""
    os.environ.update(environment)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    code = 1
    try:
        exec(arguments[1], {}) if arguments[0] == "-c" else main(arguments)
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def exit_code(process, seconds):
    deadline = time.monotonic() + seconds
    while not (ended := os.waitpid(process, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(ended[1])


def serve():
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = exit_code(request["wait"], request["seconds"])
        else:
            answer = os.fork()
            if not answer:
                run(**request)
        print(answer, flush=True)


if __name__ == "__main__":
    import traceback

    import torch
    import torch._dynamo  # what the commands import on demand is imported once, here
    import torch.distributed.fsdp

    from sddm.cli import main
    from sddm.commands import sample, train, train_tokenizer  # noqa: F401

    torch.set_num_threads(1)
    serve()
