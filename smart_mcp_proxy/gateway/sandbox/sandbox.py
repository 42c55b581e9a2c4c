"""Sandbox: where scripts run, a few at a time, each in a process of its own."""

import asyncio
from typing import Self

from smart_mcp_proxy.errors import ProxyError, RefusedError
from smart_mcp_proxy.gateway.sandbox.process import ScriptProcess, open_script_process
from smart_mcp_proxy.gateway.sandbox.run import Finished, Ledger, MakeCall, Script, ScriptRun
from smart_mcp_proxy.gateway.sandbox.runtimes import command
from smart_mcp_proxy.io.watchdog import Watchdog

_BUSY_RETRY_S = 5.0


class Sandbox:
    """Runs scripts; open it with `async with`, at the end every process is gone.

    A script gets pipes and nothing else: no environment, files or network. Monty and deno are what keeps it from them;
    the process around each bounds its memory and its time and keeps it from other scripts.

    Args:
        parallel: Scripts that run at a time; further ones wait, within their own time limit.
        watchdog: Ends their processes if the gateway is killed.
    """

    def __init__(self, parallel: int, watchdog: Watchdog) -> None:
        self._slots = asyncio.Semaphore(parallel)
        self._watchdog = watchdog
        self._running: set[ScriptProcess] = set()

    def __repr__(self) -> str:
        return f"<Sandbox {len(self._running)} scripts running>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for process in self._running:
            process.kill()

    async def run(self, script: Script, make_call: MakeCall, ledger: Ledger) -> Finished:
        """Run a script and return its result.

        Args:
            script: What is run.
            make_call: Makes its calls.
            ledger: Gets an entry for each.

        Raises:
            ProxyError: It did not end well: `code_error`, `code_timeout`, `code_memory`, `code_too_many_calls` or
                `code_busy`. `data` holds what it printed and the calls it made, `delivery` says whether any of these
                may have been carried out.
        """
        await self._take_slot(script.timeout_s)
        try:
            async with open_script_process(command(script.language, script.memory_bytes), self._watchdog) as process:
                self._running.add(process)
                run = ScriptRun(script, process, make_call, ledger)
                try:
                    return await run.finish()
                except ProxyError as error:
                    error.delivery = ledger.delivery
                    error.data = {**(error.data or {}), "output": run.output, "calls": ledger.groups()}
                    raise
                finally:
                    self._running.discard(process)
        finally:
            self._slots.release()

    async def _take_slot(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._slots.acquire()
        except TimeoutError as exc:
            raise RefusedError(
                f"Other scripts kept this one waiting for {timeout_s:g} s.",
                hint="Run it later; how many run at a time is MCPPROXY_CODE_PARALLEL.",
                code="code_busy",
                retry_after_s=_BUSY_RETRY_S,
            ) from exc
