"""What stands outside for the cases of networks: an HTTP proxy by which all names lead to this process, with and without TLS.

usage: outside.py FOLDER     writes `ca.pem`, and then `port`, into the folder; serves until it is ended
It answers each request with JSON: the host that was asked for, whether over TLS, and the headers that came.
"""

import http.server
import json
import os
import socket
import socketserver
import ssl
import subprocess
import sys

FOLDER = sys.argv[1]
NAMES = ["carried.test", "other.test", "headers.test"]


def certificate():
    """Of an authority of its own, which the policy of the cases trusts as a root."""
    names = ",".join(f"DNS:{name}" for name in NAMES)
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]

    def make(name, *more):
        files = ["-keyout", f"{FOLDER}/{name}.key", "-out", f"{FOLDER}/{name}.pem", "-subj", f"/CN={name}.test"]
        command = ["openssl", "req", "-x509", *kind, *files, *more]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    make("ca")
    signed = ["-CA", f"{FOLDER}/ca.pem", "-CAkey", f"{FOLDER}/ca.key"]
    make("leaf", *signed, "-addext", f"subjectAltName={names}", "-addext", "basicConstraints=critical,CA:FALSE")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{FOLDER}/leaf.pem", f"{FOLDER}/leaf.key")
    return context


TLS = certificate()


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_CONNECT(self):
        host, _, port = self.path.rpartition(":")
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        if port == "443":
            self.connection = TLS.wrap_socket(self.connection, server_side=True)
        Inner(self.connection, self.client_address, self.server, (host, port == "443"))

    def log_message(self, *_):
        pass


class Inner(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def __init__(self, connection, address, server, led_to):
        self.led_to = led_to
        super().__init__(connection, address, server)

    def do_GET(self):
        host, tls = self.led_to
        body = json.dumps({"host": host, "tls": tls, "headers": {k.lower(): v for k, v in self.headers.items()}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    address_family = socket.AF_INET

    def handle_error(self, request, client_address):
        pass


server = Server(("127.0.0.1", 0), Answers)
with open(f"{FOLDER}/port.part", "w") as file:
    file.write(str(server.server_address[1]))
os.rename(f"{FOLDER}/port.part", f"{FOLDER}/port")
server.serve_forever()
