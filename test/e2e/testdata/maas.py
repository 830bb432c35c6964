# SPDX-License-Identifier: Apache-2.0
"""What people's programs do with models behind a gateway: maas.py ADDRESS KEY OWN TRANSLATED PLAIN.

OWN is a model of the cluster, TRANSLATED one whose provider speaks Anthropic's API, and PLAIN one whose provider speaks OpenAI's.
"""

import sys
import time

import anthropic
import openai

address, key, own, translated, plain = sys.argv[1:]
chat = openai.OpenAI(base_url=address + "/v1", api_key=key, max_retries=0)
talk = anthropic.Anthropic(base_url=address, api_key=key, max_retries=0)

# A model is known to its server by this name, and says so.
servers = {own: own.rsplit("/", 1)[-1], translated: "claude-target", plain: "gpt-target"}
question = "one two three four five"


def said(model, text, prompt, completion):
    want = f"{servers[model]} heard {question}"
    assert text == want, (model, text, want)
    assert (prompt, completion) == (5, 7), (model, prompt, completion)


pieces_apart = {"chat": 0, "talk": 0}


def comes_piece_by_piece(client, times):
    """Seven words, with a pause of a second before the last. On a machine with much to do even these may be seen at once, now and then."""
    assert len(times) >= 7, times
    pieces_apart[client] += times[-1] - times[0] > 0.3


listed = {m.id for m in chat.models.list()}
assert listed == {own, translated, plain}, listed

for model in servers:
    asked = {"model": model, "messages": [{"role": "user", "content": question}], "max_tokens": 20}
    whole = chat.chat.completions.create(**asked)
    said(model, whole.choices[0].message.content, whole.usage.prompt_tokens, whole.usage.completion_tokens)
    words, times, used = [], [], None
    for piece in chat.chat.completions.create(stream=True, stream_options={"include_usage": True}, **asked):
        used = piece.usage or used
        if piece.choices and piece.choices[0].delta.content:
            words.append(piece.choices[0].delta.content)
            times.append(time.monotonic())
    said(model, "".join(words), used.prompt_tokens, used.completion_tokens)
    comes_piece_by_piece("chat", times)

    whole = talk.messages.create(**asked)
    said(model, whole.content[0].text, whole.usage.input_tokens, whole.usage.output_tokens)
    words, times = [], []
    with talk.messages.stream(**asked) as pieces:
        for word in pieces.text_stream:
            words.append(word)
            times.append(time.monotonic())
        used = pieces.get_final_message().usage
    said(model, "".join(words), used.input_tokens, used.output_tokens)
    comes_piece_by_piece("talk", times)

whole = chat.completions.create(model=own, prompt=question)
said(own, whole.choices[0].text, whole.usage.prompt_tokens, whole.usage.completion_tokens)
pieces = list(chat.completions.create(model=own, prompt=question, stream=True))
said(own, "".join(p.choices[0].text for p in pieces if p.choices), 5, 7)

for client, wrong in ((chat, openai.PermissionDeniedError), (talk, anthropic.PermissionDeniedError)):
    stranger = client.with_options(api_key=key[:-1] + ("0" if key[-1] != "0" else "1"))
    try:
        if client is chat:
            stranger.chat.completions.create(model=own, messages=[{"role": "user", "content": question}])
        else:
            stranger.messages.create(model=own, messages=[{"role": "user", "content": question}], max_tokens=20)
        raise AssertionError("somebody without a key of theirs was answered")
    except wrong:
        pass

assert all(pieces_apart.values()), pieces_apart
print("done")
