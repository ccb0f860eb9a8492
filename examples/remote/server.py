"""An AG-UI server as simple as can be: it forgets everything, and a client that leaves gets nothing back."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Agent(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ids = {"threadId": asked["threadId"], "runId": asked["runId"]}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            self.say({"type": "RUN_STARTED", **ids})
            self.answer(asked["messages"][-1]["content"])
            self.say({"type": "RUN_FINISHED", **ids})
        except ConnectionError:
            print("the client left: stopped", flush=True)

    def answer(self, text: str) -> None:
        self.say({"type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant"})
        for word in f"You said: {text}".split():
            self.say({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": f"{word} "})
            time.sleep(0.1)
        self.say({"type": "TEXT_MESSAGE_END", "messageId": "m1"})

    def say(self, event: dict) -> None:
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.flush()


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8700
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Agent)
    except OSError as error:
        sys.exit(
            f"Port {port} cannot be had ({error.strerror}). Name another, and FAR_AGENT to Outlast's worker."
        )
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
