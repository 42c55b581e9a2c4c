"""Demo server `todo`: a task list, kept in memory while the server runs."""

from collections.abc import Iterator
from datetime import date
from typing import Any

from smart_mcp_proxy.demo.tool import Server, array, boolean, build_object_schema, integer, string

_PRIORITIES = ["high", "normal", "low"]
_STATES = ["open", "done", "all"]
_MAX_TASKS = 1000
"""Keeps a server that is fed by a loop small."""

Task = dict[str, Any]


class TodoList:
    """Tasks by a number that is never used again."""

    def __init__(self) -> None:
        self._tasks: dict[int, Task] = {}
        self._last_id = 0

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks.values())

    def add(self, **fields: Any) -> Task:
        """A new task with these fields and an `id`.

        Raises:
            ValueError: There are 1,000 tasks already.
        """
        if len(self._tasks) >= _MAX_TASKS:
            raise ValueError(f"There are {_MAX_TASKS} tasks already. Delete one first.")
        self._last_id += 1
        task = self._tasks[self._last_id] = {"id": self._last_id, **fields}
        return task

    def get(self, id: int) -> Task:
        """The task with that number, to be read or changed in place.

        Raises:
            ValueError: There is none.
        """
        if (task := self._tasks.get(id)) is None:
            raise ValueError(f"There is no task {id}.")
        return task

    def delete(self, id: int) -> Task:
        """Forget the task with that number and return it; raises like `get`."""
        task = self.get(id)
        del self._tasks[id]
        return task


SERVER = Server("A to-do list with priorities and due dates. It is forgotten when the server stops.", TodoList)

_ID = integer("Number of the task", minimum=1)
_DUE = "ISO 8601 date such as 2026-03-01; empty for none"
_TASK = {
    "id": integer("Number of the task"),
    "title": string("What to do"),
    "priority": string("How urgent it is", enum=_PRIORITIES),
    "due": string(_DUE),
    "is_done": boolean("True once it is finished"),
}


@SERVER.tool(
    "Add a task",
    _TASK,
    "write",
    title=string("What to do", minLength=1, maxLength=200),
    priority=string("How urgent it is", enum=_PRIORITIES, default="normal"),
    due=string(_DUE, default=""),
)
def add_task(tasks: TodoList, title: str, priority: str, due: str) -> dict[str, Any]:
    """Add a task to the to-do list, with a priority and a due date."""
    return tasks.add(title=title, priority=priority, due=_normalize_due_date(due), is_done=False)


@SERVER.tool(
    "List tasks",
    {"tasks": array("By state, priority and due date", items=build_object_schema(_TASK))},
    state=string("Which tasks", enum=_STATES, default="open"),
)
def list_tasks(tasks: TodoList, state: str) -> dict[str, Any]:
    """List the tasks of the to-do list, most urgent first."""
    wanted = [task for task in tasks if state == "all" or task["is_done"] == (state == "done")]
    return {"tasks": sorted(wanted, key=_urgency)}


@SERVER.tool("Complete a task", _TASK, "write", id=_ID)
def complete_task(tasks: TodoList, id: int) -> dict[str, Any]:
    """Mark a task of the to-do list as done (finished)."""
    task = tasks.get(id)
    task["is_done"] = True
    return task


@SERVER.tool("Reopen a task", _TASK, "write", id=_ID)
def reopen_task(tasks: TodoList, id: int) -> dict[str, Any]:
    """Mark a finished task as not done again."""
    task = tasks.get(id)
    task["is_done"] = False
    return task


@SERVER.tool(
    "Reschedule a task",
    {"due": string("The new due date"), "previous_due": string("The old due date; empty if none")},
    "write",
    id=_ID,
    due=string(_DUE),
)
def reschedule_task(tasks: TodoList, id: int, due: str) -> dict[str, Any]:
    """Move the due date (deadline) of a task; the answer holds the previous one."""
    task = tasks.get(id)
    previous, task["due"] = task["due"], _normalize_due_date(due)
    return {"due": task["due"], "previous_due": previous}


@SERVER.tool("Delete a task", None, "destructive", id=_ID)
def delete_task(tasks: TodoList, id: int) -> str:
    """Remove a task from the to-do list for good."""
    return f"Deleted task {id}, '{tasks.delete(id)['title']}'."


@SERVER.tool("Clear finished tasks", None, "destructive")
def clear_done_tasks(tasks: TodoList) -> str:
    """Remove all finished tasks from the to-do list for good."""
    done = [tasks.delete(task["id"]) for task in tuple(tasks) if task["is_done"]]
    return f"Deleted {len(done)} tasks."


def _normalize_due_date(due: str) -> str:
    return date.fromisoformat(due).isoformat() if due else ""


def _urgency(task: Task) -> tuple[bool, int, str]:
    return task["is_done"], _PRIORITIES.index(task["priority"]), task["due"] or "9999-12-31"
