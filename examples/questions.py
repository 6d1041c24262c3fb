"""Messages to one member: one asks, the other answers.

    python examples/questions.py answer             # in one terminal
    python examples/questions.py ask "6*7" "6-7"       # in another one
"""

import argparse
import ast
import operator
from contextlib import suppress
from queue import SimpleQueue

from ringcast import Channel, NotMemberError

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def answer_to(question: str) -> str:
    """Return the sum, difference or product of two whole numbers."""
    with suppress(SyntaxError, KeyError, TypeError):
        match ast.parse(question, mode="eval").body:
            case ast.BinOp(ast.Constant(left), sign, ast.Constant(right)):
                return str(OPERATORS[type(sign)](left, right))
    return "I can add, subtract and multiply two numbers"


def answer(port: int) -> None:
    """Answer all questions, until the asker has left."""
    channel = Channel("questions", name="answerer", min_members=2, port=port,
                      on_view=lambda view: channel.close() if view.left else None)
    with channel:
        for message in channel:
            print(f"{message.sender.name} asks {message.payload.decode()}")
            try:
                channel.send(answer_to(message.payload.decode()).encode(), message.sender)
            except NotMemberError:
                print(f"{message.sender.name} did not wait for the answer")


def ask(questions: list[str], port: int) -> None:
    """Ask one question after the other. So a batch has one answer."""
    answers: SimpleQueue[bytes] = SimpleQueue()
    with Channel("questions", name="asker", min_members=2, port=port,
                 on_message=lambda batch: answers.put(batch.payloads[0])) as channel:
        for question in questions:
            channel.send(question.encode(), "answerer")
            print(f"{question} = {answers.get().decode()}")


def main() -> None:
    parser = argparse.ArgumentParser(description="One asks, the other answers.")
    parser.add_argument("role", choices=["ask", "answer"])
    parser.add_argument("questions", nargs="*", default=["6*7"])
    parser.add_argument("--port", type=int, default=7700, help="port of the group")
    args = parser.parse_args()
    ask(args.questions, args.port) if args.role == "ask" else answer(args.port)


if __name__ == "__main__":
    main()
