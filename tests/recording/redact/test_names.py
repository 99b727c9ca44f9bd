"""Which variables are taken to hold a secret, and which values are not worth hiding."""

import pytest

from agentwrap.recording.redact.names import secret_name, trivial, worth_searching


@pytest.mark.parametrize(
    "name",
    [
        "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GITHUB_TOKEN", "GH_PAT", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
        "DB_PASSWORD", "MYSQL_PWD", "PGPASSWORD", "SECRET", "APIKEY", "npm_config__authToken", "NPM_AUTH", "api-key",
        "SENTRY_DSN", "SLACK_WEBHOOK_URL", "GOOGLE_CREDENTIALS", "SESSION_COOKIE", "ENCRYPTION_KEY", "VAULT_PASS",
    ],
)  # fmt: skip
def test_names_that_tell(name: str) -> None:
    assert secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "PATH", "PWD", "OLDPWD", "HOME", "SSH_AUTH_SOCK", "XAUTHORITY", "KEYBOARD", "MAX_TOKENS",
        "TOKENIZERS_PARALLELISM",
        "GIT_AUTHOR_NAME", "SSH_KEY_FILE", "AWS_SHARED_CREDENTIALS_FILE", "GIT_ASKPASS", "PUBLIC_KEY", "LANG", "TERM",
        "MONKEY", "AUTH_TYPE", "KEY_ID", "COMPASS", "BYPASS_CHECKS",
    ],
)  # fmt: skip
def test_names_that_do_not(name: str) -> None:
    assert not secret_name(name)


@pytest.mark.parametrize(
    "value",
    [b"", b"true", b"4096", b"none", b"password", b"aaaaaaaaaaaa", b"/usr/bin/ssh-askpass", b"./k.pem", b"~/x"],
)
def test_values_that_hide_nothing(value: bytes) -> None:
    assert trivial(value)
    assert not worth_searching(value)


def test_a_secret_that_begins_like_a_path_is_one() -> None:
    assert not trivial(b"/bPxRfiCYEXAMPLEKEYwJalrXUtnFEMI7MDENG")
    assert worth_searching(b"wJalr/XUtnFEMI+K7MDENG=")
    assert not worth_searching(b"short1")
