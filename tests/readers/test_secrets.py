"""What counts as a secret because of its name, its place or its first characters, and what does not."""

from __future__ import annotations

import json
import re

import pytest

from perftool.readers import secrets
from perftool.readers.secrets import certainty, is_secret, is_secret_number, secrets_in, without_secrets

SECRET = "q7Wz-2Kd9_xRt4"
LONG = "a1B2c3D4e5F6g7H8i9J0" * 2


@pytest.mark.parametrize(
    "name",
    ["apiToken", "PGPASSWORD", "MY_PASS", "AWS_SECRET_ACCESS_KEY", "db-password", "credentials", "HF_TOKEN",
     "authToken", "x-api-key", "APIKEY", "Authorization", "MYSQL_PWD", "clientSecret", "hpu.ACCESS_TOKEN", "--api-key",
     "REDIS_AUTH", "passWord", "DB_PASS_WORD", "passPhrase", "ssl-key-pass-phrase", "PassWd", "passcode", "pswd",
     "license_key", "licenceKey", "pwd", "OPENAI_API_KEY_2", "OPENAI_API_KEY2", "HF_TOKEN_1", "api-key1",
     "API_KEY_PROD", "apiKeyV2", "api_key_dev_2", "HF_TOKEN_v2_test", "DB_PASS_OLD", "SSHPASS", "DBPASS", "dbpass",
     "HF_TOKEN_READ", "WANDB_API_KEY_TEAM", "API_KEY_OPENAI", "PRIVATE_KEY_PEM", "authorization_header", "cookieValue",
     "VAULT_SECRET_ID"],
)  # fmt: skip
def test_values_of_secret_names_are_secrets(name: str) -> None:
    assert is_secret(name, SECRET)


@pytest.mark.parametrize(
    "name",
    ["max_tokens", "num_tokens", "tokens_per_s", "tokenizer", "pass_id", "bypass", "pad_token", "time_to_first_token",
     "token_type", "OLDPWD", "forward_pass", "cache_key", "primary_key", "keys", "compass", "author",
     "HF_TOKEN_PATH", "password_file", "per_output_token", "passed", "monkey", "pad_token_1", "max_tokens_2",
     "forward_pass_2", "tiktoken-0.9.0", "api_key_test_id", "max_tokens_main"],
)  # fmt: skip
def test_values_of_other_names_are_not_secrets(name: str) -> None:
    assert not is_secret(name, SECRET)
    assert not is_secret_number(name, "12345678")


@pytest.mark.parametrize("name", ["KAGGLE_KEY", "AZURE_OPENAI_KEY", "DD_APP_KEY", "--session-key", "hmacKey"])
def test_a_random_value_of_any_key_is_a_secret(name: str) -> None:
    assert is_secret(name, LONG)
    assert is_secret(name, "0123456789abcdef" * 2)
    for value in ("bfloat16", "self_attention_mask_of_layer", "20261129123059000", "sha256:1", "input_ids"):
        assert not is_secret(name, value)
    assert not is_secret("cache_key", LONG)


def test_words_and_measures_are_not_tokens() -> None:
    for value in ("short", "generation", "12.345678ms", "1234567890", "<|begin_of_text|>", "[MASKED]", "x" * 600):
        assert not is_secret("token", value)
    for value in ("", "None", "true", "******", "redacted", "[]", "{ }"):
        assert not is_secret("password", value)


def test_a_number_is_a_secret_under_the_name_of_a_password_only() -> None:
    assert is_secret_number("PGPASSWORD", "12345678")
    assert not any(is_secret_number(name, "12345678") for name in ("token", "HF_TOKEN", "dur", "max_tokens"))
    assert not is_secret_number("secrets", "12")


FORMS = {
    "an environment of Python": f"os.environ['HF_TOKEN'] = '{SECRET}'",
    "a name in brackets": f"auth[api_token]={SECRET}",
    "a bare pass": f"--pass {SECRET}",
    "an appended assignment": f"HF_TOKEN+={SECRET}",
    "an option": f"train.py --token={SECRET} --lr 0.1",
    "an option and a blank": f"train.py --api-key {SECRET}",
    "in quotes": f"run --password '{SECRET}' now",
    "an assignment": f"export HF_TOKEN={SECRET}; python train.py",
    "an assignment of Make": f"DB_PASSWORD:={SECRET}",
    "another assignment of Make": f"DB_PASSWORD::={SECRET}",
    "an assignment of a command of Make": f"HF_TOKEN != {SECRET}",
    "an appended assignment of PHP": f"$db_password .= {SECRET}",
    "a default of Ruby": f"DB_PASSWORD ||= '{SECRET}'",
    "a default of Python": f"os.environ.setdefault('HF_TOKEN', '{SECRET}')",
    "an environment of C": f'setenv("DB_PASSWORD", "{SECRET}", 1)',
    "an element of XML": f"<settings><password>{SECRET}</password></settings>",
    "a token in an element of XML": f"<hubToken>{SECRET}</hubToken>",
    "an address in an address": f"https://host/?next=%2Fx%3Faccess_token%3D{SECRET}",
    "a signature in an address in an address": f"https://host/?next=%252Fx%253Fa%253D1%2526sig%253D{SECRET}",
    "an option before a NUL": f"train.py\0--hub-token\0{SECRET}\0--lr\0" + "1",
    "a password before a NUL": f"train.py\0--db-password\0{SECRET}\0--lr\0" + "1",
    "an assignment of Ruby": f"'db_password' => '{SECRET}'",
    "an escaped assignment": rf"HF_TOKEN\u003d{SECRET} x",
    "an escaped address": rf"https://host/blob?a=1\u0026sig={SECRET}\u0026se=2030",
    "an escaped address in a text": rf"https://host/blob?a=1\\u0026sig={SECRET}",
    "an address in HTML": f"https://host/blob?a=1&amp;sig={SECRET}",
    "JSON in a text": rf'config {{\"apiKey\": \"{SECRET}\"}}',
    "a list of Python": f"['--api-key', '{SECRET}', '--lr']",
    "a header": f"curl -H 'Authorization: Bearer {SECRET}' host",
    "a bearer": f"sent Bearer {SECRET} to host",
    "basic": f"Basic {'dXNlcjpwYXNzd29yZA=='} ",
    "an address": f"cloned https://user:{SECRET}@host/path",
    "an address without user": f"redis://:{SECRET}@host:6379",
    "an address with a token as user": f"https://{SECRET}abcdefgh@host/path",
    "a query": f"GET https://host/path?a=1&token={SECRET}&b=2",
    "a signature": f"https://host/blob?sig={SECRET}&se=2030",
    "a signature of AWS": f"https://host/x?X-Amz-Signature={SECRET}",
    "an element of an array": f"api_key[0]={SECRET}",
    "the next line of a shell": f"export DB_PASSWORD=\\\n  {SECRET}",
    "an option of the next line": f"run --api-key \\\r\n{SECRET}",
    "a token of the next line": f"HF_TOKEN=\\\n{SECRET}",
    "words": f"API KEY: {SECRET}",
    "words and an assignment": f"the access key = {SECRET}",
    "words in quotes": f'"Secret Key": "{SECRET}"',
    "a token in words": f"Auth token: {SECRET}",
    "a pair": f"dict_items([('DB_PASSWORD', '{SECRET}')])",
    "a pair of bytes": f"headers=[(b'x-api-key', b'{SECRET}')]",
    "a pair in brackets": f'[["DB_PASSWORD", "{SECRET}"]]',
    "a tuple": f"get(auth=('user', '{SECRET}'))",
    "a tuple in an object": f"{{'auth': ('user', '{SECRET}')}}",
    "an element of a map": f"secrets['db']='{SECRET}'",
    "a setting of a shell": f"setenv DB_PASSWORD {SECRET}",
    "a type before a value": f"hf_token: str = '{SECRET}'",
    "types before a value": f"def load(token: str | None = b'{SECRET}', x=1)",
    "a type in quotes before a value": f"hf_token: 'str' = '{SECRET}'",
    "another value before a value": f"hf_token = None or '{SECRET}'",
    "a condition before a value": f"hf_token = x if x else '{SECRET}'",
    "a tuple before a value": f"auth=('user', 'name') or '{SECRET}'",
    "an object": f"hf_token={{'value': '{SECRET}'}}",
    "an object of YAML": f"hf_token: {{value: {SECRET}}}",
    "a block of YAML": f"size: 2\n  MY_PASS: |\n    a\n\n    {SECRET}\n  model: llama-3-8b",
    "a folded block of YAML": f"load MY_PASS: >-\n  {SECRET}\nmodel: llama-3-8b",
    "a list of YAML": f"load hf_token:\n  - {SECRET}\nmodel: llama-3-8b",
    "a key of YAML below": f"hf_token:\n  value: {SECRET}\nmodel: llama-3-8b",
    "a tag of YAML": f"hf_token: !!str {SECRET}",
    "an anchor of YAML": f"hf_token: &a {SECRET}",
    "a random key with a type": f"KAGGLE_KEY: str = '{SECRET}abcdefgh'",
    "a default of a call": f"os.getenv('HF_TOKEN', '{SECRET}')",
    "a default of a password in a call": f"env.get('DB_PASSWORD', '{SECRET}')",
    "a header that a call adds": f"headers.add('Authorization', '{SECRET}')",
    "a pair with a token": f"[('HF_TOKEN', '{SECRET}')]",
    "a variable of a Dockerfile": f"ENV HF_TOKEN {SECRET}",
    "a password of a Dockerfile": f"ENV DB_PASSWORD {SECRET}",
    "a variable of fish": f"set -gx DB_PASSWORD {SECRET}",
    "a password of netrc": f"machine host login me password {SECRET}",
    "a row of a table": f"| DB_PASSWORD | {SECRET} |",
    "a row of a table of blanks": f"HF_TOKEN\t  {SECRET}",
    "basic before a full stop": "sent Basic dXNlcjpwYXNzd29yZA==.",
    "an escaped assignment of HTML": f"HF_TOKEN&#61;{SECRET} x",
    "JSON in HTML": f"{{&quot;apiToken&quot;: &quot;{SECRET}&quot;}}",
    "after a similar one that is not a secret": f"auth=url=https://x?token={SECRET}",
}  # fmt: skip


def test_the_working_directory_is_not_a_password() -> None:
    for name in ("PWD", "pwd"):
        assert not any(
            is_secret(name, value) for value in ("/home/someone", "~/training", "C:\\training", "./training")
        )
    assert without_secrets("env PWD=/home/someone --pwd q7Wz2Kd9") == "env PWD=/home/someone --pwd redacted"


@pytest.mark.parametrize("value", ["Zq2?vbnm9082w", "Zq2,vbnm9082w", "Zq2|vbnm(082w"])
def test_a_token_may_contain_any_characters(value: str) -> None:
    assert is_secret("apiToken", value)


def test_only_a_bare_token_may_be_a_word() -> None:
    assert is_secret("accesstoken", "QwErTyUiOpAsDfGhJk")
    assert not is_secret("token", "QwErTyUiOpAsDfGhJk")


def test_numbers_of_a_password_may_have_a_sign_a_fraction_or_an_exponent() -> None:
    assert all(is_secret_number("DB_PASSWORD", number) for number in ("-90712347", "90712346.5", "9.0712348e7"))
    assert not is_secret_number("DB_PASSWORD", "1.5")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"sbatch --export=ALL,HUB_TOKEN={SECRET},FOO=1 job.sh", "sbatch --export=ALL,HUB_TOKEN=redacted job.sh"),
        (f"MY_TOKEN={SECRET}|tee x", "MY_TOKEN=redacted x"),
        (f"https:\\/\\/user:{SECRET}@host", "https:\\/\\/user:redacted@host"),
        (f"token: Optional[str] = '{SECRET}'", "token: redacted] = 'redacted'"),
        (f"HF_TOKEN=b'{SECRET} x", "HF_TOKEN=redacted x"),
        (rf"run --auth-token=pa\$\$\({SECRET} x", "run --auth-token=redacted x"),
        (f"postgres://u:pa/{SECRET}@host/db", "postgres://u:redacted@host/db"),
        (f"postgres:\\/\\/u:pa\\/{SECRET}@host", "postgres:\\/\\/u:redacted@host"),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nxyz\n-----END PGP PRIVATE KEY BLOCK-----", "redacted"),
    ],
)  # fmt: skip
def test_the_whole_secret_of_a_text_is_left_out(text: str, left: str) -> None:
    assert without_secrets(text) == left


@pytest.mark.parametrize(
    "value",
    [f"'{SECRET}' --lr 0.1", f"x\\ {SECRET} x", rf"pa\$\$\){SECRET} x", f'"a\\"b {SECRET}"', rf"'it\'s {SECRET}'",
     f"b'hunter22 {SECRET}'}}", f'f"hunter22 {SECRET}"', f"u'a {SECRET}'", f"$'abc {SECRET}'", f"'ab''c {SECRET}'",
     f"[['aaaaaaaa1'], ['{SECRET}']]", f'{{"a":{{"b":"aaaaaaaa1"}},"c":"{SECRET}"}}',
     f"['aaaaaaaa1', 'B)b b {SECRET}'], 'x': 1}}", f"[aaaaaaaa1, {SECRET}] x",
     f"str('ab', '{SECRET}')", f"(ab) {SECRET}"],
)  # fmt: skip
def test_after_the_name_of_a_password_the_rest_of_the_line_is_left_out(value: str) -> None:
    for before in ("DB_PASSWORD=", "--password ", "api_keys: ", "['--api-key', ", "export PASSWORD := "):
        clean = without_secrets(f"x --lr 1\n{before}{value}\n--lr 2")
        assert re.fullmatch(rf"""x --lr 1\n{re.escape(before)}([bfu$]?["'])?redacted\n--lr 2""", clean)
    quoted = json.dumps({"password": value})
    assert SECRET not in without_secrets(quoted)
    assert SECRET not in without_secrets(json.dumps(quoted))


@pytest.mark.parametrize(
    "header",
    [f"Cookie: sid={SECRET}; csrf=Yz88qq", f'Cookie: theme="dark"; session={SECRET}',
     f"Set-Cookie: name=O'Brien; session={SECRET}", f"Authorization: ApiKey {SECRET}",
     f"Authorization: AWS4 Credential=AK, Signature={SECRET}",
     f'Authorization: Digest username="bob", realm="x", response="{SECRET}"',
     f'Proxy-Authorization: OAuth oauth_nonce="k", oauth_signature="{SECRET}"'],
)  # fmt: skip
def test_the_whole_line_of_a_header_is_left_out(header: str) -> None:
    left = f"{header.partition(':')[0]}: {'Digest ' * ('Digest' in header)}redacted"
    assert without_secrets(f"GET /x\n{header}\nHost: x") == f"GET /x\n{left}\nHost: x"
    assert without_secrets(f"curl -H '{header}' host") == f"curl -H '{left}"


@pytest.mark.parametrize(
    "value",
    [f"password: |\n    a\n\n    {SECRET}", f"password: !!str >-  # x\n    {SECRET}", f"password: ab\n    {SECRET}",
     f"api_keys:\n  - aaaaaaaa1\n  - {SECRET}", f"api_keys:\n    - aaaaaaaa1\n    - {SECRET}",
     f'"api_keys": [\n    "aaaaaaaa1",\n    "{SECRET}"\n  ]', f"Cookie: a=1;\r\n  \tb={SECRET}"],
)  # fmt: skip
def test_indented_lines_after_the_name_of_a_password_are_left_out(value: str) -> None:
    clean = without_secrets(f"  lr: 1\n  {value}\n  size: 2")
    assert SECRET not in clean
    assert clean.startswith("  lr: 1\n")
    assert "[" in value or clean.endswith("\n  size: 2")


@pytest.mark.parametrize(
    "value",
    [f"'''ab\n{SECRET} c'''", f"'ab''\n{SECRET}'", f"'it\\'s\n{SECRET}'", f'[["ab"],\n["{SECRET}"]]',
     f"['{SECRET}', 'it is cu…", f"'ab'\"'\"'c {SECRET}'"],
)  # fmt: skip
def test_a_password_whose_quotes_or_brackets_remain_open_goes_on(value: str) -> None:
    clean = without_secrets(f"lr=1\npassword={value}\nsize=2")
    assert clean.removesuffix("\nsize=2") in ("lr=1\npassword=redacted", "lr=1\npassword='redacted")


@pytest.mark.parametrize("end", ["\\\n", "\\\r\n"])
def test_a_secret_goes_on_after_a_backslash_at_the_end_of_a_line(end: str) -> None:
    for name in ("password", "HF_TOKEN"):
        assert without_secrets(f"lr=1\n{name}=abcdefgh1{end}{SECRET}\nsize=2") == f"lr=1\n{name}=redacted\nsize=2"
    assert without_secrets("password=abcdefgh1\\") == "password=redacted"


def test_a_password_in_an_address_ends_before_the_next_parameter() -> None:
    assert without_secrets(f"GET /x?password={SECRET}&lr=1 now") == "GET /x?password=redacted&lr=1 now"


def test_an_empty_list_of_secrets_is_no_secret() -> None:
    assert without_secrets("Namespace(api_keys=[], secrets={}, password=None, lr=1)").endswith("lr=1)")


def test_each_secret_of_a_line_is_found() -> None:
    text = f"DB_PASSWORD='{SECRET}' API_KEY=abcdefgh1 HF_TOKEN=ijklmnop2 python train.py"
    assert [text[one.start : one.end] for one in secrets_in(text)] == [SECRET, "abcdefgh1", "ijklmnop2"]


def test_an_ampersand_in_a_password_does_not_end_it() -> None:
    [found] = secrets_in("run DB_PASSWORD=QW00erty&Zx00cvbnMq now")
    assert (found.start, found.end) == (16, 35)


@pytest.mark.parametrize("mark", [*";<>'\"`", "';"])
def test_a_quote_or_a_bracket_inside_a_password_does_not_end_it(mark: str) -> None:
    secret = f"QW00erty{mark}Zx00cvbnMq"
    for before, after in (("", " now"), (" '--x", ", b"), (" (", ")"), (" ", "; ls")):
        assert without_secrets(f"run{before} HF_TOKEN={secret}{after}") == f"run{before} HF_TOKEN=redacted{after}"
        [found] = secrets_in(f"run{before} DB_PASSWORD={secret}{after}")
        assert found.end - found.start == len(secret)
    assert without_secrets(f"run HF_TOKEN='{secret}' now") in (
        "run HF_TOKEN='redacted' now", "run HF_TOKEN='redacted now"
    )  # fmt: skip


@pytest.mark.parametrize("mark", [*"<>'\"", "''", "'\"<"])
def test_a_quote_or_a_bracket_inside_an_address_does_not_end_it(mark: str) -> None:
    for user in ("svc", "o'brien", ""):
        address = f"postgresql://{user}:it{mark}Zq7wLk93xT@db.internal/x"
        assert without_secrets(f"to {address} now") == f"to postgresql://{user}:redacted@db.internal/x now"
    assert without_secrets(f"https://{mark}{SECRET}abc@host") == "https://redacted@host"


def test_what_follows_an_address_stays() -> None:
    for quote in ("'", '"', r"\"", r"\'"):
        listed = (
            f"[{quote}http://host:80{quote},{quote}a@b.c{quote}] ({quote}http://localhost{quote})@x <http://a:80> @"
        )
        assert without_secrets(listed) == listed


def test_what_follows_an_assigned_secret_stays() -> None:
    listed = "['HF_TOKEN=QW00ertyZx','b=1'] \"HF_TOKEN=QW00ertyZx\", token=QW00ertyZx;path=/x <HF_TOKEN=QW00ertyZx> x"
    assert without_secrets(listed) == listed.replace("QW00ertyZx", "redacted")


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_found_in_a_text(form: str) -> None:
    text = FORMS[form]
    wanted = "dXNlcjpwYXNzd29yZA==" if form.startswith("basic") else SECRET
    [found] = {(one.start, one.end) for one in secrets_in(text)}
    assert text[slice(*found)] in (wanted, wanted + "abcdefgh")


@pytest.mark.parametrize(
    "token",
    ["AIza" + LONG[:35], "nvapi-" + LONG, "npm_" + LONG[:36], "pypi-" + LONG,
     *(f"xox{kind}-{LONG}" for kind in "abeprs"),
     "ghp_" + LONG, "gho_" + LONG, "github_pat_" + LONG, "glpat-" + LONG, "hf_" + LONG, "sk-" + LONG, "sk-ant-" + LONG,
     "AKIAABCDEFGHIJKLMNOP", "ASIAABCDEFGHIJKLMNOP", f"eyJ{LONG}.{LONG}.{LONG}",
     "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----"],
)  # fmt: skip
def test_a_token_is_known_by_its_beginning(token: str) -> None:
    text = f"op({token}) of x"
    assert {text[one.start : one.end] for one in secrets_in(text)} == {token}


@pytest.mark.parametrize(
    "text",
    ["void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, x)",
     "tokens_per_s=1234567.89 max_tokens: 8192", "time_to_first_token: 12.3456789ms", "SecretStorage==3.3.3",
     "Basic operations on tensors", "https://pypi.org/simple?page=2", "std::token::Parser::parse_it1",
     "Parser<Token>::parse_it1", "reset('token', 'QW00ertyZx')", "getattr('password', 'QW00ertyZx')",
     "auth=('user', 'name')", "fields = ['password', 'username', 'address1']", "password['policy'] = 'QW00ertyZx'",
     "x['password'] and y['QW00ertyZx']",
     "ProfilerStep#12", "aten::bypass(pass_id=12345678)", "Bearer international", "git@host:path",
     "--max-tokens 12345678", "docker://registry:5000/image@sha256:0123456789abcdef",
     "https://host:8443/path/of/x@v1.2", "the key: value pairs", "an access key of the user, 8 times: q7Wz-2Kd9",
     "cache key: q7Wz-2Kd9_xRt4",
     "HF_TOKEN=$T python train_v2.py --model 'meta-llama/Llama-3'", "Namespace(token=None, model='meta-llama/Llama-3')",
     "def f(hf_token: str, model: str = 'llama-3-8b')", "{'hf_token': None, 'model': 'llama-3-8b'}",
     "hf_token:\nmodel: llama-3-8b", "if not hf_token:\n    x = f(llama_3_8b, 'llama-3-8b')",
     "token = f(a, tensor_arg12)", "config.get('password', default)",
     "DB_PASSWORD 12345678ms", "the password has 8 characters", "password policy", "credentials /run/x/y12",
     "credentials\nlayer_12.weight", "model_pass layer_12.weight", "echo $DB_PASSWORD | python3.11 train",
     "sk-learn-estimator-html-doc-link", "ssh://git@host/path", "nccl:all_reduce token"],
)  # fmt: skip
def test_harmless_texts_contain_no_secrets(text: str) -> None:
    assert [*secrets_in(text)] == []


@pytest.mark.parametrize("encoded", [r"\n", r"\\n", r"\r\n", r"\x00", "%2F", "%20", "%252f", "\x1b[32m", r"\x1b[1;32m"])
@pytest.mark.parametrize("form", [f"hf_{LONG}", f"Bearer {LONG}", f"Authorization: ApiKey {LONG}", f"pwd={LONG}"])
def test_a_secret_after_an_encoded_character_is_found(form: str, encoded: str) -> None:
    left = without_secrets(f"run('login{encoded}{form}')")
    assert LONG not in left
    assert left.startswith(f"run('login{encoded}")


def test_a_secret_in_the_arguments_of_a_call_is_found() -> None:
    assert SECRET not in without_secrets(f"auth=HTTPBasicAuth('user', '{SECRET}')")


def test_a_secret_in_an_encoded_address_is_found() -> None:
    text = f"?next=https%3A%2F%2Fuser%3A{SECRET}%40host%2F"
    assert without_secrets(text) == text.replace(SECRET, "redacted")


def test_a_name_may_be_of_any_length() -> None:
    assert certainty("x" * 1000 + "_password")
    assert not certainty("password" + "x" * 1000)


HOSTILE = ("token=", "auth=", "--token ", "eyJ-", "_eyJ", "eyJaaaaaaaaaaa.", "://a:", "://'", "':", "<",
           "Bearer ", "-----BEGIN ", "a", "x_", " ",
           "\\", 'token=\\"', "sk-", "?key=", "password=$", "token='auth=\"", 'token="|', "hf_", "-a",
           "\\'a=", "\\u0026", "&amp;", "\\u003d", "secret=[", 'secret=["', "secret=['\"", "secret=[]", "://a:b/",
           ":\\/\\/a:", "password=\\$", "password=\\ ", "Authorization: ", "key_1",
           'Cookie: ="', "Cookie: = ", "password='\\'", "password=b'",
           "password=\n ", "  password: (a\n", " password: a\n", "secret=[\n", "secret=[]", "password=a b='\n", "\r",
           "password=a\r", "_1", "password=a HF_TOKEN=",
           "api key ", "api key: ",
           "%26token%3D", "%25", "token>", "<token>a", "token></", "set('token', ", "token\0",
           "password=\\\n", "password=a\\\n", "api_key[0", "\\\n",
           "\\n", "\\npwd=", "%2520", "%25", "\x1b[", "\\x1b[1;", "\\npassword=a",
           "auth=(", "auth=('", "('password', '", "auth['", "auth['a",
           "auth=('aaaaaaaa', ", "secrets['a']=",
           "token: str = ", "token=a or ", "token = 'a' or 'b' = ", "token={", "token={a:", "token=a))", "token: a[",
           "token:\n ", "token: |\n ", "  token:\n- a\n", "token: !a ", "get('token', '", "DB_PASSWORD | ",
           "DB_PASSWORD a1", "&amp;amp;", "&#6", "\\.", "Basic ........")  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_repeated_text_is_searched_in_linear_time(piece: str) -> None:
    """A search that scans the rest of the text from every position would take minutes."""
    text = piece * (100_000 // len(piece))
    assert len([*secrets_in(text)]) <= len(text)


def test_a_value_of_many_names_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value too long to be a token is judged once rather than once for every name inside it."""
    judged: list[str] = []

    def is_none(_: str, value: str) -> bool:
        judged.append(value)
        return False

    monkeypatch.setattr(secrets, "is_secret", is_none)
    assert [*secrets_in("auth=" * 10_000)] == []
    assert sum(map(len, judged)) < 50_000


def test_a_long_signature_is_left_out_to_its_end() -> None:
    (found,) = secrets_in("https://host/blob?sig=" + "a1" * 200)
    assert found.end - found.start == 400
