"""What a server may ask a client while it is called, and how the question is shown."""

from typing import Any

import pytest

from smart_mcp_proxy.policy.inputs import SERVER_META_KEY, input_fault, label_inputs, without_secrets
from smart_mcp_proxy.telemetry import has_secret, redact, secrets_hidden


def form(message: str = "Who are you?", **fields: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": fields or {"name": {"type": "string"}}}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


URL = {"method": "elicitation/create", "params": {"mode": "url", "message": "Sign in", "url": "https://a.example/x"}}
SAMPLE = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}}
ROOTS = {"method": "roots/list"}


def titled(title: str, **fields: Any) -> dict[str, Any]:
    """A form whose heading says what it is about."""
    asked = form(**fields)
    schema = asked["params"]["requestedSchema"] | {"title": title}
    return asked | {"params": asked["params"] | {"requestedSchema": schema}}


@pytest.mark.parametrize(
    ("request_", "declared", "undeclared"),
    [
        (form(), {"elicitation": {}}, None),
        (form(), {"elicitation": {"form": {}}}, None),
        (form(), {"elicitation": {"form": {}, "url": {}}}, None),
        (form(), {"elicitation": {"url": {}}}, "elicitation by form"),
        (form(), {"sampling": {}}, "elicitation"),
        (form(), {"elicitation": None}, "elicitation"),
        (URL, {"elicitation": {"url": {}}}, None),
        (URL, {"elicitation": {}}, "elicitation by url"),
        (SAMPLE, {"sampling": {}}, None),
        (SAMPLE, {"elicitation": {}}, "sampling"),
        (SAMPLE | {"params": SAMPLE["params"] | {"tools": []}}, {"sampling": {}}, "sampling with tools"),
        (SAMPLE | {"params": SAMPLE["params"] | {"tools": []}}, {"sampling": {"tools": {}}}, None),
        (ROOTS, {"roots": {"listChanged": True}}, None),
        (ROOTS, {}, "roots"),
    ],
)
def test_a_server_may_ask_only_for_what_the_client_declared(
    request_: dict[str, Any], declared: dict[str, Any], undeclared: str | None
) -> None:
    """Also where other questions beside it are in order."""
    fault = input_fault({"k": request_}, declared, has_secret)
    assert (fault.what if fault else None) == undeclared
    assert fault is None or fault.kind == "undeclared"


@pytest.mark.parametrize(
    "requests",
    [
        None,
        [form()],
        {"k": None},
        {"k": {"method": "tools/call", "params": {}}},
        {"k": {"method": ["roots/list"]}},
        {"k": {"method": "elicitation/create"}},
        {"k": {"method": "elicitation/create", "params": {"message": "m"}}},
        {"k": {"method": "elicitation/create", "params": {"message": 5, "requestedSchema": {"properties": {}}}}},
        {"k": {"method": "elicitation/create", "params": {"mode": "song", "message": "m"}}},
        {"k": URL | {"params": URL["params"] | {"url": "javascript:alert(1)"}}},
        {"k": URL | {"params": URL["params"] | {"url": "https://[broken"}}},
        {"k": SAMPLE | {"params": None}},
        {str(number): form() for number in range(17)},
    ],
)
def test_what_the_protocol_does_not_know_is_not_passed_on(requests: Any) -> None:
    """Whatever was declared."""
    fault = input_fault(requests, {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}, has_secret)
    assert fault is not None and fault.kind == "malformed"


TYPED = {"type": "string"}


@pytest.mark.parametrize(
    "asked",
    [
        form(password=TYPED),
        *(form(password=TYPED | odd) for odd in ({"anyOf": [{}]}, {"const": 1}, {"enum": []}, {"oneOf": []})),
        titled("Your password", value=TYPED),
        form(userPassword=TYPED),
        form(user_pass_phrase=TYPED),
        form(p4=TYPED | {"title": "Your PASSWORD"}),
        form(p4=TYPED | {"description": "the pass\u200bword of this account"}),
        form(p4=TYPED | {"title": "Pa\u017fsword"}),
        form(apiKey=TYPED),
        form(api_key=TYPED),
        form(github_token=TYPED),
        form(token=TYPED),
        form(clientSecret=TYPED),
        form(pin=TYPED),
        form(code=TYPED | {"title": "Verification code"}),
        form(cvc={"type": "integer"}),
        form(n={"type": "number", "title": "Credit card number"}),
        form(x=TYPED | {"format": "password"}),
        form(x=TYPED | {"writeOnly": True}),
        form("Please enter your password", value=TYPED),
        form("Bitte gib dein Passwort ein", value=TYPED),
        form("Introduzca su contraseña", value=TYPED),
        form("Введите пароль", value=TYPED),
        form("请输入密码", value=TYPED),
        form("パスワードを入力", value=TYPED),
        form("비밀번호를 입력하세요", value=TYPED),
        form(x={"title": "password"}),
    ],
)
def test_no_form_may_ask_for_a_password_or_the_like(asked: dict[str, Any]) -> None:
    """By the name of a field, its title, its description or the question, in several languages."""
    fault = input_fault({"k": asked}, {"elicitation": {}}, has_secret)
    assert fault is not None and fault.kind == "secret"


@pytest.mark.parametrize(
    "asked",
    [
        form(name=TYPED, email=TYPED | {"format": "email"}),
        form(max_tokens={"type": "integer"}),
        form(tokens={"type": "integer", "description": "How many tokens to keep"}),
        form("Your password was changed. Was it you?", ok={"type": "boolean"}),
        form("Which password policy?", policy={"type": "string", "enum": ["strict", "lax"]}),
        form("Where should the password reset be sent?", to=TYPED | {"format": "email"}),
        form(passenger=TYPED, compass=TYPED, keyboard=TYPED, secretary=TYPED, pinned={"type": "boolean"}),
        form(topic=TYPED | {"description": "What the note is about; pin it where it fits"}),
        form(country_code=TYPED, zip_code=TYPED),
    ],
)
def test_ordinary_forms_are_passed_on(asked: dict[str, Any]) -> None:
    """Also where their words resemble those of secrets, or nothing secret can be typed."""
    assert input_fault({"k": asked}, {"elicitation": {}}, has_secret) is None


def test_a_question_begins_with_the_name_of_the_server_and_is_otherwise_unchanged() -> None:
    """The name in the user's own configuration; every kind carries it where programs look."""
    meta = {"example.org/kept": 1}
    asked = {"a": form(), "b": URL, "c": SAMPLE | {"params": SAMPLE["params"] | {"_meta": meta}}, "d": ROOTS}
    shown = label_inputs("git", asked)
    assert shown["a"]["params"]["message"] == "Server 'git' asks: Who are you?"
    assert shown["a"]["params"]["requestedSchema"] == asked["a"]["params"]["requestedSchema"]
    assert shown["b"]["params"] == URL["params"] | {
        "message": "Server 'git' asks: Sign in",
        "_meta": {SERVER_META_KEY: "git"},
    }
    assert shown["c"]["params"] == SAMPLE["params"] | {"_meta": meta | {SERVER_META_KEY: "git"}}
    assert shown["d"] == ROOTS


KEY = "sk-9f2c/77+a1"
ALL = {"elicitation": {"form": {}, "url": {}}, "sampling": {}}


def test_the_words_of_a_form_are_shown_without_what_the_server_was_trusted_with() -> None:
    """Message, titles and descriptions; a default that holds one is left out. All else is as the server wrote it."""
    asked = form(
        name=TYPED | {"title": f"For {KEY}", "description": f"as {KEY}", "default": KEY},
        title=TYPED | {"default": "a word"},
        default={"type": "integer", "default": 7},
        pick={"type": "string", "oneOf": [{"const": "a", "title": f"A {KEY}"}], "enumNames": [KEY]},
    )
    asked["params"] |= {"message": f"Is it {KEY}?", "_meta": {"of": [KEY]}}
    with secrets_hidden([KEY]):
        shown = without_secrets({"k": asked}, redact)
        assert input_fault(shown, ALL, has_secret) is None
    assert KEY not in str(shown)
    params = shown["k"]["params"]
    assert (params["message"], params["_meta"]) == ("Is it [hidden]?", {"of": ["[hidden]"]})
    assert params["requestedSchema"]["properties"] == {
        "name": TYPED | {"title": "For [hidden]", "description": "as [hidden]"},
        "title": TYPED | {"default": "a word"},
        "default": {"type": "integer", "default": 7},
        "pick": {"type": "string", "oneOf": [{"const": "a", "title": "A [hidden]"}], "enumNames": ["[hidden]"]},
    }
    assert without_secrets({"k": asked}, redact) == {"k": asked}, "it was a secret only as long as it was in use"


def test_what_is_asked_of_a_model_is_shown_without_secrets() -> None:
    """All of its texts."""
    content = [{"type": "text", "text": f"Use {KEY}"}]
    asked = SAMPLE | {"params": {"systemPrompt": KEY, "messages": [{"role": "user", "content": content}]}}
    with secrets_hidden([KEY]):
        shown = without_secrets({"k": asked, "r": ROOTS}, redact)
    assert KEY not in str(shown) and shown["r"] == ROOTS
    assert shown["k"]["params"]["messages"][0]["content"] == [{"type": "text", "text": "Use [hidden]"}]


def addressed(url: str) -> dict[str, Any]:
    return URL | {"params": URL["params"] | {"url": url}}


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        (form(pick=TYPED | {"enum": ["a", KEY]}), "a form"),
        (form(pick=TYPED | {"oneOf": [{"const": KEY, "title": "A"}]}), "a form"),
        (form(**{KEY: TYPED}), "a form"),
        (form(name=TYPED | {"pattern": KEY}), "a form"),
        (addressed(f"https://a.example/x?key={KEY}"), "an address"),
        (addressed("https://a.example/x?key=sk-9f2c%2F77%2Ba1"), "an address"),
        (addressed("https://a.example/x#sk-9f2c/77+a1"), "an address"),
        (addressed("https://a.example/sk-9f2c/77+a1/start"), "an address"),
        (addressed("https://sk-9f2c%2F77%2Ba1@a.example/"), "an address"),
    ],
)
def test_a_question_that_shows_a_secret_where_it_cannot_be_hidden_is_not_passed_on(
    asked: dict[str, Any], what: str
) -> None:
    """Without it the choice would be another one, and the address lead nowhere."""
    with secrets_hidden([KEY]):
        fault = input_fault(without_secrets({"k": asked}, redact), ALL, has_secret)
    assert fault is not None and fault.kind == "telling" and what in fault.what
    assert input_fault({"k": asked}, ALL, has_secret) is None


@pytest.mark.parametrize(
    "asked",
    [
        addressed("https://login.example.com/authorize?client_id=Iv1.8a61&redirect_uri=https%3A%2F%2Fme"),
        form(stage=TYPED | {"enum": ["staging", "production"]}),
        form(repository=TYPED),
    ],
)
def test_settings_of_a_server_that_are_no_secrets_keep_no_question_back(asked: dict[str, Any]) -> None:
    """A host, an id that every browser sees, a plain word: all of them may be values of `env`."""
    with secrets_hidden(["login.example.com", "Iv1.8a61", "production", "repository"]):
        assert input_fault(without_secrets({"k": asked}, redact), ALL, has_secret) is None


def test_only_what_decides_the_answers_of_its_own_kind_of_question_is_not_hidden() -> None:
    """An address in a form, a form beside an address, either for a model, members that no protocol knows."""
    told: dict[str, Any] = {"url": f"https://a.example/{KEY}", "requestedSchema": {"enum": [KEY]}}
    form_ = form()["params"]
    asked = {
        "form": form() | {"params": form_ | {"url": told["url"], KEY: 1}},
        "url": URL | {"params": URL["params"] | {"requestedSchema": told["requestedSchema"]}},
        "sample": SAMPLE | {"params": SAMPLE["params"] | told},
        "beside": form() | {"odd": [{KEY: KEY}], KEY: 1},
        "roots": ROOTS | {"params": {"odd": KEY}, "odd": KEY},
    }
    with secrets_hidden([KEY]):
        shown = without_secrets(asked, redact)
        assert input_fault(shown, ALL | {"roots": {}}, has_secret) is None
    assert KEY not in str(shown)
    assert shown["form"]["params"] == form_ | {"url": "https://a.example/[hidden]", "[hidden]": 1}
    assert shown["url"]["params"] == URL["params"] | {"requestedSchema": {"enum": ["[hidden]"]}}
    assert shown["beside"] == form() | {"odd": [{"[hidden]": "[hidden]"}], "[hidden]": 1}


def test_a_question_whose_key_is_a_secret_is_not_passed_on() -> None:
    """Its answer goes back to the server by this key, so another one cannot stand for it."""
    with secrets_hidden([KEY]):
        fault = input_fault(without_secrets({"k": form(), f"about {KEY}": form()}, redact), ALL, has_secret)
    assert fault is not None and (fault.kind, fault.what) == ("telling", "the key of a question")


def test_a_setting_that_is_a_word_of_the_protocol_spoils_no_question() -> None:
    """It tells nothing where every question has it."""
    with secrets_hidden(["create", "message", "requestedSchema"]):
        assert without_secrets({"k": form(), "u": URL}, redact) == {"k": form(), "u": URL}
