"""Passes a script, its folder, its environment and its descriptors to the server of ``warm_python``, and exits as the
script does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys


def main(place: str, *arguments: str) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(place)
        ignores = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        request = json.dumps([arguments, os.getcwd(), dict(os.environ), ignores]).encode()
        socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
        server.sendall(request)
        code = int(server.makefile().readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


main(*sys.argv[1:])
