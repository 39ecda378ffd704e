"""The server over a scripted model: answers, refusals, reused conversations, limits and shutdown."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from helpers.places import PATIENCE
from helpers.serving import Running, question, serving, until
from helpers.toys.chat_models import toy_model

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import RuntimeFailureError
from hamburger_edge.loop.certainty import Certainty
from hamburger_edge.model import Model
from hamburger_edge.serve.application import RequestLog
from hamburger_edge.serve.conversations import Conversations, Kept
from hamburger_edge.serve.gate import Access
from hamburger_edge.serve.requests import RequestLimits

KEYS = [b"a-key-of-many-characters", b"another-key-altogether"]


@pytest.fixture
def running(tokenizer: Tokenizer) -> Iterator[Running]:
    with serving(lambda: toy_model(tokenizer), workers=2) as server:
        yield server


class Gated:
    """A model whose steps wait until they are let through."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.open = threading.Semaphore(0)
        self.steps = 0
        self.model = toy_model(tokenizer, eos_rate=0.0)
        self.model.backend.before_macro = self.wait  # type: ignore[attr-defined]

    def wait(self, _: object) -> None:
        assert self.open.acquire(timeout=60)
        self.steps += 1

    def let(self, steps: int) -> None:
        self.open.release(steps)


@pytest.fixture
def gated(tokenizer: Tokenizer) -> Gated:
    return Gated(tokenizer)


def events(response: httpx.Response) -> Iterator[Any]:
    for line in response.iter_lines():
        if line and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def text_of(response: httpx.Response) -> str:
    text: str = response.json()["choices"][0]["message"]["content"]
    return text


def turns(*texts: str) -> list[dict[str, str]]:
    """Of the user and the assistant by turns."""
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


def busy(running: Running) -> float:
    return sum(running.pool.gauges()["workers_busy"].values())


def test_stream_equals_whole_answer(running: Running, tokenizer: Tokenizer) -> None:
    whole = running.ask("Tell me").json()
    text = whole["choices"][0]["message"]["content"]
    with toy_model(tokenizer) as alone:
        assert alone.generate("Tell me", max_tokens=12).text == text
    asked = question("Tell me", stream=True, stream_options={"include_usage": True})
    with running.client() as client, client.stream("POST", "/v1/chat/completions", json=asked) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        opening, *pieces, closing, used = events(response)
    assert opening["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(piece["choices"][0]["delta"]["content"] for piece in pieces) == text
    assert closing["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert used["usage"]["completion_tokens"] == sum(piece["step"]["tokens"] for piece in pieces)
    assert used["usage"]["macro_steps"] == whole["usage"]["macro_steps"] == len(pieces)
    assert whole["usage"]["slots"] < whole["usage"]["slots_uncompressed"]


def test_missing_path_error_names_existing_paths(running: Running) -> None:
    with running.client() as client:
        missing = client.post("/v1/embeddings", json={"input": "hello"})
        assert missing.status_code == 404
        assert "/v1/embeddings" in missing.json()["error"]["message"]
        named = re.findall(r"/[\w/]+", missing.json()["error"]["message"].partition("this server has")[2])
        assert [client.get(path).status_code for path in named] == [405, 405, 200, 200, 200]
        assert "use POST" in client.get("/v1/completions").json()["error"]["message"]


def test_completion_continues_raw_text(running: Running, tokenizer: Tokenizer) -> None:
    body = {"prompt": "Once upon", "max_tokens": 9, "confidence": 1, "logprobs": 0}
    with running.client() as client:
        said = client.post("/v1/completions", json=body).json()["choices"][0]
        tokens = client.post("/v1/completions", json=body | {"prompt": tokenizer.encode("Once upon")})
    with toy_model(tokenizer) as alone:
        assert alone.generate("Once upon", raw=True, max_tokens=9, confidence=1).text == said["text"]
    assert tokens.json()["choices"][0]["text"] == said["text"]
    assert len(said["logprobs"]["tokens"]) == len(said["logprobs"]["token_logprobs"]) > 0
    assert max(said["logprobs"]["token_logprobs"]) <= 0


def test_models_health_and_metrics_are_served(running: Running) -> None:
    running.ask()
    with running.client() as client:
        assert client.get("/health").json() == {"status": "ok"}
        [listed] = client.get("/v1/models").json()["data"]
        assert listed == client.get("/v1/models/toy").json()
        assert client.post("/v1/models").status_code == 405
        for path in ("/nothing", "/v1/models/other", "/page/../fields.py"):
            response = client.get(path)
            assert (response.status_code, response.headers["x-content-type-options"]) == (404, "nosniff")
            assert response.json()["error"]["type"] == "invalid_request_error"
        text = client.get("/metrics").text
    assert 'hamburger_requests_total{path="/v1/chat/completions",status="200"} 1' in text
    assert 'hamburger_workers{model="toy"} 2' in text
    assert "hamburger_time_to_first_token_seconds_count" in text
    for line in text.splitlines():
        assert line.startswith("#") or float(line.rpartition(" ")[2]) >= 0


def test_request_chooses_one_of_several_models(tokenizer: Tokenizer) -> None:
    bundles: list[tuple[str, Callable[[], Model]]] = [
        ("small", lambda: toy_model(tokenizer)),
        ("sure", lambda: toy_model(tokenizer, p_stop=0.0)),
    ]
    with serving(bundles) as running:
        small, sure = (running.ask(model=name).json() for name in ("small", "sure"))
        assert (small["model"], sure["model"], running.ask().json()["model"]) == ("small", "sure", "small")
        assert sure["usage"]["macro_steps"] < small["usage"]["macro_steps"]
        refused = running.ask(model="other")
    assert refused.status_code == 404
    assert refused.json()["error"] == {
        "message": "there is no model 'other' here (there is: small, sure)",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }


def test_too_long_prompt_is_refused(running: Running) -> None:
    for stream in (False, True):
        response = running.ask("word " * 5000, stream=stream)
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "context_length_exceeded"


def test_alternating_conversations_read_new_tokens_only(tokenizer: Tokenizer) -> None:
    with serving(lambda: toy_model(tokenizer), workers=1) as running:
        talks: dict[str, list[str]] = {"first": [], "second": []}
        for turn in range(3):
            for name, texts in talks.items():
                texts.append(f"{name} {turn}")
                said = running.ask(messages=turns(*texts))
                texts.append(text_of(said))
                used = said.json()["usage"]
                new = used["prompt_tokens"] - used["prompt_tokens_details"]["cached_tokens"]
                # the newest group of the answer, what stands between the turns, and the question
                assert turn == 0 or new <= 45, used
        assert running.pool.gauges()["sessions"] == {(("model", "toy"),): 2}
    for name, texts in talks.items():  # as one conversation, merged slots and all, would have gone
        with toy_model(tokenizer) as alone:
            chat = alone.chat(max_tokens=12)
            assert [chat.send(f"{name} {turn}").result().text for turn in range(3)] == texts[1::2]


def test_retry_and_branch_reuse_the_common_beginning(tokenizer: Tokenizer) -> None:
    """A retry, and a conversation that branches off: the beginning is found in the longer one."""
    with serving(lambda: toy_model(tokenizer), workers=1) as running:
        texts = ["One"]
        for text in ("Two", "Three"):
            texts += [text_of(running.ask(messages=turns(*texts))), text]
        first, again = (running.ask(messages=turns(*texts)) for _ in range(2))
        assert text_of(again) == text_of(first)
        used = again.json()["usage"]
        assert used["prompt_tokens_details"]["cached_tokens"] == used["prompt_tokens"] - 1
        other = running.ask(messages=turns(*texts[:2], "Or else")).json()
        assert other["usage"]["prompt_tokens_details"]["cached_tokens"] > 10


def test_verify_mode_never_reuses_merged_slots(tokenizer: Tokenizer) -> None:
    with serving(lambda: toy_model(tokenizer), workers=1) as running:
        answer = text_of(running.ask("One"))
        used = running.ask(messages=turns("One", answer, "Two"), mode="verify").json()["usage"]
    assert used["slots"] == used["slots_uncompressed"]


def test_conversations_are_not_shared_between_keys(tokenizer: Tokenizer) -> None:
    with serving(lambda: toy_model(tokenizer), access=Access.of("127.0.0.1", keys=KEYS)) as running:
        cached = []
        for key in (KEYS[0], KEYS[0], KEYS[1]):
            with running.client(headers={"authorization": f"Bearer {key.decode()}"}) as client:
                used = client.post("/v1/chat/completions", json=question()).json()["usage"]
            cached.append(used["prompt_tokens_details"]["cached_tokens"])
    assert cached[0] == cached[2] == 0 < cached[1]


@pytest.mark.parametrize("stream", [False, True])
def test_disconnected_client_frees_its_worker_at_the_next_step(stream: bool, gated: Gated) -> None:
    with serving(lambda: gated.model, workers=1) as running:
        body = json.dumps(question(stream=stream, max_tokens=500)).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        with socket.create_connection(("127.0.0.1", running.port)) as connection:
            connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
            gated.let(2)
            until(lambda: gated.steps == 2)
        [worker] = running.pool._workers
        # None: it hung up within the second step, which was then the last
        until(lambda: (job := worker.job) is None or job.reason == "gone")
        gated.let(1)  # the step that it is in
        until(lambda: not busy(running))
        assert gated.steps <= 3
        gated.let(100)
        assert running.ask().status_code == 200


def test_full_queue_gives_429_until_a_client_leaves(gated: Gated) -> None:
    with serving(lambda: gated.model, workers=1, queue=1) as running:
        asking = [running.asking()]
        until(lambda: bool(busy(running)))
        with pytest.raises(httpx.ReadTimeout), running.client() as client:
            client.post("/v1/chat/completions", json=question(), timeout=httpx.Timeout(PATIENCE, read=0.3))
        until(lambda: not len(running.pool.find(None).queue))
        asking.append(running.asking())
        until(lambda: len(running.pool.find(None).queue) == 1)
        refused = running.ask()
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["type"] == "rate_limit_error"
        gated.let(1000)
        assert [each.result(30).status_code for each in asking] == [200, 200]


def test_turns_are_taken_by_key_then_user(gated: Gated) -> None:
    access = Access.of("127.0.0.1", keys=KEYS)
    with serving(lambda: gated.model, access=access, workers=1) as running, ThreadPoolExecutor(4) as threads:

        def ask(key: bytes, user: str) -> int:
            with running.client(headers={"authorization": f"Bearer {key.decode()}"}) as client:
                return client.post("/v1/chat/completions", json=question(user=user)).status_code

        queue = running.pool.find(None).queue
        asking = []
        for waiting, (key, user) in enumerate([(0, "a"), (0, "b"), (0, "c"), (1, "b")]):
            asking.append(threads.submit(ask, KEYS[key], user))
            until(lambda waiting=waiting: bool(busy(running)) and len(queue) == waiting)  # type: ignore[misc]
        assert {owner: list(users) for owner, users in queue._waiting.items()} == {
            "0": ["b", "c"],
            "1": ["b"],
        }
        gated.let(1000)
        assert {each.result(30) for each in asking} == {200}


def test_slow_answer_gives_504(gated: Gated) -> None:
    with serving(lambda: gated.model, limits=RequestLimits(answer_seconds=0.3)) as running:
        threading.Timer(0.6, gated.let, (1000,)).start()
        assert running.ask(max_tokens=400).status_code == 504


@pytest.mark.parametrize("stream", [False, True])
def test_shutdown_cancels_answers_after_the_grace_period(stream: bool, gated: Gated) -> None:
    gated.let(3)
    with serving(lambda: gated.model, grace=0.2) as running:
        asking = [running.asking(max_tokens=400, stream=stream) for _ in range(2)]
        until(lambda: gated.steps == 3 and len(running.pool.find(None).queue) == 1)
        threading.Timer(0.5, gated.let, (1,)).start()
        running.stop()
        said = [each.result(30) for each in asking]
    assert gated.model.backend.closed  # type: ignore[attr-defined]
    assert all("shutting down" in response.text for response in said)
    assert sorted(response.status_code for response in said) == ([200, 503] if stream else [503, 503])


def test_shutdown_waits_for_answers(gated: Gated) -> None:
    with serving(lambda: gated.model, grace=30) as running:
        asking = running.asking()
        until(lambda: bool(busy(running)))
        threading.Timer(0.2, gated.let, (100,)).start()
        running.stop()
        assert asking.result(30).status_code == 200


@pytest.mark.parametrize("error", [RuntimeFailureError("no memory"), KeyError("oops")])
def test_worker_answers_again_after_an_error(error: Exception, tokenizer: Tokenizer) -> None:
    model = toy_model(tokenizer)
    failing = [error]

    def fail(_: object) -> None:
        if failing:
            raise failing.pop()

    model.backend.before_macro = fail  # type: ignore[attr-defined]
    with serving(lambda: model) as running:
        assert running.ask().status_code == 500
        assert running.ask().status_code == 200


def test_prompts_are_logged_and_kept_only_on_request(
    tokenizer: Tokenizer, capfd: pytest.CaptureFixture[str]
) -> None:
    for prompts in (False, True):
        with serving(lambda: toy_model(tokenizer), log=RequestLog(prompts=prompts), sessions=0) as running:
            running.ask("a secret")
            assert sum(running.pool.gauges()["sessions_bytes"].values()) == 0
        said = capfd.readouterr().err
        assert ("secret" in said) == prompts
        # method, path, status and duration, and no client's address, as the guide says
        assert re.search(r"^POST /v1/chat/completions 200 \d+ ms$", said, re.M)


def test_conversations_are_found_by_their_owner_only() -> None:
    conversations = Conversations(4)
    said, groups = ("", "Hi", "Hello"), [(1,), (2, 3, 4)]
    conversations.keep(Kept("0", said, {3: 4}, tuple(groups), 2, {}))
    assert conversations.recall("0", said) == (3, groups, {3: 4})
    assert conversations.recall("1", said) == (0, [], {})
    assert conversations.nearest("0", groups, merged=True)[1] == 2
    assert conversations.nearest("1", groups, merged=True) == (None, 0)


def test_choice_of_a_measured_model_has_certainty_and_unsure(tokenizer: Tokenizer) -> None:
    fit = Certainty(offset=5.0, slope=1.0)
    with serving(lambda: toy_model(tokenizer, {"certainty": fit}, eos_rate=0.3)) as server:
        choice = server.ask(max_tokens=60).json()["choices"][0]
        assert choice["finish_reason"] == "stop"
        assert 0 < choice["certainty"] < 1
        assert choice["unsure"] is False
        asked = server.ask(max_tokens=60, min_certainty=1, stream=True)
        *before, last = [event["choices"][0] for event in events(asked)]
        assert (last["certainty"], last["unsure"]) == (choice["certainty"], True)
        assert not any("certainty" in each for each in before)
        assert server.ask(min_certainty=2).json()["error"]["param"] == "min_certainty"


def test_cut_correction_is_the_text_of_the_prompt_or_a_stream_that_ends_unsure(tokenizer: Tokenizer) -> None:
    shape = {"edits_prompt": True}
    with serving(lambda: toy_model(tokenizer, shape, template="plain", eos_rate=0.0)) as server:
        words = {"messages": [{"role": "user", "content": "a few words"}], "max_tokens": 2}
        choice = server.ask(**words).json()["choices"][0]
        assert (choice["message"]["content"], choice["unsure"]) == ("a few words", True)
        assert "certainty" not in choice
        again = server.ask(**words).json()["choices"][0]
        assert again["message"] == choice["message"]
        *before, last = [event["choices"][0] for event in events(server.ask(**words, stream=True))]
        assert last["unsure"] is True
        assert not any("unsure" in each for each in before)


def test_min_certainty_needs_a_measured_model(running: Running) -> None:
    assert "certainty" not in running.ask().json()["choices"][0]
    for stream in (False, True):
        refused = running.ask(min_certainty=0.9, stream=stream)
        assert refused.status_code == 400
        assert "min_certainty 0.9 needs a model whose certainty was measured" in refused.text
