"""Shapes of conversations for served_templates.py: records as data sets and logs have them.

Each is {"messages", and maybe "tools", "documents", "chat_template_kwargs"}, which kvcal reads, with what a caller adds:
"add_generation_prompt"; "offline" marks what a server's request may not hold and Python calls may. The first 19 are what engines see day by day; the others are the edges of the rules between a
request and a template.
"""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find_train",
            "description": "Finds trains.",
            "parameters": {
                "type": "object",
                "properties": {"origin": {"type": "string", "description": "where from"}, "hour": {"type": "integer"}},
                "required": ["origin"],
            },
        },
    },
    {"type": "function", "function": {"name": "add", "description": "Adds two numbers", "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}}},
]
DOCUMENTS = [{"title": "Zurich", "text": "It is a city.\nIt has trains."}, {"title": "Bern", "text": "It is the capital."}]


def system(content="Be kind.\nBe brief."):
    return {"role": "system", "content": content}


def user(content="How far is it?", **more):
    return {"role": "user", "content": content, **more}


def assistant(content="Not far.", **more):
    return {"role": "assistant", "content": content, **more}


def text(content, **more):
    return {"type": "text", "text": content, **more}


def call(arguments, identifier="abcdefghi", name="find_train"):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def answer(content="{\"trains\": [7, 8]}", **more):
    return {"role": "tool", "tool_call_id": "abcdefghi", "content": content, **more}


AS_TEXT = "{\"origin\": \"Zürich\", \"hour\": 7}"
AS_OBJECT = {"origin": "Zürich", "hour": 7}
TURNS = [user("And back?"), assistant("The same.")]

USUAL = {
    "plain": {"messages": [system(), user(), assistant()]},
    "no_system": {"messages": [user(), assistant()]},
    "turns": {"messages": [system(), user(), assistant(), *TURNS, user(" Thanks! \n"), assistant("\nBye.\n")]},
    "one_part": {"messages": [system([text("Be kind.")]), user([text("How far is it?")]), assistant([text("Not far.")])]},
    "parts": {"messages": [user([text("How far is it?"), text(" From here. ")]), assistant([text("Not"), text("far.")])]},
    "calls_as_text": {"messages": [user(), assistant("I look.", tool_calls=[call(AS_TEXT)])]},
    "calls_as_object": {"messages": [user(), assistant("I look.", tool_calls=[call(AS_OBJECT)])]},
    "tool_answers": {"messages": [user(), assistant("", tool_calls=[call(AS_TEXT)]), answer(name="find_train"), assistant("At 7."), *TURNS]},
    "tools": {"messages": [system(), user()], "tools": TOOLS, "add_generation_prompt": True},
    "documents": {"messages": [user(), assistant()], "documents": DOCUMENTS},
    "developer": {"messages": [{"role": "developer", "content": "Answer in rhymes."}, user(), assistant()]},
    "reasoning": {"messages": [user(), assistant(reasoning_content="It is 3 km.\n"), *TURNS[:1], assistant("The same.", reasoning_content="As before.")]},
    "null_content": {"messages": [user(), assistant(None, tool_calls=[call(AS_TEXT)]), answer()]},
    "empty_content": {"messages": [user(), assistant("", tool_calls=[call(AS_TEXT)]), answer()]},
    "prompt": {"messages": [system(), user(), assistant(), user("And back?")], "add_generation_prompt": True},
    "no_thinking": {"messages": [user()], "chat_template_kwargs": {"enable_thinking": False}, "add_generation_prompt": True},
    "same_roles": {"messages": [user(), user("Well?"), assistant(), assistant("Really.")]},
    "unicode": {"messages": [system("Antworte höflich – „gern“."), user("\u3000你好，世界！\u00a0👩‍👩‍👧 مرحبا e\u0301"), assistant("𝒪k ﬁn ß İ Σ\u2028line\u0085next")]},
    "names": {"messages": [user(name="ann"), assistant(name="bot")]},
}

EDGES = {
    "whole": {"messages": [system(), user(), assistant(None, tool_calls=[call(AS_TEXT)], reasoning_content="I look."), answer(), assistant("At 7.")], "tools": TOOLS},
    "many_calls": {"messages": [user(), assistant(None, tool_calls=[call(AS_TEXT), call("{}", "123456789", "add")]), answer(), {**answer("12"), "tool_call_id": "123456789"}], "tools": TOOLS},
    "tool_parts": {"messages": [user(), assistant("", tool_calls=[call(AS_TEXT)]), answer([text("at 7"), text("at 8")])]},
    "empty_calls": {"messages": [user(), assistant(tool_calls=[])]},
    "null_calls": {"messages": [user(), assistant(tool_calls=None, reasoning_content=None)]},
    "no_arguments": {"messages": [user(), assistant("", tool_calls=[call("")])]},
    "list_arguments": {"messages": [user(), assistant("", tool_calls=[call("[1, 2]")])]},
    "no_content": {"messages": [user(), {"role": "assistant", "tool_calls": [call(AS_TEXT)]}]},
    "reasoning_key": {"messages": [user(), assistant(reasoning="It is 3 km.")]},
    "thinking_part": {"messages": [user(), assistant([{"type": "thinking", "thinking": "3 km"}, text("Not far.")])]},
    "responses_parts": {"messages": [user([{"type": "input_text", "text": "How far?"}]), assistant([{"type": "output_text", "text": "Not far."}])], "offline": True},
    "part_keys": {"messages": [user([text("How far?", cache_control={"type": "ephemeral"})]), assistant()]},
    "empty_parts": {"messages": [user([]), assistant()]},
    "other_keys": {"messages": [user(weight=1, thinking="x", tool_calls=[call(AS_TEXT)]), assistant(thinking="hm", prefix=True)]},
    "late_system": {"messages": [user(), assistant(), system("New rules."), *TURNS]},
    "system_and_developer": {"messages": [system(), {"role": "developer", "content": [text("Answer"), text("in rhymes.")]}, user(), assistant()]},
    "prompt_and_thinking": {"messages": [user()], "chat_template_kwargs": {"enable_thinking": True, "thinking": True}, "add_generation_prompt": True},
    "bare_tool": {"messages": [user()], "tools": [{"type": "function", "function": {"name": "now"}}]},
    "tool_keys": {"messages": [user()], "tools": [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True, "return": {"type": "array"}}}]},
}

SHAPES = {**USUAL, **EDGES}
