"""Master keys that a key service keeps: Vault's transit engine, AWS KMS.

The service wraps and unwraps data keys, and never shows the key that it does it with. It is asked
at each start of a broker, for a new data key (each 2³⁰th entry of a log), and for a data key that
another broker has made; never for a message.

Room: journal. The one place that knows the services' clients, which come with extras.
See: master_keys.py; docs/guides/encryption.md;
https://developer.hashicorp.com/vault/api-docs/secret/transit;
https://docs.aws.amazon.com/kms/latest/APIReference/API_Encrypt.html.
"""

from __future__ import annotations

import base64
import os
from typing import Any, Final

from dejaqueue.connections import extras
from dejaqueue.errors import BadRequest, EncryptionKeyMissing, Unavailable

_CALL_SECONDS_MAX: Final = 10
_PURPOSE: Final = "dejaqueue data key"
"""What the service authenticates along with a data key, so that it unwraps nothing else for us."""
_BELONGING: Final = base64.b64encode(_PURPOSE.encode()).decode()
_CONTEXT: Final = {"purpose": _PURPOSE}


class VaultKey:
    """A key of Vault's transit engine; of OpenBao's, too, whose calls are the same.

    Where the server is and who asks is in the environment, as for Vault's own command:
    VAULT_ADDR, VAULT_TOKEN (or the file ~/.vault-token), VAULT_NAMESPACE, VAULT_CACERT. It is read
    at each call, so a token that an agent renews is always the newest.

    Args:
        place: `MOUNT/KEY`, as `transit/dejaq`.

    Raises:
        BadRequest: that is no place, or the extra is not installed.
        EncryptionKeyMissing: there is no such key. Unavailable: the server is out of reach.
    """

    def __init__(self, place: str) -> None:
        mount, _, key = place.rpartition("/")
        if not mount or not key:
            raise BadRequest("encryption.master_key", "vault:MOUNT/KEY", place)
        self.name = f"vault:{place}"
        self._mount, self._key = mount, key
        self._library: Any = extras.load("hvac", "vault", "vault:")
        self._check()

    def _check(self) -> None:
        """A call that encrypts would make a key that is not there, if its token may."""
        try:
            self._call("read_key")
        except EncryptionKeyMissing as refused:
            # Whoever may encrypt and decrypt alone need not be allowed to read about the key.
            if not isinstance(refused.__cause__, self._library.exceptions.Forbidden):
                raise

    def wrap(self, content: bytes) -> bytes:
        """See MasterKey.wrap."""
        answer = self._call(
            "encrypt_data", plaintext=base64.b64encode(content).decode(), associated_data=_BELONGING
        )
        return str(answer["data"]["ciphertext"]).encode()

    def unwrap(self, wrapped: bytes) -> bytes:
        """See MasterKey.unwrap."""
        answer = self._call("decrypt_data", ciphertext=wrapped.decode(), associated_data=_BELONGING)
        return base64.b64decode(answer["data"]["plaintext"])

    def _call(self, name: str, **given: str) -> Any:
        errors = self._library.exceptions
        client = self._library.Client(
            timeout=_CALL_SECONDS_MAX, namespace=os.environ.get("VAULT_NAMESPACE")
        )
        try:
            call = getattr(client.secrets.transit, name)
            return call(name=self._key, mount_point=self._mount, **given)
        except (
            errors.InvalidRequest,
            errors.InvalidPath,
            errors.Forbidden,
            errors.Unauthorized,
        ) as no:
            raise EncryptionKeyMissing(f"master key {self.name}: Vault refuses: {no}") from no
        except (errors.VaultError, OSError) as failure:  # requests' errors are OSErrors
            raise Unavailable(
                f"master key {self.name}: Vault is out of reach: {failure}"
            ) from failure
        finally:
            client.adapter.close()


class KmsKey:
    """A key of AWS KMS.

    Region, endpoint and who asks are found as AWS' own tools find them: AWS_REGION,
    AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID…, ~/.aws, the machine's role.

    Args:
        key: id, ARN or alias of a symmetric key. An alias is followed once, here: the name of this
            key is its ARN, so an alias that is set to another key later is another master key.

    Raises:
        BadRequest: the extra is not installed. EncryptionKeyMissing: there is no such key, or it
            may not be used. Unavailable: the service is out of reach.
    """

    def __init__(self, key: str) -> None:
        if not key:
            raise BadRequest("encryption.master_key", "aws-kms:KEY", key)
        library: Any = extras.load("boto3", "kms", "aws-kms:")
        self._errors: Any = extras.load("botocore.exceptions", "kms", "aws-kms:")
        config: Any = extras.load("botocore.config", "kms", "aws-kms:")
        self.name = f"aws-kms:{key}"
        try:
            self._client: Any = library.client(
                "kms",
                # AWS' other tools read this variable, and so do our object stores; boto3 does not.
                region_name=os.environ.get("AWS_REGION"),
                config=config.Config(
                    connect_timeout=_CALL_SECONDS_MAX,
                    read_timeout=_CALL_SECONDS_MAX,
                    retries={"mode": "standard", "total_max_attempts": 3},
                ),
            )
        except self._errors.BotoCoreError as wrong:
            raise EncryptionKeyMissing(f"master key {self.name}: {wrong}") from wrong
        self._key: str = self._call("describe_key", KeyId=key)["KeyMetadata"]["Arn"]
        self.name = f"aws-kms:{self._key}"

    def wrap(self, content: bytes) -> bytes:
        """See MasterKey.wrap."""
        answer = self._call(
            "encrypt", KeyId=self._key, Plaintext=content, EncryptionContext=_CONTEXT
        )
        return bytes(answer["CiphertextBlob"])

    def unwrap(self, wrapped: bytes) -> bytes:
        """See MasterKey.unwrap."""
        answer = self._call(
            "decrypt", KeyId=self._key, CiphertextBlob=wrapped, EncryptionContext=_CONTEXT
        )
        return bytes(answer["Plaintext"])

    def _call(self, name: str, **given: Any) -> Any:
        try:
            return getattr(self._client, name)(**given)
        except self._errors.ClientError as refused:
            status = refused.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if status >= 500 or status == 429:
                raise Unavailable(f"master key {self.name}: {refused}") from refused
            raise EncryptionKeyMissing(f"master key {self.name}: {refused}") from refused
        except self._errors.BotoCoreError as failure:
            raise Unavailable(
                f"master key {self.name}: KMS is out of reach: {failure}"
            ) from failure
