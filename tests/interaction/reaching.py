"""Asks operator's doors, in a process of its own: prints the status and the answer of each in JSON.

Usage: reaching.py [--confined] [--lowered] [--page COOKIES] DOOR..., with `PATH` or `HOST:PORT TOKEN` as a door, or
for agents `HOST:PORT POST ...`, a whole request in JSON without what is always in its head.

Run with `-I -S`: nothing but the standard library.
"""

import ctypes
import json
import os
import resource
import socket
import sys


def reach(door, cookies=""):
    address, _, token = door.partition(" ")
    if address.startswith("/"):
        link = socket.socket(socket.AF_UNIX)
        link.connect(address)
    else:
        host, _, port = address.rpartition(":")
        link = socket.create_connection((host, int(port)))
    with link:
        if token.startswith("POST "):
            head, _, body = json.loads(token[5:]).partition("\r\n\r\n")
            head += f"\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {len(body)}"
            link.sendall(f"{head}\r\n\r\n{body}".encode())
            return read_answer(link)
        proof = f"Cookie: {cookies}" if cookies else f"Authorization: Bearer {token}"
        fields = f"Host: {address if token else '127.0.0.1'}\r\nConnection: close\r\n{proof}\r\n"
        path = "/ui/servers" if cookies else "/api/v1/servers"
        link.sendall(f"GET {path} HTTP/1.1\r\n{fields}\r\n".encode())
        return read_answer(link)


def read_answer(link):
    parts = []
    while part := link.recv(65536):
        parts.append(part)
    head, _, body = b"".join(parts).partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


def detach(argv, environ):
    """What a program prints whose parent has ended, in a session and with variables of its own."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.setsid()
        parent = os.getpid()
        if os.fork() == 0:
            while os.getppid() == parent:
                os.sched_yield()
            os.dup2(writing, 1)
            os.execve(argv[0], argv, environ)
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as said:
        return said.read()


if __name__ == "__main__":
    doors, cookies = sys.argv[1:], ""
    while doors[0].startswith("--"):
        if (word := doors.pop(0)) == "--page":
            cookies = doors.pop(0)
        elif word == "--confined":
            PR_SET_NO_NEW_PRIVS = 38
            assert ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        else:
            soft, hard = resource.getrlimit(resource.RLIMIT_MSGQUEUE)
            resource.setrlimit(resource.RLIMIT_MSGQUEUE, (min(soft, hard - 1), hard - 1))
    print(json.dumps([reach(door, cookies) for door in doors]))
