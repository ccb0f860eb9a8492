"""Signed tokens (JWT, RFC 7519): who a token names, when it is ours to believe."""

from __future__ import annotations

import threading
from typing import Any

import jwt

from shared.runs.access import Actor, Role
from shared.settings import Settings

ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Algorithms honoured for keys of the JWKS; a shared secret is used with HS256 only."""

LEEWAY_SECONDS = 10
"""How far the clocks of the issuer and of this machine may differ."""

MAX_ACTOR_LENGTH = 256


class InvalidToken(Exception):
    """The token is not to be believed; the text is safe to show."""


class KeysUnavailable(Exception):
    """The public keys could not be fetched, so nothing can be said about the token."""


class TokenVerifier:
    """Checks signature, expiry, audience and issuer as the settings demand."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._jwks: jwt.PyJWKClient | None = None
        self._lock = threading.Lock()

    @property
    def configured(self) -> bool:
        """Whether any token can be believed at all."""
        return bool(self.settings.jwt_secret or self.settings.jwt_jwks_url)

    def actor(self, token: str) -> Actor:
        """Whom the token names: ``sub``, with the roles of the roles claim; roles we do not know are ignored.

        Raises :class:`InvalidToken` and :class:`KeysUnavailable`.
        """
        try:
            claims = self._claims(token)
        except jwt.PyJWKClientConnectionError as error:
            raise KeysUnavailable("the token's public keys could not be fetched") from error
        except jwt.ExpiredSignatureError as error:
            raise InvalidToken("the token has expired") from error
        except jwt.InvalidAudienceError as error:
            raise InvalidToken("the token is meant for another audience") from error
        except jwt.InvalidIssuerError as error:
            raise InvalidToken("the token comes from another issuer") from error
        except jwt.MissingRequiredClaimError as error:
            raise InvalidToken(f"the token lacks the claim {error.claim!r}") from error
        except (jwt.PyJWTError, ValueError) as error:
            raise InvalidToken("the token is not valid") from error
        name = claims["sub"]
        if not (isinstance(name, str) and 1 <= len(name) <= MAX_ACTOR_LENGTH and name.isprintable()):
            raise InvalidToken("the token's subject is not usable as a name")
        return Actor(name, _roles(claims, self.settings.jwt_roles_claim))

    def _claims(self, token: str) -> dict[str, Any]:
        settings = self.settings
        algorithm = jwt.get_unverified_header(token).get("alg")
        key: Any
        if algorithm == "HS256" and settings.jwt_secret is not None:
            key = settings.jwt_secret.get_secret_value()
        elif algorithm in ASYMMETRIC and settings.jwt_jwks_url is not None:
            key = self._keys().get_signing_key_from_jwt(token)
        else:
            raise InvalidToken("the token is signed in a way that is not accepted here")
        return jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=settings.jwt_audience,
            issuer=settings.jwt_issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": ["exp", "sub"], "verify_aud": settings.jwt_audience is not None},
        )

    def _keys(self) -> jwt.PyJWKClient:
        with self._lock:
            if self._jwks is None:
                self._jwks = jwt.PyJWKClient(
                    self.settings.jwt_jwks_url or "", timeout=2, cooldown_duration=10
                )
            return self._jwks


def _roles(claims: dict[str, Any], path: str) -> frozenset[Role]:
    """The claim as it is named, or, with dots, a member inside nested claims; a list or words in one text."""
    found: Any = claims.get(path)
    if found is None:
        found = claims
        for part in path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
    words = found.split() if isinstance(found, str) else found if isinstance(found, list) else []
    return frozenset(Role(word) for word in words if isinstance(word, str) and word in set(Role))
