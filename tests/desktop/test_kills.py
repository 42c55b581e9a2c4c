"""Doors, gateways, servers and clients that are killed: every request has one answer, and nothing goes on."""

import json
import os
import random
import signal
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from homes import ENVELOPE, LIMIT_S, Client, Home, wait_for


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def begin_some(client: Client) -> dict[int, str]:
    """Requests of several kinds at once, by id."""
    call = {"name": "call_tool_read", "arguments": {"name": "placed:where", "args": {"wait_s": 0.02}}}
    search = {"name": "retrieve_tools", "arguments": {"query": "where"}}
    begun = {client.begin("tools/call", **call): "call", client.begin("tools/call", **search): "search"}
    return begun | {client.begin("tools/list"): "list", client.begin("ping"): "ping"}


def read_answers(client: Client, begun: dict[int, str], count: int) -> dict[int, dict[str, Any]]:
    """So many answers; a second one to the same request fails."""
    answers: dict[int, dict[str, Any]] = {}
    while len(answers) < count:
        message = client.receive()
        if "method" not in message:
            assert message["id"] in begun and message["id"] not in answers, message
            answers[message["id"]] = message
    return answers


def judge(request: str, answer: dict[str, Any]) -> str:
    """How a request has ended."""
    if "error" in answer:
        assert request == "call" and answer["error"]["data"]["delivery"] == "unknown", answer
        return "unknown"
    said = json.dumps(answer)
    return "server lost" if "not_sent" in said or '\\"delivery\\":\\"unknown\\"' in said else "answered"


def strike(home: Home, victim: str, client: Client) -> None:
    """Kills one of those that take part; the client is the one whose turn it is."""
    if victim == "gateway":
        kill(home.gateways())
    elif victim == "server":
        kill(home.servers())
    elif victim == "door":
        client.kill()
    else:
        assert client.process.stdin is not None
        client.process.stdin.close()


def renew(home: Home, client: Client) -> Client:
    """Another client in the place of one that is gone."""
    client.kill()
    home.clients.remove(client)
    renewed = home.client()
    renewed.greet()
    return renewed


def live(home: Home, rounds: int, seed: int) -> Counter[str]:
    """Rounds in which one of four is killed while three clients ask; counts how the requests ended."""
    chance, ended = random.Random(seed), Counter[str]()
    clients = [home.client() for _ in range(3)]
    for client in clients:
        client.greet()
        client.where("placed")
    for number in range(rounds):
        victim = ("gateway", "server", "door", "client")[number % 4]
        begun = [begin_some(client) for client in clients]
        early = [read_answers(client, asked, chance.randrange(3)) for client, asked in zip(clients, begun, strict=True)]
        strike(home, victim, clients[2])
        is_gone = victim in ("door", "client")
        for client, asked, answers in list(zip(clients, begun, early, strict=True))[: 2 if is_gone else 3]:
            left = {key: request for key, request in asked.items() if key not in answers}
            answers.update(read_answers(client, left, len(left)))
            ended.update(judge(asked[key], answer) for key, answer in answers.items())
        if is_gone:
            clients[2] = renew(home, clients[2])
        assert len(home.gateways()) <= 1
    for client in clients:
        client.where("placed")
        assert client.leave() == 0
    assert len(home.gateways()) == 1
    return ended


@pytest.mark.parametrize("rounds", [pytest.param(8, marks=pytest.mark.long), pytest.param(200, marks=pytest.mark.soak)])
def test_whatever_is_killed_every_request_has_one_answer(home: Home, rounds: int) -> None:
    """No call is lost, there is never a second gateway, and a client notices nothing but an unknown outcome."""
    ended = live(home, rounds, seed=rounds)
    print(f"{rounds} rounds: {dict(ended)}")
    assert ended["answered"] > 3 * rounds
    assert "Traceback" not in "".join(client.said for client in home.clients)


def test_a_search_is_repeated_and_a_call_is_not(home: Home) -> None:
    """The client's session goes on at the next gateway, unseen."""
    client = home.client()
    client.greet()
    client.where("placed")
    arguments = {"name": "placed:where", "args": {"wait_s": 20}}
    slow = client.begin("tools/call", name="call_tool_read", arguments=arguments)
    client.ask("ping")
    wait_for(lambda: len(home.servers()) == 1)
    kill(home.gateways())
    lost = client.answer(slow)
    assert lost["error"]["data"] == {"delivery": "unknown"}
    assert "placed:where" in json.dumps(client.search())
    assert client.where("placed")["pid"]
    assert len(home.gateways()) == 1


def test_a_listening_client_of_the_modern_era_goes_on_listening(home: Home) -> None:
    """Its subscription is opened again without being asked, and it hears that its list may have changed."""
    client = home.client()
    wanted = {"toolsListChanged": True}
    client.begin("subscriptions/listen", notifications=wanted, _meta=ENVELOPE)
    assert client.receive()["method"] == "notifications/subscriptions/acknowledged"
    kill(home.gateways())
    assert client.receive()["method"] == "notifications/tools/list_changed"
    assert len(home.gateways()) == 1


def test_a_client_that_goes_gets_what_it_has_asked_for(home: Home) -> None:
    """It may close its end at once."""
    client = home.client()
    client.greet()
    client.where("placed")
    begun = begin_some(client)
    assert client.process.stdin is not None
    client.process.stdin.close()
    assert read_answers(client, begun, len(begun)).keys() == begun.keys()
    assert client.process.wait(LIMIT_S) == 0
