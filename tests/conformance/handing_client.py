"""What the conformance suite starts as client: hands over to `client_under_test.py --wait`. Usage: SOCKET [WORD ...]"""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as link:
    link.connect(sys.argv[1])
    socket.send_fds(link, [b"."], [1, 2])
    link.sendall(json.dumps([sys.argv[2:], dict(os.environ)]).encode())
    link.shutdown(socket.SHUT_WR)
    sys.exit((link.recv(1) or b"\1")[0])
