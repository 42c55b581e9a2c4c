"""Demo server `todo`: a task list, kept in memory while the server runs."""

from collections.abc import Iterator
from datetime import date
from typing import Any

from smart_mcp_proxy.demo.tool import Server, Tool, boolean, integer, items, string

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


def add_task(tasks: TodoList, title: str, priority: str, due: str) -> dict[str, Any]:
    """Puts a new task on the list."""
    return tasks.add(title=title, priority=priority, due=_normalize_due_date(due), is_done=False)


def list_tasks(tasks: TodoList, state: str) -> dict[str, Any]:
    """The tasks, most urgent first."""
    wanted = [task for task in tasks if state == "all" or task["is_done"] == (state == "done")]
    return {"tasks": sorted(wanted, key=_urgency)}


def complete_task(tasks: TodoList, id: int) -> dict[str, Any]:
    """Marks a task as done."""
    task = tasks.get(id)
    task["is_done"] = True
    return task


def reopen_task(tasks: TodoList, id: int) -> dict[str, Any]:
    """Marks a task as not done."""
    task = tasks.get(id)
    task["is_done"] = False
    return task


def reschedule_task(tasks: TodoList, id: int, due: str) -> dict[str, Any]:
    """Moves a task to another day."""
    task = tasks.get(id)
    previous, task["due"] = task["due"], _normalize_due_date(due)
    return {"due": task["due"], "previous_due": previous}


def delete_task(tasks: TodoList, id: int) -> str:
    """Takes a task off the list."""
    return f"Deleted task {id}, '{tasks.delete(id)['title']}'."


def clear_done_tasks(tasks: TodoList) -> str:
    """Takes all finished tasks off the list."""
    done = [tasks.delete(task["id"]) for task in tuple(tasks) if task["is_done"]]
    return f"Deleted {len(done)} tasks."


def _normalize_due_date(due: str) -> str:
    return date.fromisoformat(due).isoformat() if due else ""


def _urgency(task: Task) -> tuple[bool, int, str]:
    return task["is_done"], _PRIORITIES.index(task["priority"]), task["due"] or "9999-12-31"


_ID = integer("Number of the task", minimum=1)
_DUE = "ISO 8601 date such as 2026-03-01; empty for none"
_TASK = {
    "id": integer("Number of the task"),
    "title": string("What to do"),
    "priority": string("How urgent it is", enum=_PRIORITIES),
    "due": string(_DUE),
    "is_done": boolean("True once it is finished"),
}

SERVER = Server(
    instructions="A to-do list with priorities and due dates. It is forgotten when the server stops.",
    new_state=TodoList,
    tools=(
        Tool(
            add_task,
            title="Add a task",
            description="Add a task to the to-do list, with a priority and a due date.",
            parameters={
                "title": string("What to do", minLength=1, maxLength=200),
                "priority": string("How urgent it is", enum=_PRIORITIES, default="normal"),
                "due": string(_DUE, default=""),
            },
            output=_TASK,
            effect="write",
        ),
        Tool(
            list_tasks,
            title="List tasks",
            description="List the tasks of the to-do list, most urgent first.",
            parameters={"state": string("Which tasks", enum=_STATES, default="open")},
            output={"tasks": items("By state, priority and due date", _TASK)},
        ),
        Tool(
            complete_task,
            title="Complete a task",
            description="Mark a task of the to-do list as done (finished).",
            parameters={"id": _ID},
            output=_TASK,
            effect="write",
        ),
        Tool(
            reopen_task,
            title="Reopen a task",
            description="Mark a finished task as not done again.",
            parameters={"id": _ID},
            output=_TASK,
            effect="write",
        ),
        Tool(
            reschedule_task,
            title="Reschedule a task",
            description="Move the due date (deadline) of a task; the answer holds the previous one.",
            parameters={"id": _ID, "due": string(_DUE)},
            output={"due": string("The new due date"), "previous_due": string("The old due date; empty if none")},
            effect="write",
        ),
        Tool(
            delete_task,
            title="Delete a task",
            description="Remove a task from the to-do list for good.",
            parameters={"id": _ID},
            effect="destructive",
        ),
        Tool(
            clear_done_tasks,
            title="Clear finished tasks",
            description="Remove all finished tasks from the to-do list for good.",
            effect="destructive",
        ),
    ),
)
