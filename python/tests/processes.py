"""Groups of real processes on the loopback interface."""

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE = float(os.environ.get("POTLUCK_TEST_PATIENCE", 120))


class Member:
    """A process that runs one function of a test module, by a script."""

    def __init__(
        self,
        script: list[str],
        function: Callable[..., Any],
        environment: dict[str, str],
        **settings: Any,
    ):
        module = Path(function.__code__.co_filename).stem
        command = [sys.executable, *script]
        command += [module, function.__name__, json.dumps(settings)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, env=environment, text=True, **pipes)
        self.errors: list[str] = []
        self._reader = threading.Thread(target=lambda: self.errors.extend(self.process.stderr))
        self._reader.start()
        # A test that hangs ends, and says which process it was.
        self._end = threading.Timer(PATIENCE, self.process.kill)
        self._end.start()

    def heard(self) -> Any:
        """The next line that it says."""
        line = self.process.stdout.readline()
        assert line, f"{self.process.args[-2]} has ended: {self.ended()} {''.join(self.errors)}"
        return json.loads(line)

    def result(self) -> Any:
        """The result of its function. The process is still in its group."""
        while "returned" not in (heard := self.heard()):
            pass
        return heard["returned"]

    def returned(self) -> Any:
        """The result of its function, when the process has ended well."""
        result = self.result()
        assert self.ended() == 0, "".join(self.errors)
        return result

    def ended(self) -> int:
        """The exit code, when it has ended."""
        self.process.stdin.close()
        code = self.process.wait()
        self._end.cancel()
        self._reader.join()
        return code

    def close(self) -> None:
        self.process.kill()
        self.ended()
        self.process.stdout.close()
        self.process.stderr.close()


class Group:
    """The processes of one test, in a namespace and with files of their own."""

    def __init__(self, home: Path, *script: str):
        """script: the program of each process, with a module, a function and settings in JSON."""
        self.members: list[Member] = []
        self._script = list(script)
        group = f"py-{uuid.uuid4().hex[:16]}"
        own = {"POTLUCK_HOME": str(home), "TEST_GROUP": group, "POTLUCK_NOTICES": "0"}
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        self.environment = kept | own

    def start(self, function: Callable[..., Any], count: int = 1, **settings: Any) -> list[Member]:
        started = [
            Member(self._script, function, self.environment, **settings) for _ in range(count)
        ]
        self.members += started
        return started

    def run(self, function: Callable[..., Any], count: int = 2, **settings: Any) -> list[Any]:
        """The results of the function in a group of so many, when all have returned."""
        settings = {"members": count, "min_members": min(count, 2)} | settings
        return self.results(self.start(function, count, **settings))

    def results(self, members: list[Member]) -> list[Any]:
        """The results of their functions. None leaves the group before all have returned."""
        results = [member.result() for member in members]
        assert all(member.ended() == 0 for member in members), [m.errors for m in members]
        return results

    def close(self) -> None:
        for member in self.members:
            member.close()
