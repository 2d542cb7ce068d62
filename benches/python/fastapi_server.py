"""Answers sums with FastAPI, as a resource and over WebSocket."""

import uvicorn
from fastapi import FastAPI, WebSocket, WebSocketDisconnect

import arguments

app = FastAPI()


@app.get("/sum")
async def sum(a: int, b: int) -> int:
    return a + b


@app.websocket("/rpc")
async def sums(socket: WebSocket):
    await socket.accept()
    try:
        while True:
            numbers = await socket.receive_json()
            await socket.send_json(numbers["a"] + numbers["b"])
    except WebSocketDisconnect:
        pass


_, listener = arguments.parse()
listener.listen(4096)
arguments.announce(listener.getsockname()[1])
uvicorn.Server(uvicorn.Config(app, log_level="critical")).run([listener])
